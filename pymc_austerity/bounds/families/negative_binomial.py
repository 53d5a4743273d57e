"""Negative binomial counts with a logarithmic link: f_i'(eta) = h_i - (h_i - l_i) sigmoid(eta - c_i).

With mean w exp(eta) and dispersion alpha (the variance is mean + mean^2 / alpha), up to a constant
f = y eta - (y + alpha) log(alpha + w exp(eta)), so that h = y, l = -alpha and c = log(alpha / w).

Slopes are between l_i and h_i > l_i: a case of `bounded_slope`, whatever o_i and c_i.

*Finding the constants.* With z = exp(eta) and k = exp(c), f' = h - (h - l) z / (z + k) is a Moebius transform
of z, so that its values at three points tell all three constants. For z1 < z < z3,

    r = (f'(z1) - f'(z)) / (f'(z) - f'(z3)) = (z - z1)(z3 + k) / ((z3 - z)(z1 + k)),

which is solved for k. The point in the middle is where f' is nearest to the mean of the two others, and the
drops to either side must be far above rounding. The outer points are +-100 or, where the slopes there are
lost in rounding, +-10.
"""

import math

import numpy as np
from scipy.special import expit

from pymc_austerity.bounds.families.base import Family, agree, value_at
from pymc_austerity.bounds.families.bounded_slope import BoundedSlopes
from pymc_austerity.target import Matrix, Vector

# Drops of the slope, relative to the slope, from which c_i is found to eight digits.
_CLEAR = 1e-8
# Slopes that are smaller, relative to h_i - l_i, are zero.
_ZERO = 1e-12


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The bounds l_i and h_i."""
    # At exp(eta) = 0 PyMC switches to another formula.
    inside = np.abs(eta) <= 300.0
    for far in (100.0, 10.0):
        constants = _through_three(eta, slopes, far)
        if constants is not None:
            low, high, c = constants.T
            t = eta[inside, None] - c
            expected = high - (high - low) * expit(t)
            if agree(eta[inside], slopes[inside], expected, expit(-np.abs(t))):
                return constants[:, :2]
    return None


def _through_three(eta: Vector, slopes: Matrix, far: float) -> Matrix | None:
    """The l_i, h_i and c_i that fit at +-far and at a point between."""
    between = np.abs(eta) < far
    first, last = value_at(eta, slopes, -far), value_at(eta, slopes, far)
    with np.errstate(all="ignore"):
        nearest = np.abs(slopes[between] - (first + last) / 2.0).argmin(axis=0)
        middle = slopes[between][nearest, np.arange(slopes.shape[1])]
        before, after = first - middle, middle - last
        clear = np.minimum(before, after) > _CLEAR * np.maximum(np.abs(first), np.abs(last))
        z, z1, z3 = np.exp(eta[between][nearest]), math.exp(-far), math.exp(far)
        r = before / after * (1.0 - z / z3)
        c = np.log(((z - z1) - r * z1) / (r - (z - z1) / z3))
        if not np.all(clear & (np.abs(c) < far)):  # or not a number
            return None
        whole = (first - last) / (expit(far - c) - expit(-far - c))
    bounds = np.stack([last - whole * expit(c - far), first + whole * expit(-far - c)])
    bounds[np.abs(bounds) < _ZERO * whole] = 0.0
    return np.stack([*bounds, c], axis=1)


FAMILY = Family("negative binomial", identify, BoundedSlopes)
