"""Other factors of a plate, of which each row has one level: what the levels add to predictors.

Levels are shared coefficients. In a group only some of them occur, in its occupied cells, and all that is
known of the group's rows are the weights of these: nothing here takes as long as there are columns.

A row is moved by the sum of the displacements of its levels, less q_g, the mean of that over the group.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, Vector


class Cells(NamedTuple):
    """Levels of other factors that occur in each group, factor by factor."""

    n_factors: int  # F
    starts: Index  # (G F + 1,): where the list of each group and factor begins
    columns: npt.NDArray[np.int32]  # (C,): which of the P columns has a one for rows with this level


class Displaced(NamedTuple):
    """Sums that levels of other factors add to the predictors of each group's rows, in one state."""

    means: Vector  # (G,): q_g
    # middles, farthest (G,): half of the sums, and of the differences, of the largest and the smallest
    # displacement of each factor: what is added is at most so far from the middle
    middles: Vector
    farthest: Vector


@jitable
def not_displaced(n_groups: int) -> Displaced:
    """Zero displacements, where levels are at the center, or where there are none."""
    return Displaced(np.zeros(n_groups), np.zeros(n_groups), np.zeros(n_groups))


@jitable
def displace(cells: Cells, shares: Vector, d: Vector, result: Displaced) -> None:
    """Write what levels of other factors add to predictors at d; `shares` are means of the cells' columns."""
    starts, columns, (means, middles, farthest) = cells.starts, cells.columns, result
    n_factors = cells.n_factors
    for g in range(means.shape[0] if n_factors > 0 else 0):
        mean, middle, far = 0.0, 0.0, 0.0
        for f in range(g * n_factors, (g + 1) * n_factors):
            low, high = math.inf, -math.inf
            for c in range(starts[f], starts[f + 1]):
                v = d[columns[c]]
                mean += shares[c] * v
                low, high = min(low, v), max(high, v)
            if low <= high:  # the group has rows
                middle, far = middle + 0.5 * (low + high), far + 0.5 * (high - low)
        means[g], middles[g], farthest[g] = mean, middle, far


@jitable
def changes_of_levels(cells: Cells, d: Vector, d_new: Vector, middles: Vector, farthest: Vector) -> None:
    """Write `Displaced.middles` and `Displaced.farthest` of what is added to the difference of two states."""
    starts, columns, n_factors = cells.starts, cells.columns, cells.n_factors
    for g in range(middles.shape[0]):
        middle, far = 0.0, 0.0
        for f in range(g * n_factors, (g + 1) * n_factors):
            low, high = math.inf, -math.inf
            for c in range(starts[f], starts[f + 1]):
                change = d_new[columns[c]] - d[columns[c]]
                low, high = min(low, change), max(high, change)
            if low <= high:
                middle, far = middle + 0.5 * (low + high), far + 0.5 * (high - low)
        middles[g], farthest[g] = middle, far
