"""Complementary log-log link: y_i = 1 with probability 1 - exp(-g), g = exp(eta).

For y_i = 1 the slope is g / (exp(g) - 1), which decreases from 1 to 0; for y_i = 0 it is -g. See
`binary_response`.

So are all higher derivatives for y_i = 0. For y_i = 1 let s = g / (exp(g) - 1), which is f', b = 1 - s and
a = g + s - 1, so that with respect to eta a' = (1 + a) b and b' = (1 - b) a, with 0 < b < a, both increasing:

    f'' = -s a,    f''' = s (a^2 - (1 + a) b),
    f'''' = s (-a^3 - a (1 + a) + (1 + a) (4 a b - b^2)).

Each bracket starts negative. Where that of f''' is zero, its derivative has the sign of
2 a^3 + 2 a^2 - 2 a - 1: it can only fall below zero while a < 0.86, and only rise above it after, so it
changes sign once. Where that of f'''' is zero, its derivative is positive for a < 2.468 and negative beyond:
it can only rise above zero first, and only fall below it after, so it changes sign twice. These are the
peaks of |f''| and |f'''|. Towards -infinity, both are at most b <= g / 2, as s (1 + a) <= 1.
"""

from __future__ import annotations

import math

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.bounds.enclosure import Matrix
from pymc_austerity.bounds.families.base import Family, agree, largest_between, value_at
from pymc_austerity.bounds.families.binary_response import BinaryResponses, interval_of_responses
from pymc_austerity.bounds.families.range_certificate import exponential
from pymc_austerity.target import Vector

# Where |f''| and |f'''| of a term with y_i = 1 are largest.
_PEAKS = {1: (0.6208296545655724,), 2: (-0.1989415669582954, 1.4266906535862955)}
# Rounding below, and overflow above.
_TINY, _FAR = -10.0, 6.5


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The responses y_i."""
    y = (value_at(eta, slopes, 0.0) > 0.0).astype(np.float64)
    with np.errstate(all="ignore"):
        g = np.exp(eta)[:, None]
        positive = np.where(g > 0.0, g / np.expm1(g), 1.0)
        expected = np.where(y > 0.0, np.where(np.isinf(g), 0.0, positive), -g)
        probability = np.where(y > 0.0, -np.expm1(-g), np.exp(-g))
    inside = np.abs(eta) <= 300.0
    if not agree(eta[inside], slopes[inside], expected[inside], probability[inside]):
        return None
    return y[:, None]


def curvature(constants: Matrix, low: Vector, high: Vector, order: int) -> Vector:
    """The largest |f''| or |f'''| for eta from low to high; infinite where it overflows."""

    def size(eta: Vector) -> Vector:
        g = np.exp(np.clip(eta, _TINY, _FAR))
        s = g / np.expm1(g)
        a, b = g + s - 1.0, 1.0 - s
        value = s * a if order == 1 else s * np.abs(a**2 - (1.0 + a) * b)
        return np.where(eta < _TINY, np.exp(np.minimum(eta, _TINY)) / 2.0, value)

    positive = largest_between(size, _PEAKS[order], low, high)
    with np.errstate(over="ignore"):
        return np.where(constants[:, 0] > 0.0, positive, np.exp(high))


@register_jitable
def slopes_between(response: int, low: float, high: float) -> tuple[float, float]:
    """The least and the largest slope of a term with this response, for eta from low to high."""
    if response == 1:
        return _slope(high), _slope(low)
    return -exponential(high), -exponential(low)


@register_jitable
def _slope(eta: float) -> float:
    """Slope of log(1 - exp(-g)), g / (exp(g) - 1)."""
    if eta > 6.5:  # less than 1e-280
        return 0.0
    g = math.exp(eta)
    return g / math.expm1(g) if g > 0.0 else 1.0


class CloglogResponses(BinaryResponses):
    """For binary responses of complementary log-log link."""

    @register_jitable
    def interval(self, q_new: Vector, q: Vector) -> tuple[float, float]:
        """An interval that contains all log ratios of the term."""
        return interval_of_responses(self, slopes_between, q_new, q)


FAMILY = Family("complementary log-log", identify, CloglogResponses, curvature)
