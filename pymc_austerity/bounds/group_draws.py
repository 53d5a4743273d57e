"""Rows drawn by groups of whitened coordinates: what is computed for a pair of states. See `group_tables`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_austerity.bounds.block_table import BLOCK
from pymc_austerity.bounds.group_tables import GroupTables, group_tables
from pymc_austerity.bounds.row_draws import BoundedRows
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.bounds.row_sampler import RowSampler
from pymc_austerity.bounds.sparsity import CoordinateGroups
from pymc_austerity.compilation import entry, jitable
from pymc_austerity.target import Index, LinearPredictor, Singles, Vector

# Beyond this |w| nothing is known, as powers may overflow.
_FAR = 1e30


class GroupSampler(NamedTuple):
    """Bounds by groups, and how to draw rows by them. It has size N.

    Attributes
    ----------
    center, radii, totals, rounding, most
        See `row_sampler.RowSampler`; the C of the c_i is for what is told of the bounds.
    constants : ndarray of float32 (3, N)
        k_i of each tier.
    tables : GroupTables
    """

    center: Vector
    radii: Vector
    totals: Vector
    constants: Singles
    tables: GroupTables
    rounding: float
    most: float


class GroupMove(NamedTuple):
    """Numbers of a pair of states that bounds need before any row is read; the same if these change places.

    Attributes
    ----------
    tier : int
        Of the bounds.
    expected : float
        How many rows will be drawn: the sum of all b_i.
    sizes : ndarray (G,)
        h_g.
    """

    tier: int
    expected: float
    sizes: Vector


def grouped(
    sampler: RowSampler, terms: Sequence[RowFunction | LinearPredictor], groups: CoordinateGroups
) -> BoundedRows:
    """Rows drawn by groups; `sampler` has their coordinates."""
    tables, factors = group_tables(terms, groups, sampler.constants)
    state = GroupSampler(
        sampler.center, sampler.radii, sampler.totals, factors, tables, sampler.rounding, sampler.most
    )
    return BoundedRows(state, group_move, group_draw, group_bounds)


@entry
def whitened(tables: GroupTables, center: Vector, q: Vector) -> Vector:
    """The w of a state."""
    w = np.zeros(tables.columns.shape[0])
    for b in range(w.shape[0]):
        away = q[tables.columns[b]] - center[tables.columns[b]]
        for a in range(b + 1):
            w[a] += tables.factor[b, a] * away
    return w


@entry
def cubes_of_groups(tables: GroupTables, w: Vector) -> Vector:
    """|w_g|^3 / tau_g^2 of all groups."""
    n, cubes = tables.n_sparse, np.zeros(tables.typical.shape[0])
    for a in range(w.shape[0]):  # squares of those that are pooled
        if tables.pools[a] >= 0:
            cubes[tables.pools[a]] += w[a] * w[a]
    for g in range(n, cubes.shape[0]):
        cubes[g] *= math.sqrt(cubes[g])
    for a in range(n):
        cubes[a] = abs(w[a]) ** 3
    return cubes / (tables.typical * tables.typical)


@entry
def sizes_by_groups(tables: GroupTables, tier: int, w_new: Vector, w: Vector) -> tuple[Vector, float]:
    """The h_g of a pair of states in a tier, and the sum of all b_i."""
    ends = cubes_of_groups(tables, w_new) + cubes_of_groups(tables, w)
    moved = cubes_of_groups(tables, w_new - w)
    of_ends = of_moved = 0.0
    for g in range(ends.shape[0]):
        of_ends += tables.sums[tier, g] * ends[g]
        of_moved += tables.sums[tier, g] * moved[g]
    near, step = 1.0 / 6.0, 0.0
    if 0.0 < of_moved < 4.0 / 27.0 * of_ends < math.inf:  # the second bound is the smaller one
        cube = (0.5 * of_ends / of_moved) ** (1.0 / 3.0)  # of mu
        near, step = 1.0 / (6.0 * cube), cube * cube / 6.0
    sizes = near * ends + step * moved
    expected = 0.0
    for g in range(sizes.shape[0]):
        expected += tables.sums[tier, g] * sizes[g]
    return sizes, expected


@entry
def move_by_groups(sampler: GroupSampler, q_new: Vector, q: Vector) -> GroupMove:
    """The tier of a pair of states, the sum of all b_i, and the h_g; the same if the states change places."""
    tables, center, radii = sampler.tables, sampler.center, sampler.radii
    w_new, w = whitened(tables, center, q_new), whitened(tables, center, q)
    radius = math.sqrt(max(np.sum(w * w), np.sum(w_new * w_new)))
    if not (radius <= radii[2] and radius < _FAR):
        return GroupMove(2, math.inf, tables.typical)
    tier = 2
    if radius <= radii[1]:
        tier = 0 if radius <= radii[0] else 1
    if np.all(q_new == q):
        return GroupMove(tier, 0.0, tables.typical)
    sizes, expected = sizes_by_groups(tables, tier, w_new, w)
    return GroupMove(tier, expected, sizes)


@entry
def first_above(values: Vector, start: int, stop: int, aim: float) -> int:
    """The first place from `start` on, before `stop`, of a value above `aim`; values do not fall."""
    low, high = start, stop - 1
    while low < high:
        middle = (low + high) // 2
        if aim < values[middle]:
            high = middle
        else:
            low = middle + 1
    return low


@entry
def scanned(tables: GroupTables, factors: Singles, start: int, stop: int, aim: float) -> int:
    """The row of the entry at which the sum of weights exceeds `aim`; the last one with weight, if none."""
    reached, row = 0.0, tables.rows[start]
    for e in range(start, stop):
        weight = np.float64(tables.lengths[e]) * np.float64(factors[tables.rows[e]])
        if weight > 0.0:
            reached += weight
            row = tables.rows[e]
            if aim < reached:
                break
    return int(row)


@entry
def draw_by_groups(rng: np.random.Generator, sampler: GroupSampler, move: GroupMove, n: int) -> Index:
    """Draw n rows independently, each in proportion to its b_i."""
    tables, tier, factors = sampler.tables, move.tier, sampler.constants[move.tier]
    reached = np.cumsum(tables.sums[tier] * move.sizes)
    drawn = np.empty(n, dtype=np.int64)
    for k in range(n):
        g = first_above(reached, 0, reached.shape[0], rng.random() * reached[-1])
        first, last = tables.blocks[g], tables.blocks[g + 1]
        aim = rng.random() * tables.sums[tier, g]
        block = first_above(tables.reached[tier], first, last, aim)
        if block > first:
            aim -= tables.reached[tier, block - 1]
        start = tables.starts[g] + (block - first) * BLOCK
        drawn[k] = scanned(tables, factors, start, min(start + BLOCK, tables.starts[g + 1]), aim)
    return drawn


@entry
def bounds_by_groups(sampler: GroupSampler, move: GroupMove, rows: Index) -> Vector:
    """The b_i of some rows."""
    entries, factors = sampler.tables.entries, sampler.constants[move.tier]
    bounds = np.empty(rows.shape[0])
    for k in range(rows.shape[0]):
        total = 0.0
        for e in range(entries.starts[rows[k]], entries.starts[rows[k] + 1]):
            total += np.float64(entries.lengths[e]) * move.sizes[entries.groups[e]]
        bounds[k] = np.float64(factors[rows[k]]) * total
    return bounds


# A record has functions that numba compiles into the kernel: it cannot keep a kernel on disk that holds the
# address of a compiled one.


@jitable
def group_move(sampler: GroupSampler, q_new: Vector, q: Vector) -> GroupMove:
    """`move_by_groups`, as a function of Python."""
    return move_by_groups(sampler, q_new, q)


@jitable
def group_draw(rng: np.random.Generator, sampler: GroupSampler, move: GroupMove, n: int) -> Index:
    """`draw_by_groups`, as a function of Python."""
    return draw_by_groups(rng, sampler, move, n)


@jitable
def group_bounds(sampler: GroupSampler, move: GroupMove, rows: Index) -> Vector:
    """`bounds_by_groups`, as a function of Python."""
    return bounds_by_groups(sampler, move, rows)
