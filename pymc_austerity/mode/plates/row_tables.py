"""Arrays with numbers for each row of a plate: in memory, or beside rows that are on disk."""

from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pymc_austerity.data.files import ScratchTable
from pymc_austerity.target import Index


def fixed[T: np.generic](values: NDArray[T]) -> NDArray[T]:
    """A view that cannot be written to, as rows on disk are: what is compiled for these is for all rows."""
    view = values.view()
    view.flags.writeable = False
    return view


class RowTable:
    """An array that is filled part by part.

    Parameters
    ----------
    folder : Path or None
        For a file, if it is not to be in memory.
    shape : tuple of int
        Rows and columns.
    dtype : dtype
    transposed : bool, default False
        Are the rows of the plate its last axis?

    Attributes
    ----------
    values : ndarray
        The array; when it is full it cannot be written to.
    """

    def __init__(
        self, folder: Path | None, shape: tuple[int, int], dtype: DTypeLike, *, transposed: bool = False
    ) -> None:
        n_rows, self._width, self._transposed = *shape, transposed
        ordered = (self._width, n_rows) if transposed else shape
        self._table: ScratchTable | None = None
        if folder is None or not self._width:
            self.values: NDArray[Any] = np.empty(ordered, dtype)
        else:
            self._table = ScratchTable(folder, ordered if transposed else (1, n_rows * self._width), dtype)
            self.values = self._table.values.reshape(ordered)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the table: nothing more is written, but the values can still be read."""
        self.values = fixed(self.values)
        if self._table is not None:
            self._table.close()

    def write(self, places: Index, values: NDArray[Any]) -> None:
        """Write some rows; on disk they are neighbours."""
        if self._table is None:
            self.values[(slice(None), places) if self._transposed else places] = values
        elif self._transposed:
            for k, column in enumerate(values):
                self._table.write(k, int(places[0]), column)
        else:
            self._table.write(0, int(places[0]) * self._width, np.ravel(values))
