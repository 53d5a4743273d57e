"""`store.json`: what the folder of a row store holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from pymc_austerity.data.labels import Label

FILE = "store.json"
_FORMAT = 1


class ArrayLayout(NamedTuple):
    """How one array of a store lies in its file.

    Attributes
    ----------
    file : str
        Its name in the folder.
    offset : int
        Bytes before the first row.
    dtype : str
        With the byte order.
    shape : tuple of int
        Rows first.
    columns : tuple of str or None
        Names of the columns of a matrix that was stacked.
    crc32 : tuple of int
        Of each chunk.
    labels : tuple or None
        Labels of the codes 0, 1, ...
    means, sds : number, nested tuple or None
        What was subtracted, and what the rest was divided by.
    """

    file: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    columns: tuple[str, ...] | None
    crc32: tuple[int, ...]
    labels: tuple[Label, ...] | None
    means: Any
    sds: Any


class Layout(NamedTuple):
    """How a whole store lies in its folder.

    Attributes
    ----------
    n_rows : int
    chunk_rows : int
        Rows of a chunk; the last may have fewer.
    sorted_by : str or None
    arrays : dict of str to ArrayLayout
    """

    n_rows: int
    chunk_rows: int
    sorted_by: str | None
    arrays: dict[str, ArrayLayout]


def write_layout(folder: Path, layout: Layout) -> None:
    """Write the file.

    Parameters
    ----------
    folder : Path
    layout : Layout
    """
    arrays = {name: array._asdict() for name, array in layout.arrays.items()}
    text = json.dumps({"format": _FORMAT, **layout._asdict(), "arrays": arrays}, indent=1)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def read_layout(folder: Path) -> Layout:
    """Read the file.

    Parameters
    ----------
    folder : Path

    Raises
    ------
    FileNotFoundError
        If the folder is no row store.
    ValueError
        If the file is damaged, or of another version.
    """
    path = folder / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is no row store: it has no {FILE}. RowStore.write makes one.")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            raise ValueError(f"its format is {found['format']}, not {_FORMAT}; write the store again")
        arrays = {name: _array(fields) for name, fields in found["arrays"].items()}
        return Layout(found["n_rows"], found["chunk_rows"], found["sorted_by"], arrays)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from error


def _array(fields: dict[str, Any]) -> ArrayLayout:
    """Layout of an array from JSON, which has lists in place of tuples."""
    known: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
    return ArrayLayout(**known)
