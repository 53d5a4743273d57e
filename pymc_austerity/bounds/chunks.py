"""Which rows a pass over a term looks at, and how many at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.target import Index, LinearPredictor

_LARGEST_CHUNK, _SMALLEST_CHUNK, _CHUNK_BUDGET = 8192, 256, 4_000_000


def chunks(term: RowFunction | LinearPredictor, n_rows: int) -> Iterator[Index]:
    """The numbers below `n_rows`, in pieces of so many rows of a term as fit in the cache."""
    length = int(np.clip(_CHUNK_BUDGET // term.n_dim**2, _SMALLEST_CHUNK, _LARGEST_CHUNK))
    for start in range(0, n_rows, length):
        yield np.arange(start, min(start + length, n_rows))


def evenly_spaced(n_rows: int, at_most: int) -> Index:
    """Numbers of some rows, at equal distances; of all if there are few."""
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, at_most)).astype(np.int64))
