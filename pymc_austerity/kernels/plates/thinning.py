"""Rows that are drawn for a move, in proportion to bounds on the changes of their remainders.

A row's predictor moves by t_i = y_i + z_i . d. Here y_i is e_g, and where there are other factors, whose
levels are among the shared coefficients, the row's levels have moved it, too: y_i = e_g - q_g + the
displacements of its levels, q_g being the mean of these over the group. The rest is |z_i . d| <= zeta_i |w|.
As |r_i'(t)| <= K_i |t|^m, along the segment between two states

    |r_i(t_i') - r_i(t_i)| <= B_i = K_i (|y_i' - y_i| + zeta_i Delta) (E_i + zeta_i Wb)^m,

with E_i the m-th root of the mean of |y|^m along the segment, Wb the like of |w|, and Delta = |w' - w|. The
polynomials are of the order m, and m! K_i bounds derivatives of order m + 1.

For a group let delta_g and Q_g be no less than |y_i' - y_i| and E_i of all its rows, and Q_g no less than
zeta0_g Wb. As E_i + zeta_i Wb <= (1 + zeta_i / zeta0_g) Q_g, two cumulative sums within groups dominate
B_i. One exponential clock runs along the groups' totals: most groups are passed without a row. A row that is
drawn is kept with probability B_i over what it was drawn for.

With random slopes y_i = Z_i . e_g, and |y_i| <= rho_i |A_g e_g| with rho_i = |A_g'^-1 Z_i|: the numbers of
a group are those of A_g e_g, and its cumulative sums have rho_i (rho_i + zeta_i / zeta0_g)^m in the place of
(1 + zeta_i / zeta0_g)^m, and zeta_i / rho_i in that of zeta_i.

All here is the same if the two states change places.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.points import BLOCK
from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import CompiledError
from pymc_austerity.kernels.plates.cells import Cells, Displaced, changes_of_levels
from pymc_austerity.kernels.plates.evaluation import changes, moved, phi_at
from pymc_austerity.kernels.plates.records import GroupBounds, Plate, RowBounds
from pymc_austerity.kernels.plates.slopes import lengths_of_pair
from pymc_austerity.target import Index, Matrix, Singles, Vector


class GroupBoundError(CompiledError):
    """A Taylor remainder is larger than its bound: decisions by a wrong bound would be wrong."""

    sentence = (
        "The Taylor remainder of a row of group {0} changed by {1}, and the bound on that is {2}: the bound "
        "is wrong, and so would be the decisions. Please report the model. "
        "MetropolisHastings(control_variate=Taylor()) moves the same plate without bounds."
    )


class Shift(NamedTuple):
    """The part of a pair of states that all groups share."""

    tier: int  # The first whose radius contains both |w|; as many as there are tiers if none does
    step: float  # Delta = |w' - w|
    size: float  # Wb, or somewhat more
    moves: bool  # Whether d and d' differ


@jitable
def shift_of(bounds: GroupBounds, d: Vector, d_new: Vector) -> Shift:
    """Lengths of w and w', of what is between them, and the tier that contains both."""
    old, new, both, change = 0.0, 0.0, 0.0, 0.0
    for a in range(bounds.whitening.shape[0]):
        w, w_new = 0.0, 0.0
        for k in range(bounds.whitening.shape[1]):
            w += bounds.whitening[a, k] * d[k]
            w_new += bounds.whitening[a, k] * d_new[k]
        old += w * w
        new += w_new * w_new
        both += w * w_new
        change += (w_new - w) * (w_new - w)  # of the sums little would be left where theta hardly moves
    tier = 0
    while tier < bounds.radii.shape[0] and not max(old, new) <= bounds.radii[tier] ** 2:
        tier += 1
    moves = False
    for k in range(d.shape[0]):
        moves = moves or d[k] != d_new[k]
    square = max(old + new + both, 0.0) / 3.0
    size = math.sqrt(square) if bounds.power == 2 else np.cbrt(math.sqrt(max(old, new)) * square)
    return Shift(tier, math.sqrt(change), size, moves)


class Pair(NamedTuple):
    """Two states between which a move is decided."""

    # levels, new_levels (G,): with slopes (G q,)
    levels: Vector
    new_levels: Vector
    # d, d_new (P,)
    d: Vector
    d_new: Vector
    displaced: Displaced
    new_displaced: Displaced


class Rates(NamedTuple):
    """Expected numbers of rows of each group that are drawn for a move."""

    tiers: Index  # (G,): -1 if all rows of the group are read
    # levels, shared (G,): factors of the two cumulative sums
    levels: Vector
    shared: Vector
    expected: Vector  # (G,): rows that are drawn


@jitable
def rates_of(bounds: GroupBounds, cells: Cells, pair: Pair, shift: Shift, kappa: float) -> Rates:
    """Tiers of the groups, and what their rows are drawn with; symmetric in the two states."""
    levels, new_levels = pair.levels, pair.new_levels
    means, middles, farthest = pair.displaced
    new_means, new_middles, new_farthest = pair.new_displaced
    power = bounds.power
    reaches, typical, sizes, n_tiers = bounds.reaches, bounds.typical, bounds.sizes, bounds.radii.shape[0]
    of_levels, of_shared, n_groups = bounds.levels, bounds.shared, bounds.sizes.shape[0]
    more, away_more = np.zeros(n_groups), np.zeros(n_groups)
    has_slopes = bounds.norms.shape[0] > 0  # there are no other factors then
    if shift.moves and cells.n_factors > 0:
        changes_of_levels(cells, pair.d, pair.d_new, more, away_more)
    rates = Rates(np.full(n_groups, -1), np.zeros(n_groups), np.zeros(n_groups), np.zeros(n_groups))
    tiers, by_levels, by_shared, expected = rates
    for g in range(n_groups):
        if has_slopes:
            far, root, step = lengths_of_pair(bounds.norms, g, levels, new_levels)
        else:
            e, e_new = levels[g] - means[g], new_levels[g] - new_means[g]
            y, y_new, away, away_new = e + middles[g], e_new + new_middles[g], farthest[g], new_farthest[g]
            far = max(abs(y) + away, abs(y_new) + away_new)
            root = mean_size(y, y_new, power) + mean_size(away, away_new, power)
            step = abs(e_new - e + more[g]) + away_more[g]
        tier = shift.tier
        while tier < n_tiers and not far <= reaches[tier, g]:
            tier += 1
        if tier == n_tiers:
            continue
        q = kappa * to_power(max(root, typical[g] * shift.size), power)
        rate = step * q * of_levels[tier, g] + shift.step * q * of_shared[tier, g]
        if rate <= sizes[g]:  # and is a number
            tiers[g], by_levels[g], by_shared[g], expected[g] = tier, step * q, shift.step * q, rate
    return rates


@jitable
def mean_size(y: float, y_new: float, power: int) -> float:
    """The m-th root of the mean of |y|^m, for a number that goes from y to y_new; m is 2 or 3."""
    if power == 2:
        return math.sqrt(max((y * y + y_new * y_new + y * y_new) / 3.0, 0.0))
    a, b = abs(y), abs(y_new)
    if y * y_new >= 0.0:
        mean = 0.25 * (a + b) * (a * a + b * b)
    else:
        mean = 0.25 * (a * a * a * a + b * b * b * b) / (a + b)
    root: float = np.cbrt(mean)
    return root


@jitable
def to_power(x: float, power: int) -> float:
    """x^2 or x^3."""
    return x * x if power == 2 else x * x * x


@jitable
def first_above(cumulative: Singles, first: int, last: int, level: float) -> int:
    """The first place from `first` to `last` at which a cumulative sum is above a level."""
    while first < last:
        middle = (first + last) // 2
        if cumulative[middle] > level:
            last = middle
        else:
            first = middle + 1
    return first


@jitable
def weight(cumulative: Singles, first: int, i: int) -> float:
    """Weight of row i, from cumulative sums that begin at row `first`."""
    before = np.float64(cumulative[i - 1]) if i > first else 0.0
    return np.float64(cumulative[i]) - before


class Candidates(NamedTuple):
    """Arrays of a plate that drawing a row needs.

    A call counts references to all arrays that it hands over: for a whole plate, that takes longer than the
    rest of a draw.
    """

    starts: Index
    covariates: Matrix
    columns: npt.NDArray[np.int32]
    weights: RowBounds
    n_effects: int
    power: int


@jitable
def candidates_of(plate: Plate) -> Candidates:
    """The rows of a plate, to draw from."""
    rows = plate.rows
    return Candidates(
        rows.starts, rows.covariates, rows.levels, plate.weights, plate.sums.n_effects, plate.bounds.power
    )


@jitable
def draw_row(
    rng: np.random.Generator,
    candidates: Candidates,
    g: int,
    rates: Rates,
    pair: Pair,
    shift: Shift,
    kappa: float,
) -> tuple[int, float]:
    """A row of a group with its bound; -1 if what was drawn is not kept."""
    starts, covariates, columns, weights, n_effects, power = candidates
    tier, first, last = rates.tiers[g], starts[g], starts[g + 1] - 1
    levels, shared = weights.levels[tier], weights.shared[tier]
    if rng.random() * rates.expected[g] < rates.levels[g] * levels[last]:
        i = first_above(levels, first, last, rng.random() * levels[last])
    else:
        i = first_above(shared, first, last, rng.random() * shared[last])
    own = g * n_effects
    y, y_new = pair.levels[own] - pair.displaced.means[g], pair.new_levels[own] - pair.new_displaced.means[g]
    for j in range(covariates.shape[1]):
        y += covariates[i, j] * pair.levels[own + 1 + j]
        y_new += covariates[i, j] * pair.new_levels[own + 1 + j]
    for f in range(columns.shape[0]):
        y += pair.d[columns[f, i]]
        y_new += pair.d_new[columns[f, i]]
    zeta = np.float64(weights.lengths[i])
    spread = to_power(mean_size(y, y_new, power) + zeta * shift.size, power)
    size = kappa * np.float64(weights.constants[tier, i])
    bound = size * (abs(y_new - y) + zeta * shift.step) * spread
    drawn_for = rates.levels[g] * weight(levels, first, i) + rates.shared[g] * weight(shared, first, i)
    if rng.random() * drawn_for < bound:
        return i, bound
    return -1, 0.0


class Drawn(NamedTuple):
    """Rows that are to be evaluated, with the lanes in which that is done."""

    rows: Index
    groups: Index
    bounds: Vector  # B_i; below zero for rows of groups of which all rows are read
    lanes: tuple[Index, Vector, Vector, Vector]  # Rows, t, t' and changes of remainders of up to BLOCK rows


@jitable
def room_for_rows(n: int) -> Drawn:
    """Room for n rows."""
    lanes = (np.zeros(BLOCK, np.int64), np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK))
    return Drawn(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n), lanes)


@jitable
def add_log_ratios(
    rng: np.random.Generator, plate: Plate, drawn: Drawn, n: int, pair: Pair, result: Vector
) -> None:
    """Add what the first n rows say to their groups.

    That is the change of the remainder, where all rows of the group are read. Else it is
    log (1 + x) / (1 - x), x = change / bound, for the rows that are counted, with probability (1 - x) / 2.
    """
    index, old, new, found = drawn.lanes
    means, new_means = pair.displaced.means, pair.new_displaced.means
    phi, new_phi = phi_at(plate.sums, pair.d), phi_at(plate.sums, pair.d_new)
    rounding, debug, violations = plate.bounds.rounding, plate.rule.debug, plate.rule.violations
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        for k in range(m):
            index[BLOCK - m + k] = drawn.rows[start + k]
        which = index, drawn.groups[start : start + m]
        moved(plate.rows, plate.sums, which, (pair.levels, means), pair.d, old)
        moved(plate.rows, plate.sums, which, (pair.new_levels, new_means), pair.d_new, new)
        changes(plate.rows, plate.room, index, m, (old, phi), (new, new_phi), found)
        for k in range(m):
            g, change, bound = drawn.groups[start + k], found[BLOCK - m + k], drawn.bounds[start + k]
            if bound < 0.0:
                result[g] += change
                continue
            if not abs(change) <= bound + rounding:  # or not a number
                violations[0] += 1
                if not debug:
                    raise GroupBoundError(g, change, bound)
                if math.isnan(change):
                    change = -bound
            x = min(max(change / bound, -1.0), 1.0)
            if rng.random() < 0.5 * (1.0 - x):
                result[g] += math.log((1.0 + x) / (1.0 - x)) if x > -1.0 else -math.inf
