"""Draw positions with given weights from tables that are much shorter than the weights.

Consecutive positions form blocks. To draw: choose a block by an alias table of the sums of weights, then scan
the weights of that block. Sums are made in double precision and in the order of the scan, so that the end of
a scan is the sum of its block to the last bit: probabilities are weights over their total, up to rounding of
doubles. A table is built in one pass, and has 20 bytes a block: weights may be on disk, if blocks are long.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.alias import AliasTable, alias_table, draw_position
from pymc_austerity.compilation import entry, jitable
from pymc_austerity.target import Index, Singles, Vector

# Positions in a block. A scan of them costs about what it takes to fetch them from memory, or from disk.
BLOCK, LONG_BLOCK = 16, 512


class BlockTable(NamedTuple):
    """A discrete distribution on positions whose weights are kept elsewhere.

    Attributes
    ----------
    blocks : AliasTable
        Of the blocks.
    sums : ndarray (B,)
        Weights of the blocks.
    length : int
        Positions in a block; the last may have fewer.
    """

    blocks: AliasTable
    sums: Vector
    length: int

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
    result = np.empty(values.shape, np.float32)
    _round_up(values.ravel(), result.reshape(-1))
    return result


@entry
def _round_up(values: npt.NDArray[np.float64], result: Singles) -> None:
    """Round numbers >= 0 up to single precision: to get the next larger number, one is added to the bits."""
    for i in range(values.shape[0]):
        nearest = np.float32(values[i])
        bits = nearest.view(np.int32) + np.int32(nearest < values[i])
        result[i] = np.int32(bits).view(np.float32)
