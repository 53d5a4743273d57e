"""Tables with a line for each row: in memory, or in files beside rows that are on disk.

What is computed of them is computed part by part, so that nothing else has that size.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pymc_austerity.data.files import scratch_array
from pymc_austerity.exceptions import RowsOnDiskError
from pymc_austerity.target import Index

# Rows of a part; codes that wait to be compared with those that are known, at least.
_PART, _WAITING = 2**15, 2**20


class RowTables(NamedTuple):
    """Where tables are."""

    folder: Path | None  # None for memory

    def zeros(self, *shape: int, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """A table of zeros, to be written to."""
        if self.folder is None or 0 in shape:
            return np.zeros(shape, dtype)
        return scratch_array(self.folder, shape, dtype)


def not_in_order(term: str, effects: str) -> RowsOnDiskError:
    """The refusal of rows of a term in which groups are mixed, whose effects have a name."""
    return RowsOnDiskError(
        f"The rows of {term!r} are on disk, and not in the order of the groups of {effects!r}, which are "
        "read together. Write the store in that order: RowStore.write(..., sort_by='the column of the "
        "groups'). Where groups are nested, these are the innermost ones."
    )


def parts(n: int) -> Iterator[slice]:
    """All of n rows, so many neighbours at a time that what is computed of them fits into a cache."""
    return (slice(start, min(start + _PART, n)) for start in range(0, n, _PART))


def different(pieces: Iterable[Index]) -> Index:
    """The different numbers of all pieces, in order."""
    known, waiting, n = np.zeros(0, np.int64), [], 0
    for piece in pieces:
        waiting.append(np.unique(piece))
        n += len(waiting[-1])
        if n > max(len(known), _WAITING):
            known, waiting, n = np.unique(np.concatenate([known, *waiting])), [], 0
    return np.unique(np.concatenate([known, *waiting]))


def occurring(table: NDArray[Any]) -> Index:
    """The different numbers of a table that has no large ones, in order."""
    found = np.zeros(int(table.max(initial=-1)) + 1, np.bool_)
    for part in parts(len(table)):
        found[table[part]] = True
    return np.flatnonzero(found)


def write_taken(result: NDArray[Any], table: NDArray[Any], rows: Index | None, own: Index | None) -> None:
    """Write some rows of a table, or all, in another order; of its columns some, or all."""
    for part in parts(len(result)):
        some = table[part if rows is None else rows[part]]
        result[part] = some if own is None else some[:, own]


def reduce_cells(
    ufunc: np.ufunc, cells: Index, part: slice, values: NDArray[Any], result: NDArray[Any]
) -> None:
    """Reduce the values of a part of the rows by their cells, together with what the cells have."""
    first, stop = np.searchsorted(cells, [part.start, part.stop - 1], side="right")
    own = slice(first - 1, stop)
    starts = np.maximum(cells[own], part.start) - part.start
    result[own] = ufunc(result[own], ufunc.reduceat(values, starts))
