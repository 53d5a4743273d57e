"""Normal errors: f_i'(eta) = -s_i eta.

f_i is quadratic, so with d = q' - q and the midpoint p = (q + q') / 2

    l_i = -(s_i / 2) (eta'^2 - eta^2) = -s_i (x_i . d) (x_i . p + o_i).

With v_i = sqrt(s_i) (x_i, o_i) that is -(v_i . (d, 0)) (v_i . (p, 1)), bounded by `extent_of_product`.
"""

import numpy as np

from pymc_austerity.bounds.enclosure import extent_of_product, product
from pymc_austerity.bounds.families.base import Family, agree, value_at
from pymc_austerity.bounds.families.range_certificate import RangeCertificate, step_between, with_one
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Matrix, Vector


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The precisions s_i."""
    s = -value_at(eta, slopes, 1.0)
    if np.any(s < 0.0) or not agree(eta, slopes, -s * eta[:, None]):
        return None
    return s[:, None]


class NormalTerms(RangeCertificate):
    """Certificate of terms with precisions s_i."""

    needs_offset = True
    n_factors = 1

    @staticmethod
    def points(rows: Matrix, constants: Matrix) -> tuple[Matrix, Matrix]:
        """The points sqrt(s_i) (x_i, o_i), and none."""
        return rows * np.sqrt(constants), rows[:0]

    @jitable
    def interval(self, q_new: Vector, q: Vector) -> tuple[float, float]:
        """An interval that contains all log ratios of the term."""
        middle = with_one(q)
        for j in range(q.shape[0]):
            middle[j] = (q_new[j] + q[j]) / 2.0
        low, high = extent_of_product(self.first, step_between(q_new, q), middle)
        s = self.factors[0]
        return product(-s, -s, low, high)


FAMILY = Family("normal", identify, NormalTerms)
