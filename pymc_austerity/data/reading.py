"""Reading from files that may be damaged, and rows in chunks of one length."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

Block = dict[str, NDArray[Any]]

# What decoders raise on damaged bytes: pyarrow's errors are OSError, ValueError or RuntimeError, too.
_DAMAGED = (OSError, RuntimeError, ValueError, EOFError, zlib.error)


class UnreadableError(OSError):
    """A part of the source cannot be read: what was written before it is kept for `resume=True`."""


@contextmanager
def readable(where: str, first: int = 0, stop: int = 0) -> Iterator[None]:
    """Name file, chunk and rows if what is read within is damaged.

    Parameters
    ----------
    where : str
        File and chunk.
    first, stop : int, default 0
        Rows of the source; none if they are equal.

    Raises
    ------
    UnreadableError
    """
    try:
        yield
    except _DAMAGED as error:
        rows = f" (rows {first:,} to {stop - 1:,})" if stop > first else ""
        told = str(error).rstrip(".")
        raise UnreadableError(
            f"{where}{rows} cannot be read: {told}. "
            "Restore it, then write again with resume=True, which goes on from the last whole chunk."
        ) from error


def following(batches: Iterator[Any]) -> Any:
    """The next block of an iterator, which must have one."""
    batch = next(batches, None)
    if batch is None:
        raise EOFError("it ends early")
    return batch


def regrouped(blocks: Iterator[Block], length: int) -> Iterator[Block]:
    """The same rows in blocks of one length; the last may be shorter.

    Parameters
    ----------
    blocks : iterator of dict
        Names to arrays of equal lengths.
    length : int
    """
    held: list[Block] = []
    n_held = 0
    for block in blocks:
        start, n_rows = 0, _length(block)
        while start < n_rows:
            stop = min(n_rows, start + length - n_held)
            held.append({name: rows[start:stop] for name, rows in block.items()})
            n_held += stop - start
            start = stop
            if n_held == length:
                yield _joined(held)
                held, n_held = [], 0
    if held:
        yield _joined(held)


def _length(block: Block) -> int:
    return len(next(iter(block.values())))


def _joined(held: list[Block]) -> Block:
    if len(held) == 1:
        return held[0]
    return {name: np.concatenate([block[name] for block in held]) for name in held[0]}
