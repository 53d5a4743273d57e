"""Probit regression: y_i = 1 with probability Phi(eta).

For y_i = 1 the slope is the hazard h(eta) = phi(eta) / Phi(eta), which is positive and decreasing; for
y_i = 0 it is -h(-eta). See `binary_response`. A predictor in other units, as in erf(eta / sqrt(2)), is
rescaled.

Far in the tail, where Phi underflows, h is replaced by bounds: with x = -t > 0,
(3 x + sqrt(x^2 + 8)) / 4 < h < (x + sqrt(x^2 + 4)) / 2 (Sampford 1953; Birnbaum 1942).

For higher derivatives of log Phi let u = t + h, so that h' = -h u and u' = 1 - h u, with 0 < h u < 1:

    (log Phi)'' = -h u,    (log Phi)''' = h (u^2 + h u - 1) > 0 (Sampford 1953).

|(log Phi)''| therefore falls from 1 to 0. (log Phi)''' rises to a single peak: with p = h u, which falls, and
z = u^2, the sign of its derivative is that of G = -z^2 + (3 - 4 p) z + p (1 - p), and where G = 0

    u G' = -3 (1 - 2 p) ((2 - 3 p) z + p (1 - p)),

where the last factor is positive on G = 0. So while p > 1/2, G can only become positive, as it is from the
start (p = 1, z = 0), and is at p = 1/2 (z = 1.07); after that it can only become negative, once.

In the tail u^2 + h u is lost in one, and Laplace's continued fraction takes over. With x = -t and
T_k = x + k / T_{k + 1}, it is h = T_1, so that u = 1 / T_2, h = x + u, and

    (log Phi)''' = h (2 u^2 + x u - 1) = 2 h (u^2 / T_3) (3 / T_4 - 2 / T_3),

where nothing cancels. Both derivatives grow with u, which grows as T_4 becomes smaller: with T_{k + 1} = x in
place of more, for an odd k, they are too large, by 1e-11 at most.
"""

from __future__ import annotations

import math

import numpy as np
from numba.extending import register_jitable
from scipy.special import erfcx, log_ndtr, ndtr

from pymc_austerity.bounds.enclosure import Matrix
from pymc_austerity.bounds.families.base import Family, agree, largest_between, value_at
from pymc_austerity.bounds.families.binary_response import BinaryResponses, interval_of_responses
from pymc_austerity.target import Vector

_UNDERFLOWS = -25.0
_VANISHES = 38.0  # where h does
_TAIL, _LAST_FRACTION = -8.0, 15
# Where |(log Phi)''| and (log Phi)''' are largest.
_PEAKS = {1: (-math.inf,), 2: (1.0023693422683704,)}


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


def curvature(constants: Matrix, low: Vector, high: Vector, order: int) -> Vector:
    """The largest |f''| or |f'''| for eta from low to high."""

    def size(t: Vector) -> Vector:
        near = np.clip(t, _TAIL, _VANISHES)
        h = math.sqrt(2.0 / math.pi) / erfcx(-near / math.sqrt(2.0))
        u = near + h
        x = np.clip(-t, -_TAIL, 1e100)  # the square of more would overflow
        t4 = x
        for k in range(_LAST_FRACTION, 3, -1):
            t4 = x + k / t4
        t3 = x + 3.0 / t4
        u_tail = 1.0 / (x + 2.0 / t3)
        h_tail = x + u_tail
        if order == 1:
            return np.where(t < _TAIL, h_tail * u_tail, h * u)
        third_tail = 2.0 * h_tail * (u_tail**2 / t3) * (3.0 / t4 - 2.0 / t3)
        return np.where(t < _TAIL, third_tail, h * (u * (u + h) - 1.0))

    sign, scale = np.where(constants[:, 0] > 0.0, 1.0, -1.0), constants[:, 1]
    ends = np.zeros((2, len(scale)))
    np.multiply(sign * scale, [low, high], out=ends, where=scale > 0.0)  # low and high may be infinite
    ends.sort(axis=0)
    largest: Vector = scale ** (order + 1) * largest_between(size, _PEAKS[order], ends[0], ends[1])
    return largest


@register_jitable
def slopes_between(response: int, low: float, high: float) -> tuple[float, float]:
    """The least and the largest slope of a term with this response, for eta from low to high."""
    if response == 1:
        return smallest_hazard(high), largest_hazard(low)
    return -largest_hazard(-high), -smallest_hazard(-low)


@register_jitable
def largest_hazard(t: float) -> float:
    """phi(t) / Phi(t), or a little more."""
    if t < _UNDERFLOWS:
        return (-t + math.sqrt(t * t + 4.0)) / 2.0
    return _hazard(t)


@register_jitable
def smallest_hazard(t: float) -> float:
    """phi(t) / Phi(t), or a little less."""
    if t < _UNDERFLOWS:
        return (-3.0 * t + math.sqrt(t * t + 8.0)) / 4.0
    return _hazard(t)


@register_jitable
def _hazard(t: float) -> float:
    return math.sqrt(2.0 / math.pi) * math.exp(-t * t / 2.0) / math.erfc(-t / math.sqrt(2.0))


class ProbitResponses(BinaryResponses):
    """For binary responses of probit link, with the scale of eta as the second constant."""

    @staticmethod
    def points(rows: Matrix, constants: Matrix) -> tuple[Matrix, Matrix]:
        """The rows that the arguments of Phi depend on, with y_i = 1 and with y_i = 0."""
        return BinaryResponses.points(rows * constants[:, 1:], constants)

    @register_jitable
    def interval(self, q_new: Vector, q: Vector) -> tuple[float, float]:
        """An interval that contains all log ratios of the term."""
        return interval_of_responses(self, slopes_between, q_new, q)


FAMILY = Family("probit", identify, ProbitResponses, curvature)
