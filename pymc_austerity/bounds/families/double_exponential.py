"""Laplace and asymmetric Laplace (quantile regression): slopes that are one constant on either side of zero.

f_i'(eta) = -b_i for eta > 0 and a_i for eta < 0, a case of `bounded_slope`; for the Laplace distribution of
scale b, both constants are 1 / b. Terms of constant slope are a special case.
"""

import numpy as np

from pymc_austerity.bounds.families.base import Family, agree, value_at
from pymc_austerity.bounds.families.bounded_slope import BoundedSlopes
from pymc_austerity.target import Matrix, Vector


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The smaller and the larger slope."""
    left, right = value_at(eta, slopes, -1.0), value_at(eta, slopes, 1.0)
    expected = np.where(eta[:, None] < 0.0, left, right)
    inside = eta != 0.0  # there, the slope is anything between
    if not agree(eta[inside], slopes[inside], expected[inside]):
        return None
    return np.stack([np.minimum(left, right), np.maximum(left, right)], axis=1)


FAMILY = Family("Laplace", identify, BoundedSlopes)
