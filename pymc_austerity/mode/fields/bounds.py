"""Bounds on the remainders of rows, by the levels that rows see.

The bounds need d alone, not the tree of the moves. Let F F' = sum of w_ik a_ik a_ik' over rows and their
predictors, with w_ik > 0 everywhere. The order is one of its own: levels of the finest factor first, then
those of the next, and last what all rows have. With e = F' d and z_ik = F^-1 a_ik it is t_ik = z_ik . e,
and by blocks of levels |t_ik| <= sum of |z_ikf| |e_f|. What is constant within a finer level has no pivot:
its column becomes zero, and it is in no bound. So a row sees few blocks: its own levels, and what all rows
have.

Factors that are crossed with these, vectors that are looked up twice, and what a turn holds have `loose`
blocks, each with the factor of its own part of the sum: |F_l^-1 a_ikl| |F_l' d_l| is added to the bound on
|t_ik|.

With typical sizes s_f of the |e_f| let tau_ikf = |z_ikf| s_f, and tau_ik their sum over blocks. The share
m_if of a block is the length of (w_k tau_ikf / tau_ik)_k beside the sum of these over blocks, and the unit
v_ik is tau_ik / w_k times that sum: |t_i / v_i| <= sum of m_if |e_f| / s_f. A row with one predictor has m_if
= tau_if / tau_i. Of several predictors the weights w_k are chosen.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import sparse

from pymc_austerity import work
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.jets.compiled import of_records
from pymc_austerity.bounds.jets.efforts import RowBounds, row_bounds
from pymc_austerity.bounds.row_function import RowFunction, evenly_spaced
from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.fields.cubic import add_products_of_row
from pymc_austerity.kernels.fields.decisions import loose_level
from pymc_austerity.kernels.fields.records import Bounds, Cubic, Design, FieldArrays, Loose
from pymc_austerity.kernels.fields.tree import Tree, tree_of
from pymc_austerity.mode.fields.compiled import factorise, log_marginal, write_levels, write_state
from pymc_austerity.mode.fields.draws import theta_of_scores
from pymc_austerity.mode.fields.fit import FieldFit
from pymc_austerity.mode.fields.layout import Layout
from pymc_austerity.mode.fields.loose_blocks import elements_of_groups, loose_blocks, weights_of_factors
from pymc_austerity.mode.fields.passes import add_products, part_of, place_of, quadratic_of
from pymc_austerity.mode.fields.prior import places_of
from pymc_austerity.mode.fields.thirds import ThirdDerivatives, weights_of_predictors
from pymc_austerity.mode.row_tables import parts, reduce_cells
from pymc_austerity.target import Index, Mask, Matrix, Vector

# Reaches of the tiers, in typical sizes; draws by which these are found.
_REACHES, DRAWS = np.array([3.0, 6.0]), 60
# A pivot that is so small, beside its diagonal, is none; what is left of a row, beside its size, is none.
_NO_PIVOT, _NOTHING = 1e-13, 1e-11
# Coefficients of third-order terms that a cell may have for each of its rows.
_MOST_NUMBERS = 2
# Predictors of rows whose third derivatives are looked at, at most, where no block is loose. Units of several
# predictors are chosen by so many rows, so many neighbours each.
_MOST_PREDICTORS, _SAMPLED, _TOGETHER = 3, 2048, 64
# The least typical size of a loose block, squared.
_LEAST_LOOSE = 1e-4
_INFLATION, _ROUNDING, _TINY = 1.0 + 1e-9, 1e-12, 1e-150
_CHUNK, _OF_ROW, _SEED = 8192, 200.0, 2026
# Rows at which rounding is measured, how far they move, in units of their predictors, and what may be beyond.
_LOOKED_AT, _NEAR, _MARGIN = 20_000, 1e-4, 16.0


# Predictors, directions of units and data of some rows.
_Sample = tuple[Matrix, Matrix, Matrix]


class _Levels(NamedTuple):
    """The factor of the rows' own information, in the order of its elimination."""

    tree: Tree
    variables: Index  # (n,): which element of x comes first, ...; without those of loose blocks alone
    place: Index  # (n_x,): its inverse; -1 for those
    front: Vector
    has_pivot: Mask  # (n,)
    block: Index  # (V,): number of each node with a pivot; -1 for others

    @property
    def longest(self) -> int:
        """Blocks on a path to the root, at most."""
        found, depth = (self.block >= 0).astype(np.int64), self.tree.depth
        for level in range(1, int(depth.max()) + 1):
            own = depth == level
            found[own] += found[self.tree.parent[own]]
        return int(found.max())


def field_bounds(fit: FieldFit, of_held: Matrix) -> Bounds:
    """Bounds at the fitted center; `of_held` (DRAWS, n_held) are draws of d of what is held."""
    layout, plan, tables = fit.layout, fit.plan, fit.layout.columns.tables
    n, p, cells = layout.n_rows, layout.columns.n_predictors, layout.cells
    work.spend(_OF_ROW * n, "Bounds of a field")
    weights = weights_of_factors(plan)
    levels = _levels(layout, plan, weights)
    found, depth = _blocks(levels, plan), levels.longest
    loose, of_rows = loose_blocks(layout, plan, weights)
    found = found._replace(cells=cells, of_cells=layout.of_cells, loose=loose)
    found = found._replace(sizes=_typical(fit, found, of_held))
    nested = np.array([*(f for own in layout.factors for f in own), *layout.together], np.int64)
    has_loose = len(loose.nodes) > 0
    lengths, units = tables.zeros(n, depth + has_loose), tables.zeros(n, p)
    of_loose = tables.zeros(*loose.blocks.shape)
    of_cells, is_apart = np.full((len(cells) - 1, depth), -1), np.zeros(len(cells) - 1, np.int64)
    shares = np.zeros((len(cells) - 1, depth + 1))
    sizes, sizes_of_loose = np.split(found.sizes, [len(found.nodes)])

    def lengths_of(part: slice) -> tuple[Index, np.ndarray, Mask]:
        """Blocks on paths of rows, how much each block moves each predictor, and rows to be always read."""
        m = part.stop - part.start
        paths, tau, is_always = np.full((m, depth), -1), np.zeros((m, depth, p)), np.zeros(m, np.bool_)
        _write_lengths(levels, layout.design, nested, layout.n_lookups, part.start, paths, tau, is_always)
        if depth:
            tau *= sizes[np.maximum(paths, 0)][:, :, None]
        tau_of_loose = of_rows(part)
        if has_loose:
            tau_of_loose *= sizes_of_loose[loose.blocks[part]][:, :, None]
        return paths, np.concatenate([tau, tau_of_loose], axis=1), is_always

    thirds, of_predictors = None, np.ones(p)
    if p <= _MOST_PREDICTORS and depth and not has_loose:
        thirds = ThirdDerivatives(layout.columns.expression, p)
    if thirds is not None and p > 1:
        some = [slice(k, min(k + _TOGETHER, n)) for k in evenly_spaced(n, _SAMPLED // _TOGETHER)]
        tau = np.concatenate([lengths_of(part)[1] for part in some])
        sample = plan.rows._replace(
            predictors=np.concatenate([plan.rows.predictors[part] for part in some]),
            data=np.concatenate([plan.rows.data[:, part] for part in some], axis=1),
        )
        of_predictors = weights_of_predictors(thirds, sample, lambda w: _shares(tau, w)[1], _REACHES[0])
    for part in parts(n):
        paths, tau, is_always = lengths_of(part)
        begun = slice(*np.searchsorted(cells, [part.start, part.stop]))
        of_cells[begun] = paths[cells[begun] - part.start]
        cell = np.searchsorted(cells, np.arange(part.start, part.stop), side="right") - 1
        is_apart[cell[is_always | np.any(paths != of_cells[cell], axis=1)]] = 1
        every, units[part] = _shares(tau, of_predictors)
        own, of_loose[part] = np.where(paths >= 0, np.maximum(every[:, :depth], _TINY), 0.0), every[:, depth:]
        lengths[part, :depth] = own
        own = np.column_stack([own, of_loose[part].sum(axis=1)])
        reduce_cells(np.maximum, cells, part, own, shares)
        if has_loose:
            moving = np.where(loose.nodes[loose.blocks[part]] >= 0, of_loose[part], 0.0).sum(axis=1)
            lengths[part, depth] = np.maximum(moving, _TINY)
    bounds = found._replace(
        paths=of_cells,
        loose=loose._replace(lengths=of_loose),
        always=_always(layout, found, of_cells, is_apart),
    )
    cubic = plan.bounds.cubic
    if thirds is not None:
        cubic = _cubic(layout, plan, levels, nested, bounds, thirds, lengths, units)
    totals, cumulative, is_infinite, rounding = _rates(layout, plan, lengths, units, cubic)
    return bounds._replace(
        always=np.maximum(bounds.always, is_infinite), lengths=lengths, shares=_INFLATION * shares,
        cubic=cubic, reaches=_REACHES, cumulative=cumulative, totals=totals, rounding=rounding,
    )  # fmt: skip


def _shares(tau: np.ndarray, weights: Vector) -> tuple[Matrix, Matrix]:
    """The share of each block (N, .) in what moves rows, and units of their predictors (N, p)."""
    total = tau.sum(axis=1) / weights
    found = np.sqrt(((tau / np.maximum(total, _TINY)[:, None]) ** 2).sum(axis=2))
    every = np.maximum(found.sum(axis=1), _TINY)
    return found / every[:, None], _INFLATION * total * every[:, None]


def _levels(layout: Layout, plan: FieldArrays, weights: Callable[[slice], Matrix]) -> _Levels:
    n_x, combos = len(layout.elements), layout.combos
    apart, sizes = [], []
    for own in layout.factors:
        elements = elements_of_groups(combos, own)
        apart.append(elements.ravel())
        sizes += [elements.shape[1]] * len(elements)
    together = np.unique(combos[:, list(layout.together)])
    rest = np.append(np.setdiff1d(together, np.concatenate([[-1], *apart])), np.arange(layout.n_lookups, n_x))
    variables = np.concatenate([*apart, rest]).astype(np.int64)
    n = len(variables)
    place = np.full(n_x, -1)
    place[variables] = np.arange(n)
    hessian, unused, n_weights = np.zeros(len(layout.first)), np.zeros(n_x), plan.rows.weights.shape[1]
    apart_columns = [f for some in layout.loose for f in some]
    for part in parts(layout.n_rows):
        design, own_weights = part_of(layout.design, part), weights(part)
        if apart_columns:
            design = design._replace(values=design.values.copy())
            design.values[:, apart_columns] = 0.0
        all_weights = np.zeros((len(own_weights), n_weights))
        all_weights[:, [place_of(k, k) for k in range(own_weights.shape[1])]] = own_weights
        add_products(layout, part, design, own_weights, all_weights, unused, hessian)
    first, second = place[layout.first], place[layout.second]
    kept = (first >= 0) & (second >= 0) & ((hessian != 0.0) | (first == second))
    first, second = first[kept], second[kept]
    pattern = sparse.csr_array((np.ones(len(first)), (first, second)), (n, n))
    pattern = sparse.csr_array(pattern + pattern.T)
    tree = tree_of(pattern.indptr, pattern.indices, np.array([*sizes, len(rest)]), alike=True)
    front, every = np.zeros(tree.fronts[-1]), np.arange(n)
    np.add.at(front, places_of(tree, first, second), hessian[kept])
    diagonal = places_of(tree, every, every)
    factorise(tree, front, _NO_PIVOT * front[diagonal] + 1e-300)
    has_pivot = front[diagonal] > 0.0
    has_any = np.bincount(tree.node_of, has_pivot, minlength=len(tree.first)) > 0.0
    return _Levels(tree, variables, place, front, has_pivot, np.where(has_any, np.cumsum(has_any) - 1, -1))


def _blocks(levels: _Levels, plan: FieldArrays) -> Bounds:
    """Blocks of levels as linear functions of d."""
    tree, nodes = levels.tree, plan.sums.of_elements.astype(np.int64)
    n = int(levels.block.max(initial=-1)) + 1
    starts, blocks, places = (np.zeros(n + 1, np.int64) for _ in range(3))
    n_numbers, n_variables = int(tree.fronts[-1]), len(tree.below) + len(levels.variables)  # at most
    variables, matrix = np.empty(n_variables, np.int64), np.empty(n_numbers)
    of_blocks, run, strides = np.empty(n, np.int64), np.ones(n, np.int64), np.ones(n, np.int64)
    _write_blocks(levels, nodes, starts, blocks, places, variables, matrix, of_blocks, run, strides)
    return plan.bounds._replace(
        starts=starts, variables=variables[: starts[-1]].copy(), blocks=blocks,
        matrix=matrix[: places[-1]].copy(), places=places[:-1].copy(), run=run, strides=strides,
        nodes=of_blocks, sizes=np.ones(n),
    )  # fmt: skip


@of_records
def _write_blocks(
    levels: _Levels,
    nodes: Index,
    starts: Index,
    blocks: Index,
    places: Index,
    variables: Index,
    matrix: Vector,
    of_blocks: Index,
    run: Index,
    strides: Index,
) -> None:
    """Write the blocks of all nodes; consecutive ones that differ in their first variable alone are a run."""
    tree, front, v = levels.tree, levels.front, 0
    while v < levels.block.shape[0]:
        b, q, o, first, start = levels.block[v], tree.size[v], tree.fronts[v], tree.first[v], tree.starts[v]
        n, step = 1, tree.strides[v]
        if b < 0:
            v += 1
            continue
        while (
            n < tree.run[v]
            and levels.block[v + n] >= 0
            and levels.variables[first + n] == levels.variables[first] + n
        ):
            n += 1
        r = tree.starts[v + 1] - start
        own, kept = np.empty(q, np.int64), np.empty(q + r, np.int64)
        n_own = m = 0
        for j in range(q):
            if levels.has_pivot[first + j]:
                own[n_own] = j
                n_own += 1
        for i in range(q + r):
            is_any = False
            for j in range(n_own):
                for k in range(n):
                    is_any = is_any or front[o + i * step + own[j] + k] != 0.0
            if is_any:
                kept[m] = i
                m += 1
        at = places[b]
        for k in range(n):
            begin, lowest = starts[b + k], -1
            for i in range(m):
                p = first + kept[i] + k if kept[i] < q else tree.below[start + kept[i] - q]
                variables[begin + i] = levels.variables[p]
                node = nodes[variables[begin + i]]
                lowest = node if i == 0 else min(lowest, node)
                for j in range(n_own):
                    place = at + k + i * n if n > 1 else at + j * m + i
                    matrix[place] = front[o + kept[i] * step + own[j] + k]
            run[b + k], strides[b + k], of_blocks[b + k] = n - k, n, lowest
            starts[b + k + 1], blocks[b + k + 1] = begin + m, blocks[b + k] + n_own
            places[b + k + 1] = at + k + 1 if k + 1 < n else at + n * n_own * m
        v += n


@of_records
def _write_lengths(
    levels: _Levels,
    design: Design,
    nested: Index,
    n_lookups: int,
    begin: int,
    paths: Index,
    lengths: np.ndarray,
    is_always: np.ndarray,
) -> None:
    """|z_ikf| of rows from `begin` on, and the blocks on their paths; is something left without a pivot?"""
    tree, n_p = levels.tree, lengths.shape[2]
    z = np.zeros((levels.variables.shape[0], n_p))
    if z.shape[0] == 0:
        return
    for i in range(is_always.shape[0]):
        v, is_always[i] = _write_row(levels, design, nested, n_lookups, begin + i, z)
        f = 0
        while v >= 0:
            first, last = tree.first[v], tree.first[v] + tree.size[v]
            if levels.block[v] >= 0:
                paths[i, f] = levels.block[v]
                for own in range(n_p):
                    total = 0.0
                    for k in range(first, last):
                        total += z[k, own] ** 2
                    lengths[i, f, own] = np.sqrt(total)
                f += 1
            z[first:last] = 0.0
            v = tree.parent[v]


@jitable
def _write_row(
    levels: _Levels, design: Design, nested: Index, n_lookups: int, i: int, z: Matrix
) -> tuple[int, bool]:
    """Write z_ik, which is zero before; the lowest node of the row, and whether a part has no pivot.

    `nested` are the columns that are on paths.
    """
    tree, front, place, lowest, size = levels.tree, levels.front, levels.place, z.shape[0] - 1, 0.0
    lookups, values, dense = design.columns, design.values, design.dense
    for f in nested:
        p = place[lookups[i, f]]
        z[p, design.of_columns[f]] += values[i, f]
        size += abs(values[i, f])
        lowest = min(lowest, p)
    for k in range(dense.shape[1]):
        z[place[n_lookups + design.at_dense[k]], design.of_dense[k]] += dense[i, k]
        size += abs(dense[i, k])
    begin = v = tree.node_of[lowest]
    is_left = False
    while v >= 0:
        q, o, first, start = tree.size[v], tree.fronts[v], tree.first[v], tree.starts[v]
        step = tree.strides[v]
        for own in range(z.shape[1]):
            for j in range(q):
                t = z[first + j, own]
                for k in range(j):
                    t -= front[o + j * step + k] * z[first + k, own]
                pivot = front[o + j * (step + 1)]
                z[first + j, own] = t / pivot if pivot > 0.0 else 0.0
                is_left = is_left or (not pivot > 0.0 and abs(t) > _NOTHING * size)
            for k in range(tree.starts[v + 1] - start):
                t = 0.0
                for j in range(q):
                    t += front[o + (q + k) * step + j] * z[first + j, own]
                z[tree.below[start + k], own] -= t
        v = tree.parent[v]
    return begin, is_left


def _cubic(
    layout: Layout,
    plan: FieldArrays,
    levels: _Levels,
    nested: Index,
    bounds: Bounds,
    derivatives: ThirdDerivatives,
    shares: Matrix,
    units: Matrix,
) -> Cubic:
    """Third-order terms of cells that pay: what is left is less than half, by few coefficients.

    `shares` (N, .) are the m_if, `units` (N, p) the v_ik.
    """
    cells, paths, empty = bounds.cells, bounds.paths, plan.bounds.cubic
    n_levels, lowest = np.diff(bounds.blocks), np.maximum(paths[:, 0], 0)
    n_own = n_levels[lowest]
    n_rest = np.where(paths >= 0, n_levels[np.maximum(paths, 0)], 0).sum(axis=1) - n_own
    counts = n_own * (n_own + 1) * (n_own + 2) // 6 + n_own * (n_own + 1) // 2 * n_rest
    has_terms = (counts <= _MOST_NUMBERS * np.diff(cells)) & (paths[:, 0] >= 0) & (bounds.always == 0)
    if not has_terms.any():
        return empty
    tables, n = layout.columns.tables, layout.n_rows
    thirds, sizes = tables.zeros(n, derivatives.n_numbers), tables.zeros(n)
    left, total, is_finite = np.zeros(len(has_terms)), np.zeros(len(has_terms)), has_terms.copy()
    for part in parts(layout.n_rows):
        thirds[part] = found = derivatives.of(plan.rows, part, plan.rows.predictors[part])
        own = np.nan_to_num(_INFLATION * derivatives.sizes(found, units[part]))
        sizes[part] = own
        reduce_cells(np.logical_and, cells, part, np.isfinite(found).all(axis=1), is_finite)
        reduce_cells(np.add, cells, part, own * (1.0 - shares[part, 0] ** 2), left)
        reduce_cells(np.add, cells, part, own, total)
    has_terms = is_finite & (left <= 0.5 * total)
    if not has_terms.any():
        return empty
    for u in np.flatnonzero(~has_terms):
        thirds[cells[u] : cells[u + 1]] = sizes[cells[u] : cells[u + 1]] = 0.0
    counts = np.where(has_terms, counts, 0)
    cubic = Cubic(
        *_cells_in_runs(bounds, counts, n_own == 1), np.zeros(counts.sum()), *_pivots(levels, bounds),
        thirds, derivatives.which, sizes,
    )  # fmt: skip
    _write_coefficients(levels, layout.design, nested, layout.n_lookups, cells, cubic)
    return cubic


def _cells_in_runs(bounds: Bounds, counts: Index, has_one: Mask) -> tuple[Index, Index, Index]:
    """Where the coefficients of each cell begin, cells of a run from each on, and strides of coefficients."""
    paths, n = bounds.paths, len(counts)
    goes_on = (counts[1:] == counts[:-1]) & (counts[1:] > 0) & has_one[1:] & has_one[:-1]
    goes_on &= (np.diff(paths[:, 0]) == 1) & np.all(paths[1:, 1:] == paths[:-1, 1:], axis=1)
    heads = np.flatnonzero(np.append(True, ~goes_on)[:n])
    of_cell = np.cumsum(np.append(True, ~goes_on)[:n]) - 1
    lengths, totals = np.diff(np.append(heads, n)), np.add.reduceat(counts, heads)
    within = np.arange(n) - heads[of_cell]
    places = (np.cumsum(totals) - totals)[of_cell] + within * (counts > 0)
    return np.append(places, counts.sum()), lengths[of_cell] - within, lengths[of_cell]


def _pivots(levels: _Levels, bounds: Bounds) -> tuple[Index, Index]:
    """Which level each element of x has the pivot of, and its place among the variables of the block."""
    of_elements, places = np.full(len(levels.place), -1), np.zeros(bounds.blocks[-1], np.int64)
    of_elements[levels.variables[levels.has_pivot]] = np.arange(len(places))
    every = np.arange(len(bounds.nodes))
    block, of_levels = np.repeat(every, np.diff(bounds.starts)), np.repeat(every, np.diff(bounds.blocks))
    level = of_elements[bounds.variables]
    own = np.flatnonzero((level >= 0) & (of_levels[level] == block))
    places[level[own]] = own - bounds.starts[block[own]]
    return of_elements, places


@of_records
def _write_coefficients(
    levels: _Levels, design: Design, nested: Index, n_lookups: int, cells: Index, cubic: Cubic
) -> None:
    """Sums over the rows of each cell."""
    tree, places = levels.tree, cubic.places
    z = np.zeros((levels.variables.shape[0], cubic.which.shape[0]))
    on_path = np.empty(z.shape[0], np.int64)
    for u in range(cells.shape[0] - 1):
        if places[u + 1] == places[u]:
            continue
        for i in range(cells[u], cells[u + 1]):
            v, _ = _write_row(levels, design, nested, n_lookups, i, z)
            n, n_own = 0, 0
            while v >= 0:
                for j in range(tree.size[v]):
                    p = tree.first[v] + j
                    if levels.has_pivot[p]:
                        on_path[n] = p
                        n += 1
                if n_own == 0:
                    n_own = n
                v = tree.parent[v]
            add_products_of_row(
                cubic.thirds[i], cubic.which, z, on_path[:n_own], on_path[n_own:n], cubic.numbers, places[u],
                cubic.strides[u],
            )  # fmt: skip
            v = tree.node_of[on_path[0]]
            while v >= 0:
                z[tree.first[v] : tree.first[v] + tree.size[v]] = 0.0
                v = tree.parent[v]


def _always(layout: Layout, found: Bounds, own: Index, is_apart: Index) -> Index:
    """Cells that are read at every move: those of rows that are not bounded; `own` are their paths."""
    tree, nodes = layout.tree, np.arange(len(layout.tree.first))
    lowest = nodes.copy()  # of all that are below each node, which is directly after these
    for level in range(int(tree.depth.max()), 0, -1):
        at = tree.depth == level
        np.minimum.at(lowest, tree.parent[at], lowest[at])
    # A block moves with nodes on one path to the root alone, and with one that is no lower than its cell's.
    moving = layout.of_elements[found.variables]
    block = np.repeat(np.arange(len(found.nodes)), np.diff(found.starts))
    is_branching = np.zeros(len(found.nodes) + 1, np.bool_)  # the last one is for no block
    is_branching[block[(found.nodes[block] < lowest[moving]) | (found.nodes[block] > moving)]] = True
    node = np.append(found.nodes, nodes[-1])[own]
    is_below = (layout.of_cells[:, None] < lowest[node]) | (layout.of_cells[:, None] > node)
    return np.minimum(is_apart + np.any(is_branching[own] | is_below, axis=1), 1)


def _typical(fit: FieldFit, bounds: Bounds, of_held: Matrix) -> Vector:
    """Root mean squares of |e_f| near the fitted theta; for loose blocks times what their largest has."""
    plan, loose = fit.plan, bounds.loose
    rng, law = np.random.default_rng(_SEED), plan.law
    room, levels = plan.room, np.zeros(int(bounds.blocks[-1]))
    total, of_loose = np.zeros(len(levels)), np.zeros((DRAWS, len(loose.nodes)))
    for k in range(DRAWS):
        theta = fit.theta.copy()
        theta[law.which], _ = theta_of_scores(law, law.factor @ rng.standard_normal(len(law.which)))
        features = fit.parameters.features(theta)
        if not np.isfinite(log_marginal(plan, features, 0)):  # a scale is far out
            features = fit.features
            log_marginal(plan, features, 0)
        room.eps[0] = rng.standard_normal(room.eps.shape[1])
        write_state(plan, features, 0)
        write_levels(bounds, room.d[0], levels)
        total += levels**2
        d = np.append(room.d[0], of_held[k] if len(of_held) else of_held)
        if len(loose.nodes):
            _write_squares(loose, d, of_loose[k])
    squares = np.add.reduceat(total, bounds.blocks[:-1]) if len(levels) else total
    sizes = np.sqrt(np.maximum(squares / DRAWS, 1e-60))
    if not len(loose.nodes):
        return sizes
    sizes_of_loose = np.sqrt(np.maximum(of_loose.mean(axis=0), _LEAST_LOOSE))
    largest = np.sqrt(of_loose) / sizes_of_loose
    return np.append(sizes, sizes_of_loose * largest.max(axis=1).mean())


@of_records
def _write_squares(loose: Loose, d: Vector, result: Vector) -> None:
    """|F_l' d_l|^2 of all loose blocks."""
    for b in range(loose.nodes.shape[0]):
        for k in range(loose.starts[b + 1] - loose.starts[b]):
            result[b] += loose_level(loose, b, k, d, 0) ** 2


def _rates(
    layout: Layout, plan: FieldArrays, lengths: Matrix, units: Matrix, cubic: Cubic
) -> tuple[np.ndarray, np.ndarray, Index, float]:
    """Totals of cells, and cumulative sums, of k_if m_if by tiers; `units` are the v_ik (N, p).

    Also 1 for cells with rows without a bound, and what rounding may add to the change of a remainder.
    """
    (n, depth), p, cells, tables = lengths.shape, units.shape[1], layout.cells, layout.columns.tables
    is_infinite = np.zeros(len(cells) - 1, np.int64)
    data = layout.columns.data
    function = RowFunction(
        name="rows", n_rows=n, n_dim=p, n_predictors=p, rows=_no_rows, data=lambda some: data[:, some],
        form=layout.columns.expression, others=(), offset_fixed=True,
    )  # fmt: skip

    def sample(some: Index) -> _Sample:
        return (
            plan.rows.predictors[some],
            units[some, :, None] * np.eye(p),
            np.ascontiguousarray(data[:, some]),
        )

    cells_with = np.diff(cubic.places) > 0

    def has_terms(some: Index) -> Mask:
        return np.asarray(cells_with[np.searchsorted(cells, some, side="right") - 1])

    # Bounds of third and of fourth derivatives, where some rows need them.
    bounds = [
        row_bounds(function, degree, _REACHES, sample) if is_needed else None
        for degree, is_needed in ((3, not cells_with.all()), (4, cells_with.any()))
    ]
    totals = np.zeros((len(_REACHES), len(layout.of_cells), depth))
    cumulative = tables.zeros(len(_REACHES), depth, n + 1)
    for start in range(0, n, _CHUNK):
        part = slice(start, min(start + _CHUNK, n))
        some = np.arange(part.start, part.stop)
        has_own = has_terms(some)
        found = _constants(bounds, sample, some, has_own)  # K_i / 2 or K_i / 6
        is_known = np.isfinite(found).all(axis=0)
        found[:, ~is_known] = 0.0
        reduce_cells(np.maximum, cells, part, (~is_known).astype(np.int64), is_infinite)
        rate = np.repeat(found[:, :, None], depth, axis=2)  # k_if
        if len(cubic.sizes):
            share = lengths[part, 0]
            third = 0.5 * cubic.sizes[part] * np.where(has_own & is_known, 1.0 - share, 0.0)
            rate[:, :, 0] += third * (1.0 - share)
            rate[:, :, 1:] += (third * (1.0 + share))[:, None]
        rate = _INFLATION * rate * lengths[part][None] + 1e-290
        for tier in range(len(_REACHES)):
            reduce_cells(np.add, cells, part, rate[tier], totals[tier])
        own = cumulative[:, :, start : part.stop + 1]  # the first one is where the part before has ended
        own[:, :, 1:] = rate.transpose(0, 2, 1)
        own[:] = np.cumsum(own, axis=2)
    some = evenly_spaced(n, _LOOKED_AT)
    has_own = has_terms(some)
    found = _constants(bounds, sample, some, has_own)[0]
    found = np.where(has_own, 6.0 * _NEAR * found, 2.0 * found)
    if len(cubic.sizes):
        found += cubic.sizes[some]
    return totals, cumulative, is_infinite, _rounding(layout, plan, some, units[some], found)


def _constants(
    bounds: list[RowBounds | None], sample: Callable[[Index], _Sample], some: Index, has_terms: Mask
) -> Matrix:
    """K_i / 2 by third derivatives, or K_i / 6 by fourth ones, of rows by tiers."""
    found = np.empty((len(_REACHES), len(some)))
    for one, own, factor in zip(bounds, (~has_terms, has_terms), (2.0, 6.0), strict=True):
        if own.any():
            assert one is not None
            found[:, own] = one(*sample(some[own])) / factor
    return found


def _rounding(layout: Layout, plan: FieldArrays, some: Index, units: Matrix, found: Vector) -> float:
    """What rounding adds to the remainders of some rows, measured: what a small move exceeds bounds by.

    A log density may hold constants that are much larger than what it changes by, as log y! of a large count.
    `found` bounds third derivatives.
    """
    rows, p = plan.rows, units.shape[1]
    t = _NEAR / np.sqrt(p) * units
    eta, data = rows.predictors[some], dict(enumerate(layout.columns.data[:, some]))
    expression = layout.columns.expression
    new, old = (evaluate(expression, dict(enumerate(at.T)), data) for at in (eta + t, eta))
    change = new - old - quadratic_of(rows, some, t)
    excess = np.abs(change) - 0.5 * _NEAR**3 * found
    size = 1.0 + float(np.abs(eta).max(initial=0.0))
    return max(_ROUNDING * size, _MARGIN * float(excess[excess > 0.0].max(initial=0.0)))


def _no_rows(positions: Index) -> Matrix:
    raise NotImplementedError("Rows of a field have no design over all effects.")
