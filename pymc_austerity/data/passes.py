"""Passes over all rows, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from pymc_austerity.data.rows import Rows


class Chunk(NamedTuple):
    """Neighbouring rows of some arrays.

    Attributes
    ----------
    number : int
        From 0.
    start, stop : int
        Numbers of its first row, and of the one after its last.
    arrays : dict of str to array
        Views of the maps.
    """

    number: int
    start: int
    stop: int
    arrays: dict[str, NDArray[Any]]


def chunks_of(arrays: Sequence[Rows]) -> Iterator[Chunk]:
    """All rows in order. Each chunk is compared with its checksum, and searched for NaN and infinity.

    Parameters
    ----------
    arrays : sequence of Rows
        Of one store.

    Raises
    ------
    ValueError
        If a file or chunk has changed, or a value is not finite.
    """
    for number in range(arrays[0].n_chunks if arrays else 0):
        found = {}
        for rows in arrays:
            # A file that was cut is refused before it is read, which would kill Python.
            rows.require_unchanged()
            found[rows.name] = rows.chunk(number)
            rows.require_finite(number)
        start = number * arrays[0].chunk_rows
        yield Chunk(number, start, min(start + arrays[0].chunk_rows, len(arrays[0])), found)
