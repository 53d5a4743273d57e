"""What rows say of the moves of a depth: all rows of a cell, or those that its clock finds.

A cell are rows that see the same nodes. With e_f = F_f' d for the blocks f of levels on its path, and
typical sizes s_f of these, |z_ikf| s_f bounds how far predictor k of row i moves with block f. Block f has
the share m_if of all that moves the row, where predictors are in units v_ik: |t_i / v_i| <= sum_f m_if
|e_f| / s_f, and shares sum to one. For two states let X_f be the root mean square of |e_f| / s_f along the
segment between them, Y_f that of their difference. Then

    |change of the remainder| <= K_i / 2 (sum_f m_if Y_f) (sum_f m_if X_f)^2 <= sum_f h_f k_if m_if Y_f,
    k_if = K_i / 2,   h_f = rho^2,   rho = min(max_f X_f, sum_f X_f max_i m_if),

where K_i bounds third derivatives along directions of length one in the units v_i. In cells of which
third-order terms are known (see `cubic`) K_i bounds fourth derivatives. Block 0 is the lowest, R are sums
over the others, X_R = sum of m_if X_f, Y_R likewise, C_i is the size of the third derivatives in the units
v_ik, and Z_f is the larger |e_f| / s_f of the two ends. With terms of the third order that are left,

    |change| <= C_i (X_R^2 m_i0 Y_0 / 2 + (m_i0 X_0 + X_R / 2) X_R Y_R)
                + K_i / 6 (sum_f m_if Y_f) (sum_f m_if X_f)^2 (sum_f m_if Z_f) <= sum_f h_f k_if m_if Y_f,
    k_i0 = K_i / 6 + C_i m_iR^2 / 2,               h_0 = max(chi^2, rho^2 zeta),
    k_if = K_i / 6 + C_i m_iR (1 - m_iR / 2),      h_f = max(chi max_f X_f, rho^2 zeta) for f > 0,

chi being the largest X_f of f > 0, and zeta of Z_f what rho is of X_f.

The right side is a sum over blocks, so that one cumulative sum of rows for each block serves to draw rows at
these rates; a drawn row is kept with the ratio of the two. The second form of rho helps where a block is a
small part of what moves every row of a cell. Bounds hold within a reach of zeta. A cell with an end beyond
it, or with more draws than rows, is read as a whole. All of it is the same for both states, so that moves are
reversible.

Rows of a cell may see different levels of a crossed factor, or of one that is held, which has Y = 0. For the
rates the largest X and Y of all these `loose` blocks count; a drawn row is kept by its own.
"""

import math

import numpy as np

from pymc_austerity.bounds.jets.points import BLOCK, run_at_points
from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import CompiledError
from pymc_austerity.kernels.fields.cubic import add_cubics, subtract_cubics
from pymc_austerity.kernels.fields.records import Bounds, Design, FieldArrays, Held, Loose
from pymc_austerity.target import Index, Matrix, Vector

# A cell of which so large a share of rows would be drawn is read; the limit of a row that is not drawn.
_SHARE, _WHOLE = 0.7, -1.0
# A probability that is larger than one by more than rounding is none.
_CERTAIN = 1.0 + 1e-6


class FieldBoundError(CompiledError):
    """A Taylor remainder is larger than its bound: decisions by a wrong bound would be wrong."""

    sentence = (
        "The Taylor remainder of a row below node {0} of a field changed by {1}, and the bound on that is "
        "{2}: the bound is wrong, and so would be the decisions. Please report the model. "
        "MetropolisHastings(control_variate=Taylor()) moves the same field without bounds."
    )


class FieldRateError(CompiledError):
    """A row would have to be drawn more often than it is: decisions would be wrong."""

    sentence = (
        "A row below node {0} of a field is drawn {1} times too seldom, and decisions would be wrong. Please "
        "report the model. MetropolisHastings(control_variate=Taylor()) moves the same field without bounds."
    )


@jitable
def add_rows(rng: np.random.Generator, plan: FieldArrays, now: int, kappa: float, counts: Vector) -> None:
    """Add what rows say to the log ratios `base` of the nodes that decide.

    `counts` are rows that were read, and those of cells that were read as a whole.
    """
    room, bounds, loose = plan.room, plan.bounds, plan.bounds.loose
    largest, farthest_loose, moving = _compare_levels(plan, now)
    _write_rates(plan, kappa, largest, farthest_loose, moving)
    add_cubics(plan, now)
    x, far, y, rates = room.sizes[0], room.sizes[1], room.sizes[2], room.rates[0]
    of_lowest, of_others = room.rates[1], room.rates[2]
    tiers, places, thirds = room.tiers, bounds.cubic.places, bounds.cubic.sizes
    own, base, of_cells, cells, paths = room.deciding, room.base, bounds.of_cells, bounds.cells, bounds.paths
    totals, lengths, cumulative = bounds.totals, bounds.lengths, bounds.cumulative
    of_loose, lengths_of_loose, n_tiers = loose.blocks, loose.lengths, bounds.reaches.shape[0]
    n_blocks, n_sums, first_loose = paths.shape[1], lengths.shape[1], bounds.nodes.shape[0]
    ys = np.empty(n_sums)
    # Rows to be read, their nodes and lowest blocks, and their bounds.
    index, limits = np.empty((3, BLOCK), np.int64), np.empty(BLOCK)
    n = 0
    clock, u = rng.standard_exponential(), -1
    while True:
        u, clock = _next_cell(rates, tiers, n_tiers, u + 1, clock)
        if u == tiers.shape[0]:
            break
        tier = tiers[u]
        g, begin, end = own[of_cells[u]], cells[u], cells[u + 1]
        lowest = paths[u, 0] if places[u + 1] > places[u] else -1
        if base[g] == -math.inf:
            while clock < 0.0:
                clock += rng.standard_exponential()
            continue
        if tier == n_tiers:
            for i in range(begin, end):
                index[0, n], index[1, n], index[2, n], limits[n] = i, g, lowest, _WHOLE
                n += 1
                if n == BLOCK:
                    _add(rng, plan, now, index, limits, n)
                    n = 0
            counts[0] += end - begin
            counts[1] += end - begin
            continue
        for f in range(n_sums):
            ys[f] = moving if f == n_blocks else (y[paths[u, f]] if paths[u, f] >= 0 else 0.0)
            ys[f] *= of_lowest[u] if f == 0 else of_others[u]
        while clock < 0.0:
            clock += rng.standard_exponential()
            i, f = _drawn(rng, totals[tier, u], cumulative[tier], begin, end, rates[u] / kappa, ys)
            moves, rate, spread, farthest = 0.0, 0.0, 0.0, 0.0
            for k in range(n_blocks):
                b = paths[u, k]
                if b >= 0:
                    moves += lengths[i, k] * y[b]
                    spread += lengths[i, k] * x[b]
                    farthest += lengths[i, k] * far[b]
            for k in range(n_sums):
                rate += lengths[i, k] * ys[k]
            for k in range(of_loose.shape[1]):
                share = lengths_of_loose[i, k]
                if share > 0.0:
                    b = first_loose + of_loose[i, k]
                    moves += share * y[b]
                    spread += share * x[b]
            size = (cumulative[tier, f, i + 1] - cumulative[tier, f, i]) / lengths[i, f]  # k_if
            if lowest >= 0:
                m, third = lengths[i, 0], 0.5 * thirds[i] * (1.0 - lengths[i, 0])
                size = max(size - third * (1.0 - m if f == 0 else 1.0 + m), 0.0)  # K_i / 6
                rest, of_rest = spread - m * x[lowest], moves - m * y[lowest]
                bound = size * moves * spread * spread * farthest
                bound += thirds[i] * rest * (0.5 * rest * moves + m * x[lowest] * of_rest)
                rate = (size + third * (1.0 + m)) * rate - 2.0 * third * m * m * ys[0]
            else:
                bound = size * moves * spread * spread
                rate *= size
            kept = bound / rate
            if not kept <= _CERTAIN:
                plan.violations[0] += 1
                if not plan.debug:
                    raise FieldRateError(g, kept)
            if rng.random() > kept:
                continue
            index[0, n], index[1, n], index[2, n], limits[n] = i, g, lowest, kappa * bound
            n += 1
            counts[0] += 1
            if n == BLOCK:
                _add(rng, plan, now, index, limits, n)
                n = 0
    if n > 0:
        _add(rng, plan, now, index, limits, n)


@jitable
def _next_cell(rates: Vector, tiers: Index, n_tiers: int, u: int, clock: float) -> tuple[int, float]:
    """The next cell, from u on, that is read as a whole or of which the clock finds a row; how late it is."""
    while u < tiers.shape[0] and tiers[u] < n_tiers:
        clock -= rates[u]
        if clock < 0.0:
            break
        u += 1
    return u, clock


@jitable
def _write_rates(
    plan: FieldArrays, kappa: float, largest: float, farthest_loose: float, moving: float
) -> None:
    """Write h_f, the tier and the rate of each cell: kappa times the sum over f of h_f C_f Y_f."""
    room, bounds = plan.room, plan.bounds
    x, far, y, own, of_cells = room.sizes[0], room.sizes[1], room.sizes[2], room.deciding, bounds.of_cells
    rates, of_lowest, of_others = room.rates[0], room.rates[1], room.rates[2]
    tiers, always = room.tiers, bounds.always
    paths, places, cells = bounds.paths, bounds.cubic.places, bounds.cells
    totals, reaches, shares, reads_all = bounds.totals, bounds.reaches, bounds.shares, plan.reads_all
    n_blocks, n_sums, n_tiers = paths.shape[1], totals.shape[2], reaches.shape[0]
    for u in range(of_cells.shape[0]):
        if own[of_cells[u]] < 0:
            tiers[u], rates[u] = -1, 0.0
            continue
        rho, farthest, tier, above = largest, farthest_loose, 0, 0.0
        of_shares, far_of_shares = shares[u, n_blocks] * largest, shares[u, n_blocks] * farthest_loose
        for f in range(n_blocks):
            b = paths[u, f]
            if b >= 0:
                rho, farthest = max(rho, x[b]), max(farthest, far[b])
                if f > 0:
                    above = max(above, x[b])
                of_shares += shares[u, f] * x[b]
                far_of_shares += shares[u, f] * far[b]
        farthest = min(farthest, far_of_shares)
        while tier < n_tiers and not farthest <= reaches[tier]:
            tier += 1
        if reads_all or always[u] > 0:
            tier = n_tiers
        lowest = others = min(rho, of_shares) ** 2
        if places[u + 1] > places[u]:
            of_fourth = lowest * farthest
            lowest, others = max(above * above, of_fourth), max(above * rho, of_fourth)
        rate = 0.0
        if tier < n_tiers:
            for f in range(n_sums):
                if f == n_blocks:
                    rate += others * totals[tier, u, f] * moving
                elif paths[u, f] >= 0:
                    rate += (lowest if f == 0 else others) * totals[tier, u, f] * y[paths[u, f]]
        rate *= kappa
        if not rate <= _SHARE * (cells[u + 1] - cells[u]):
            tier = n_tiers
        rates[u], of_lowest[u], of_others[u], tiers[u] = rate, lowest, others, tier


@jitable
def _drawn(
    rng: np.random.Generator,
    totals: Vector,
    cumulative: Matrix,
    begin: int,
    end: int,
    total: float,
    ys: Vector,
) -> tuple[int, int]:
    """A row of a cell, and the block that it was drawn for."""
    at, chosen = rng.random() * total, -1
    for f in range(ys.shape[0]):
        part = totals[f] * ys[f]
        if part > 0.0:
            chosen = f
            if at < part:
                break
            at -= part
    sums = cumulative[chosen, begin : end + 1]
    level = sums[0] + rng.random() * (sums[-1] - sums[0])
    k = np.searchsorted(sums, level, side="right") - 1
    return begin + min(max(k, 0), end - begin - 1), chosen


@jitable
def write_levels(bounds: Bounds, d: Vector, levels: Vector) -> None:
    """E = F' d of all blocks."""
    blocks, run, b = bounds.blocks, bounds.run, 0
    while b < run.shape[0]:
        _write_levels(bounds, b, d, levels[blocks[b] : blocks[b + run[b]]])
        b += run[b]


@jitable
def _write_levels(bounds: Bounds, b: int, d: Vector, levels: Vector) -> None:
    """Levels of the run of blocks that begins with b, or of this one."""
    variables = bounds.variables[bounds.starts[b] : bounds.starts[b + 1]]
    n, at, m, matrix = bounds.run[b], bounds.places[b], variables.shape[0], bounds.matrix
    if n > 1:
        own, pivots = d[variables[0] : variables[0] + n], matrix[at : at + n]
        for k in range(n):
            levels[k] = pivots[k] * own[k]
        for j in range(1, m):
            value, row = d[variables[j]], matrix[at + j * n : at + (j + 1) * n]
            for k in range(n):
                levels[k] += row[k] * value
        return
    for k in range(levels.shape[0]):
        e = 0.0
        for j in range(m):
            e += matrix[at + j] * d[variables[j]]
        levels[k] = e
        at += m


@jitable
def _compare_levels(plan: FieldArrays, now: int) -> tuple[float, float, float]:
    """Levels of the other side, of blocks that move, and sizes of all; the largest of loose blocks."""
    room, bounds, new = plan.room, plan.bounds, 1 - now
    x, far, y, own = room.sizes[0], room.sizes[1], room.sizes[2], room.deciding
    nodes, blocks, run, sizes = bounds.nodes, bounds.blocks, bounds.run, bounds.sizes
    b = 0
    while b < nodes.shape[0]:
        n, first, last = run[b], blocks[b], blocks[b + run[b]]
        old, levels = room.levels[now, first:last], room.levels[new, first:last]
        if n > 1 or own[nodes[b]] >= 0:  # of a run it is nearly as fast to look at all
            _write_levels(bounds, b, room.d[new], levels)
        else:
            levels[:] = old
        if last - first == n:
            _compare_runs(old, levels, sizes[b : b + n], x[b : b + n], far[b : b + n], y[b : b + n])
        else:
            one, two, both, change = 0.0, 0.0, 0.0, 0.0
            for k in range(last - first):
                e, e2 = old[k], levels[k]
                one += e * e
                two += e2 * e2
                both += e * e2
                change += (e2 - e) ** 2
            _write_sizes(room.sizes, b, 1.0 / sizes[b], one, two, both, change)
        b += n
    return _compare_loose(plan, now)


@jitable
def _compare_runs(old: Vector, new: Vector, sizes: Vector, x: Vector, far: Vector, y: Vector) -> None:
    """X, the larger end and Y of blocks of one level."""
    for k in range(old.shape[0]):
        e, e2, s = old[k], new[k], 1.0 / sizes[k]
        x[k] = math.sqrt((e * e + e * e2 + e2 * e2) / 3.0) * s
        far[k], y[k] = max(abs(e), abs(e2)) * s, abs(e2 - e) * s


@jitable
def _write_sizes(sizes: Matrix, b: int, s: float, one: float, two: float, both: float, change: float) -> None:
    """X, the larger end and Y of a block, from sums over its levels; s is one over its typical size."""
    sizes[0, b] = math.sqrt(max(one + both + two, 0.0) / 3.0) * s
    sizes[1, b] = math.sqrt(max(one, two)) * s
    sizes[2, b] = math.sqrt(change) * s


@jitable
def loose_level(loose: Loose, b: int, k: int, d: Vector, first: int) -> float:
    """Level k of a loose block; `first` is which element d begins with."""
    begin, at, total = loose.starts[b], loose.places[b], 0.0
    q = loose.starts[b + 1] - begin
    for i in range(k, q):
        total += loose.factors[at + i * q + k] * d[loose.elements[begin + i] - first]
    return total


@jitable
def _compare_loose(plan: FieldArrays, now: int) -> tuple[float, float, float]:
    """Sizes of loose blocks before and after; the largest X, |e_f| / s_f and Y."""
    room, bounds, loose = plan.room, plan.bounds, plan.bounds.loose
    old, new, first = room.d[now], room.d[1 - now], bounds.nodes.shape[0]
    largest, farthest, moving = 0.0, 0.0, 0.0
    for b in range(loose.nodes.shape[0]):
        node = loose.nodes[b]
        if node >= 0:
            one, two, both, change = 0.0, 0.0, 0.0, 0.0
            for k in range(loose.starts[b + 1] - loose.starts[b]):
                e2 = e = loose_level(loose, b, k, old, 0)
                if room.deciding[node] >= 0:  # else what the other side has is left from before
                    e2 = loose_level(loose, b, k, new, 0)
                one += e * e
                two += e2 * e2
                both += e * e2
                change += (e2 - e) ** 2
            _write_sizes(room.sizes, first + b, 1.0 / bounds.sizes[first + b], one, two, both, change)
            moving = max(moving, room.sizes[2, first + b])
        largest, farthest = max(largest, room.sizes[0, first + b]), max(farthest, room.sizes[1, first + b])
    return largest, farthest, moving


@jitable
def _add(rng: np.random.Generator, plan: FieldArrays, now: int, which: Index, limits: Vector, n: int) -> None:
    """Add changes of remainders of n rows: as they are if all of a cell are read, else by coins.

    `which` is as in `write_remainders`; its second line are the nodes that rows decide on.
    """
    changes = np.empty(BLOCK)
    write_remainders(plan, now, which, n, changes)
    rounding, debug, base = plan.bounds.rounding, plan.debug, plan.room.base
    for lane in range(n):
        g, bound, change = which[1, lane], limits[lane], changes[lane]
        if bound == _WHOLE:
            base[g] += change
            continue
        if not abs(change) <= bound + rounding:  # or not a number
            plan.violations[0] += 1
            if not debug:
                raise FieldBoundError(g, change, bound)
            if math.isnan(change):
                change = -bound
        ratio = min(max(change / bound, -1.0), 1.0)
        if rng.random() < 0.5 * (1.0 - ratio):
            base[g] += math.log((1.0 + ratio) / (1.0 - ratio)) if ratio > -1.0 else -math.inf


@jitable
def write_remainders(plan: FieldArrays, now: int, which: Index, n: int, changes: Vector) -> None:
    """Changes of remainders of n rows.

    `which` (3, .) are their numbers, in the third line with the block that has third-order terms, or -1.
    """
    room, rows, new, index = plan.room, plan.rows, 1 - now, which[0]
    p = rows.predictors.shape[1]
    old, after = np.empty((p, BLOCK)), np.empty((p, BLOCK))
    _write_changes(rows.design, plan.held, room.d[now], index, n, old)
    _write_changes(rows.design, plan.held, room.d[new], index, n, after)
    for lane in range(n):
        i = index[lane]
        for k in range(rows.data.shape[0]):
            room.data[k, lane] = rows.data[k, i]
        for k in range(p):
            room.predictors[k, lane] = rows.predictors[i, k] + old[k, lane]
    run_at_points(rows.program, room.predictors, room.data, 0, n, room.points)
    found = room.points.coefficients[rows.program.root, 0]
    for lane in range(n):
        changes[lane] = -found[lane]
        for k in range(p):
            room.predictors[k, lane] = rows.predictors[index[lane], k] + after[k, lane]
    run_at_points(rows.program, room.predictors, room.data, 0, n, room.points)
    slopes, weights = rows.slopes, rows.weights
    for lane in range(n):
        i, change, at = index[lane], changes[lane] + found[lane], 0
        for k in range(p):
            s, t = old[k, lane], after[k, lane]
            change -= (t - s) * slopes[i, k]
            for j in range(k):
                change += weights[i, at + j] * (t * after[j, lane] - s * old[j, lane])
            change += 0.5 * weights[i, at + k] * (t - s) * (t + s)
            at += k + 1
        changes[lane] = change
    if plan.bounds.cubic.numbers.shape[0] > 0:
        subtract_cubics(plan, which, n, new, 1.0, after, changes)
        subtract_cubics(plan, which, n, now, -1.0, old, changes)


@jitable
def _write_changes(design: Design, held: Held, d: Vector, index: Index, n: int, result: Matrix) -> None:
    """A_i (x - x*) of n rows (p, n): how far a state takes their predictors from the center."""
    columns, values, dense, at_dense = design.columns, design.values, design.dense, design.at_dense
    columns_of_held, values_of_held, d_of_held = held.columns, held.values, held.d
    n_lookups = d.shape[0] - design.n_dense
    result[:, :n] = 0.0
    for f in range(columns.shape[1]):
        k = design.of_columns[f]
        for lane in range(n):
            i = index[lane]
            result[k, lane] += values[i, f] * d[columns[i, f]]
    for f in range(dense.shape[1]):
        k, own = design.of_dense[f], d[n_lookups + at_dense[f]]
        for lane in range(n):
            result[k, lane] += dense[index[lane], f] * own
    for f in range(columns_of_held.shape[1]):
        k = held.of_columns[f]
        for lane in range(n):
            i = index[lane]
            result[k, lane] += values_of_held[i, f] * d_of_held[columns_of_held[i, f]]
