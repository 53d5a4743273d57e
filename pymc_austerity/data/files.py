"""Files of rows: where they are, whether they are what they were, space for them, and tables beside them."""

import errno
import mmap
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import DTypeLike, NDArray

# Size, time of change in nanoseconds and inode: what changes if a file is written to or replaced.
FileState = tuple[int, int, int]

# The folder that holds the folders of stores on this host.
STORE_ROOT = "PMA_STORE_ROOT"

# Errors of a disk without space, of a quota, and of a limit to the size of files.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def path_here(path: str | Path) -> Path:
    """The path of a file of rows on this host, which was opened first at `path`, perhaps on another.

    The same, if there is such a file, or if the environment variable `PMA_STORE_ROOT` is not set. Else the
    file, with its folder, in the folder that the variable names.
    """
    path = Path(path)
    root = os.environ.get(STORE_ROOT)
    return path if path.exists() or not root else Path(root) / path.parent.name / path.name


# Is a file what it was? ---------------------------------------------------------------------------


def state_of(path: Path) -> FileState:
    """The state of a file now."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def require_size(path: Path, wanted: int) -> None:
    """Refuse a file of fewer bytes than are wanted: to read from its map would end the program."""
    found = path.stat().st_size
    if found < wanted:
        raise ValueError(f"{path} has {found:,} bytes, and {wanted:,} are wanted: it was cut.")


def place_of_map(array: NDArray[Any]) -> tuple[Path, int, int] | None:
    """The file from which an array is mapped, and its first byte there and the one after its last.

    None if the array is neither a map of a file that has a name, nor a view of one.
    """
    root: Any = array
    mapped: np.memmap[Any, Any] | None = None
    while isinstance(root, np.ndarray):
        # A view of a map has the offset of its parent.
        mapped = root if isinstance(root, np.memmap) and root.filename is not None else mapped
        root = root.base
    if not isinstance(root, mmap.mmap) or mapped is None or mapped.filename is None:
        return None
    begins = mapped.offset - mapped.offset % mmap.ALLOCATIONGRANULARITY
    address = np.frombuffer(root, np.uint8).ctypes.data
    low, high = byte_bounds(array)
    return Path(mapped.filename).absolute(), begins + low - address, begins + high - address


def checksum(rows: NDArray[Any], before: int = 0) -> int:
    """The crc32 of the bytes of rows, which continues the crc32 of those before them."""
    return zlib.crc32(np.ascontiguousarray(rows).reshape(-1).view(np.uint8), before)


# Space on disk, asked for before it is needed -----------------------------------------------------


def require_space(folder: Path, wanted: int) -> None:
    """Refuse to begin what the disk of a folder cannot hold, by an `OSError` that names the bytes."""
    if wanted > _bytes_left(folder):
        raise _full(errno.ENOSPC, folder, wanted)


def reserve(descriptor: int, path: Path, wanted: int) -> None:
    """Give an open file its length in bytes and its place on disk; an `OSError` as of `require_space`."""
    with named_if_full(path, wanted):
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, wanted)
        except OSError as error:
            # Some systems and file systems cannot. Then `write_all` finds out that the disk is full.
            if error.errno not in _CANNOT_RESERVE:
                raise


def write_all(file: Any, data: NDArray[Any] | bytes, path: Path, wanted: int) -> None:
    """Write all bytes to a file without a buffer; `path` and the bytes `wanted` are told if the disk is full.

    Not into a map: on a full disk that would end the program.
    """
    left = memoryview(data if isinstance(data, bytes) else data.reshape(-1).view(np.uint8))
    with named_if_full(path, wanted):
        while len(left):
            left = left[file.write(left) :]


@contextmanager
def named_if_full(path: Path, wanted: int) -> Iterator[None]:
    """Tell which file and how many bytes are wanted if what is done within fails for want of space.

    The `OSError` has the same `errno`.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise _full(error.errno, path, wanted) from error
        raise


def _bytes_left(folder: Path) -> int:
    """Bytes that a user may still write to the disk of a folder."""
    return shutil.disk_usage(folder).free


def _full(number: int, path: Path, wanted: int) -> OSError:
    left = _bytes_left(path if path.is_dir() else path.parent)
    limit = ", and there is a limit to the size of files (ulimit -f)" if number == errno.EFBIG else ""
    return OSError(number, f"{path}: {wanted:,} bytes are wanted, {left:,} are left on its disk{limit}")


# Tables beside rows on disk -----------------------------------------------------------------------


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
