"""Third-order terms of rows, which sums over cells tell, so that fourth-order ones remain.

The lowest block of levels that the rows of a cell see, e, moves them most. The predictors of a row change by
t_i = o_i + rho_i, where o_i = z_i' e is of these and rho_i of all other levels on the path. With the third
derivatives of f_i at the center as a form T_i of three changes,

    sum of (T_i(o_i, o_i, o_i) + 3 T_i(o_i, o_i, rho_i)) / 6

is a polynomial in levels: its coefficients are sums over the rows of the cell. It is a part of the log ratio
of a move, and no row is read for it. What is left of the third order is (3 T_i(o_i, rho_i, rho_i) +
T_i(rho_i, rho_i, rho_i)) / 6, which is small: rho_i is of levels that many rows tell.
"""

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.fields.records import FieldArrays
from pymc_austerity.target import Index, Matrix, Vector


@jitable
def write_cubics(plan: FieldArrays, side: int) -> None:
    """Third-order terms of all cells whose rows decide."""
    bounds, result, own = plan.bounds, plan.room.cubics[side], plan.room.deciding
    levels, of_cells, paths, blocks = plan.room.levels[side], bounds.of_cells, bounds.paths, bounds.blocks
    places, numbers, run = bounds.cubic.places, bounds.cubic.numbers, bounds.cubic.run
    u = -1
    while u < of_cells.shape[0] - 1:
        u += 1
        at = places[u]
        if run[u] > 1:
            n, first = run[u], blocks[paths[u, 0]]
            _write_run(levels, blocks, paths[u], numbers[at:], levels[first : first + n], result[u : u + n])
            u += n - 1
            continue
        if own[of_cells[u]] < 0 or at == places[u + 1]:
            continue
        first, total = blocks[paths[u, 0]], 0.0
        q = blocks[paths[u, 0] + 1] - first
        if q == 1:  # as most are
            e = levels[first]
            factor = numbers[at] * e
            for k in range(1, paths.shape[1]):
                block = paths[u, k]
                if block >= 0:
                    for r in range(blocks[block], blocks[block + 1]):
                        at += 1
                        factor += numbers[at] * levels[r]
            result[u] = factor * e * e
            continue
        at_rest = at + q * (q + 1) * (q + 2) // 6
        for a in range(q):
            for b in range(a + 1):
                pair, factor = levels[first + a] * levels[first + b], 0.0
                for c in range(b + 1):
                    factor += numbers[at] * levels[first + c]
                    at += 1
                for k in range(1, paths.shape[1]):
                    block = paths[u, k]
                    if block >= 0:
                        for r in range(blocks[block], blocks[block + 1]):
                            factor += numbers[at_rest] * levels[r]
                            at_rest += 1
                total += pair * factor
        result[u] = total


@jitable
def _write_run(
    levels: Vector, blocks: Index, path: Index, numbers: Vector, own: Vector, result: Vector
) -> None:
    """Third-order terms of a run of cells; `own` are levels of their lowest blocks."""
    n, at = own.shape[0], own.shape[0]
    coefficients = numbers[:n]
    for k in range(n):
        result[k] = coefficients[k] * own[k]
    for block in path[1:]:
        if block >= 0:
            for r in range(blocks[block], blocks[block + 1]):
                level, coefficients = levels[r], numbers[at : at + n]
                for k in range(n):
                    result[k] += coefficients[k] * level
                at += n
    for k in range(n):
        result[k] *= own[k] * own[k]


@jitable
def add_cubics(plan: FieldArrays, now: int) -> None:
    """Add changes of third-order terms to the log ratios `base` of the nodes that decide."""
    room, of_cells, places = plan.room, plan.bounds.of_cells, plan.bounds.cubic.places
    if plan.bounds.cubic.numbers.shape[0] == 0:
        return
    write_cubics(plan, 1 - now)
    own, base, old, new = room.deciding, room.base, room.cubics[now], room.cubics[1 - now]
    for u in range(of_cells.shape[0]):
        g = own[of_cells[u]]
        if g >= 0 and places[u + 1] > places[u]:
            base[g] += new[u] - old[u]


@jitable
def settle_cubics(plan: FieldArrays, now: int) -> None:
    """Take over the terms of cells whose node has moved."""
    room, of_cells = plan.room, plan.bounds.of_cells
    if plan.bounds.cubic.numbers.shape[0] == 0:
        return
    own, accepted, old, new = room.deciding, room.accepted, room.cubics[now], room.cubics[1 - now]
    for u in range(of_cells.shape[0]):
        g = own[of_cells[u]]
        if g >= 0 and accepted[g]:
            old[u] = new[u]


@jitable
def subtract_cubics(
    plan: FieldArrays, which: Index, n: int, side: int, sign: float, t: Matrix, changes: Vector
) -> None:
    """Subtract the third-order terms that sums have of n rows at one side, at t; see `write_remainders`."""
    design, bounds, levels = plan.rows.design, plan.bounds, plan.room.levels[side]
    columns, values, dense, at_dense = design.columns, design.values, design.dense, design.at_dense
    blocks, starts, places, matrix = bounds.blocks, bounds.starts, bounds.places, bounds.matrix
    level_of, pivots, thirds = bounds.cubic.levels, bounds.cubic.pivots, bounds.cubic.thirds
    strides, p = bounds.strides, t.shape[0]
    z, n_lookups = np.empty((levels.shape[0], p)), level_of.shape[0] - design.n_dense
    own, rest = np.empty(p), np.empty(p)
    for lane in range(n):
        i, b = which[0, lane], which[2, lane]
        if b < 0:
            continue
        first, place = blocks[b], places[b]
        q, m = blocks[b + 1] - first, starts[b + 1] - starts[b]
        z[:q] = 0.0
        for f in range(columns.shape[1]):
            j = level_of[columns[i, f]] - first
            if 0 <= j < q:
                z[j, design.of_columns[f]] += values[i, f]
        for f in range(dense.shape[1]):
            j = level_of[n_lookups + at_dense[f]] - first
            if 0 <= j < q:
                z[j, design.of_dense[f]] += dense[i, f]
        for k in range(p):
            own[k] = 0.0
            for j in range(q):
                at = place + pivots[first + j] * strides[b]
                for j_before in range(j):
                    z[j, k] -= matrix[at + j_before * m] * z[j_before, k]
                z[j, k] /= matrix[at + j * m]
                own[k] += z[j, k] * levels[first + j]
            rest[k] = 3.0 * t[k, lane] - 2.0 * own[k]
        changes[lane] -= sign * _form(thirds[i], bounds.cubic.which, own, own, rest) / 6.0


@jitable
def _form(thirds: Vector, which: np.ndarray, a: Vector, b: Vector, c: Vector) -> float:
    """Third derivatives of a row times three changes of its predictors."""
    total, p = 0.0, a.shape[0]
    for j in range(p):
        for k in range(p):
            pair = a[j] * b[k]
            if pair != 0.0:
                for m in range(p):
                    total += thirds[which[j, k, m]] * pair * c[m]
    return total


@jitable
def add_products_of_row(
    thirds: Vector,
    which: np.ndarray,
    z: Matrix,
    own: Index,
    rest: Index,
    numbers: Vector,
    at: int,
    stride: int,
) -> None:
    """Add a row to the coefficients of its cell; `own` and `rest` are places in z of its levels."""
    q = own.shape[0]
    at_rest = at + q * (q + 1) * (q + 2) // 6 * stride
    for a in range(q):
        for b in range(a + 1):
            for c in range(b + 1):
                # Orders of three levels: 1, 3 or 6.
                orders = (1.0 if a == c else 3.0) if a == b or b == c else 6.0
                numbers[at] += orders / 6.0 * _form(thirds, which, z[own[a]], z[own[b]], z[own[c]])
                at += stride
            for r in rest:
                orders = 3.0 if a == b else 6.0
                numbers[at_rest] += orders / 6.0 * _form(thirds, which, z[own[a]], z[own[b]], z[r])
                at_rest += stride
