"""Complementary log-log link: y_i = 1 with probability 1 - exp(-g), g = exp(eta).

For y_i = 1 the slope is g / (exp(g) - 1), which decreases from 1 to 0; for y_i = 0 it is -g. See
`binary_response`.
"""

import math

import numpy as np

from pymc_austerity.bounds.families.base import Family, agree, value_at
from pymc_austerity.bounds.families.binary_response import BinaryResponses, interval_of_responses
from pymc_austerity.bounds.families.range_certificate import exponential
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Matrix, Vector


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


@jitable
def slopes_between(response: int, low: float, high: float) -> tuple[float, float]:
    """The least and the largest slope of a term with this response, for eta from low to high."""
    if response == 1:
        return _slope(high), _slope(low)
    return -exponential(high), -exponential(low)


@jitable
def _slope(eta: float) -> float:
    """Slope of log(1 - exp(-g)), g / (exp(g) - 1)."""
    if eta > 6.5:  # less than 1e-280
        return 0.0
    g = math.exp(eta)
    return g / math.expm1(g) if g > 0.0 else 1.0


class CloglogResponses(BinaryResponses):
    """Certificate of terms of binary responses with a complementary log-log link."""

    @jitable
    def interval(self, q_new: Vector, q: Vector) -> tuple[float, float]:
        """An interval that contains all log ratios of the term."""
        return interval_of_responses(self, slopes_between, q_new, q)


FAMILY = Family("complementary log-log", identify, CloglogResponses)
