"""Logistic regression: y_i successes of n_i, each with probability sigmoid(eta) = 1 / (1 + exp(-eta)).

f_i'(eta) = y_i - n_i sigmoid(eta) is between y_i - n_i and y_i: a case of `bounded_slope`, whatever the o_i.

With p = sigmoid(eta), p' = p (1 - p): f'' = -n p (1 - p) is largest at eta = 0, f''' = f'' (1 - 2 p), and
f'''' = f'' (1 - 6 p (1 - p)), so |f'''| is largest at p (1 - p) = 1 / 6, eta = +-log(2 + sqrt(3)), where it
is n / (6 sqrt(3)).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from pymc_austerity.bounds.enclosure import Matrix
from pymc_austerity.bounds.families.base import Family, agree, largest_between, value_at
from pymc_austerity.bounds.families.bounded_slope import BoundedSlopes
from pymc_austerity.target import Vector

# Where |f''| and |f'''| are largest.
_PEAKS = {1: (0.0,), 2: (-math.log(2.0 + math.sqrt(3.0)), math.log(2.0 + math.sqrt(3.0)))}


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The bounds y_i - n_i and y_i."""
    n = (value_at(eta, slopes, -1.0) - value_at(eta, slopes, 1.0)) / (expit(1.0) - expit(-1.0))
    y = value_at(eta, slopes, 0.0) + n / 2.0
    rarer = expit(-np.abs(eta))[:, None]
    if np.any(n < 0.0) or not agree(eta, slopes, y - n * expit(eta)[:, None], rarer):
        return None
    return np.stack([y - n, y], axis=1)


def curvature(constants: Matrix, low: Vector, high: Vector, order: int) -> Vector:
    """The largest |f''| or |f'''| for eta from low to high."""

    def size(eta: Vector) -> Vector:
        e = np.exp(-np.abs(eta))
        second: Vector = e / (1.0 + e) ** 2
        return second if order == 1 else -second * np.expm1(-np.abs(eta)) / (1.0 + e)

    n = constants[:, 1] - constants[:, 0]
    return n * largest_between(size, _PEAKS[order], low, high)


FAMILY = Family("logistic", identify, BoundedSlopes, curvature)
