"""crc32 of the chunks of an array."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def checksum(rows: NDArray[Any], before: int = 0) -> int:
    """The crc32 of the bytes of rows.

    Parameters
    ----------
    rows : array
        C-contiguous.
    before : int
        The crc32 of what precedes them.
    """
    return zlib.crc32(np.ascontiguousarray(rows).reshape(-1).view(np.uint8), before)


class Checksums:
    """Checksums of the chunks of one array, as far as they are known.

    Parameters
    ----------
    known : sequence of int or None
        The crc32 of each chunk; None for one that has not been read yet.
    """

    def __init__(self, known: Sequence[int | None]) -> None:
        self._known = list(known)

    @property
    def known(self) -> tuple[int | None, ...]:
        """Checksums of the chunks that are known at present, None for others."""
        return tuple(self._known)

    def is_right(self, number: int, rows: NDArray[Any]) -> bool:
        """Is a chunk what it was? One that is read for the first time is.

        Parameters
        ----------
        number : int
            Of the chunk.
        rows : array
        """
        found = checksum(rows)
        known = self._known[number]
        if known is None:
            self._known[number] = found
        return known is None or known == found
