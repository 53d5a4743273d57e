"""Space on disk, asked for before it is needed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# No space, a quota, a limit to the size of files.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


def require_space(folder: Path, wanted: int) -> None:
    """Refuse to begin what the disk cannot hold.

    Parameters
    ----------
    folder : Path
    wanted : int
        Bytes.

    Raises
    ------
    OSError
        It names the bytes wanted and those left.
    """
    if wanted > bytes_left(folder):
        raise _full(errno.ENOSPC, folder, wanted)


def bytes_left(folder: Path) -> int:
    """Bytes that a user may still write."""
    return shutil.disk_usage(folder).free


def reserve(descriptor: int, path: Path, wanted: int) -> None:
    """Give a file its length and its place on disk.

    Parameters
    ----------
    descriptor : int
        Of the open file.
    path : Path
    wanted : int
        Bytes.

    Raises
    ------
    OSError
        As `require_space`.
    """
    with named_if_full(path, wanted):
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, wanted)
        except OSError as error:
            # Some systems and file systems cannot. Then `write` finds out that the disk is full.
            if error.errno not in _CANNOT_RESERVE:
                raise


@contextmanager
def named_if_full(path: Path, wanted: int) -> Iterator[None]:
    """Tell bytes if what is done within fails for want of space.

    Parameters
    ----------
    path : Path
        What is written.
    wanted : int
        Its bytes.

    Raises
    ------
    OSError
        With the same `errno`.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise _full(error.errno, path, wanted) from error
        raise


def _full(number: int, path: Path, wanted: int) -> OSError:
    folder = path if path.is_dir() else path.parent
    limit = ", and there is a limit to the size of files (ulimit -f)" if number == errno.EFBIG else ""
    return OSError(
        number, f"{path}: {wanted:,} bytes are wanted, {bytes_left(folder):,} are left on its disk{limit}"
    )
