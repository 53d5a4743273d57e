"""Arrays are opened: those of a store, and maps that were given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pymc_austerity.data.columns import STORED
from pymc_austerity.data.file_state import place_of_map, state_of
from pymc_austerity.data.layout import ArrayLayout, Layout
from pymc_austerity.data.rows import Rows, RowsFile

# Rows of a chunk, where nobody says another number.
CHUNK_ROWS = 65_536


def rows_of_file(name: str, folder: Path, array: ArrayLayout, layout: Layout, scratch: Path | None) -> Rows:
    """An array of a store.

    Parameters
    ----------
    name : str
    folder : Path
    array : ArrayLayout
    layout : Layout
    scratch : Path or None
        A folder for what is computed from it, instead of its own.

    Raises
    ------
    FileNotFoundError, ValueError
    """
    path = folder / array.file
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there, and store.json names it. Write the store again.")
    dtype = np.dtype(array.dtype)
    if not dtype.isnative:
        raise ValueError(
            f"{path} was written on a machine with another byte order. Write the store again: "
            f"RowStore.write({{{name!r}: np.load({path.name!r}, mmap_mode='r')}}, ...)."
        )
    file = RowsFile(
        name=name,
        path=path,
        offset=array.offset,
        dtype=dtype,
        shape=array.shape,
        chunk_rows=layout.chunk_rows,
        state=state_of(path),
        is_stored=True,
        columns=array.columns,
        labels=array.labels,
        means=array.means,
        sds=array.sds,
        scratch=scratch or folder,
    )
    return Rows(file, array.crc32)


def rows_of_map(name: str, array: Any, scratch: Path | None) -> Rows:
    """A map that was given.

    Parameters
    ----------
    name : str
    array : object
    scratch : Path or None
        The folder for what is computed from it.

    Raises
    ------
    ValueError
        If it is no map, or does not suit.
    """
    place = place_of_map(array) if isinstance(array, np.ndarray) else None
    if place is None:
        raise ValueError(
            f"{name!r} is not mapped from a file. RowStore.write({{{name!r}: ...}}, path) makes one."
        )
    remedy = f"RowStore.write({{{name!r}: ...}}, path) makes a copy that suits."
    if not array.dtype.isnative:
        raise ValueError(f"{name!r} ({array.dtype.str}) has the byte order of other machines. {remedy}")
    if array.dtype.name not in STORED:
        raise ValueError(
            f"{name!r} has the dtype {array.dtype}, and must have one of {', '.join(STORED)}. {remedy}"
        )
    if not array.ndim or not len(array):
        raise ValueError(f"{name!r} has no rows.")
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{name!r} does not have its rows one after the other (Fortran order, or a part). {remedy}"
        )
    n_chunks = -(-len(array) // CHUNK_ROWS)
    state = state_of(place.path)
    file = RowsFile(
        name=name,
        path=place.path,
        offset=place.start,
        dtype=array.dtype,
        shape=array.shape,
        chunk_rows=CHUNK_ROWS,
        state=state,
        is_stored=False,
        scratch=scratch,
    )
    return Rows(file, [None] * n_chunks)
