"""Rows that are drawn for a move, in proportion to bounds on the changes of their remainders.

A row's predictor moves by t_i = y_i + z_i . d. Here y_i is e_g, and where there are other factors, whose
levels are among the shared coefficients, the row's levels have moved it, too: y_i = e_g - q_g + the
displacements of its levels, q_g being the mean of these over the group. The rest is |z_i . d| <= zeta_i |w|.
As |r_i'(t)| <= K_i t^2 / 2, along the segment between two states

    |r_i(t_i') - r_i(t_i)| <= B_i = K_i / 2 (|y_i' - y_i| + zeta_i Delta) (sqrt(E_i) + zeta_i sqrt(Wb))^2,

with E_i = (y_i^2 + y_i y_i' + y_i'^2) / 3, Wb the like of w, and Delta = |w' - w|.

For a group let delta_g and sqrt(Q_g) be no less than |y_i' - y_i| and sqrt(E_i) of all its rows, and Q_g no
less than zeta0_g^2 Wb. As sqrt(E_i) + zeta_i sqrt(Wb) <= (1 + zeta_i / zeta0_g) sqrt(Q_g), two cumulative
sums within groups dominate B_i. One exponential clock runs along the groups' totals: most groups are passed
without a row. A row that is drawn is kept with probability B_i over what it was drawn for.

All here is the same if the two states change places.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.bounds.jets.points import BLOCK
from pymc_austerity.exceptions import CompiledError
from pymc_austerity.kernels.plates.evaluation import changes, within
from pymc_austerity.kernels.plates.records import GroupBounds, Matrix, Plate, RowBounds, Singles
from pymc_austerity.target import Index, Vector


class GroupBoundError(CompiledError):
    """A Taylor remainder is larger than its bound: decisions by a wrong bound would be wrong."""

    sentence = (
        "The Taylor remainder of a row of group {0} changed by {1}, and the bound on that is {2}: the bound "
        "is wrong, and so would be the decisions. Please report the model. "
        "MetropolisHastings(control_variate=Taylor()) moves the same plate without bounds."
    )


class Shift(NamedTuple):
    """The part of a pair of states that all groups share.

    Attributes
    ----------
    tier : int
        The first whose radius contains both |w|; as many as there are tiers if none does.
    step : float
        Delta = |w' - w|.
    mean_square : float
        Wb.
    levels, new_levels : ndarray (P,)
        Displacements of levels of other factors, less their mean over the factor; zero for other columns.
    """

    tier: int
    step: float
    mean_square: float
    levels: Vector
    new_levels: Vector


@register_jitable
def shift_of(bounds: GroupBounds, d: Vector, d_new: Vector) -> Shift:
    """What w and w', and levels of other factors, have to do with each other."""
    old, new, both, change = 0.0, 0.0, 0.0, 0.0
    for a in range(bounds.whitening.shape[0]):
        w, w_new = 0.0, 0.0
        for k in range(d.shape[0]):
            w += bounds.whitening[a, k] * d[k]
            w_new += bounds.whitening[a, k] * d_new[k]
        old += w * w
        new += w_new * w_new
        both += w * w_new
        change += (w_new - w) * (w_new - w)  # of the sums little would be left where theta hardly moves
    tier = 0
    while tier < bounds.radii.shape[0] and not max(old, new) <= bounds.radii[tier] ** 2:
        tier += 1
    levels, new_levels = np.zeros(d.shape[0]), np.zeros(d.shape[0])
    for f in range(bounds.factor_starts.shape[0] - 1):
        own = bounds.factors[bounds.factor_starts[f] : bounds.factor_starts[f + 1]]
        centered(d, own, levels)
        centered(d_new, own, new_levels)
    return Shift(tier, math.sqrt(change), max(old + new + both, 0.0) / 3.0, levels, new_levels)


@register_jitable
def centered(d: Vector, columns: Index, result: Vector) -> None:
    """Write some elements of d less their mean."""
    mean = 0.0
    for k in columns:
        mean += d[k] / columns.shape[0]
    for k in columns:
        result[k] = d[k] - mean


@register_jitable
def without_levels(bounds: GroupBounds, means: Matrix, g: int, e: float, levels: Vector) -> float:
    """e_g - q_g, to which displacements of levels are added in each row."""
    n_factors = bounds.factor_starts.shape[0] - 1
    for c in range(bounds.cell_starts[g * n_factors], bounds.cell_starts[(g + 1) * n_factors]):
        k = bounds.cells[c]
        e -= means[g, k] * levels[k]
    return e


class Added(NamedTuple):
    """What levels of other factors add to y_i in a group: at most so far from the middle of all its rows.

    Attributes
    ----------
    middle, farthest : float
        In the old state.
    new_middle, new_farthest : float
        In the new state.
    change, farthest_change : float
        Of y_i' - y_i.
    """

    middle: float
    farthest: float
    new_middle: float
    new_farthest: float
    change: float
    farthest_change: float


@register_jitable
def added_by_levels(bounds: GroupBounds, g: int, shift: Shift) -> Added:
    """Half of the sums, and of the differences, of the largest and the smallest that occur in the group."""
    n_factors = bounds.factor_starts.shape[0] - 1
    middle, far, new_middle, new_far, change, far_change = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for f in range(g * n_factors, (g + 1) * n_factors):
        low, new_low, low_change = math.inf, math.inf, math.inf
        high, new_high, high_change = -math.inf, -math.inf, -math.inf
        for c in range(bounds.cell_starts[f], bounds.cell_starts[f + 1]):
            v, v_new = shift.levels[bounds.cells[c]], shift.new_levels[bounds.cells[c]]
            low, high = min(low, v), max(high, v)
            new_low, new_high = min(new_low, v_new), max(new_high, v_new)
            low_change, high_change = min(low_change, v_new - v), max(high_change, v_new - v)
        middle, far = middle + 0.5 * (low + high), far + 0.5 * (high - low)
        new_middle, new_far = new_middle + 0.5 * (new_low + new_high), new_far + 0.5 * (new_high - new_low)
        change += 0.5 * (low_change + high_change)
        far_change += 0.5 * (high_change - low_change)
    return Added(middle, far, new_middle, new_far, change, far_change)


class Rates(NamedTuple):
    """How many rows of a group are drawn for a move.

    Attributes
    ----------
    tier : int
        -1 if all rows of the group are read.
    levels, shared : float
        Factors of the two cumulative sums.
    expected : float
        Rows that are drawn.
    level, new_level : float
        e_g in either state, or e_g - q_g.
    """

    tier: int
    levels: float
    shared: float
    expected: float
    level: float
    new_level: float


@register_jitable
def rates_of(bounds: GroupBounds, g: int, e: float, e_new: float, shift: Shift, kappa: float) -> Rates:
    """The tier of a group, and what its rows are drawn with; symmetric in the two states."""
    added = added_by_levels(bounds, g, shift)
    y, y_new = e + added.middle, e_new + added.new_middle
    far, tier = max(abs(y) + added.farthest, abs(y_new) + added.new_farthest), shift.tier
    while tier < bounds.radii.shape[0] and not far <= bounds.reaches[tier, g]:
        tier += 1
    if tier == bounds.radii.shape[0]:
        return Rates(-1, 0.0, 0.0, 0.0, e, e_new)
    root = root_mean_square(y, y_new) + root_mean_square(added.farthest, added.new_farthest)
    q = 0.5 * kappa * max(root * root, bounds.typical[g] ** 2 * shift.mean_square)
    step = abs(e_new - e + added.change) + added.farthest_change
    levels, shared = step * q, shift.step * q
    expected = levels * bounds.levels[tier, g] + shared * bounds.shared[tier, g]
    if not expected <= bounds.sizes[g]:  # or not a number
        return Rates(-1, 0.0, 0.0, 0.0, e, e_new)
    return Rates(tier, levels, shared, expected, e, e_new)


@register_jitable
def root_mean_square(y: float, y_new: float) -> float:
    """Of a number that goes from y to y_new."""
    return math.sqrt(max((y * y + y_new * y_new + y * y_new) / 3.0, 0.0))


@register_jitable
def first_above(cumulative: Singles, first: int, last: int, level: float) -> int:
    """The first place from `first` to `last` at which a cumulative sum is above a level."""
    while first < last:
        middle = (first + last) // 2
        if cumulative[middle] > level:
            last = middle
        else:
            first = middle + 1
    return first


@register_jitable
def weight(cumulative: Singles, first: int, i: int) -> float:
    """That of a row in a cumulative sum that begins at `first`."""
    before = np.float64(cumulative[i - 1]) if i > first else 0.0
    return np.float64(cumulative[i]) - before


@register_jitable
def draw_row(
    rng: np.random.Generator,
    weights: RowBounds,
    span: tuple[int, int],
    rates: Rates,
    shift: Shift,
    kappa: float,
) -> tuple[int, float]:
    """A row of a group (its first and last are `span`) with its bound; -1 if what was drawn is not kept."""
    tier, (first, last) = rates.tier, span
    levels, shared = weights.levels[tier], weights.shared[tier]
    if rng.random() * rates.expected < rates.levels * levels[last]:
        i = first_above(levels, first, last, rng.random() * levels[last])
    else:
        i = first_above(shared, first, last, rng.random() * shared[last])
    y, y_new = rates.level, rates.new_level
    for f in range(weights.columns.shape[0]):
        y += shift.levels[weights.columns[f, i]]
        y_new += shift.new_levels[weights.columns[f, i]]
    zeta = np.float64(weights.lengths[i])
    spread = root_mean_square(y, y_new) + zeta * math.sqrt(shift.mean_square)
    size = 0.5 * kappa * np.float64(weights.constants[tier, i])
    bound = size * (abs(y_new - y) + zeta * shift.step) * spread * spread
    drawn_for = rates.levels * weight(levels, first, i) + rates.shared * weight(shared, first, i)
    if rng.random() * drawn_for < bound:
        return i, bound
    return -1, 0.0


class Drawn(NamedTuple):
    """Rows that are to be evaluated, with the lanes in which that is done.

    Attributes
    ----------
    rows, groups : ndarray of int
    bounds : ndarray
        B_i; below zero for rows of groups of which all rows are read.
    lanes : tuple
        Rows, t, t' and changes of remainders of up to BLOCK rows.
    """

    rows: Index
    groups: Index
    bounds: Vector
    lanes: tuple[Index, Vector, Vector, Vector]


@register_jitable
def room_for_rows(n: int) -> Drawn:
    """Room for n rows."""
    lanes = (np.zeros(BLOCK, np.int64), np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK))
    return Drawn(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n), lanes)


class Pair(NamedTuple):
    """Two states between which a move is decided.

    Attributes
    ----------
    levels, new_levels : ndarray (G,)
    d, d_new : ndarray (P,)
    """

    levels: Vector
    new_levels: Vector
    d: Vector
    d_new: Vector


@register_jitable
def add_log_ratios(
    rng: np.random.Generator, plate: Plate, drawn: Drawn, n: int, pair: Pair, result: Vector
) -> None:
    """Add what the first n rows say to their groups.

    That is the change of the remainder, where all rows of the group are read. Else it is
    log (1 + x) / (1 - x), x = change / bound, for the rows that are counted, with probability (1 - x) / 2.
    """
    index, old, new, found = drawn.lanes
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        for k in range(m):
            lane, i, g = BLOCK - m + k, drawn.rows[start + k], drawn.groups[start + k]
            index[lane] = i
            old[lane] = pair.levels[g] + within(plate.rows, plate.sums, g, i, pair.d)
            new[lane] = pair.new_levels[g] + within(plate.rows, plate.sums, g, i, pair.d_new)
        changes(plate.rows, plate.room, index, m, old, new, found)
        for k in range(m):
            g, change, bound = drawn.groups[start + k], found[BLOCK - m + k], drawn.bounds[start + k]
            if bound < 0.0:
                result[g] += change
                continue
            if not abs(change) <= bound + plate.bounds.rounding:  # or not a number
                plate.rule.violations[0] += 1
                if not plate.rule.debug:
                    raise GroupBoundError(g, change, bound)
                if math.isnan(change):
                    change = -bound
            x = min(max(change / bound, -1.0), 1.0)
            if rng.random() < 0.5 * (1.0 - x):
                result[g] += math.log((1.0 + x) / (1.0 - x)) if x > -1.0 else -math.inf
