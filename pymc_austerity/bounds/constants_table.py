"""The c_i of all rows at three radii, in single precision and rounded up, written in one pass.

They may be written to memory or to disk. What was written is read again and compared with the numbers in
double precision, in every row: a bound that is too low would make decisions wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.block_table import rounded_up
from pymc_austerity.bounds.row_constants import INFLATION, BoundedTerm
from pymc_austerity.compilation import entry
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.target import Index, Matrix, Singles

# Constants that are looked at together, for the largest of all.
_CHUNK = 100_000


class ConstantsTable(Protocol):
    """A table that numbers of rows are written to; `data.scratch.ScratchTable` is one on disk."""

    @property
    def values(self) -> npt.NDArray[Any]:
        """The numbers that have been written; constants have the shape (3, N)."""

    def write(self, row: int, start: int, values: npt.NDArray[Any]) -> None:
        """Write neighbours in one row of the table."""


# Makes a table of a shape and a dtype.
NewTable = Callable[[tuple[int, int], npt.DTypeLike], ConstantsTable]


class InMemory:
    """A table in memory.

    Parameters
    ----------
    shape : tuple of int
    dtype : dtype

    Attributes
    ----------
    values : ndarray
    """

    def __init__(self, shape: tuple[int, int], dtype: npt.DTypeLike) -> None:
        self.values: npt.NDArray[Any] = np.empty(shape, dtype)

    def write(self, row: int, start: int, values: npt.NDArray[Any]) -> None:
        """Write neighbours in one row of the table."""
        self.values[row, start : start + len(values)] = values


def write_constants(terms: Sequence[BoundedTerm], table: ConstantsTable) -> int:
    """Write the c_i of all rows for three tiers, and say which radius the third one has.

    Parameters
    ----------
    terms : sequence of BoundedTerm
        With four radii.
    table : ConstantsTable

    Returns
    -------
    int
        3, or 2 if the c_i of some row are infinite at the last radius: all have that of the one before then.

    Raises
    ------
    SelfCheckError
        If a number that was written is below the constant.
    """
    last, begun = 3, 0
    for name, start, c in _pieces(terms):
        if last == 3 and not np.all(c[3] < np.finfo(np.float32).max):
            last, begun = 2, start
        for tier, radius in enumerate((0, 1, last)):
            _write(table, tier, name, start, c[radius])
    for name, start, c in _pieces(terms) if last == 2 and begun else ():
        if start >= begun:
            break
        _write(table, 2, name, start, c[2])
    return last


def _pieces(terms: Sequence[BoundedTerm]) -> Iterator[tuple[str, int, Matrix]]:
    """Name of the term, position of the first row in the population, and c_i (4, m), of some neighbours."""
    first = 0
    for each in terms:
        for positions, c in each.constants():
            yield each.term.name, first + int(positions[0]), c * INFLATION
        first += each.term.n_rows


def _write(table: ConstantsTable, tier: int, name: str, start: int, c: Matrix) -> None:
    table.write(tier, start, rounded_up(c))
    written = table.values[tier, start : start + len(c)]
    row = _first_below(written, c)
    if row < len(c):
        raise SelfCheckError(
            f"Self-check failed for the term {name!r}: the bound of row {start + row:,} of all terms is "
            f"{c[row]!r}, and {written[row]!r} was written, which is below it. This is a defect of "
            "pymc_austerity, or of the disk: please report the model."
        )


def positions_of_largest(weights: Singles, most: int) -> Index:
    """Positions of the largest weights, so many of them; of equal ones the first."""
    best = np.empty(0, dtype=np.int64)
    least = -np.inf
    for start in range(0, len(weights), _CHUNK):
        larger = start + np.flatnonzero(weights[start : start + _CHUNK] > least)
        rows = np.concatenate([best, larger])
        best = np.sort(rows[np.argsort(-weights[rows], kind="stable")[:most]])
        least = float(weights[best].min()) if len(best) == most else -np.inf
    return best


@entry
def _first_below(written: Singles, c: npt.NDArray[np.float64]) -> int:
    """The first row whose number is below the constant; the number of rows, if all are as large."""
    for i in range(c.shape[0]):
        if written[i] < c[i]:
            return i
    return len(c)
