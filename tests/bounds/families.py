"""Likelihoods f_i(eta) of a predictor, as NumPy computes them."""

import numpy as np
from scipy.special import log_expit, log_ndtr

from .designs import N


class Logistic:
    name = "binary logistic"

    def __init__(self, rng):
        self.y = rng.integers(0, 2, N).astype(float)

    def f(self, eta):
        return np.where(self.y == 1, log_expit(eta), log_expit(-eta))


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


class Normal:
    name = "normal"

    def __init__(self, rng):
        self.s = rng.gamma(2.0, size=N)

    def f(self, eta):
        return -self.s * eta**2 / 2


class Laplace:
    name = "Laplace"

    def __init__(self, rng):
        self.left, self.right = rng.gamma(2.0, size=(2, N))

    def f(self, eta):
        return np.where(eta > 0, -self.right * eta, self.left * eta)


class Huber:
    name = "Huber"

    def __init__(self, rng):
        self.s, self.k = rng.gamma(2.0, size=(2, N))

    def f(self, eta):
        inner = np.abs(self.s * eta) <= self.k
        return -np.where(inner, self.s * eta**2 / 2, self.k * (np.abs(eta) - self.k / self.s / 2))


class Student:
    name = "Student's t"

    def __init__(self, rng):
        self.nu, self.sigma = 1.0 + rng.gamma(2.0, size=N), rng.gamma(2.0, size=N)

    def f(self, eta):
        return -(self.nu + 1) / 2 * np.log1p(eta**2 / (self.nu * self.sigma**2))


class Poisson:
    name = "Poisson"

    def __init__(self, rng):
        self.w = rng.gamma(2.0, size=N)
        self.y = rng.poisson(self.w)

    def f(self, eta):
        return self.y * eta - self.w * np.exp(eta)


class Probit(Logistic):
    name = "probit"

    def f(self, eta):
        return log_ndtr((2 * self.y - 1) * eta)


class Cloglog(Logistic):
    name = "complementary log-log"

    def f(self, eta):
        with np.errstate(all="ignore"):
            return np.where(self.y == 1, np.log(-np.expm1(-np.exp(eta))), -np.exp(eta))


class NegativeBinomial:
    name = "negative binomial"

    def __init__(self, rng):
        self.alpha, exposure = rng.gamma(2.0, size=(2, N))
        self.shift = np.log(self.alpha / exposure)
        self.y = rng.negative_binomial(self.alpha, 0.4).astype(float)

    def f(self, eta):
        return self.y * eta - (self.y + self.alpha) * np.logaddexp(self.shift, eta)


class Gamma:
    name = "gamma"

    def __init__(self, rng):
        self.alpha, self.y = rng.gamma(2.0, size=(2, N))

    def f(self, eta):
        return -self.alpha * eta - self.alpha * self.y * np.exp(-eta)


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


def log_ratios(family, rows, q_new, q):
    return family.f(rows @ np.append(q_new, 1.0)) - family.f(rows @ np.append(q, 1.0))


def rounding(family, rows, q_new, q):
    """Of the differences, which are taken here in double precision."""
    size = np.abs([family.f(rows @ np.append(x, 1.0)) for x in (q_new, q)])
    eta = np.abs(rows) @ np.append(np.abs(q) + np.abs(q_new), 1.0)
    return 1e-12 * (size[np.isfinite(size)].max() * (1.0 + eta.max()))
