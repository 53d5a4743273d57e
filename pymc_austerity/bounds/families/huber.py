"""Huber's loss: f_i'(eta) = -s_i eta, cut off at -K_i and K_i: a case of `bounded_slope`."""

import numpy as np

from pymc_austerity.bounds.families.base import Family, agree, value_at
from pymc_austerity.bounds.families.bounded_slope import BoundedSlopes
from pymc_austerity.target import Matrix, Vector


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The bounds -K_i and K_i."""
    near, far = np.abs(eta[eta != 0.0]).min(), np.abs(eta).max()
    s, largest = -value_at(eta, slopes, near) / near, -value_at(eta, slopes, far)
    # If nothing is cut off on the grid, this is a normal distribution.
    if not np.all((s > 0.0) & (largest > 0.0) & (s * far > 2.0 * largest)):
        return None
    if not agree(eta, slopes, -np.clip(s * eta[:, None], -largest, largest)):
        return None
    return np.stack([-largest, largest], axis=1)


FAMILY = Family("Huber", identify, BoundedSlopes)
