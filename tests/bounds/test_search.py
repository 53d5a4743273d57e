"""Bounds of derivatives by jets beside a search, in 80 digits, over many intervals; planted faults show.

What is searched are finite differences of the log density as textbooks give it, and none of our formulas.
"""

from functools import cache
from typing import NamedTuple

import mpmath
import numpy as np
import pytest
from mpmath import mp

from . import row_functions as forms
from .row_functions import largest_derivatives

DIGITS, STEP = 80, mpmath.mpf("1e-16")
# Of third differences of numbers near one, and less than all derivatives that are compared.
NOISE = 1e-26
FAR = 80.0  # where the search of an infinite interval ends
# By how much bounds are too large where a derivative is the small difference of two numbers near one.
CANCELS = {"complementary log-log": 2e-6}


class Case(NamedTuple):
    """A log density f(eta), the data of its row, and where and how wide its features are."""

    density: object
    data: tuple
    center: float = 0.0
    unit: float = 1.0


def wide(rng):
    return float(10 ** rng.uniform(-3, 3))


def bernoulli(rng):
    y = int(rng.integers(2))
    return Case(lambda eta: -mp.log1p(mp.exp(-eta if y else eta)), (y,))


def binomial(rng):
    n = int(rng.integers(1, 50))
    y = int(rng.integers(n + 1))
    return Case(lambda eta: y * eta - n * mp.log1p(mp.exp(eta)), (y, n))


def of_normal(rng):
    sigma = wide(rng)
    return Case(lambda eta: -((eta / mpmath.mpf(sigma)) ** 2) / 2, (sigma**-2,), 0.0, sigma)


def of_student(rng):
    nu, sigma = float(rng.uniform(0.5, 30)), wide(rng)
    return Case(
        lambda eta: -(mpmath.mpf(nu) + 1) / 2 * mp.log1p((eta / sigma) ** 2 / nu), (nu, sigma), 0.0, sigma
    )


def of_poisson(rng):
    w = wide(rng)
    y = int(rng.poisson(3))
    return Case(lambda eta: y * eta - w * mp.exp(eta), (y, w), -np.log(w))


def of_probit(rng):
    y, scale = int(rng.integers(2)), float(rng.uniform(0.3, 3))
    return Case(lambda eta: mp.log(mp.ncdf((2 * y - 1) * scale * eta)), (y, scale), 0.0, 1 / scale)


def of_cloglog(rng):
    y = int(rng.integers(2))
    return Case(lambda eta: mp.log(-mp.expm1(-mp.exp(eta))) if y else -mp.exp(eta), (y,))


def of_negative_binomial(rng):
    y, alpha, w = int(rng.poisson(3)), wide(rng), wide(rng)

    def density(eta):
        mean = w * mp.exp(eta)
        return y * (mp.log(w) + eta) - (y + mpmath.mpf(alpha)) * mp.log(mean + alpha)

    return Case(density, (y, alpha, np.log(alpha / w)), np.log(alpha / w))


def of_gamma(rng):
    y, alpha = wide(rng), float(rng.uniform(0.3, 9))
    return Case(
        lambda eta: -alpha * eta - alpha * mpmath.mpf(y) * mp.exp(-eta), (y, alpha), np.log(alpha * y)
    )


CASES = {
    "binary logistic": (forms.logistic, bernoulli),
    "logistic": (forms.binomial, binomial),
    "normal": (forms.normal, of_normal),
    "Student's t": (forms.student, of_student),
    "Poisson": (forms.poisson, of_poisson),
    "probit": (forms.probit, of_probit),
    "complementary log-log": (forms.cloglog, of_cloglog),
    "negative binomial": (forms.negative_binomial, of_negative_binomial),
    "gamma": (forms.gamma, of_gamma),
}


def intervals(rng):
    """Low and high ends in units from the center."""
    for _ in range(8):  # narrow
        yield rng.uniform(-12, 12) + np.array([0.0, 10 ** rng.uniform(-6, -2)])
    for _ in range(8):  # near the peaks
        yield np.sort(rng.uniform(-4, 4, size=2))
    for _ in range(5):  # wide
        yield np.sort(rng.uniform(-20, 20, size=2))
    for sign in (-1, 1):  # tails
        for _ in range(4):
            yield sign * rng.uniform(6, 50) + np.array([0.0, 10 ** rng.uniform(-3, 1)])
        yield np.sort([sign * 60.0, rng.uniform(-5, 5)])
    yield np.array([-np.inf, np.inf])
    yield np.full(2, rng.uniform(-3, 3))


def derivative(case, z, order):
    """Size of f^(order + 1), with respect to z = (eta - center) / unit."""

    def f(steps):
        return case.density(case.center + case.unit * (mpmath.mpf(z) + steps * STEP))

    if order == 1:
        return float(abs(f(1) - 2 * f(0) + f(-1)) / STEP**2)
    return float(abs(f(2) - 2 * f(1) + 2 * f(-1) - f(-2)) / (2 * STEP**3))


def largest(case, low, high, order):
    """By a grid and a golden section search about its best point."""
    grid = np.union1d(np.linspace(low, high, 17), np.clip(np.linspace(-6, 6, 31), low, high))
    sizes = [derivative(case, z, order) for z in grid]
    best = int(np.argmax(sizes))
    a, b = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    ratio = (np.sqrt(5) - 1) / 2
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    at_c, at_d = derivative(case, c, order), derivative(case, d, order)
    for _ in range(12):
        if at_c > at_d:
            b, d, at_d = d, c, at_c
            c = b - ratio * (b - a)
            at_c = derivative(case, c, order)
        else:
            a, c, at_c = c, d, at_d
            d = a + ratio * (b - a)
            at_d = derivative(case, d, order)
    return max(*sizes, at_c, at_d)


@cache
def searched(name, order):
    """Data, low and high ends, units, and largest derivatives per unit, for many intervals."""
    rng = np.random.default_rng([order, *map(ord, name)])
    found = []
    with mp.workdps(DIGITS):
        for low, high in intervals(rng):
            case = CASES[name][1](rng)
            size = largest(case, max(low, -FAR), min(high, FAR), order)
            ends = case.center + case.unit * np.array([low, high])
            found.append((np.array(case.data, float), *ends, case.unit, size))
    return tuple(np.array(part) for part in zip(*found, strict=True))


def allowed(widths):
    """How many times as large as the largest derivative a bound may be: on long intervals, any number."""
    return np.select([widths <= 1.0, widths <= 4.0], [1.02, 1.1], np.inf)


@cache
def bounded(name, order):
    """Bounds of the derivatives per unit, for all the intervals."""
    data, low, high, unit, _ = searched(name, order)
    return largest_derivatives(CASES[name][0], data.T, low, high, order) * unit ** (order + 1)


def violations(name, order, bound):
    """How many bounds were too small, and how many too large."""
    _, low, high, unit, exact = searched(name, order)
    too_small = exact > bound * (1 + 1e-9) + NOISE
    times = allowed((high - low) / unit)
    largest = exact * np.where(np.isfinite(times), times, 1.0) + CANCELS.get(name, NOISE)
    too_large = np.isfinite(times) & (bound > largest)
    return too_small.sum(), too_large.sum()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.covering(4)
def test_bounds_are_the_largest_that_is_found(name, order):
    assert violations(name, order, bounded(name, order)) == (0, 0)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.covering(4)
def test_planted_faults_are_noticed(name, order):
    bound = bounded(name, order)
    data, low, high, unit, _ = searched(name, order)
    if (name, order) == ("normal", 2):
        assert violations(name, order, bound + 1e-20)[1] > 0  # of nothing
        return
    assert violations(name, order, bound * (1 - 2e-3))[0] > 10
    assert violations(name, order, bound * 1.03)[1] > 8
    if name != "normal":
        two = np.isfinite(low)
        ends = [largest_derivatives(CASES[name][0], data[two].T, x[two], x[two], order) for x in (low, high)]
        for choose, least in ((np.minimum, 5), (np.maximum, 1)):
            monotone = name in ("Poisson", "gamma") or (name, order) == ("probit", 1)
            if choose is np.minimum or not monotone:
                wrong = bound.copy()
                wrong[two] = choose(*ends) * unit[two] ** (order + 1)
                assert violations(name, order, wrong)[0] > least


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_bounds_grow_with_the_interval_up_to_infinity(name, order):
    """Up to what is gained by cutting intervals into parts."""
    make, draw = CASES[name]
    rng = np.random.default_rng(1)
    for _ in range(3):
        case, middle = draw(rng), 4.0 * rng.normal()
        half = np.array([0.0, 1e-3, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 1e3, np.inf])
        low, high = (case.center + case.unit * (middle + sign * half) for sign in (-1, 1))
        bounds = largest_derivatives(make, case.data, low, high, order)
        assert np.all(bounds >= 0.0)
        assert np.all(bounds[1:] >= bounds[:-1] * (1 - 1e-3))
        # Where a derivative that grows without bound is multiplied by one that vanishes, nothing is known.
        bounded = name in ("binary logistic", "logistic", "negative binomial", "normal", "probit")
        assert np.isfinite(bounds[-1]) == bounded


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_bounds_far_out_are_numbers(name, order):
    make, draw = CASES[name]
    case = draw(np.random.default_rng(2))
    for middle in (-1e200, -1e5, -800.0, 800.0, 1e5, 1e200):
        (bound,) = largest_derivatives(make, case.data, [middle - 1], [middle + 1], order)
        assert bound >= 0.0


def test_known_largest_derivatives():
    def of_the_line(make, columns, order):
        return largest_derivatives(make, columns, [-np.inf], [np.inf], order)[0]

    np.testing.assert_allclose(of_the_line(forms.logistic, [1.0], 1), 1 / 4)
    np.testing.assert_allclose(of_the_line(forms.binomial, [5.0, 7.0], 2), 7 / (6 * 3**0.5))
    np.testing.assert_allclose(of_the_line(forms.negative_binomial, [3.0, 2.0, 7.0], 2), 5 / (6 * 3**0.5))
    assert of_the_line(forms.normal, [2.0], 2) == 0.0
    assert of_the_line(forms.laplace, [1.0, 2.0], 1) == np.inf
    assert of_the_line(forms.huber, [1.0, 2.0], 1) == np.inf


def test_far_tail_of_probit_is_close_and_above():
    t = -np.linspace(25.01, 300.0, 50)
    bound = largest_derivatives(forms.probit, [1.0], t, t, 2)
    leading = 2 / -(t**3)
    assert np.all(bound >= leading * (1 - 12 / t**2))  # the first two terms of the asymptotic series
    near = t > -50.0
    assert np.all(bound[near] <= leading[near] * 1.02)
