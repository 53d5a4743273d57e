"""Bounds on remainders by groups of whitened coordinates, and rows drawn by them.

For a term of one predictor |t_i| = |v_i . w| <= sum over g of |v_ig||w_g|, v_ig and w_g the parts in group g.
With shares p_ig that add up to one, as x^3 is convex,

    |t_i|^3 <= sum over g of |v_ig|^3 |w_g|^3 / p_ig^2.

The shares p_ig = |v_ig| tau_g / s_i, with tau_g a typical |w_g| and s_i the sum of all |v_ig| tau_g, make it

    K_i |t_i|^3 <= k_i sum over g of |v_ig| |w_g|^3 / tau_g^2,    k_i = K_i s_i^2.

Of the two bounds of `remainder` the first becomes |R_i(q') - R_i(q)| <= b_i = k_i sum over g of |v_ig| h_g,

    h_g = (|w_g|^3 + |w'_g|^3) / (6 tau_g^2).

For the second, let b = |v_i . (w' - w)| and a = |v_i . w_tau| at a point of the segment. For any mu > 0 the
product b a^2 = (mu^2 b) (a / mu)^2 is at most (mu^6 b^3 + 2 a^3 / mu^3) / 3, and the mean of a^3 along the
segment is at most that of its ends, so that the same holds with

    h_g = [mu^6 |w'_g - w_g|^3 + (|w_g|^3 + |w'_g|^3) / mu^3] / (6 tau_g^2).

mu is chosen once for a pair of states, for the smallest sum of all b_i. All h_g are symmetric in the states.

A group has a table of the rows with a part in it, weighted by k_i |v_ig|; S_g is their sum. To draw: choose
a group with probability h_g S_g / sum, a block of its rows by bisection, and a row by a scan of the block.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.block_table import BLOCK, rounded_up
from pymc_austerity.bounds.remainder import RowDraws, RowSampler
from pymc_austerity.bounds.row_constants import INFLATION
from pymc_austerity.bounds.row_function import RowFunction, chunks
from pymc_austerity.bounds.sparsity import CoordinateGroups
from pymc_austerity.compilation import entry, jitable
from pymc_austerity.target import Index, Matrix, Singles, Vector


class Entries(NamedTuple):
    """Parts of rows in groups, where they are not zero, row by row."""

    starts: Index  # (N + 1,): where each row begins
    groups: npt.NDArray[np.int16]  # (E,)
    lengths: Singles  # (E,): |v_ig|, rounded up


class GroupTables(NamedTuple):
    """Tables of all groups, one after the other."""

    # columns, factor, n_sparse, pools: see `sparsity.CoordinateGroups`
    columns: Index
    factor: Matrix
    n_sparse: int
    pools: Index
    typical: Vector  # (G,): tau_g
    entries: Entries  # By row
    starts: Index  # (G + 1,): where the entries of each group begin in the next two
    rows: npt.NDArray[np.int32]  # (E,): by group
    lengths: Singles  # (E,): |v_ig| of these
    blocks: Index  # (G + 1,): where the blocks of each group begin in the next
    # (3, B): sums of k_i |v_ig| from the beginning of a group to the end of each block, for each tier
    reached: Matrix
    sums: Matrix  # (3, G): S_g

    def __str__(self) -> str:
        each = len(self.rows) / max(len(self.entries.starts) - 1, 1)
        return (
            f"rows are drawn by the whitened coordinates that they touch ({self.n_sparse} sparse columns, "
            f"{each:.2g} entries a row)"
        )


def grouped(sampler: RowSampler, terms: Sequence[RowFunction], groups: CoordinateGroups) -> RowDraws:
    """Rows of terms with one predictor drawn by groups; `sampler` has their coordinates, and their c_i.

    In the place of the c_i = K_i |v_i|^3 of each tier come the k_i, rounded up.
    """
    typical = groups.typical
    entries, factors = _entries(terms, groups, typical, sampler.constants)
    sizes = np.bincount(entries.groups, minlength=len(typical))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    blocks = np.concatenate([[0], np.cumsum((sizes + BLOCK - 1) // BLOCK)])
    rows, lengths = _transposed(entries, starts.copy())
    reached, sums = _sums(starts, blocks, rows, lengths, factors)
    tables = GroupTables(
        groups.columns,
        groups.factor,
        groups.n_sparse,
        groups.pools,
        typical,
        entries,
        starts,
        rows,
        lengths,
        blocks,
        reached,
        sums,
    )
    state = sampler._replace(constants=factors, tables=tables)
    return RowDraws(state, group_move, group_draw, group_bounds)


def _entries(
    terms: Sequence[RowFunction],
    groups: CoordinateGroups,
    typical: Vector,
    constants: Singles,
) -> tuple[Entries, Singles]:
    """Parts of all rows in groups, and the k_i (3, N) of each tier."""
    factors = np.empty_like(constants)
    counts, numbers, parts = [], [], []
    start = 0
    for term in terms:
        for positions in chunks(term, term.n_rows):
            rows = term.rows(positions).reshape(len(positions), -1)
            parts_of_rows, whole = groups.lengths(rows[:, :-1])
            lengths = rounded_up(parts_of_rows * INFLATION)
            share = (lengths @ typical) / np.where(whole > 0.0, whole, 1.0)
            here = start + positions
            factors[:, here] = rounded_up(
                constants[:, here] * (share**2 / np.where(whole > 0.0, whole, 1.0) * INFLATION)
            )
            some = lengths > 0.0
            counts.append(some.sum(axis=1))
            numbers.append(np.nonzero(some)[1].astype(np.int16))
            parts.append(lengths[some])
        start += term.n_rows
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return Entries(starts, np.concatenate(numbers), np.concatenate(parts)), factors


@entry
def _transposed(entries: Entries, ends: Index) -> tuple[npt.NDArray[np.int32], Singles]:
    """Rows and lengths by group; `ends` is where each begins, and is used up."""
    rows, lengths = np.empty(entries.groups.shape[0], np.int32), np.empty_like(entries.lengths)
    for i in range(entries.starts.shape[0] - 1):
        for e in range(entries.starts[i], entries.starts[i + 1]):
            at = ends[entries.groups[e]]
            ends[entries.groups[e]] += 1
            rows[at], lengths[at] = i, entries.lengths[e]
    return rows, lengths


@entry
def _sums(
    starts: Index, blocks: Index, rows: npt.NDArray[np.int32], lengths: Singles, factors: Singles
) -> tuple[Matrix, Matrix]:
    n_groups = starts.shape[0] - 1
    reached, sums = np.empty((3, blocks[n_groups])), np.zeros((3, n_groups))
    for tier in range(3):
        for g in range(n_groups):
            for block in range(blocks[g], blocks[g + 1]):
                start = starts[g] + (block - blocks[g]) * BLOCK
                total = 0.0
                for e in range(start, min(start + BLOCK, starts[g + 1])):
                    total += np.float64(lengths[e]) * np.float64(factors[tier, rows[e]])
                sums[tier, g] += total
                reached[tier, block] = sums[tier, g]
    return reached, sums


# Beyond this |w| nothing is known, as powers may overflow.
_FAR = 1e30


class GroupMove(NamedTuple):
    """Numbers of a pair of states that bounds need before any row is read; the same if they change places."""

    tier: int  # Of the bounds
    expected: float  # How many rows will be drawn: the sum of all b_i
    sizes: Vector  # (G,): h_g


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
def move_by_groups(sampler: RowSampler, q_new: Vector, q: Vector) -> GroupMove:
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
def draw_by_groups(rng: np.random.Generator, sampler: RowSampler, move: GroupMove, n: int) -> Index:
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
def bounds_by_groups(sampler: RowSampler, move: GroupMove, rows: Index) -> Vector:
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
def group_move(sampler: RowSampler, q_new: Vector, q: Vector) -> GroupMove:
    """`move_by_groups`, as a function of Python."""
    return move_by_groups(sampler, q_new, q)


@jitable
def group_draw(rng: np.random.Generator, sampler: RowSampler, move: GroupMove, n: int) -> Index:
    """`draw_by_groups`, as a function of Python."""
    return draw_by_groups(rng, sampler, move, n)


@jitable
def group_bounds(sampler: RowSampler, move: GroupMove, rows: Index) -> Vector:
    """`bounds_by_groups`, as a function of Python."""
    return bounds_by_groups(sampler, move, rows)
