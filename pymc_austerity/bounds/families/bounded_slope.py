"""Ranges of terms whose slopes are between two constants: a_i <= f_i'(eta) <= b_i.

By the mean value theorem l_i = s_i f_i'(xi) with s_i = x_i . (q' - q), so l_i is between a_i s_i and
b_i s_i. Over all i, that is the hull of the extents of the points a_i x_i and b_i x_i along q' - q.

The o_i do not matter, and may change with variables of other steps.
"""

from pymc_austerity.bounds.enclosure import extent, product
from pymc_austerity.bounds.families.range_certificate import (
    RangeCertificate,
    step_between,
    without_offset,
)
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Matrix, Vector


class BoundedSlopes(RangeCertificate):
    """Certificate of terms whose slopes are between two constants of the row, a_i and b_i in this order."""

    needs_offset = False
    n_factors = 2

    @staticmethod
    def points(rows: Matrix, constants: Matrix) -> tuple[Matrix, Matrix]:
        """The points a_i x_i and b_i x_i."""
        return without_offset(rows, constants[:, 0]), without_offset(rows, constants[:, 1])

    @jitable
    def interval(self, q_new: Vector, q: Vector) -> tuple[float, float]:
        """An interval that contains all log ratios of the term."""
        u = step_between(q_new, q)
        a, b = self.factors[0], self.factors[1]
        low_a, high_a = extent(self.first, u)
        low_b, high_b = extent(self.second, u)
        low_a, high_a = product(a, a, low_a, high_a)
        low_b, high_b = product(b, b, low_b, high_b)
        return min(low_a, low_b), max(high_a, high_b)
