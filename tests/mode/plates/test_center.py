"""The center of a plate against a generic optimiser; and derivatives of what it maximises."""

import numpy as np
import pytest
from scipy import optimize

from pymc_austerity.kernels.plates.coordinates import quadratic
from pymc_austerity.kernels.plates.slopes import quadratic_with_slopes
from pymc_austerity.mode.plates.center import find_center, moments
from pymc_austerity.mode.plates.group_means import locations, mean_shifts
from pymc_austerity.mode.plates.slope_levels import given_theta
from pymc_austerity.mode.plates.theta_density import (
    marginal,
    quadratic_derivatives,
    quadratic_derivatives_with_slopes,
)
from tests.kernels.plates.cases import case_of

SPELLINGS = ("centered", "non-centered")


def sums_of(likelihood, spelling="centered"):
    return case_of(likelihood, spelling, 400).arrays.sums


def near(sums, seed):
    """d, log tau^2 and log lambda."""
    rng = np.random.default_rng(seed)
    return rng.normal(0.0, 0.2, len(sums.center)), rng.normal(-0.5, 0.7), rng.normal(0.0, 0.5)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "normal"])
@pytest.mark.covering(2)
def test_quadratic_is_that_of_the_kernels(likelihood):
    sums = sums_of(likelihood)
    n = len(sums.slopes)
    for seed in range(4):
        d, log_square, log_precision = near(sums, seed)
        value, _, _ = quadratic_derivatives(sums, d, log_square, log_precision)
        kernel = quadratic(sums, d, np.exp(0.5 * log_square), log_precision, *np.empty((3, n)))
        assert value == pytest.approx(kernel, rel=1e-11, abs=1e-9)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "normal"])
def test_derivatives_of_the_quadratic(likelihood):
    """Central differences of the value, and of the gradient."""
    sums, h = sums_of(likelihood), 1e-5

    def at(v):
        return quadratic_derivatives(sums, v[:-2], v[-2], v[-1])

    d, log_square, log_precision = near(sums, 5)
    start = np.r_[d, log_square, log_precision]
    _, gradient, hessian = at(start)
    steps = h * np.eye(len(start))
    slopes = [(at(start + s)[0] - at(start - s)[0]) / (2 * h) for s in steps]
    curvature = [(at(start + s)[1] - at(start - s)[1]) / (2 * h) for s in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-5 * np.abs(gradient).max())
    np.testing.assert_allclose(hessian, curvature, rtol=1e-6, atol=1e-7 * np.abs(hessian).max())
    np.testing.assert_array_equal(hessian, hessian.T)


@pytest.mark.parametrize("likelihood", ["bernoulli", "normal"])
@pytest.mark.covering(1)
def test_quadratic_with_slopes(likelihood):
    """That of the kernels; and central differences, for effects that are correlated, too."""
    sums, rng, h = sums_of(likelihood, "two slopes"), np.random.default_rng(7), 1e-5
    n, q, entries = len(sums.center), 3, np.tril_indices(3)

    def factor_of(v):
        factor = np.zeros((q, q))
        factor[entries] = v[n:-1]
        return factor

    def at(v):
        return quadratic_derivatives_with_slopes(sums, v[:n], factor_of(v), v[-1])

    start = np.r_[rng.normal(0.0, 0.2, n), rng.normal(0.3, 0.3, 6), rng.normal(0.0, 0.5)]
    value, gradient, hessian = at(start)
    room = *np.empty((2, len(sums.slopes))), np.empty(q * len(sums.slopes))
    kernel = quadratic_with_slopes(sums, start[:n], factor_of(start), start[-1], *room)
    assert value == pytest.approx(kernel, rel=1e-11, abs=1e-9)
    means, scales = given_theta(sums, locations(sums, start[:n]), factor_of(start), np.exp(start[-1]))
    np.testing.assert_allclose(means, room[1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(scales.ravel(), room[2], rtol=1e-9, atol=1e-12)
    steps = h * np.eye(len(start))
    slopes = [(at(start + s)[0] - at(start - s)[0]) / (2 * h) for s in steps]
    curvature = [(at(start + s)[1] - at(start - s)[1]) / (2 * h) for s in steps]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-5 * np.abs(gradient).max())
    np.testing.assert_allclose(hessian, curvature, rtol=1e-6, atol=1e-6 * np.abs(hessian).max())


@pytest.mark.parametrize("scale", [1e30, 1e200])
def test_slopes_so_large_that_one_is_lost_beside_them(scale):
    """I + C' b C is then singular as numbers are written, or overflows, and the search turns back."""
    sums, factor = sums_of("bernoulli", "two slopes"), np.zeros((3, 3))
    factor[1, :2] = scale
    value, _, _ = quadratic_derivatives_with_slopes(sums, np.zeros(len(sums.center)), factor, 0.0)
    assert not np.isfinite(value)


def test_a_product_of_many_factors_does_not_overflow():
    """1 + b tau^2 of 30 groups is 1e360."""
    sums = sums_of("bernoulli")
    n = len(sums.slopes)
    large = sums._replace(curvatures=np.full(n, 1e12), slopes=np.zeros(n), offsets=np.zeros(n))
    found = quadratic(large, np.zeros(len(sums.center)), 1.0, 0.0, *np.empty((3, n)))
    assert found == pytest.approx(-0.5 * n * np.log(1e12), rel=1e-9)


@pytest.mark.parametrize("spelling", [*SPELLINGS, "two slopes"])
def test_marginal_is_the_integral_of_the_joint_density(spelling):
    """By the model's own density: theta at its mode, effects integrated by Laplace's approximation."""
    case = case_of("bernoulli", spelling, 400)
    shared, sums = case.survey.shared, case.arrays.sums
    rng, found = np.random.default_rng(6), []
    first, _ = case.draw(rng, 0.5)
    for theta in (first, case.draw(rng, 1.0)[0]):
        prior = case.target.global_log_ratio(theta, first, case.args)
        value = marginal(shared(theta), sums, theta, case.survey.excess(case.survey.normal_eps())).value
        found.append(value - prior - case.quadratic(theta))
    assert found[0] == pytest.approx(found[1], abs=1e-8)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "normal"])
@pytest.mark.covering(2)
def test_mode_of_effects_given_theta(likelihood):
    """A generic optimiser finds the same effects, at the scale of the center."""
    case = case_of(likelihood, "centered", 400)
    center, _ = find_center(case.survey)
    n = len(center.effects)
    value, at = case.survey.expand(center)
    d, means, _ = moments(case.survey.shared, at, center.theta)
    effects = center.effects + means - mean_shifts(at, d)
    joint = optimize.minimize(lambda u: -case.log_density(center.theta, u), np.zeros(n), method="L-BFGS-B")
    joint = optimize.minimize(lambda u: -case.log_density(center.theta, u), joint.x, method="BFGS")
    scales = case.state(center.theta, np.zeros(n)).scales
    assert np.abs((effects - joint.x) / scales).max() < 0.06
    assert value.curvatures.max() < 0.0


def test_mode_of_theta():
    """A generic optimiser of the Laplace marginal, whose effects are searched for at every theta."""
    case = case_of("poisson", "centered", 400)
    n = len(case.arrays.sums.slopes)

    def conditional(theta):
        u = np.zeros(n)
        for _ in range(30):
            _, sums = case.survey.expand(case.fit.center._replace(theta=theta, effects=u))
            _, means, scales = moments(case.survey.shared, sums, theta)
            u = u + means
            if np.abs(means / scales).max() < 1e-6:
                break
        return u, scales

    def objective(theta):
        u, scales = conditional(theta)
        return -case.log_density(theta, u) - np.log(scales).sum()

    center, maximum = find_center(case.survey)
    # The curvature of the likelihood moves with theta, which the center leaves out.
    found = optimize.minimize(objective, center.theta, method="Nelder-Mead", options={"maxiter": 250})
    factor = maximum.slopes @ np.linalg.cholesky(np.linalg.inv(maximum.precision))
    assert np.linalg.norm(np.linalg.solve(factor, found.x - center.theta)) < 1.0


@pytest.mark.parametrize("spelling", ["centered", "crossed", "free student", "two slopes"])
@pytest.mark.covering(2)
def test_maximum_of_the_marginal_has_no_slope(spelling):
    """In coordinates zeta; the precision is that of differences of the density."""
    case = case_of("bernoulli", spelling, 400)
    eps = case.survey.normal_eps()
    maximum, excess = (
        case.survey.maximum(case.arrays.sums, case.fit.center.theta, eps),
        case.survey.excess(eps),
    )

    def density(zeta):
        theta = maximum.map.to_theta(zeta, case.survey.shared.inner_scales(zeta) ** 2)
        at = case.survey.shared(theta)
        return maximum.map.density(marginal(at, case.arrays.sums, theta, excess), zeta, at)

    found, h = density(maximum.zeta), 1e-5
    sd = np.sqrt(np.diag(np.linalg.inv(maximum.precision)))
    assert np.abs(found.gradient * sd).max() < 0.01
    steps = h * np.eye(len(sd))
    for at in (maximum.zeta, maximum.zeta + 0.3 * sd):
        own = density(at)
        slopes = [(density(at + s).value - density(at - s).value) / (2 * h) for s in steps]
        curvature = [(density(at + s).gradient - density(at - s).gradient) / (2 * h) for s in steps]
        np.testing.assert_allclose(own.gradient, slopes, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(own.hessian, curvature, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(maximum.precision, -found.hessian, rtol=1e-3, atol=0.05)


def test_jacobian_of_zeta():
    case = case_of("bernoulli", "crossed", 400)
    own, shared, zeta, h = case.fit.map, case.survey.shared, case.fit.mean + 0.1, 1e-6

    def theta_at(zeta):
        return own.to_theta(zeta, shared.inner_scales(zeta) ** 2)

    slopes = [(theta_at(zeta + s) - theta_at(zeta - s)) / (2 * h) for s in h * np.eye(len(zeta))]
    np.testing.assert_allclose(own.slopes_at(zeta, shared(theta_at(zeta))), np.transpose(slopes), atol=1e-7)
