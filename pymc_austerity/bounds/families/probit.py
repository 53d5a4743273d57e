"""Probit regression: y_i = 1 with probability Phi(eta).

For y_i = 1 the slope is the hazard h(eta) = phi(eta) / Phi(eta), which is positive and decreasing; for
y_i = 0 it is -h(-eta). See `binary_response`. A predictor in other units, as in erf(eta / sqrt(2)), is
rescaled.

Far in the tail, where Phi underflows, h is replaced by bounds: with x = -t > 0,
(3 x + sqrt(x^2 + 8)) / 4 < h < (x + sqrt(x^2 + 4)) / 2 (Sampford 1953; Birnbaum 1942).
"""

import math

import numpy as np
from scipy.special import log_ndtr, ndtr

from pymc_austerity.bounds.families.base import Family, agree, value_at
from pymc_austerity.bounds.families.binary_response import BinaryResponses, interval_of_responses
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Matrix, Vector

_UNDERFLOWS = -25.0


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The responses y_i, and how many times eta is the argument of Phi."""
    start = value_at(eta, slopes, 0.0) * math.sqrt(math.pi / 2.0)
    if not np.all(np.isfinite(start)):
        return None
    t = start * eta[:, None]
    with np.errstate(all="ignore"):
        expected = start * np.exp(-(t**2) / 2.0 - log_ndtr(t)) / math.sqrt(2.0 * math.pi)
    inside = np.abs(eta) <= 20.0
    if not agree(eta[inside], slopes[inside], expected[inside], ndtr(t[inside])):
        return None
    return np.stack([start > 0.0, np.abs(start)], axis=1).astype(np.float64)


@jitable
def slopes_between(response: int, low: float, high: float) -> tuple[float, float]:
    """The least and the largest slope of a term with this response, for eta from low to high."""
    if response == 1:
        return smallest_hazard(high), largest_hazard(low)
    return -largest_hazard(-high), -smallest_hazard(-low)


@jitable
def largest_hazard(t: float) -> float:
    """phi(t) / Phi(t), or a little more."""
    if t < _UNDERFLOWS:
        return (-t + math.sqrt(t * t + 4.0)) / 2.0
    return _hazard(t)


@jitable
def smallest_hazard(t: float) -> float:
    """phi(t) / Phi(t), or a little less."""
    if t < _UNDERFLOWS:
        return (-3.0 * t + math.sqrt(t * t + 8.0)) / 4.0
    return _hazard(t)


@jitable
def _hazard(t: float) -> float:
    return math.sqrt(2.0 / math.pi) * math.exp(-t * t / 2.0) / math.erfc(-t / math.sqrt(2.0))


class ProbitResponses(BinaryResponses):
    """Certificate of terms of binary responses y_i with a probit link; the second constant scales eta."""

    @staticmethod
    def points(rows: Matrix, constants: Matrix) -> tuple[Matrix, Matrix]:
        """The rows that the arguments of Phi depend on, with y_i = 1 and with y_i = 0."""
        return BinaryResponses.points(rows * constants[:, 1:], constants)

    @jitable
    def interval(self, q_new: Vector, q: Vector) -> tuple[float, float]:
        """An interval that contains all log ratios of the term."""
        return interval_of_responses(self, slopes_between, q_new, q)


FAMILY = Family("probit", identify, ProbitResponses)
