"""Complementary log-log link: y_i = 1 with probability 1 - exp(-g), g = exp(eta).

For y_i = 1 the slope is g / (exp(g) - 1), which decreases from 1 to 0; for y_i = 0 it is -g. See `binary`.
"""

from __future__ import annotations

import math

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.bounds import binary
from pymc_austerity.bounds.base import Family, agree, value_at
from pymc_austerity.bounds.cloud import Matrix
from pymc_austerity.target import Vector

CODE = 4


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


@register_jitable
def slopes_between(response: int, low: float, high: float) -> tuple[float, float]:
    """The least and the largest slope of a term with this response, for eta from low to high."""
    if response == 1:
        return _slope(high), _slope(low)
    return -binary.exponential(high), -binary.exponential(low)


@register_jitable
def _slope(eta: float) -> float:
    """Slope of log(1 - exp(-g)), g / (exp(g) - 1)."""
    if eta > 6.5:  # less than 1e-280
        return 0.0
    g = math.exp(eta)
    return g / math.expm1(g) if g > 0.0 else 1.0


FAMILY = Family("complementary log-log", CODE, identify, binary.points, needs_offset=True, n_factors=0)
