"""Student's t: f_i'(eta) = -a_i eta / (c_i + eta^2).

Its largest size, at eta^2 = c_i, is L_i = a_i / (2 sqrt(c_i)): a case of `bounded_slope`. With nu degrees of
freedom and scale sigma, and eta = y - mu, a = nu + 1 and c = nu sigma^2: L = (nu + 1) / (2 sqrt(nu) sigma).
"""

import numpy as np

from pymc_austerity.bounds.families.base import Family, agree, value_at
from pymc_austerity.bounds.families.bounded_slope import BoundedSlopes
from pymc_austerity.target import Matrix, Vector


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The bounds -L_i and L_i."""
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
    largest = a / (2.0 * np.sqrt(c))
    return np.stack([-largest, largest], axis=1)


FAMILY = Family("Student's t", identify, BoundedSlopes)
