"""Other factors of a plate, of which each row has one level: what the levels add to predictors.

Levels are shared coefficients. In a group only some of them occur, in its occupied cells, and all that is
known of the group's rows are the weights of these: nothing here takes as long as there are columns.

A row's levels move its predictor by the sum of their displacements, less q_g, the mean of this over the group.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from pymc_austerity.target import Index, Vector


class Cells(NamedTuple):
    """Levels of other factors that occur in each group, factor by factor.

    Attributes
    ----------
    n_factors : int
        F.
    starts : ndarray of int (G F + 1,)
        Where the list of each group and factor begins.
    columns : ndarray of int32 (C,)
        Which of the P columns has a one for rows with this level.
    """

    n_factors: int
    starts: Index
    columns: npt.NDArray[np.int32]


class Displaced(NamedTuple):
    """What levels add to the predictors of each group's rows, in one state.

    Attributes
    ----------
    means : ndarray (G,)
        q_g.
    middles, farthest : ndarray (G,)
        Half of the sums, and of the differences, of the largest and the smallest displacement of each factor:
        what is added is at most so far from the middle.
    """

    means: Vector
    middles: Vector
    farthest: Vector


class Added(NamedTuple):
    """What levels add to the difference of two states, in a group: at most so far from the middle."""

    middle: float
    farthest: float


@register_jitable
def not_displaced(n_groups: int) -> Displaced:
    """Where levels are at the center, or where there are none."""
    return Displaced(np.zeros(n_groups), np.zeros(n_groups), np.zeros(n_groups))


@register_jitable
def displace(cells: Cells, shares: Vector, d: Vector, result: Displaced) -> None:
    """Write what is added at d; `shares` are means of the cells' columns."""
    n_factors = cells.n_factors
    if n_factors == 0:
        return
    for g in range(result.means.shape[0]):
        mean, middle, far = 0.0, 0.0, 0.0
        for f in range(g * n_factors, (g + 1) * n_factors):
            low, high = math.inf, -math.inf
            for c in range(cells.starts[f], cells.starts[f + 1]):
                v = d[cells.columns[c]]
                mean += shares[c] * v
                low, high = min(low, v), max(high, v)
            if low <= high:  # the group has rows
                middle, far = middle + 0.5 * (low + high), far + 0.5 * (high - low)
        result.means[g], result.middles[g], result.farthest[g] = mean, middle, far


@register_jitable
def added(cells: Cells, g: int, d: Vector, d_new: Vector) -> Added:
    """How much more is added in a new state, in a group that has rows."""
    n_factors = cells.n_factors
    middle, far = 0.0, 0.0
    for f in range(g * n_factors, (g + 1) * n_factors):
        low, high = math.inf, -math.inf
        for c in range(cells.starts[f], cells.starts[f + 1]):
            k = cells.columns[c]
            change = d_new[k] - d[k]
            low, high = min(low, change), max(high, change)
        middle, far = middle + 0.5 * (low + high), far + 0.5 * (high - low)
    return Added(middle, far)
