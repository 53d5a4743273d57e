"""Draw positions with given weights from tables that are much shorter than the weights.

Consecutive positions form blocks. To draw: choose a block by an alias table of the sums of weights, then scan
the weights of that block. Sums are made in double precision and in the order of the scan, so that the end of
a scan is the sum of its block to the last bit: probabilities are weights over their total, up to rounding of
doubles. A table is built in one pass, and has 20 bytes a block: weights may be on disk, if blocks are long.

An alias table draws in constant time, by Walker's method, as Vose (1991) builds it. It has N cells of the
same width. Cell i is shared by i, which owns the part `share[i]` of it, and by one other position,
`other[i]`. To draw: choose a cell, then a point in it.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import entry, jitable
from pymc_austerity.target import Index, Singles, Vector


class AliasTable(NamedTuple):
    """A discrete distribution on 0, ..., N - 1."""

    share: Vector  # (N,): part of each cell that is its own
    other: npt.NDArray[np.int32]  # (N,): who owns the rest


def alias_table(weights: Vector) -> AliasTable:
    """The table for probabilities in proportion to fewer than 2^31 `weights`.

    They are finite, none is negative, and not all are zero.
    """
    scaled = weights / weights.max()  # their sum may overflow
    return AliasTable(*_fill(scaled / scaled.mean()))


@entry
def _fill(size: Vector) -> tuple[Vector, npt.NDArray[np.int32]]:
    """Give what lacks in small cells to large positions; `size` has mean one, and is used up."""
    n, largest = size.shape[0], 0
    share, other = np.empty(n), np.empty(n, np.int32)
    small, large = np.empty(n, np.int32), np.empty(n, np.int32)
    n_small, n_large = 0, 0
    for i in range(n):
        share[i], other[i] = 1.0, i
        if size[i] > size[largest]:
            largest = i
        if size[i] < 1.0:
            small[n_small] = i
            n_small += 1
        else:
            large[n_large] = i
            n_large += 1
    while n_small > 0 and n_large > 0:
        n_small -= 1
        i, j = small[n_small], large[n_large - 1]
        share[i], other[i] = size[i], j
        size[j] = (size[j] + size[i]) - 1.0
        if size[j] < 1.0:
            n_large -= 1
            small[n_small] = j
            n_small += 1
    # What is left over is full but for rounding; only a cell of weight zero must not become its own.
    for k in range(n_small):
        if size[small[k]] == 0.0:
            share[small[k]], other[small[k]] = 0.0, largest
    return share, other


@jitable
def draw_position(rng: np.random.Generator, table: AliasTable) -> int:
    """Draw one position."""
    u = rng.random() * table.share.shape[0]
    cell = int(u)
    return cell if u - cell < table.share[cell] else int(table.other[cell])


# Positions in a block. A scan of them costs about what it takes to fetch them from memory, or from disk.
BLOCK, LONG_BLOCK = 16, 512


class BlockTable(NamedTuple):
    """A discrete distribution on positions whose weights are kept elsewhere."""

    blocks: AliasTable  # Of the blocks
    sums: Vector  # (B,): weights of the blocks
    length: int  # Positions in a block; the last may have fewer

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self.sums.sum())


def block_table(weights: Singles, length: int = BLOCK) -> BlockTable:
    """The table of some weights, none of them negative, in blocks of some length.

    If their sum is zero or infinite none is ever drawn, and there is no alias table.
    """
    sums = _block_sums(weights, length)
    if 0.0 < sums.sum() < math.inf:
        return BlockTable(alias_table(sums), sums, length)
    return BlockTable(AliasTable(np.empty(0), np.empty(0, dtype=np.int32)), sums, length)


@entry
def _block_sums(weights: Singles, length: int) -> Vector:
    n = weights.shape[0]
    sums = np.zeros((n + length - 1) // length)
    for block in range(sums.shape[0]):
        start = block * length
        for i in range(start, min(start + length, n)):
            sums[block] += weights[i]
    return sums


@jitable
def draw_weighted(rng: np.random.Generator, table: BlockTable, weights: Singles) -> int:
    """Draw one position; `weights` are those that the table was made of."""
    block: int = draw_position(rng, table.blocks)
    aim = rng.random() * table.sums[block]  # below the sum, even after rounding
    start = block * table.length
    stop: int = min(start + table.length, weights.shape[0])
    reached, before = 0.0, 0
    for i in range(start, stop):  # to the end: branches that nobody foresees take longer than sums
        reached += np.float64(weights[i])
        before += int(reached <= aim)
    return min(start + before, stop - 1)


@jitable
def draw_all_weighted(rng: np.random.Generator, table: BlockTable, weights: Singles, n: int) -> Index:
    """Draw n positions independently."""
    positions = np.empty(n, dtype=np.int64)
    for k in range(n):
        positions[k] = draw_weighted(rng, table, weights)
    return positions


def rounded_up(values: npt.NDArray[np.float64]) -> Singles:
    """The smallest numbers of single precision that are not below `values`, which are at least zero."""
    with np.errstate(over="ignore", under="ignore"):
        nearest = values.astype(np.float32)
    nearest.view(np.int32)[...] += nearest < values  # one more in the bits is the next larger number
    return nearest
