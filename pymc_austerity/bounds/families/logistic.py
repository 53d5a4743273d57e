"""Logistic regression: y_i successes of n_i, each with probability sigmoid(eta) = 1 / (1 + exp(-eta)).

f_i'(eta) = y_i - n_i sigmoid(eta) is between y_i - n_i and y_i: a case of `bounded`, whatever the o_i.

For n_i = 1 and fixed o_i the slope is 1 - sigmoid(eta) or -sigmoid(eta), a case of `binary`, which is
sharper where the design leaves eta little room, and at worst the same.

With p = sigmoid(eta), p' = p (1 - p): f'' = -n p (1 - p) is largest at eta = 0, f''' = f'' (1 - 2 p), and
f'''' = f'' (1 - 6 p (1 - p)), so |f'''| is largest at p (1 - p) = 1 / 6, eta = +-log(2 + sqrt(3)), where it
is n / (6 sqrt(3)).
"""

from __future__ import annotations

import math

import numpy as np
from numba.extending import register_jitable
from scipy.special import expit

from pymc_austerity.bounds.enclosure import Matrix
from pymc_austerity.bounds.families import binary
from pymc_austerity.bounds.families import bounded_slope as bounded
from pymc_austerity.bounds.families.base import TOLERANCE, Family, agree, largest_between, value_at
from pymc_austerity.target import Vector

CODE = 5
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


def identify_binary(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The responses y_i, if n_i = 1."""
    constants = identify(eta, slopes)
    if constants is None:
        return None
    y = np.round(constants[:, 1:])
    fits = np.abs(constants - np.concatenate([y - 1.0, y], axis=1)) <= TOLERANCE
    return y if np.all(fits) and np.all((y == 0.0) | (y == 1.0)) else None


def curvature(constants: Matrix, low: Vector, high: Vector, order: int) -> Vector:
    """The largest |f''| or |f'''| for eta from low to high."""

    def size(eta: Vector) -> Vector:
        e = np.exp(-np.abs(eta))
        second: Vector = e / (1.0 + e) ** 2
        return second if order == 1 else -second * np.expm1(-np.abs(eta)) / (1.0 + e)

    n = constants[:, 1] - constants[:, 0]
    return n * largest_between(size, _PEAKS[order], low, high)


def curvature_binary(constants: Matrix, low: Vector, high: Vector, order: int) -> Vector:
    """`curvature` for n_i = 1."""
    return curvature(np.concatenate([constants - 1.0, constants], axis=1), low, high, order)


@register_jitable
def slopes_between(response: int, low: float, high: float) -> tuple[float, float]:
    """The least and the largest slope of a term with this response, for eta from low to high."""
    if response == 1:
        return _sigmoid(-high), _sigmoid(-low)
    return -_sigmoid(high), -_sigmoid(low)


@register_jitable
def _sigmoid(eta: float) -> float:
    return 1.0 / (1.0 + binary.exponential(-eta))


BINARY = Family(
    "binary logistic",
    CODE,
    identify_binary,
    binary.points,
    needs_offset=True,
    n_factors=0,
    curvature=curvature_binary,
)
FAMILY = Family(
    "logistic",
    bounded.CODE,
    identify,
    bounded.points,
    needs_offset=False,
    n_factors=2,
    curvature=curvature,
)
