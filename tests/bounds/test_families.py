"""Every log ratio is within the interval of its family, for made-up designs; planted faults are noticed."""

import numpy as np
import pytest
from scipy.special import expit, log_expit, log_ndtr

from pymc_austerity.bounds.families import probit
from pymc_austerity.bounds.log_ratio_range import certified_interval, certified_range, certify

from .families import N, designs, predictor, states


class Logistic:
    name = "binary logistic"

    def __init__(self, rng):
        self.y = rng.integers(0, 2, N).astype(float)

    def f(self, eta):
        return np.where(self.y == 1, log_expit(eta), log_expit(-eta))

    def slope(self, eta, i, point):
        return self.y[i] - expit(eta)


class AllOnes(Logistic):
    def __init__(self, rng):
        self.y = np.ones(N)


class Binomial:
    name = "logistic"

    def __init__(self, rng):
        self.n = rng.integers(1, 30, N)
        self.y = rng.binomial(self.n, 0.4)

    def f(self, eta):
        return self.y * log_expit(eta) + (self.n - self.y) * log_expit(-eta)

    def slope(self, eta, i, point):
        return self.y[i] - self.n[i] * expit(eta)


class Normal:
    name = "normal"

    def __init__(self, rng):
        self.s = rng.gamma(2.0, size=N)

    def f(self, eta):
        return -self.s * eta**2 / 2

    def slope(self, eta, i, point):
        return -self.s[i] * eta


class Laplace:
    name = "Laplace"

    def __init__(self, rng):
        self.left, self.right = rng.gamma(2.0, size=(2, N))

    def f(self, eta):
        return np.where(eta > 0, -self.right * eta, self.left * eta)

    def slope(self, eta, i, point):
        return np.where(eta > 0, -self.right[i], np.where(eta < 0, self.left[i], 0.0))


class Huber:
    name = "Huber"

    def __init__(self, rng):
        self.s, self.k = rng.gamma(2.0, size=(2, N))

    def f(self, eta):
        inner = np.abs(self.s * eta) <= self.k
        return -np.where(inner, self.s * eta**2 / 2, self.k * (np.abs(eta) - self.k / self.s / 2))

    def slope(self, eta, i, point):
        return -np.clip(self.s[i] * eta, -self.k[i], self.k[i])


class Student:
    name = "Student's t"

    def __init__(self, rng):
        self.nu, self.sigma = 1.0 + rng.gamma(2.0, size=N), rng.gamma(2.0, size=N)

    def f(self, eta):
        return -(self.nu + 1) / 2 * np.log1p(eta**2 / (self.nu * self.sigma**2))

    def slope(self, eta, i, point):
        return -(self.nu[i] + 1) * eta / (self.nu[i] * self.sigma[i] ** 2 + eta**2)


class Poisson:
    name = "Poisson"

    def __init__(self, rng):
        self.w = rng.gamma(2.0, size=N)
        self.y = rng.poisson(self.w)

    def f(self, eta):
        return self.y * eta - self.w * np.exp(eta)

    def slope(self, eta, i, point):
        with np.errstate(over="ignore"):
            return self.y[i] - self.w[i] * np.exp(eta)


class Probit(Logistic):
    name = "probit"

    def f(self, eta):
        return log_ndtr((2 * self.y - 1) * eta)

    def slope(self, eta, i, point):
        z = 2 * self.y[i] - 1
        with np.errstate(all="ignore"):
            return z * np.exp(-(eta**2) / 2 - log_ndtr(z * eta)) / np.sqrt(2 * np.pi)


class Cloglog(Logistic):
    name = "complementary log-log"

    def f(self, eta):
        with np.errstate(all="ignore"):
            return np.where(self.y == 1, np.log(-np.expm1(-np.exp(eta))), -np.exp(eta))

    def slope(self, eta, i, point):
        with np.errstate(all="ignore"):
            g = np.exp(eta)
            return np.where(self.y[i] == 1, g / np.expm1(g), -g)


class NegativeBinomial:
    name = "negative binomial"

    def __init__(self, rng):
        self.alpha, exposure = rng.gamma(2.0, size=(2, N))
        self.shift = np.log(self.alpha / exposure)
        self.y = rng.negative_binomial(self.alpha, 0.4).astype(float)

    def f(self, eta):
        return self.y * eta - (self.y + self.alpha) * np.logaddexp(self.shift, eta)

    def slope(self, eta, i, point):
        return self.y[i] - (self.y[i] + self.alpha[i]) * expit(eta - self.shift[i])


class Gamma:
    name = "gamma"

    def __init__(self, rng):
        self.alpha, self.y = rng.gamma(2.0, size=(2, N))

    def f(self, eta):
        return -self.alpha * eta - self.alpha * self.y * np.exp(-eta)

    def slope(self, eta, i, point):
        with np.errstate(over="ignore"):
            return -self.alpha[i] + self.alpha[i] * self.y[i] * np.exp(-eta)


FAMILIES = [
    Logistic,
    AllOnes,
    Binomial,
    Normal,
    Laplace,
    Huber,
    Student,
    Poisson,
    Probit,
    Cloglog,
    NegativeBinomial,
    Gamma,
]
OF_RESIDUALS = ("normal", "Laplace", "Huber", "Student's t")
DESIGNS = designs(np.random.default_rng(1))


def rows_for(make, design):
    """The design; an offset of thousands is for residuals only."""
    rows = DESIGNS[design].copy()
    if design == "scales" and make.name not in OF_RESIDUALS:
        rows[:, -1] -= 1e4
    return rows


def log_ratios(family, rows, q_new, q):
    return family.f(rows @ np.append(q_new, 1.0)) - family.f(rows @ np.append(q, 1.0))


def rounding(family, rows, q_new, q):
    """Of the differences, which are taken here in double precision."""
    size = np.abs([family.f(rows @ np.append(x, 1.0)) for x in (q_new, q)])
    eta = np.abs(rows) @ np.append(np.abs(q) + np.abs(q_new), 1.0)
    return 1e-12 * (size[np.isfinite(size)].max() * (1.0 + eta.max()))


def violations(family, rows, certificates, rng):
    """How often a log ratio was outside of the interval, over several pairs of states."""
    count = 0
    for q_new, q in states(rng, rows.shape[1] - 1):
        low, high = certified_interval(certificates, q_new, q)
        exact = log_ratios(family, rows, q_new, q)
        exact = exact[np.isfinite(exact)]
        tolerance = rounding(family, rows, q_new, q)
        count += bool(exact.size and (exact.min() < low - tolerance or exact.max() > high + tolerance))
    return count


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("make", FAMILIES)
def test_all_log_ratios_are_within(make, design):
    rng = np.random.default_rng([FAMILIES.index(make), list(DESIGNS).index(design)])
    family, rows = make(rng), rows_for(make, design)
    made = certify([predictor(rows, family.slope)], {})
    assert made.families[0].name == make.name
    assert violations(family, rows, made.certificates, rng) == 0


def half(certificate):
    """All slopes, or points, half as large as they are."""
    halved = [
        enclosure._replace(
            low=enclosure.low / 2,
            high=enclosure.high / 2,
            center=enclosure.center / 2,
            axes=enclosure.axes / 2,
            residual=enclosure.residual / 2,
            ball_radius=enclosure.ball_radius / 2,
        )
        for enclosure in (certificate.first, certificate.second)
    ]
    return certificate._replace(first=halved[0], second=halved[1])


@pytest.mark.parametrize("make", FAMILIES)
def test_planted_faults_are_noticed(make):
    rng = np.random.default_rng(3)
    family = make(rng)
    found = 0
    for design in DESIGNS:
        rows = rows_for(make, design)
        made = certify([predictor(rows, family.slope)], {})
        found += violations(family, rows, (half(made.certificates[0]),), rng)
    assert found > 0


@pytest.mark.parametrize("make", [c for c in FAMILIES if c is not AllOnes])
def test_largest_log_ratio_is_not_the_range(make):
    """C = max |l_i| in place of the range 2 C is an error of published code."""
    rng = np.random.default_rng(4)
    family, rows = make(rng), np.c_[np.ones(N), np.zeros(N)]
    if make.name in OF_RESIDUALS:
        rows[:, -1] = rng.normal(size=N)
    made = certify([predictor(rows, family.slope)], {})
    q_new, q = np.array([0.1]), np.array([0.0])
    exact = log_ratios(family, rows, q_new, q)
    low, high = certified_interval(made.certificates, q_new, q)
    assert np.ptp(exact) <= certified_range(made.certificates, q_new, q)
    assert max(-low, high) < np.ptp(exact) or np.abs(exact).max() < np.ptp(exact)


@pytest.mark.parametrize(
    ("make", "factor"),
    [
        (Logistic, 1.02),
        (Normal, 1.01),
        (Laplace, 2.5),
        (Huber, 2.5),
        (Poisson, 1.5),
        (Probit, 1.05),
        (Cloglog, 1.1),
        (Gamma, 1.5),
    ],
)
def test_range_of_an_intercept_is_nearly_exact(make, factor):
    rng = np.random.default_rng(5)
    family = make(rng)
    rows = np.c_[np.ones(N), np.zeros(N)]
    if make is Normal:
        family.s = np.full(N, 2.0)
    if make.name in OF_RESIDUALS:
        rows[:, -1] = rng.normal(size=N)
    made = certify([predictor(rows, family.slope)], {})
    q_new, q = np.array([0.301]), np.array([0.3])
    exact = np.ptp(log_ratios(family, rows, q_new, q))
    assert exact <= certified_range(made.certificates, q_new, q) <= factor * exact


def test_hazard_is_between_its_bounds_far_out():
    t = -np.linspace(0.0, 60.0, 601)
    exact = np.exp(-(t**2) / 2 - log_ndtr(t)) / np.sqrt(2 * np.pi)
    low = np.array([probit.smallest_hazard(x) for x in t])
    high = np.array([probit.largest_hazard(x) for x in t])
    assert np.all(low <= exact * (1 + 1e-12))
    assert np.all(exact <= high * (1 + 1e-12))
    assert np.all(high / low < 1.00001)
