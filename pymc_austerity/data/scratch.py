"""Tables beside rows on disk: in files without names, which are gone when nobody uses them any more."""

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pymc_austerity.data.files import named_if_full, require_space, reserve, write_all


def require_scratch(folder: Path | None) -> Path:
    """The folder for what is computed from rows, which is made if it does not exist.

    A `PermissionError` if it cannot be made, or nothing can be written there; a `ValueError` if there is
    none.
    """
    if folder is None:
        raise ValueError("Maps have no folder to write to: RowStore.open(..., scratch='a folder').")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(folder, os.W_OK) else ": permission denied"
    except OSError as error:
        why = f": {error.strerror}"
    if why:
        raise PermissionError(
            f"Nothing can be written to the folder {folder}{why}. Give another one, as in "
            "RowStore.open(..., scratch='another folder')."
        )
    return folder


class ScratchTable:
    """A table of numbers on disk, rows and columns, which is filled part by part.

    Its `values` are mapped and read only. The file has no name: processes that were forked share it, and if
    all have ended it is gone, however they did. An `OSError` names the bytes wanted and those left if it does
    not fit on the disk.
    """

    def __init__(self, folder: Path, shape: tuple[int, int], dtype: DTypeLike) -> None:
        self._folder, self._dtype = folder, np.dtype(dtype)
        self._length = shape[1]
        self._bytes = shape[0] * shape[1] * self._dtype.itemsize
        require_space(folder, self._bytes)
        with ExitStack() as opened, named_if_full(folder, self._bytes):
            self._file = opened.enter_context(tempfile.TemporaryFile(dir=folder, buffering=0))
            reserve(self._file.fileno(), folder, self._bytes)
            os.ftruncate(self._file.fileno(), self._bytes)  # where nothing could be reserved
            self.values: NDArray[Any] = np.memmap(self._file, self._dtype, "r", 0, shape).view(np.ndarray)
            opened.pop_all()

    def write(self, row: int, start: int, values: NDArray[Any]) -> None:
        """Write neighbours in one row of the table, from the column `start` on."""
        self._file.seek((row * self._length + start) * self._dtype.itemsize)
        write_all(self._file, np.ascontiguousarray(values, self._dtype), self._folder, self._bytes)

    def close(self) -> None:
        """Close the file: nothing more is written, but the map can still be read."""
        self._file.close()
