"""A `.npy` file that is written from front to back, with the checksum of each chunk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.lib.format import write_array_header_1_0
from numpy.typing import NDArray

from pymc_austerity.data.checksums import checksum
from pymc_austerity.data.columns import Dtype
from pymc_austerity.data.disk_space import named_if_full, reserve


class NpyFile:
    """An array that is appended to by `write`: storing into a map of a full disk would kill Python.

    Parameters
    ----------
    path : Path
    dtype : dtype
    shape : tuple of int
        Of the whole array.
    chunk_rows : int
        Rows of a chunk.

    Attributes
    ----------
    offset : int
        Bytes before the first row.
    n_rows : int
        Rows written so far.
    crc32 : list of int
        Of each chunk that was begun.
    """

    def __init__(self, path: Path, dtype: Dtype, shape: tuple[int, ...], chunk_rows: int) -> None:
        self.path, self.dtype, self.shape, self._chunk_rows = path, dtype, shape, chunk_rows
        header = header_of(dtype, shape)
        self.offset, self._size = len(header), file_size(dtype, shape)
        self.n_rows = 0
        self.crc32: list[int] = []
        # Without a buffer: what is written is in the hands of the operating system.
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        try:
            reserve(self._file.fileno(), path, self._size)
            self._file.seek(0)
            self._write(header)
        except BaseException:
            self._file.close()
            raise

    def append(self, rows: NDArray[Any]) -> None:
        """Write rows of the same dtype.

        Parameters
        ----------
        rows : array

        Raises
        ------
        OSError
            If the disk is full.
        """
        rows = np.ascontiguousarray(rows, self.dtype)
        self._write(rows.reshape(-1).view(np.uint8))
        start = 0
        while start < len(rows):
            within = self.n_rows % self._chunk_rows
            stop = min(len(rows), start + self._chunk_rows - within)
            before = self.crc32.pop() if within else 0
            self.crc32.append(checksum(rows[start:stop], before))
            self.n_rows += stop - start
            start = stop

    def go_on(self, crc32: Sequence[int]) -> None:
        """Go on after whole chunks that an earlier run has written.

        Parameters
        ----------
        crc32 : sequence of int
            Of each of them.
        """
        self.crc32 = list(crc32)
        self.n_rows = len(crc32) * self._chunk_rows
        self._file.seek(self.offset + self.n_rows * self._row_bytes)

    def is_whole(self, number: int, crc32: int) -> bool:
        """Has the file this chunk?

        Parameters
        ----------
        number : int
            Of the chunk, which must have all its rows.
        crc32 : int
        """
        size = self._chunk_rows * self._row_bytes
        self._file.seek(self.offset + number * size)
        return checksum(np.frombuffer(self._file.read(size), np.uint8)) == crc32

    @property
    def _row_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def _write(self, data: Any) -> None:
        left = memoryview(data)
        with named_if_full(self.path, self._size):
            while len(left):
                left = left[self._file.write(left) :]

    def sync(self) -> None:
        """Wait until the disk has it all."""
        with named_if_full(self.path, self._size):
            os.fsync(self._file.fileno())

    def __enter__(self) -> NpyFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def header_of(dtype: Dtype, shape: tuple[int, ...]) -> bytes:
    """The bytes before the first row."""
    header = BytesIO()
    write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return header.getvalue()


def file_size(dtype: Dtype, shape: tuple[int, ...]) -> int:
    """Bytes of the whole file."""
    return len(header_of(dtype, shape)) + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
