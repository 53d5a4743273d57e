"""Row functions of many likelihoods, with data and predictors to go with them."""

import math
from collections.abc import Callable
from functools import reduce
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


A, B, C, D, E, F = (predictor(k) for k in range(6))
HALF = constant(0.5)
COUNT, SIGN, CLASS = data(0, 0.0, 1e6), data(0, 0.0, 1.0), data(0, 0.0, 4.0)
REAL, POSITIVE = data(0, -1e9, 1e9), data(0, 1e-300, 1e9, nonzero=True)
INSIDE, EVENT = data(0, 1e-12, 1.0 - 1e-12, nonzero=True), data(1, 0.0, 1.0)


def _logistic(x):
    return 1.0 / (1.0 + np.exp(-x))


# Data of several likelihoods.


def _counts(rng, eta):
    return [rng.poisson(np.exp(eta[:, 0]) * rng.gamma(2.0, 0.5, len(eta)))]


def _poisson(rng, eta):
    return [rng.poisson(np.exp(eta[:, 0]))]


def _with_zeros(of_counts):
    return lambda rng, eta: [of_counts(rng, eta)[0] * (rng.random(len(eta)) < 0.7)]


def _gamma(rng, eta):
    return [np.exp(eta[:, 0]) * rng.gamma(3.0, 1.0 / 3.0, len(eta))]


def _student(rng, eta):
    return [eta[:, 0] + rng.standard_t(5, len(eta))]


def _free_scale(rng, eta):
    return [eta[:, 0] + np.exp(eta[:, 1]) * rng.normal(size=len(eta))]


def _beta(rng, eta):
    mean, total = _logistic(eta[:, 0]), np.exp(eta[:, 1])
    return [np.clip(rng.beta(mean * total, (1.0 - mean) * total), 1e-9, 1.0 - 1e-9)]


def _classes_of(n):
    return lambda rng, eta: [rng.integers(0, n, len(eta))]


def _two_normals(rng, eta):
    first = rng.random(len(eta)) < _logistic(eta[:, 0])
    return [np.where(first, eta[:, 1], eta[:, 2]) + np.exp(eta[:, 3]) * rng.normal(size=len(eta))]


# Parts of several row functions.


def _gaussian(y: Expression, location: Expression, log_scale: Expression) -> Expression:
    z = multiply(subtract(y, location), exp(negative(log_scale)))
    return subtract(multiply(constant(-0.5), square(z)), log_scale)


def _spread(y: Expression, mean: Expression, shape: Expression) -> Expression:
    spread = multiply(exp(shape), softplus(subtract(mean, shape)))
    missing = multiply(y, softplus(subtract(shape, mean)))
    return add(rising(exp(shape), y), negative(spread), negative(missing))


def _more_zeros(rest: Expression, at_zero: Expression, logit: Expression) -> Expression:
    """More zeros: a count is one of the rest with probability sigmoid(logit)."""
    present = negative(softplus(negative(logit)))
    zero = logaddexp(negative(softplus(logit)), add(present, at_zero))
    return select(forms.equal(COUNT, constant(0)), zero, add(present, rest))


def _classes(first: Expression, last: Expression, between: Expression) -> Expression:
    rest = select(forms.equal(CLASS, constant(4)), last, between)
    return select(forms.equal(CLASS, constant(0)), first, rest)


def _indicator(k: int) -> Expression:
    return select(forms.equal(CLASS, constant(k)), constant(1), constant(0))


IS_ONE, SHIFTED = forms.equal(SIGN, constant(1)), subtract(A, constant(math.log(2.0)))
COUNTED = subtract(multiply(COUNT, A), exp(A))
AT_ZERO = negative(multiply(exp(B), softplus(subtract(A, B))))
EXCESS = subtract(add(B, forms.log(POSITIVE)), add(A, multiply(POSITIVE, exp(negative(A)))))
FIRST, SECOND = multiply(exp(B), sigmoid(A)), multiply(exp(B), sigmoid(negative(A)))
RATE = multiply(subtract(REAL, A), exp(B))
FREEDOM = multiply(HALF, exp(C))
STANDARD = square(multiply(subtract(REAL, A), exp(negative(add(B, multiply(HALF, C))))))
BETWEEN = subtract(log1mexp(subtract(B, A)), add(softplus(negative(A)), softplus(B)))
PROBIT_BETWEEN = add(log_ndtr(A), log1mexp(subtract(log_ndtr(B), log_ndtr(A))))

# Row functions, typical predictors, and data.
_LIKELIHOODS = {
    "logistic": (
        subtract(multiply(SIGN, A), softplus(A)),
        (0.5,),
        lambda rng, eta: [rng.random(len(eta)) < _logistic(eta[:, 0])],
    ),
    "cloglog": (
        select(IS_ONE, log1mexp(negative(exp(A))), negative(exp(A))),
        (-0.5,),
        lambda rng, eta: [rng.random(len(eta)) < -np.expm1(-np.exp(eta[:, 0]))],
    ),
    "probit": (
        select(IS_ONE, log_ndtr(A), log_ndtr(negative(A))),
        (0.3,),
        lambda rng, eta: [rng.normal(size=len(eta)) < eta[:, 0]],
    ),
    "poisson": (COUNTED, (0.5,), _poisson),
    "negative binomial": (
        subtract(multiply(COUNT, A), multiply(add(COUNT, constant(2)), softplus(SHIFTED))),
        (0.5,),
        _counts,
    ),
    "gamma": (multiply(constant(3), negative(add(A, multiply(POSITIVE, exp(negative(A)))))), (0.5,), _gamma),
    "student t": (
        multiply(constant(-3), log1p(multiply(constant(0.2), square(subtract(REAL, A))))),
        (0.5,),
        _student,
    ),
    "normal": (
        multiply(constant(-0.5), square(subtract(REAL, A))),
        (0.5,),
        lambda rng, eta: [eta[:, 0] + rng.normal(size=len(eta))],
    ),
    "normal, free scale": (_gaussian(REAL, A, B), (0.5, -0.3), _free_scale),
    "lognormal": (
        subtract(_gaussian(forms.log(POSITIVE), A, B), forms.log(POSITIVE)),
        (0.5, -0.3),
        lambda rng, eta: np.exp(_free_scale(rng, eta)),
    ),
    "negative binomial, free shape": (_spread(COUNT, A, B), (0.5, 0.7), _counts),
    "Poisson, more zeros": (_more_zeros(COUNTED, negative(exp(A)), B), (0.5, 0.8), _with_zeros(_poisson)),
    "negative binomial, more zeros": (
        _more_zeros(_spread(COUNT, A, B), AT_ZERO, C),
        (0.5, 0.7, 0.8),
        _with_zeros(_counts),
    ),
    "gamma, free shape": (subtract(multiply(exp(B), EXCESS), gammaln(exp(B))), (0.5, 1.0), _gamma),
    "beta": (
        add(
            gammaln(exp(B)),
            negative(gammaln(FIRST)),
            negative(gammaln(SECOND)),
            multiply(FIRST, forms.log(INSIDE)),
            multiply(SECOND, forms.log1p(negative(INSIDE))),
        ),
        (0.3, 2.3),
        _beta,
    ),
    "Weibull, censored": (
        subtract(multiply(EVENT, add(B, RATE)), exp(RATE)),
        (0.5, 0.4),
        lambda rng, eta: [eta[:, 0] + np.log(rng.weibull(1.5, len(eta))), rng.random(len(eta)) < 0.7],
    ),
    "student t, free": (
        subtract(
            subtract(rising(FREEDOM, HALF), add(B, multiply(HALF, C))),
            multiply(add(FREEDOM, HALF), log1p(STANDARD)),
        ),
        (0.5, 0.0, 1.6),
        _student,
    ),
    "ordered logit": (
        _classes(negative(softplus(negative(A))), negative(softplus(B)), BETWEEN),
        (1.0, -1.0),
        _classes_of(5),
    ),
    "ordered probit": (
        _classes(log_ndtr(A), log_ndtr(negative(B)), PROBIT_BETWEEN),
        (1.0, -1.0),
        _classes_of(5),
    ),
    "categorical": (
        subtract(
            add(multiply(_indicator(1), A), multiply(_indicator(2), B)),
            logaddexp(constant(0), logaddexp(A, B)),
        ),
        (0.3, -0.3),
        _classes_of(3),
    ),
    "mixture, shared scale": (
        logaddexp(
            add(negative(softplus(negative(A))), _gaussian(REAL, B, D)),
            add(negative(softplus(A)), _gaussian(REAL, C, D)),
        ),
        (0.4, -1.0, 1.0, 0.0),
        _two_normals,
    ),
    "choice of six": (
        subtract(A, reduce(logaddexp, (A, B, C, D, E), constant(0.0))),
        (0.3, -0.2, 0.1, 0.5, -0.4),
        lambda rng, eta: [np.zeros(len(eta))],
    ),
    "mixture of three, shared scale": (
        subtract(
            reduce(
                logaddexp,
                (_gaussian(REAL, C, F), add(A, _gaussian(REAL, D, F)), add(B, _gaussian(REAL, E, F))),
            ),
            reduce(logaddexp, (A, B), constant(0.0)),
        ),
        (0.3, -0.2, -2.0, 0.0, 2.0, -0.2),
        lambda rng, eta: [rng.choice([-2.0, 0.0, 2.0], len(eta)) + 0.8 * rng.normal(size=len(eta))],
    ),
}
LIKELIHOODS = {
    name: Likelihood(forms.finished(expression), level, columns)
    for name, (expression, level, columns) in _LIKELIHOODS.items()
}


def rows(likelihood: Likelihood, rng, m: int, n_dim: int, n: float, spread: float = 0.3):
    """Predictors, directions (m, p, d) as of a posterior of n rows, and data."""
    p = likelihood.n_predictors
    eta = np.array(likelihood.level) + spread * rng.normal(size=(m, p))
    directions = rng.normal(size=(m, p, n_dim)) / math.sqrt(n)
    columns = np.array(likelihood.columns(rng, eta), dtype=np.float64)
    return eta, directions, columns
