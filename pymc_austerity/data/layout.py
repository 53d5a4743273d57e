"""`store.json`: what the folder of a row store holds."""

import json
from pathlib import Path
from typing import Any, NamedTuple

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


class Layout(NamedTuple):
    """How a whole store lies in its folder."""

    n_rows: int
    chunk_rows: int  # rows of a chunk; the last may have fewer
    sorted_by: str | None
    arrays: dict[str, ArrayLayout]


def write_layout(folder: Path, layout: Layout) -> None:
    """Write `store.json` into a folder."""
    arrays = {name: array._asdict() for name, array in layout.arrays.items()}
    text = json.dumps({"format": _FORMAT, **layout._asdict(), "arrays": arrays}, indent=1)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def read_layout(folder: Path) -> Layout:
    """Read the `store.json` of a folder.

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
