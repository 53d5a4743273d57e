"""Draw positions with given weights, each in constant time: Walker's alias method, as Vose (1991) builds it.

A table has N cells of the same width. Cell i is shared by i, which owns the part `share[i]` of it, and by
one other position, `other[i]`. To draw: choose a cell, then a point in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import entry, jitable
from pymc_austerity.target import Vector


class AliasTable(NamedTuple):
    """A discrete distribution on 0, ..., N - 1.

    Attributes
    ----------
    share : ndarray of float, shape (N,)
        Part of each cell that is its own.
    other : ndarray of int32, shape (N,)
        Who owns the rest.
    """

    share: Vector
    other: npt.NDArray[np.int32]


def alias_table(weights: Vector) -> AliasTable:
    """The table for probabilities in proportion to `weights`.

    Parameters
    ----------
    weights : ndarray (N,)
        Finite, none negative, not all zero; fewer than 2^31.
    """
    scaled = weights / weights.max()  # their sum may overflow
    return AliasTable(*_fill(scaled / scaled.mean()))


@entry
def _fill(size: Vector) -> tuple[Vector, npt.NDArray[np.int32]]:
    """Give what lacks in small cells to large positions; `size` has mean one, and is used up."""
    n, largest = size.shape[0], np.argmax(size)
    share, other = np.ones(n), np.arange(n).astype(np.int32)
    small, large = np.empty(n, np.int32), np.empty(n, np.int32)
    n_small, n_large = 0, 0
    for i in range(n):
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
