"""The maximum is found where there is one, and the direction is named where there is none."""

import warnings

import numpy as np
import pytest
from scipy.special import expit, xlogy

from pymc_austerity.mode.newton import NoMaximumError, flat_direction, maximise

RNG = np.random.default_rng(8)


def quadratic(mode, precision):
    def density(q):
        d = q - mode
        return -0.5 * d @ precision @ d, -precision @ d, -precision

    return density


def logistic(x, y, shrinkage=0.0):
    """Log likelihood of a logistic regression, and a normal prior."""

    def density(q):
        eta = x @ q
        p = expit(eta)
        value = y @ eta - np.logaddexp(0.0, eta).sum() - 0.5 * shrinkage * q @ q
        hessian = -(x.T * (p * (1.0 - p))) @ x - shrinkage * np.eye(len(q))
        return value, x.T @ (y - p) - shrinkage * q, hessian

    return density


def rotation(n):
    return np.linalg.qr(RNG.normal(size=(n, n)))[0]


def angle(a, b):
    """Between two lines, as a sine."""
    cosine = abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b)
    return np.sqrt(max(0.0, 1.0 - cosine**2))


@pytest.mark.parametrize("condition", [1.0, 1e4, 1e8])
def test_quadratic(condition):
    n = 6
    turn = rotation(n)
    precision = turn @ np.diag(np.geomspace(1.0, condition, n)) @ turn.T
    precision = (precision + precision.T) / 2.0
    mode = RNG.normal(size=n)
    start = mode + 1.0
    found = maximise(quadratic(mode, precision), start)
    np.testing.assert_array_equal(start, mode + 1.0)  # it is kept
    error = found.mode - mode
    assert np.sqrt(error @ precision @ error) < 1e-6
    assert found.gradient_norm < 1e-6
    np.testing.assert_array_equal(found.precision, precision)
    assert found.passes < 30
    log_mass = found.value - 0.5 * np.log(np.linalg.eigvalsh(precision)).sum()
    np.testing.assert_allclose(found.log_mass, log_mass, rtol=1e-6, atol=1e-9)


def test_units():
    """Coordinates in very different units are as good as any."""
    unit = np.array([1e-6, 1.0, 1e6])
    root = RNG.normal(size=(3, 3))
    precision = (root @ root.T + np.eye(3)) / np.outer(unit, unit)
    found = maximise(quadratic(unit, precision), np.zeros(3))
    np.testing.assert_allclose(found.mode, unit, rtol=1e-6)


@pytest.mark.parametrize("start", [0.0, 1.0, -4.0, 15.0])
def test_logistic(start):
    x = np.c_[np.ones(500), RNG.normal(size=(500, 2))]
    y = (RNG.random(500) < expit(x @ [0.3, 1.0, -1.0])).astype(float)
    density = logistic(x, y, 0.01)
    found = maximise(density, np.full(3, start))
    _, gradient, hessian = density(found.q)
    newton = np.linalg.solve(-hessian, gradient)
    assert np.sqrt(gradient @ newton) < 1e-5
    assert np.linalg.norm(newton) < 1e-6
    np.testing.assert_allclose(found.precision, -hessian)
    assert found.passes < 40


@pytest.mark.parametrize("start", [[0.0, 0.5], [3.0, -2.0], [0.01, 0.0]])
def test_start_that_is_not_concave(start):
    """Two modes at (+-2, 0): each start ends at one of them, through a region of positive curvature."""

    def density(q):
        a, b = q
        value = -((a**2 - 4.0) ** 2) / 4.0 - b**2
        gradient = np.array([-(a**2 - 4.0) * a, -2.0 * b])
        return value, gradient, np.diag([4.0 - 3.0 * a**2, -2.0])

    found = maximise(density, np.array(start))
    np.testing.assert_allclose(np.abs(found.mode), [2.0, 0.0], atol=1e-6)


def test_saddle_is_no_maximum():
    """A start without a slope is left along the curvature."""

    def density(q):
        a = q[0]
        return -(a**4) / 4.0 + a**2 / 2.0, np.array([a - a**3]), np.array([[1.0 - 3.0 * a**2]])

    np.testing.assert_allclose(np.abs(maximise(density, np.zeros(1)).mode), 1.0, atol=1e-6)


def test_values_that_are_not_finite_on_the_way():
    """log q is not defined for q < 0, where a long step may lead."""

    def density(q):
        if q[0] <= 0.0:
            return -np.inf, np.full(1, np.nan), np.full((1, 1), np.nan)
        value = float(xlogy(50.0, q[0]) - 5.0 * q[0])
        return value, 50.0 / q - 5.0, np.diag(-50.0 / q**2)

    np.testing.assert_allclose(maximise(density, np.array([60.0])).mode, 10.0, atol=1e-5)


def test_a_density_that_overflows_on_the_way():
    """Far out rounding may leave plus infinity, which is no higher place."""

    def density(q):
        if q[0] > 3.0:
            return np.inf, np.full(1, np.nan), np.full((1, 1), np.nan)
        return (
            float(-np.log1p(q[0] ** 2)),
            -2.0 * q / (1.0 + q**2),
            np.array([[-2.0 * (1.0 - q[0] ** 2) / (1.0 + q[0] ** 2) ** 2]]),
        )

    np.testing.assert_allclose(maximise(density, np.full(1, -0.99)).mode, 0.0, atol=1e-5)


def steep(q):
    """It falls to the left so steeply that a first step ends where its square cannot be written."""
    weight = np.exp(-q)
    return float(-q.sum() - weight.sum()), weight - 1.0, -np.diag(weight)


def test_numbers_that_overflow_on_the_way():
    """No step is taken there, and no warning of NumPy is seen."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = maximise(steep, np.full(3, 10.0))
    np.testing.assert_allclose(found.mode, 0.0, atol=1e-5)


def test_without_guards_numbers_overflow():
    """The planted fault."""
    with pytest.warns(RuntimeWarning, match="overflow"):
        maximise.__wrapped__(steep, np.full(3, 10.0))


def test_curvature_that_underflows_on_the_way():
    """Far out the density falls in a straight line, but for 1e-290."""

    def straight(q):
        far = abs(q[0] - 5.0) < 4.0
        curvature = 1e-290 if far else 1.0
        gradient = np.array([5.0 - q[0], -1e-3])
        return -0.5 * (q[0] - 5.0) ** 2 - 1e-3 * q[1], gradient, -np.diag([1.0, curvature])

    with pytest.raises(NoMaximumError) as error:  # it rises for ever along the second
        maximise(straight, np.zeros(2))
    assert np.all(np.isfinite(error.value.q))
    assert abs(error.value.q[0] - 5.0) < 1e-3


def test_start_where_the_curvature_is_far_larger():
    """The precision of log sigma is a million times that at the mode; the mode is found nevertheless."""
    y = RNG.normal(size=1000)

    def density(q):
        residual = y - q[0]
        weight = np.exp(-2.0 * q[1])
        total, squares = weight * residual.sum(), weight * residual @ residual
        hessian = np.array([[-1000.0 * weight, -2.0 * total], [-2.0 * total, -2.0 * squares]])
        return -1000.0 * q[1] - 0.5 * squares, np.array([total, squares - 1000.0]), hessian

    found = maximise(density, np.array([0.0, -8.0]))
    np.testing.assert_allclose(found.mode, [y.mean(), np.log(y.std())], atol=1e-4)


def test_separated_responses():
    """The likelihood rises for ever along the direction that separates."""
    x = np.c_[np.ones(200), RNG.normal(size=(200, 2))]
    along = np.array([0.0, 3.0, 4.0]) / 5.0
    x = x[np.abs(x @ along) > 0.3]
    with pytest.raises(NoMaximumError) as error:
        maximise(logistic(x, (x @ along > 0.0).astype(float)), np.zeros(3))
    assert error.value.direction.shape == (3,)
    assert angle(error.value.direction, along) < 0.3
    assert error.value.passes > 1


@pytest.mark.parametrize("scale", [1.0, 1e-5])
def test_flat_direction(scale):
    """Two coefficients of which only a sum counts."""
    x = RNG.normal(size=(300, 2))
    x = np.c_[x, x[:, 1] * scale]
    y = (RNG.random(300) < expit(x[:, 0])).astype(float)
    with pytest.raises(NoMaximumError, match="flat") as error:
        maximise(logistic(x, y), np.array([0.1, -0.1, 0.2]))
    assert angle(error.value.direction / [1.0, 1.0, 1.0 / scale], np.array([0.0, 1.0, -1.0])) < 1e-3


@pytest.mark.parametrize("part", [0, 1, 2])
def test_start_that_is_not_finite(part):
    def density(q):
        result = [0.0, np.zeros(2), -np.eye(2)]
        result[part] = result[part] + np.nan
        return tuple(result)

    with pytest.raises(NoMaximumError, match="not finite at the start") as error:
        maximise(density, np.zeros(2))
    np.testing.assert_array_equal(error.value.direction, np.zeros(2))
    assert error.value.passes == 1


def test_passes_are_counted():
    calls = []
    plain = quadratic(np.ones(2), np.diag([1.0, 3.0]))

    def density(q):
        calls.append(q.copy())
        return plain(q)

    assert maximise(density, np.zeros(2)).passes == len(calls)


def test_flat_direction_of_a_matrix():
    assert flat_direction(np.diag([1e-12, 1.0, 1e12])) is None
    np.testing.assert_array_equal(flat_direction(np.diag([1.0, 0.0])), [0.0, 1.0])
    negative = flat_direction(np.array([[1.0, 2.0], [2.0, 1.0]]))
    assert angle(negative, np.array([1.0, -1.0])) < 1e-12


def test_where_the_search_ends_on_a_plane_it_says_so():
    """x - y^2 / 2 rises for ever along x, without curvature."""

    def density(q):
        return q[0] - 0.5 * q[1] ** 2, np.array([1.0, -q[1]]), np.diag([0.0, -1.0])

    with pytest.raises(NoMaximumError, match="no curvature") as caught:
        maximise(density, np.array([0.0, 1.0]))
    assert abs(caught.value.direction[0]) > 10 * abs(caught.value.direction[1])
