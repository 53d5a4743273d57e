"""Ranges of terms of binary responses y_i in {0, 1}.

Where log p(y | eta) is concave in eta, as for all usual links, its slope decreases: on the way from q to q',
with eta between its lowest and highest value eta- and eta+, it is between f'(eta+) and f'(eta-). So l_i is
between the extremes of the products of these two numbers with the extent of x_i . (q' - q), over the rows
with y_i = 1 and those with y_i = 0 separately. eta is linear in q, so it is extremal at q or q'.
"""

import math
from collections.abc import Callable

from pymc_austerity.bounds.enclosure import Enclosure, extent, product
from pymc_austerity.bounds.families.range_certificate import RangeCertificate, step_between, with_one
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Matrix, Vector

# ``(response, low, high)``: the least and the largest slope of a term for eta from low to high.
SlopesBetween = Callable[[int, float, float], tuple[float, float]]


class BinaryResponses(RangeCertificate):
    """Certificate of terms of binary responses y_i; a subclass for each link defines `interval`."""

    needs_offset = True
    n_factors = 0

    @staticmethod
    def points(rows: Matrix, constants: Matrix) -> tuple[Matrix, Matrix]:
        """The rows (x_i, o_i) with y_i = 1, and those with y_i = 0."""
        positive = constants[:, 0] > 0.0
        return rows[positive], rows[~positive]


@jitable
def interval_of_responses(
    certificate: BinaryResponses, slopes_between: SlopesBetween, q_new: Vector, q: Vector
) -> tuple[float, float]:
    """An interval that contains all log ratios of the term."""
    low, high = math.inf, -math.inf
    for response in range(2):
        enclosure = certificate.first if response == 1 else certificate.second
        if enclosure.n_points > 0:
            eta_low, eta_high, s_low, s_high = _extents_on_the_way(enclosure, q_new, q)
            a, b = slopes_between(response, eta_low, eta_high)
            a, b = product(a, b, s_low, s_high)
            low, high = min(low, a), max(high, b)
    return low, high


@jitable
def _extents_on_the_way(enclosure: Enclosure, q_new: Vector, q: Vector) -> tuple[float, float, float, float]:
    """The lowest and highest eta on the way from q to q_new, and the extent of its change."""
    low, high = extent(enclosure, with_one(q))
    low_new, high_new = extent(enclosure, with_one(q_new))
    s_low, s_high = extent(enclosure, step_between(q_new, q))
    return min(low, low_new), max(high, high_new), s_low, s_high
