"""Files of rows: where and what they are, space for them, tables beside them, and the folder of a store."""

import errno
import json
import math
import mmap
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.lib.format import write_array_header_1_0
from numpy.typing import DTypeLike, NDArray

# Size, time of change in nanoseconds and inode: what changes if a file is written to or replaced.
FileState = tuple[int, int, int]

# The folder that holds the folders of stores on this host.
STORE_ROOT = "PMA_STORE_ROOT"

# Errors of a disk without space, of a quota, and of a limit to the size of files.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Bytes that are written at once where no place can be reserved.
_PIECE = 2**20
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
    """The file that an array is mapped from, and its first byte there and the one after its last."""
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
    """The crc32 of the bytes of rows, after those whose crc32 is `before`."""
    return zlib.crc32(np.ascontiguousarray(rows).reshape(-1).view(np.uint8), before)


# Space on disk, asked for before it is needed -----------------------------------------------------


def require_space(folder: Path, wanted: int) -> None:
    """Refuse to begin what the disk of a folder cannot hold, by an `OSError` that names the bytes."""
    if wanted > shutil.disk_usage(folder).free:
        raise _full(errno.ENOSPC, folder, wanted)


def reserve(descriptor: int, path: Path, wanted: int) -> bool:
    """Give an open file its length in bytes and its place on disk; an `OSError` as of `require_space`.

    Some systems and file systems cannot: then it is false, and `write_all` finds out that the disk is full.
    """
    with named_if_full(path, wanted):
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, wanted)
                return True
        except OSError as error:
            if error.errno not in _CANNOT_RESERVE:
                raise
    return False


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
    """Tell which file and how many bytes are wanted if what is done within fails for want of space."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise _full(error.errno, path, wanted) from error
        raise


def _full(number: int, path: Path, wanted: int) -> OSError:
    left = shutil.disk_usage(path if path.is_dir() else path.parent).free
    limit = ", and there is a limit to the size of files (ulimit -f)" if number == errno.EFBIG else ""
    return OSError(number, f"{path}: {wanted:,} bytes are wanted, {left:,} are left on its disk{limit}")


# Tables beside rows on disk -----------------------------------------------------------------------


def require_scratch(folder: Path | None) -> Path:
    """The folder for what is computed from rows, which is made if it does not exist."""
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


def scratch_array(folder: Path, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Zeros on disk, mapped and to be written to. As of `ScratchTable`, the file has no name.

    All of it has its place on disk before it is mapped: else a full disk would end the program.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    require_space(folder, size)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        if not reserve(file.fileno(), folder, size):
            for start in range(0, size, _PIECE):
                write_all(file, bytes(min(_PIECE, size - start)), folder, size)
        return np.memmap(file, dtype, "r+", 0, shape).view(np.ndarray)


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


# The folder of a store: `store.json`, and a `.npy` file for each array ----------------------------


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
    column: str | None = None  # its name in the source, if columns were not stacked
    closed: bool = False  # whether the labels were given, so that any other is an error


def write_layout(
    folder: Path, n_rows: int, chunk_rows: int, sorted_by: str | None, arrays: Mapping[str, ArrayLayout]
) -> None:
    """Write `store.json` into a folder; the last chunk may have fewer rows."""
    found = {
        "format": _FORMAT, "n_rows": n_rows, "chunk_rows": chunk_rows, "sorted_by": sorted_by,
        "arrays": {name: array._asdict() for name, array in arrays.items()},
    }  # fmt: skip
    data = (json.dumps(found, indent=1) + "\n").encode()
    with (folder / FILE).open("wb", buffering=0) as file, named_if_full(folder, len(data)):
        write_all(file, data, folder, len(data))
        os.fsync(file.fileno())


def read_layout(folder: Path) -> tuple[int, str | None, dict[str, ArrayLayout]]:
    """Rows of a chunk, the array that rows are sorted by, and the arrays, by the `store.json` of a folder."""
    path = folder / FILE
    if not path.is_file():
        complete = folder.with_name(f"{folder.name}.partial")
        is_there = not folder.exists() and (complete / FILE).is_file()
        remedy = f"All but its name was done: rename {complete}." if is_there else "RowStore.write makes one."
        raise FileNotFoundError(f"{folder} is no row store: it has no {FILE}. {remedy}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            raise ValueError(f"its format is {found['format']}, not {_FORMAT}; write the store again")
        if missing := {"n_rows", "sorted_by"} - set(found):
            raise KeyError(min(missing))
        arrays = {}
        for name, fields in found["arrays"].items():
            # JSON has lists in place of tuples.
            known: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
            arrays[name] = ArrayLayout(**known)
        return found["chunk_rows"], found["sorted_by"], arrays
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error


class NpyFile:
    """An array that chunks are appended to, with their checksums. Its place on disk is reserved first."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], chunk_rows: int) -> None:
        self._path, self._dtype = path, dtype
        # Bytes before row 0, which do not depend on the number of rows, and of all that is known to come.
        self.offset, self._size = len(_header(dtype, shape)), file_size(dtype, shape)
        self._chunk_rows, self._row_bytes = chunk_rows, math.prod(shape[1:]) * dtype.itemsize
        self._n_rows = 0
        self.crc32: list[int] = []  # of each chunk that was written, up to its last row so far
        # Without a buffer: what is written is in the hands of the operating system.
        self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        try:
            reserve(self._file.fileno(), path, self._size)
            self._file.seek(self.offset)
        except BaseException:
            self._file.close()
            raise

    def append(self, rows: NDArray[Any]) -> None:
        """Write the next rows, of the same dtype. They go on with the last chunk if it is not full."""
        rows = np.ascontiguousarray(rows, self._dtype)
        self._size = max(self._size, self._file.tell() + rows.nbytes)
        write_all(self._file, rows, self._path, self._size)
        while len(rows):
            in_chunk = self._n_rows % self._chunk_rows
            before = self.crc32.pop() if in_chunk else 0
            part, rows = np.split(rows, [self._chunk_rows - in_chunk])
            self.crc32.append(checksum(part, before))
            self._n_rows += len(part)

    def go_on(self, crc32: Sequence[int], n_rows: int) -> None:
        """Go on after so many rows, in chunks with these checksums, which were written before."""
        self.crc32, self._n_rows = list(crc32), n_rows
        self._file.seek(self.offset + n_rows * self._row_bytes)

    def is_whole(self, number: int, crc32: int) -> bool:
        """Has the file all rows of the chunk of this number, with this checksum?"""
        n_bytes = self._chunk_rows * self._row_bytes
        self._file.seek(self.offset + number * n_bytes)
        return zlib.crc32(self._file.read(n_bytes)) == crc32

    def finish(self, shape: tuple[int, ...]) -> None:
        """Write what stands before the rows, cut off what follows, and wait until the disk has it all."""
        self._file.seek(0)
        write_all(self._file, _header(self._dtype, shape), self._path, self._size)
        self._file.truncate(file_size(self._dtype, shape))
        with named_if_full(self._path, self._size):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Nothing more is written."""
        self._file.close()


def restore(path: Path, layout: ArrayLayout, before: os.stat_result) -> None:
    """Give a file back the header, length and time that it had before rows were appended to it."""
    with path.open("r+b") as file:
        file.write(_header(np.dtype(layout.dtype), layout.shape))
        file.truncate(before.st_size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def file_size(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Bytes of the whole file of an array."""
    return len(_header(dtype, shape)) + math.prod(shape) * dtype.itemsize


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The bytes before the first row."""
    header = BytesIO()
    write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return header.getvalue()


def told_column(name: str, columns: Sequence[str] | None, place: Sequence[Any]) -> str:
    """A column of an array, for messages, by its place; that is empty if rows are numbers."""
    if not place:
        return repr(name)
    told = ", ".join(str(int(i)) for i in place) if columns is None else repr(columns[int(place[0])])
    return f"Column {told} of {name!r}"
