"""Is a file still the one that it was? And which bytes of a file does a mapped array have?"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray


class FileState(NamedTuple):
    """Numbers of a file that change if it is written to or replaced."""

    size: int
    mtime_ns: int
    inode: int


def state_of(path: Path) -> FileState:
    """The state of a file now.

    Parameters
    ----------
    path : Path

    Raises
    ------
    FileNotFoundError
    """
    found = path.stat()
    return FileState(found.st_size, found.st_mtime_ns, found.st_ino)


def require_size(path: Path, wanted: int) -> None:
    """Refuse a file that is too short: to read from its map would kill Python.

    Parameters
    ----------
    path : Path
    wanted : int
        Bytes.

    Raises
    ------
    ValueError
        It names the file, the bytes found and those wanted.
    """
    found = path.stat().st_size
    if found < wanted:
        raise ValueError(f"{path} has {found:,} bytes, and {wanted:,} are wanted: it was cut.")


class MapPlace(NamedTuple):
    """Bytes of a file from `start` to `stop`."""

    path: Path
    start: int
    stop: int


def place_of_map(array: NDArray[Any]) -> MapPlace | None:
    """File and offset of a mapped array; None if it is not mapped from a named file.

    Parameters
    ----------
    array : array
        A map, or a view of one.
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
    return MapPlace(Path(mapped.filename).absolute(), begins + low - address, begins + high - address)
