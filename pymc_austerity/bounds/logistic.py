"""Logistic regression: y_i successes of n_i, each with probability sigmoid(eta) = 1 / (1 + exp(-eta)).

f_i'(eta) = y_i - n_i sigmoid(eta) is between y_i - n_i and y_i: a case of `bounded`, whatever the o_i.

For n_i = 1 and fixed o_i the slope is 1 - sigmoid(eta) or -sigmoid(eta), a case of `binary`, which is
sharper where the design leaves eta little room, and at worst the same.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable
from scipy.special import expit

from pymc_austerity.bounds import binary, bounded
from pymc_austerity.bounds.base import TOLERANCE, Family, agree, value_at
from pymc_austerity.bounds.cloud import Matrix
from pymc_austerity.target import Vector

CODE = 5


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The bounds y_i - n_i and y_i."""
    n = (value_at(eta, slopes, -1.0) - value_at(eta, slopes, 1.0)) / (expit(1.0) - expit(-1.0))
    y = value_at(eta, slopes, 0.0) + n / 2.0
    rarer = expit(-np.abs(eta))[:, None]
    if np.any(n < 0.0) or not agree(eta, slopes, y - n * expit(eta)[:, None], rarer):
        return None
    return np.stack([y - n, y], axis=1)


def identify_binary(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The responses y_i, if n_i = 1."""
    constants = identify(eta, slopes)
    if constants is None:
        return None
    y = np.round(constants[:, 1:])
    fits = np.abs(constants - np.concatenate([y - 1.0, y], axis=1)) <= TOLERANCE
    return y if np.all(fits) and np.all((y == 0.0) | (y == 1.0)) else None


@register_jitable
def slopes_between(response: int, low: float, high: float) -> tuple[float, float]:
    """The least and the largest slope of a term with this response, for eta from low to high."""
    if response == 1:
        return _sigmoid(-high), _sigmoid(-low)
    return -_sigmoid(high), -_sigmoid(low)


@register_jitable
def _sigmoid(eta: float) -> float:
    return 1.0 / (1.0 + binary.exponential(-eta))


BINARY = Family("binary logistic", CODE, identify_binary, binary.points, needs_offset=True, n_factors=0)
FAMILY = Family("logistic", bounded.CODE, identify, bounded.points, needs_offset=False, n_factors=2)
