"""Bounds on remainders by groups of whitened coordinates, and tables to draw rows by them.

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

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.block_table import BLOCK, rounded_up
from pymc_austerity.bounds.chunks import chunks
from pymc_austerity.bounds.row_constants import INFLATION
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.bounds.sparsity import CoordinateGroups
from pymc_austerity.compilation import entry
from pymc_austerity.target import Index, LinearPredictor, Matrix, Singles, Vector


class Entries(NamedTuple):
    """Parts of rows in groups, where they are not zero, row by row.

    Attributes
    ----------
    starts : ndarray of int (N + 1,)
        Where each row begins.
    groups : ndarray of int16 (E,)
    lengths : ndarray of float32 (E,)
        |v_ig|, rounded up.
    """

    starts: Index
    groups: npt.NDArray[np.int16]
    lengths: Singles


class GroupTables(NamedTuple):
    """Tables of all groups, one after the other.

    Attributes
    ----------
    columns, factor, n_sparse, pools
        See `sparsity.CoordinateGroups`.
    typical : ndarray (G,)
        tau_g.
    entries : Entries
        By row.
    starts : ndarray of int (G + 1,)
        Where the entries of each group begin in the next two.
    rows : ndarray of int32 (E,)
        By group.
    lengths : ndarray of float32 (E,)
        |v_ig| of these.
    blocks : ndarray of int (G + 1,)
        Where the blocks of each group begin in the next.
    reached : ndarray (3, B)
        Sums of k_i |v_ig| from the beginning of a group to the end of each block, for each tier.
    sums : ndarray (3, G)
        S_g.
    """

    columns: Index
    factor: Matrix
    n_sparse: int
    pools: Index
    typical: Vector
    entries: Entries
    starts: Index
    rows: npt.NDArray[np.int32]
    lengths: Singles
    blocks: Index
    reached: Matrix
    sums: Matrix

    def __str__(self) -> str:
        each = len(self.rows) / max(len(self.entries.starts) - 1, 1)
        return (
            f"rows are drawn by the whitened coordinates that they touch ({self.n_sparse} sparse columns, "
            f"{each:.2g} entries a row)"
        )


def group_tables(
    terms: Sequence[RowFunction | LinearPredictor], groups: CoordinateGroups, constants: Singles
) -> tuple[GroupTables, Singles]:
    """Tables for all rows of some terms, and their k_i.

    Parameters
    ----------
    terms : sequence of RowFunction or LinearPredictor
        With one predictor.
    groups : CoordinateGroups
    constants : ndarray of float32 (3, N)
        The c_i = K_i |v_i|^3 of each tier.

    Returns
    -------
    tables : GroupTables
    factors : ndarray of float32 (3, N)
        The k_i of each tier, rounded up.
    """
    typical = groups.typical
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
    entries = Entries(starts, np.concatenate(numbers), np.concatenate(parts))
    return _tables(groups, typical, entries, factors), factors


def _tables(groups: CoordinateGroups, typical: Vector, entries: Entries, factors: Singles) -> GroupTables:
    """The entries by group, with sums of blocks."""
    sizes = np.bincount(entries.groups, minlength=len(typical))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    blocks = np.concatenate([[0], np.cumsum((sizes + BLOCK - 1) // BLOCK)])
    rows, lengths = _transposed(entries, starts.copy())
    reached, sums = _sums(starts, blocks, rows, lengths, factors)
    return GroupTables(
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
