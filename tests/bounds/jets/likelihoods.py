"""Row functions of many likelihoods, with data and predictors to go with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.forms import (
    add,
    exp,
    gammaln,
    log1mexp,
    log1p,
    log_ndtr,
    logaddexp,
    multiply,
    negative,
    rising,
    select,
    sigmoid,
    softplus,
    square,
    subtract,
)
from pymc_austerity.bounds.expressions.node import Expression, constant, data, predictor


class Likelihood(NamedTuple):
    """A row function, and rows of it.

    Attributes
    ----------
    expression : Expression
    level : tuple of float
        Typical predictors.
    columns : callable
        ``(rng, eta (m, p)) -> ndarray (n_data, m)``: data that a model with these predictors gives, roughly.
    """

    expression: Expression
    level: tuple[float, ...]
    columns: Callable

    @property
    def n_predictors(self) -> int:
        return len(self.level)


LIKELIHOODS: dict[str, Likelihood] = {}
A, B, C, D = (predictor(k) for k in range(4))
HALF = constant(0.5)
COUNT, SIGN, CLASS = data(0, 0.0, 1e6), data(0, 0.0, 1.0), data(0, 0.0, 4.0)
REAL, POSITIVE = data(0, -1e9, 1e9), data(0, 1e-300, 1e9, nonzero=True)


def likelihood(name: str, level: tuple[float, ...], expression: Expression):
    """Register the likelihood whose data the decorated function makes."""

    def register(columns):
        LIKELIHOODS[name] = Likelihood(forms.finished(expression), level, columns)
        return columns

    return register


def _logistic(x):
    return 1.0 / (1.0 + np.exp(-x))


@likelihood("logistic", (0.5,), subtract(multiply(SIGN, A), softplus(A)))
def bernoulli(rng, eta):
    return [rng.random(len(eta)) < _logistic(eta[:, 0])]


@likelihood(
    "cloglog", (-0.5,), select(forms.equal(SIGN, constant(1)), log1mexp(negative(exp(A))), negative(exp(A)))
)
def cloglog(rng, eta):
    return [rng.random(len(eta)) < -np.expm1(-np.exp(eta[:, 0]))]


@likelihood("probit", (0.3,), select(forms.equal(SIGN, constant(1)), log_ndtr(A), log_ndtr(negative(A))))
def probit(rng, eta):
    return [rng.normal(size=len(eta)) < eta[:, 0]]


@likelihood("poisson", (0.5,), subtract(multiply(COUNT, A), exp(A)))
def poisson(rng, eta):
    return [rng.poisson(np.exp(eta[:, 0]))]


SHIFTED = subtract(A, constant(math.log(2.0)))


@likelihood(
    "negative binomial",
    (0.5,),
    subtract(multiply(COUNT, A), multiply(add(COUNT, constant(2)), softplus(SHIFTED))),
)
def negative_binomial(rng, eta, shape=2.0):
    return [rng.poisson(np.exp(eta[:, 0]) * rng.gamma(shape, 1.0 / shape, len(eta)))]


@likelihood("gamma", (0.5,), multiply(constant(3), negative(add(A, multiply(POSITIVE, exp(negative(A)))))))
def gamma(rng, eta):
    return [np.exp(eta[:, 0]) * rng.gamma(3.0, 1.0 / 3.0, len(eta))]


@likelihood(
    "student t", (0.5,), multiply(constant(-3), log1p(multiply(constant(0.2), square(subtract(REAL, A)))))
)
def student(rng, eta):
    return [eta[:, 0] + rng.standard_t(5, len(eta))]


@likelihood("normal", (0.5,), multiply(constant(-0.5), square(subtract(REAL, A))))
def normal(rng, eta):
    return [eta[:, 0] + rng.normal(size=len(eta))]


def _gaussian(y: Expression, location: Expression, log_scale: Expression) -> Expression:
    z = multiply(subtract(y, location), exp(negative(log_scale)))
    return subtract(multiply(constant(-0.5), square(z)), log_scale)


@likelihood("normal, free scale", (0.5, -0.3), _gaussian(REAL, A, B))
def free_scale(rng, eta):
    return [eta[:, 0] + np.exp(eta[:, 1]) * rng.normal(size=len(eta))]


@likelihood("lognormal", (0.5, -0.3), subtract(_gaussian(forms.log(POSITIVE), A, B), forms.log(POSITIVE)))
def lognormal(rng, eta):
    return np.exp(free_scale(rng, eta))


def _counts(y: Expression, mean: Expression, shape: Expression) -> Expression:
    spread = multiply(exp(shape), softplus(subtract(mean, shape)))
    missing = multiply(y, softplus(subtract(shape, mean)))
    return add(rising(exp(shape), y), negative(spread), negative(missing))


@likelihood("negative binomial, free shape", (0.5, 0.7), _counts(COUNT, A, B))
def free_shape(rng, eta):
    return negative_binomial(rng, eta)


def _with_zeros(rest: Expression, at_zero: Expression, logit: Expression) -> Expression:
    """More zeros: a count is one of the rest with probability sigmoid(logit)."""
    present = negative(softplus(negative(logit)))
    zero = logaddexp(negative(softplus(logit)), add(present, at_zero))
    return select(forms.equal(COUNT, constant(0)), zero, add(present, rest))


@likelihood(
    "Poisson, more zeros", (0.5, 0.8), _with_zeros(subtract(multiply(COUNT, A), exp(A)), negative(exp(A)), B)
)
def zero_inflated(rng, eta):
    return [poisson(rng, eta)[0] * (rng.random(len(eta)) < 0.7)]


AT_ZERO = negative(multiply(exp(B), softplus(subtract(A, B))))


@likelihood("negative binomial, more zeros", (0.5, 0.7, 0.8), _with_zeros(_counts(COUNT, A, B), AT_ZERO, C))
def zero_inflated_spread(rng, eta):
    return [negative_binomial(rng, eta)[0] * (rng.random(len(eta)) < 0.7)]


GAMMA_SHAPE = exp(B)


@likelihood(
    "gamma, free shape",
    (0.5, 1.0),
    subtract(
        multiply(
            GAMMA_SHAPE, subtract(add(B, forms.log(POSITIVE)), add(A, multiply(POSITIVE, exp(negative(A)))))
        ),
        gammaln(GAMMA_SHAPE),
    ),
)
def gamma_free(rng, eta):
    return gamma(rng, eta)


TOTAL = exp(B)
FIRST, SECOND = multiply(TOTAL, sigmoid(A)), multiply(TOTAL, sigmoid(negative(A)))
INSIDE = data(0, 1e-12, 1.0 - 1e-12, nonzero=True)


@likelihood(
    "beta",
    (0.3, 2.3),
    add(
        gammaln(TOTAL),
        negative(gammaln(FIRST)),
        negative(gammaln(SECOND)),
        multiply(FIRST, forms.log(INSIDE)),
        multiply(SECOND, forms.log1p(negative(INSIDE))),
    ),
)
def beta(rng, eta):
    mean, total = _logistic(eta[:, 0]), np.exp(eta[:, 1])
    return [np.clip(rng.beta(mean * total, (1.0 - mean) * total), 1e-9, 1.0 - 1e-9)]


RATE = multiply(subtract(REAL, A), exp(B))
EVENT = data(1, 0.0, 1.0)


@likelihood("Weibull, censored", (0.5, 0.4), subtract(multiply(EVENT, add(B, RATE)), exp(RATE)))
def weibull(rng, eta):
    m = len(eta)
    return [eta[:, 0] + np.log(rng.weibull(1.5, m)), rng.random(m) < 0.7]


FREEDOM = multiply(HALF, exp(C))
STANDARD = square(multiply(subtract(REAL, A), exp(negative(add(B, multiply(HALF, C))))))


@likelihood(
    "student t, free",
    (0.5, 0.0, 1.6),
    subtract(
        subtract(rising(FREEDOM, HALF), add(B, multiply(HALF, C))),
        multiply(add(FREEDOM, HALF), log1p(STANDARD)),
    ),
)
def student_free(rng, eta):
    return student(rng, eta)


def _classes(first: Expression, last: Expression, between: Expression) -> Expression:
    rest = select(forms.equal(CLASS, constant(4)), last, between)
    return select(forms.equal(CLASS, constant(0)), first, rest)


def _ordered(rng, eta):
    return [rng.integers(0, 5, len(eta))]


BETWEEN = subtract(log1mexp(subtract(B, A)), add(softplus(negative(A)), softplus(B)))


@likelihood(
    "ordered logit", (1.0, -1.0), _classes(negative(softplus(negative(A))), negative(softplus(B)), BETWEEN)
)
def ordered_logit(rng, eta):
    return _ordered(rng, eta)


PROBIT_BETWEEN = add(log_ndtr(A), log1mexp(subtract(log_ndtr(B), log_ndtr(A))))


@likelihood("ordered probit", (1.0, -1.0), _classes(log_ndtr(A), log_ndtr(negative(B)), PROBIT_BETWEEN))
def ordered_probit(rng, eta):
    return _ordered(rng, eta)


def _indicator(k: int) -> Expression:
    return select(forms.equal(CLASS, constant(k)), constant(1), constant(0))


@likelihood(
    "categorical",
    (0.3, -0.3),
    subtract(
        add(multiply(_indicator(1), A), multiply(_indicator(2), B)),
        logaddexp(constant(0), logaddexp(A, B)),
    ),
)
def categorical(rng, eta):
    return [rng.integers(0, 3, len(eta))]


@likelihood(
    "mixture, shared scale",
    (0.4, -1.0, 1.0, 0.0),
    logaddexp(
        add(negative(softplus(negative(A))), _gaussian(REAL, B, D)),
        add(negative(softplus(A)), _gaussian(REAL, C, D)),
    ),
)
def mixture(rng, eta):
    first = rng.random(len(eta)) < _logistic(eta[:, 0])
    return [np.where(first, eta[:, 1], eta[:, 2]) + np.exp(eta[:, 3]) * rng.normal(size=len(eta))]


def rows(likelihood: Likelihood, rng, m: int, n_dim: int, n: float, spread: float = 0.3):
    """Predictors, directions (m, p, d) as of a posterior of n rows, and data."""
    p = likelihood.n_predictors
    eta = np.array(likelihood.level) + spread * rng.normal(size=(m, p))
    directions = rng.normal(size=(m, p, n_dim)) / math.sqrt(n)
    columns = np.array(likelihood.columns(rng, eta), dtype=np.float64)
    return eta, directions, columns
