"""Student's t: f_i'(eta) = -a_i eta / (c_i + eta^2).

Its largest size, at eta^2 = c_i, is L_i = a_i / (2 sqrt(c_i)): a case of `bounded_slope`. With nu degrees of
freedom and scale sigma, and eta = y - mu, a = nu + 1 and c = nu sigma^2: L = (nu + 1) / (2 sqrt(nu) sigma).

With x = eta / sqrt(c) and z = 1 / (1 + x^2),

    f'' = -(a / c) (1 - x^2) / (1 + x^2)^2 = -(a / c) z (2 z - 1),
    f''' = (a / c^1.5) 2 x (3 - x^2) / (1 + x^2)^3 = (a / c^1.5) 2 x z^2 (4 z - 1).

The maxima of |f''| are where f''' = 0: x = 0 and +-sqrt(3). Those of |f'''| are where x^4 - 6 x^2 + 1 = 0:
x = +-(sqrt(2) +- 1).
"""

from __future__ import annotations

import math

import numpy as np

from pymc_austerity.bounds.enclosure import Matrix
from pymc_austerity.bounds.families.base import Family, agree, largest_between, value_at
from pymc_austerity.bounds.families.bounded_slope import BoundedSlopes
from pymc_austerity.target import Vector

# The x where |f''| and |f'''| are largest.
_PEAKS = {
    1: (-math.sqrt(3.0), 0.0, math.sqrt(3.0)),
    2: (-math.sqrt(2.0) - 1.0, 1.0 - math.sqrt(2.0), math.sqrt(2.0) - 1.0, math.sqrt(2.0) + 1.0),
}


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The bounds -L_i and L_i."""
    constants = identify_shape(eta, slopes)
    if constants is None:
        return None
    a, c = constants.T
    largest = a / (2.0 * np.sqrt(c))
    return np.stack([-largest, largest], axis=1)


def identify_shape(eta: Vector, slopes: Matrix) -> Matrix | None:
    """a_i and c_i."""
    near, far = np.abs(eta[eta != 0.0]).min(), np.abs(eta).max()
    # Far out the slope is -a / eta, and near zero -a eta / c.
    with np.errstate(all="ignore"):
        a = -value_at(eta, slopes, far) * far
        c = -a * near / value_at(eta, slopes, near) - near**2
        if not np.all((a > 0.0) & (c > 0.0)):
            return None
        a = a * (1.0 + c / far**2)
        expected = -a * eta[:, None] / (c + eta[:, None] ** 2)
    if not agree(eta, slopes, expected):
        return None
    return np.stack([a, c], axis=1)


def curvature(constants: Matrix, low: Vector, high: Vector, order: int) -> Vector:
    """The largest |f''| or |f'''| for eta from low to high; the constants are a_i and c_i."""

    def size(x: Vector) -> Vector:
        x = np.clip(x, -1e100, 1e100)  # the square of more would overflow
        z = 1.0 / (1.0 + x**2)
        value: Vector = z * (2.0 * z - 1.0) if order == 1 else 2.0 * x * z**2 * (4.0 * z - 1.0)
        return np.abs(value)

    a, unit = constants[:, 0], np.sqrt(constants[:, 1])
    largest: Vector = a / unit ** (order + 1) * largest_between(size, _PEAKS[order], low / unit, high / unit)
    return largest


FAMILY = Family("Student's t", identify, BoundedSlopes, curvature, identify_shape)
