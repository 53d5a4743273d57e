"""Closed forms of the largest derivatives of some likelihoods, with which bounds are compared.

``curvature(columns, low, high, order)`` is the largest |f^(order + 1)| from low_i to high_i, for order 1 or 2
and the columns of data of `row_functions.FORMS`. Between its *peaks* a derivative has no local maximum: it is
largest at a peak between low and high, or at the end that is next to a peak outside, in either case at the
point of the interval that is nearest to some peak.
"""

import math

import numpy as np
from scipy.special import erfcx

_LOGISTIC = {1: (0.0,), 2: (-math.log(2.0 + math.sqrt(3.0)), math.log(2.0 + math.sqrt(3.0)))}
_STUDENT = {
    1: (-math.sqrt(3.0), 0.0, math.sqrt(3.0)),
    2: (-math.sqrt(2.0) - 1.0, 1.0 - math.sqrt(2.0), math.sqrt(2.0) - 1.0, math.sqrt(2.0) + 1.0),
}
_PROBIT = {1: (-math.inf,), 2: (1.0023693422683704,)}
_CLOGLOG = {1: (0.6208296545655724,), 2: (-0.1989415669582954, 1.4266906535862955)}


def _largest_between(size, peaks, low, high):
    return np.stack([size(np.clip(peak, low, high)) for peak in peaks]).max(axis=0)


def binomial(columns, low, high, order):
    """n p (1 - p), and that times 1 - 2 p, with p = sigmoid(eta)."""

    def size(eta):
        e = np.exp(-np.abs(eta))
        second = e / (1.0 + e) ** 2
        return second if order == 1 else -second * np.expm1(-np.abs(eta)) / (1.0 + e)

    return columns[1] * _largest_between(size, _LOGISTIC[order], low, high)


def logistic(columns, low, high, order):
    return binomial([columns[0], 1.0], low, high, order)


def normal(columns, low, high, order):
    return columns[0] if order == 1 else np.zeros(len(low))


def student(columns, low, high, order):
    """(a / c) z (2 z - 1) and (a / c^1.5) 2 x z^2 (4 z - 1), with x = eta / sqrt(c)."""
    nu, sigma = columns
    unit = np.sqrt(nu) * sigma

    def size(x):
        z = 1.0 / (1.0 + x**2)
        return np.abs(z * (2.0 * z - 1.0) if order == 1 else 2.0 * x * z**2 * (4.0 * z - 1.0))

    largest = _largest_between(size, _STUDENT[order], low / unit, high / unit)
    return (nu + 1.0) / unit ** (order + 1) * largest


def poisson(columns, low, high, order):
    return np.exp(high + np.log(columns[1]))


def gamma(columns, low, high, order):
    y, alpha = columns
    return np.exp(-low + np.log(alpha * y))


def negative_binomial(columns, low, high, order):
    y, alpha, shift = columns
    return binomial([0.0, y + alpha], low - shift, high - shift, order)


def probit(columns, low, high, order):
    """h u and h (u (u + h) - 1), with h = phi / Phi and u = t + h, for t above -8 (`size` cancels below)."""

    def size(t):
        h = math.sqrt(2.0 / math.pi) / erfcx(-t / math.sqrt(2.0))
        u = t + h
        return h * u if order == 1 else h * (u * (u + h) - 1.0)

    sign = 2.0 * columns[0] - 1.0
    ends = np.sort([sign * low, sign * high], axis=0)
    assert ends.min() > -8.0
    return _largest_between(size, _PROBIT[order], ends[0], ends[1])


def cloglog(columns, low, high, order):
    """s a and s (a^2 - (1 + a) b), with g = exp(eta), s = g / (exp(g) - 1), a = g + s - 1 and b = 1 - s."""

    def size(eta):
        g = np.exp(eta)
        s = g / np.expm1(g)
        a, b = g + s - 1.0, 1.0 - s
        return s * a if order == 1 else s * np.abs(a**2 - (1.0 + a) * b)

    return np.where(columns[0] > 0.0, _largest_between(size, _CLOGLOG[order], low, high), np.exp(high))


# The likelihoods of `jets.likelihoods` with one predictor, and their columns beside y.
WITH_ONE_PREDICTOR = {
    "logistic": (logistic, ()),
    "cloglog": (cloglog, ()),
    "probit": (probit, ()),
    "poisson": (poisson, (1.0,)),
    "negative binomial": (negative_binomial, (2.0, math.log(2.0))),
    "gamma": (gamma, (3.0,)),
}


def curvature(name, y, low, high, degree):
    """The largest |f^(degree)| from low to high, for `jets.likelihoods` with one predictor."""
    if name == "normal":
        return normal([np.ones(len(y))], low, high, degree - 1)
    if name == "student t":
        return student([5.0, 1.0], low - y, high - y, degree - 1)
    of_name, others = WITH_ONE_PREDICTOR[name]
    return of_name([y, *others], low, high, degree - 1)
