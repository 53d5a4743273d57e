"""Logistic regression: y_i successes of n_i, each with probability sigmoid(eta) = 1 / (1 + exp(-eta)).

f_i'(eta) = y_i - n_i sigmoid(eta) is between y_i - n_i and y_i: a case of `bounded_slope`, whatever the o_i.
"""

import numpy as np
from scipy.special import expit

from pymc_austerity.bounds.families.base import Family, agree, value_at
from pymc_austerity.bounds.families.bounded_slope import BoundedSlopes
from pymc_austerity.target import Matrix, Vector


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The bounds y_i - n_i and y_i."""
    n = (value_at(eta, slopes, -1.0) - value_at(eta, slopes, 1.0)) / (expit(1.0) - expit(-1.0))
    y = value_at(eta, slopes, 0.0) + n / 2.0
    rarer = expit(-np.abs(eta))[:, None]
    if np.any(n < 0.0) or not agree(eta, slopes, y - n * expit(eta)[:, None], rarer):
        return None
    return np.stack([y - n, y], axis=1)


FAMILY = Family("logistic", identify, BoundedSlopes)
