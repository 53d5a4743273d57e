"""What terms of binary responses y_i in {0, 1} have in common.

Where log p(y | eta) is concave in eta, as for all usual links, its slope decreases: on the way from q to q',
with eta between its lowest and highest value eta- and eta+, it is between f'(eta+) and f'(eta-). So l_i is
between the extremes of the products of these two numbers with the extent of x_i . (q' - q), over the rows
with y_i = 1 and those with y_i = 0 separately. eta is linear in q, so it is extremal at q or q'.

Each link has a function ``slopes_between(response, low, high)``.
"""

from __future__ import annotations

import math

from numba.extending import register_jitable

from pymc_austerity.bounds.enclosure import Cloud, Matrix, extent
from pymc_austerity.bounds.families.base import step_between, with_one
from pymc_austerity.target import Vector


def points(rows: Matrix, constants: Matrix) -> tuple[Matrix, Matrix]:
    """The rows (x_i, o_i) with y_i = 1, and those with y_i = 0."""
    positive = constants[:, 0] > 0.0
    return rows[positive], rows[~positive]


@register_jitable
def reach(cloud: Cloud, q_new: Vector, q: Vector) -> tuple[float, float, float, float]:
    """The lowest and highest eta on the way from q to q_new, and the extent of its change."""
    low, high = extent(cloud, with_one(q))
    low_new, high_new = extent(cloud, with_one(q_new))
    s_low, s_high = extent(cloud, step_between(q_new, q))
    return min(low, low_new), max(high, high_new), s_low, s_high


@register_jitable
def exponential(x: float) -> float:
    """exp(x), infinite where it overflows."""
    return math.exp(x) if x < 709.0 else math.inf
