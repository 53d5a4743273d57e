"""Arrays of equal lengths, by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.columns import Column, column_of_array
from pymc_austerity.data.file_state import place_of_map, require_size
from pymc_austerity.data.reading import Block, readable, regrouped


class ArrayReader(Protocol):
    """Pieces of one array, in order."""

    shape: tuple[int, ...]
    column: Column

    def pieces(self, first_row: int, length: int) -> Iterator[NDArray[Any]]:
        """Rows from a row on, in pieces of any length."""


class NumpyReader:
    """Pieces of an array of NumPy, in memory or mapped from a file."""

    def __init__(self, name: str, array: NDArray[Any]) -> None:
        self._name, self._array = name, array
        self._place = place_of_map(array)
        self.shape = array.shape
        self.column = column_of_array(array.dtype, array.shape[1:])

    def pieces(self, first_row: int, length: int) -> Iterator[NDArray[Any]]:
        """Views of the array."""
        for start in range(first_row, len(self._array), length):
            stop = min(start + length, len(self._array))
            self._require_file(start, stop)
            yield self._array[start:stop]

    def _require_file(self, start: int, stop: int) -> None:
        # Reading from the map of a file that was cut kills Python.
        if self._place is not None:
            with readable(f"{self._place.path}, array {self._name!r}", start, stop):
                require_size(self._place.path, self._place.stop)


class DictSource:
    """Rows of a dict of names to arrays.

    Parameters
    ----------
    arrays : mapping
        Arrays of NumPy (in memory or mapped) or Zarr.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        if not arrays:
            raise ValueError("The source has no arrays.")
        self._readers = {name: _reader(name, array) for name, array in arrays.items()}
        lengths = {name: reader.shape[0] for name, reader in self._readers.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name!r} {length:,}" for name, length in lengths.items())
            raise ValueError(f"Arrays must have equally many rows, got {told}.")
        self.n_rows = next(iter(lengths.values()))
        self.columns = {name: reader.column for name, reader in self._readers.items()}
        self.described = {
            "arrays": {name: [list(r.shape), r.column.described] for name, r in self._readers.items()}
        }

    def blocks(self, names: Sequence[str], first_row: int, length: int) -> Iterator[Block]:
        """Blocks of `length` rows, from row `first_row` on; see `Source`."""
        streams = [_blocks_of(name, self._readers[name], first_row, length) for name in names]
        for parts in zip(*streams, strict=True):
            yield {name: rows for part in parts for name, rows in part.items()}


def _blocks_of(name: str, reader: ArrayReader, first_row: int, length: int) -> Iterator[Block]:
    return regrouped(({name: piece} for piece in reader.pieces(first_row, length)), length)


def _reader(name: Any, array: Any) -> ArrayReader:
    if not isinstance(name, str):
        raise ValueError(f"Names of arrays must be text, got {name!r}.")
    reader: ArrayReader
    if isinstance(array, np.ndarray):
        reader = NumpyReader(name, array)
    elif _is_of_zarr(array):
        from pymc_austerity.data.zarr_arrays import ZarrReader

        reader = ZarrReader(name, array)
    else:
        raise ValueError(
            f"{name!r} must be an array of NumPy or Zarr, got {type(array).__name__}. "
            "Other arrays: np.asarray(...)."
        )
    if not reader.shape:
        raise ValueError(f"{name!r} is a single number and has no rows. Leave it out of the source.")
    return reader


def _is_of_zarr(array: Any) -> bool:
    """Is this an array of Zarr? If there is one, Zarr has been imported."""
    zarr = sys.modules.get("zarr")
    return zarr is not None and isinstance(array, zarr.Array)
