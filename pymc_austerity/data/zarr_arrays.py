"""Arrays of Zarr."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.columns import column_of_array
from pymc_austerity.data.reading import UnreadableError, readable
from pymc_austerity.extras import imported


def arrays_of_group(path: Path) -> dict[str, Any]:
    """The arrays of a group, without those of groups within.

    Parameters
    ----------
    path : Path

    Raises
    ------
    UnreadableError
        If it is no group.
    """
    zarr = imported("zarr", "Files of Zarr", "store")
    try:
        group = zarr.open_group(str(path), mode="r")
        return dict(sorted(group.arrays()))
    except (OSError, ValueError, KeyError) as error:
        raise UnreadableError(
            f"{path} cannot be read as a group of Zarr: {error}. Give a single array as "
            "{'X': zarr.open_array(path, mode='r')}."
        ) from error


class ZarrReader:
    """Pieces of an array of Zarr: whole chunks, so that each is decoded once.

    Parameters
    ----------
    name : str
    array : zarr.Array
    """

    def __init__(self, name: str, array: Any) -> None:
        # A chunk that is not there would be read as the fill value.
        self._array = array.with_config({"read_missing_chunks": False})
        self._where = f"{array.store_path}, array {name!r}"
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.column = column_of_array(np.dtype(array.dtype), self.shape[1:])

    def pieces(self, first_row: int, length: int) -> Iterator[NDArray[Any]]:
        """Rows from a row on: so many chunks as make up the length, at least one."""
        chunk = int(self._array.chunks[0])
        step = chunk * max(1, length // chunk)
        for start in range(first_row - first_row % chunk, self.shape[0], step):
            stop = min(start + step, self.shape[0])
            first, last = start // chunk, (stop - 1) // chunk
            told = f"chunk {first}" if first == last else f"chunks {first} to {last}"
            with readable(f"{self._where}, {told}", start, stop):
                rows = self._rows(start, stop)
            yield rows[max(0, first_row - start) :]

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        not_found = imported("zarr.errors", "Files of Zarr", "store").ChunkNotFoundError
        try:
            return np.asarray(self._array[start:stop])
        except not_found as error:
            raise UnreadableError(
                "it is not there. Zarr also leaves out chunks that hold the fill value only: if that is so, "
                "write the array with config={'write_empty_chunks': True}"
            ) from error
