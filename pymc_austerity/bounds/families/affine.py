"""Terms that are linear by construction: f_i(eta) = eta, a case of `bounded_slope`."""

from pymc_austerity.bounds.families.base import Family
from pymc_austerity.bounds.families.bounded_slope import BoundedSlopes
from pymc_austerity.target import Matrix, Vector


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The slope of each row, as the least and as the largest."""
    return slopes[:2].T


class EqualSlopes(BoundedSlopes):
    """Certificate of terms whose slopes other variables do not change."""

    n_factors = 0


FAMILY = Family("affine", identify, EqualSlopes)
