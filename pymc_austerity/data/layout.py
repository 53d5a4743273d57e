"""What the folder of a row store holds: `store.json`, and a `.npy` file for each array."""

import json
import os
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import write_array_header_1_0
from numpy.typing import NDArray

from pymc_austerity.data.files import checksum, named_if_full, reserve, write_all

FILE = "store.json"
_FORMAT = 1

Label = str | int | bool


class ArrayLayout(NamedTuple):
    """One array of a store, or one that was given as a map."""

    file: str  # its name in the folder
    offset: int  # bytes before the first row
    dtype: str  # with the byte order
    shape: tuple[int, ...]  # rows first
    columns: tuple[str, ...] | None  # names of the columns of a matrix that was stacked
    crc32: tuple[int | None, ...]  # of each chunk; None for one of a map that has not been read yet
    labels: tuple[Label, ...] | None  # of the codes 0, 1, ...
    means: Any  # what was subtracted from a row: a number, a nested tuple, or None
    sds: Any  # what the rest was divided by


def write_layout(
    folder: Path, n_rows: int, chunk_rows: int, sorted_by: str | None, arrays: Mapping[str, ArrayLayout]
) -> None:
    """Write `store.json` into a folder; the last chunk may have fewer rows."""
    found = {
        "format": _FORMAT, "n_rows": n_rows, "chunk_rows": chunk_rows, "sorted_by": sorted_by,
        "arrays": {name: array._asdict() for name, array in arrays.items()},
    }  # fmt: skip
    (folder / FILE).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def read_layout(folder: Path) -> tuple[int, dict[str, ArrayLayout]]:
    """Rows of a chunk, and the arrays, by the `store.json` of a folder.

    A `FileNotFoundError` if the folder is no row store, a `ValueError` if the file is damaged, or of another
    version.
    """
    path = folder / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is no row store: it has no {FILE}. RowStore.write makes one.")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            raise ValueError(f"its format is {found['format']}, not {_FORMAT}; write the store again")
        if missing := {"n_rows", "sorted_by"} - set(found):
            raise KeyError(min(missing))
        return found["chunk_rows"], {name: _array(fields) for name, fields in found["arrays"].items()}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error


def _array(fields: dict[str, Any]) -> ArrayLayout:
    """Layout of an array from JSON, which has lists in place of tuples."""
    known: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
    return ArrayLayout(**known)


class NpyFile:
    """An array that is appended to, with the checksum of each chunk. Its place on disk is reserved first."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], chunk_rows: int) -> None:
        self.path, self.dtype, self.shape, self._chunk_rows = path, dtype, shape, chunk_rows
        header = _header(dtype, shape)
        self.offset, self._size = len(header), file_size(dtype, shape)  # bytes before row 0, and of all
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        self.n_rows = 0  # written so far
        self.crc32: list[int] = []  # of each chunk that was begun
        # Without a buffer: what is written is in the hands of the operating system.
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        try:
            reserve(self._file.fileno(), path, self._size)
            self._file.seek(0)
            write_all(self._file, header, path, self._size)
        except BaseException:
            self._file.close()
            raise

    def append(self, rows: NDArray[Any]) -> None:
        """Write rows of the same dtype."""
        rows = np.ascontiguousarray(rows, self.dtype)
        write_all(self._file, rows, self.path, self._size)
        start = 0
        while start < len(rows):
            within = self.n_rows % self._chunk_rows
            stop = min(len(rows), start + self._chunk_rows - within)
            before = self.crc32.pop() if within else 0
            self.crc32.append(checksum(rows[start:stop], before))
            self.n_rows += stop - start
            start = stop

    def go_on(self, crc32: Sequence[int]) -> None:
        """Go on after whole chunks with these checksums, which an earlier run has written."""
        self.crc32 = list(crc32)
        self.n_rows = len(crc32) * self._chunk_rows
        self._file.seek(self.offset + self.n_rows * self._row_bytes)

    def is_whole(self, number: int, crc32: int) -> bool:
        """Has the file all rows of the chunk of this number, with this checksum?"""
        size = self._chunk_rows * self._row_bytes
        self._file.seek(self.offset + number * size)
        return checksum(np.frombuffer(self._file.read(size), np.uint8)) == crc32

    def sync(self) -> None:
        """Wait until the disk has it all."""
        with named_if_full(self.path, self._size):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Nothing more is written."""
        self._file.close()


def file_size(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Bytes of the whole file of an array."""
    return len(_header(dtype, shape)) + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The bytes before the first row."""
    header = BytesIO()
    write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return header.getvalue()
