"""Closed forms of the largest derivatives of some likelihoods, with which bounds are compared.

``curvature(columns, low, high, order)`` is the largest |f^(order + 1)| from low_i to high_i, for order 1 or 2
and the columns of data of `row_functions.FORMS`. Between its *peaks* a derivative has no local maximum: it is
largest at a peak between low and high, or at the end that is next to a peak outside, in either case at the
point of the interval that is nearest to some peak.
"""

import math

import numpy as np

_LOGISTIC = {1: (0.0,), 2: (-math.log(2.0 + math.sqrt(3.0)), math.log(2.0 + math.sqrt(3.0)))}


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


def poisson(columns, low, high, order):
    return np.exp(high + np.log(columns[1]))


def gamma(columns, low, high, order):
    y, alpha = columns
    return np.exp(-low + np.log(alpha * y))


def negative_binomial(columns, low, high, order):
    y, alpha, shift = columns
    return binomial([0.0, y + alpha], low - shift, high - shift, order)


# Some likelihoods of `jets.likelihoods`, and their columns beside y.
OF_JETS = {
    "logistic": (logistic, ()),
    "poisson": (poisson, (1.0,)),
    "negative binomial": (negative_binomial, (2.0, math.log(2.0))),
    "gamma": (gamma, (3.0,)),
}


def curvature(name, y, low, high, degree):
    """The largest |f^(degree)| from low to high, for some of `jets.likelihoods`."""
    of_name, others = OF_JETS[name]
    return of_name([y, *others], low, high, degree - 1)
