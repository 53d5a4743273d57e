"""What is written under which name, decided from the columns of the source before it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.data.columns import STORED, Column, Dtype
from pymc_austerity.data.labels import Label
from pymc_austerity.validation import nearest

ColumnChoice = Mapping[str, str | Sequence[str]]
DtypeChoice = Any
CategoryChoice = Sequence[str] | Mapping[str, Sequence[Label]]

# Codes of categories that are not known beforehand.
_CODES = np.dtype(np.int32)
_FLOAT = np.dtype(np.float64)


class Output(NamedTuple):
    """An array of the store.

    Attributes
    ----------
    name : str
    parts : tuple of str
        Columns of the source: several only if they are stacked.
    stacked : bool
        Whether they become columns of a matrix.
    shape : tuple of int
        Of one row.
    raw, dtype : dtype
        As it is read, and as it is stored.
    labels : tuple or None
        Labels that are known before anything is read; None if the values are no categories.
    closed : bool
        Whether there are no other labels.
    standardised : bool
    """

    name: str
    parts: tuple[str, ...]
    stacked: bool
    shape: tuple[int, ...]
    raw: Dtype
    dtype: Dtype
    labels: tuple[Label, ...] | None
    closed: bool
    standardised: bool


def plan_outputs(
    found: Mapping[str, Column],
    columns: ColumnChoice | None,
    dtype: DtypeChoice,
    categories: CategoryChoice | None,
    standardise: Sequence[str] | None,
) -> tuple[Output, ...]:
    """Decide which arrays are written, or say which column is in the way.

    Parameters
    ----------
    found : mapping
        Columns of the source.
    columns, dtype, categories, standardise
        As in `RowStore.write`.
    """
    chosen = _chosen(found, columns)
    dtypes = _dtypes(dtype, chosen)
    labels = _labels(categories, chosen)
    scaled = _names(standardise, "standardise", chosen)
    outputs = []
    for name, choice in chosen.items():
        parts = (choice,) if isinstance(choice, str) else tuple(choice)
        is_category = name in labels
        shape = _row_shape(name, choice, [found[part] for part in parts])
        natural = _natural_dtype(name, [(part, found[part]) for part in parts], is_category)
        if is_category and (shape or name in scaled):
            raise ValueError(f"categories={name!r}: categories are one column, and are not standardised.")
        known = labels.get(name)
        natural = _FLOAT if name in scaled and natural.kind != "f" else natural
        final = _stored_dtype(name, dtypes.get(name, natural), name in scaled)
        raw = _FLOAT if name in scaled else final
        closed = known is not None
        outputs.append(
            Output(
                name, parts, not isinstance(choice, str), shape, raw, final,
                (known or ()) if is_category else None, closed, name in scaled,
            )
        )  # fmt: skip
    return tuple(outputs)


def require_key(outputs: Iterable[Output], sort_by: str | None) -> None:
    """Refuse to sort by what is no single column of the store."""
    if sort_by is None:
        return
    there = {output.name: output for output in outputs}
    _require_known([sort_by], "sort_by", there)
    if there[sort_by].shape:
        raise ValueError(
            f"sort_by={sort_by!r} has rows of shape {there[sort_by].shape}: name a single column."
        )


def _chosen(found: Mapping[str, Column], columns: ColumnChoice | None) -> dict[str, str | Sequence[str]]:
    """The column or columns that each array is made of."""
    if columns is None:
        columns = {name: name for name in found}
    if not isinstance(columns, Mapping) or not columns:
        raise ValueError(
            'columns must be a dict of names to columns, such as {"X": ["x1", "x2"], "y": "y"}, '
            f"got {columns!r}."
        )
    for name, choice in columns.items():
        if not isinstance(name, str) or not name or "/" in name or "\0" in name or name.startswith("."):
            raise ValueError(
                f"{name!r} cannot be the name of a file: rename it by columns={{'another name': {name!r}}}."
            )
        wanted = [choice] if isinstance(choice, str) else list(choice)
        if not wanted:
            raise ValueError(f"columns[{name!r}] names no column.")
        _require_known(wanted, f"columns[{name!r}]", found)
    return dict(columns)


def _require_known(wanted: Iterable[Any], where: str, known: Mapping[str, Any]) -> None:
    for name in wanted:
        if name not in known:
            raise ValueError(
                f"{where}: there is no {name!r}.{nearest(str(name), known)} "
                f"There are {', '.join(map(repr, known))}."
            )


def _names(given: Sequence[str] | None, keyword: str, known: Mapping[str, Any]) -> tuple[str, ...]:
    """A list of names."""
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(f"{keyword} must be a list of names, got {given!r}.")
    _require_known(given, keyword, known)
    return tuple(given)


def _dtypes(given: DtypeChoice, known: Mapping[str, Any]) -> dict[str, Dtype]:
    """The dtype of each array that has one given: one for all, or a dict."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        _require_known(given, "dtype", known)
        return {name: np.dtype(one).newbyteorder("=") for name, one in given.items()}
    return {name: np.dtype(given).newbyteorder("=") for name in known}


def _labels(given: CategoryChoice | None, known: Mapping[str, Any]) -> dict[str, tuple[Label, ...] | None]:
    """The labels of each array of categories, None where they are found on the way."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(_names(given, "categories", known))
    _require_known(given, "categories", known)
    for name, labels in given.items():
        if isinstance(labels, str) or not all(isinstance(label, str | int) for label in labels):
            raise ValueError(
                f"categories[{name!r}] must be a list of texts or whole numbers, got {labels!r}."
            )
        if not len(labels) or len(set(labels)) < len(labels):
            raise ValueError(f"categories[{name!r}] must be one label or more, each once, got {labels!r}.")
    return {name: tuple(labels) for name, labels in given.items()}


def _row_shape(name: str, choice: str | Sequence[str], parts: Sequence[Column]) -> tuple[int, ...]:
    if isinstance(choice, str):
        return parts[0].shape
    for part, column in zip(choice, parts, strict=True):
        if column.shape:
            raise ValueError(
                f"columns[{name!r}]: {part!r} has rows of shape {column.shape} and cannot be stacked."
            )
    return (len(parts),)


def _natural_dtype(name: str, parts: Sequence[tuple[str, Column]], is_category: bool) -> Dtype:
    """The dtype that holds all parts."""
    for part, column in parts:
        if column.kind == "other" or (column.kind == "text" and not is_category):
            codes = f"categories=[{name!r}] makes codes of text. " if column.kind == "text" else ""
            raise ValueError(
                f"Column {part!r} ({column.described}) has no numbers. {codes}Leave it out by columns=."
            )
    return _CODES if is_category else np.result_type(*(column.dtype for _, column in parts))


def _stored_dtype(name: str, dtype: Dtype, standardised: bool) -> Dtype:
    """The dtype, if a store can have it."""
    if dtype.name not in STORED:
        raise ValueError(
            f"{name!r} would be stored as {dtype}. Give it one of {', '.join(STORED)} in dtype=."
        )
    if standardised and dtype.kind != "f":
        raise ValueError(
            f"dtype[{name!r}] must be float32 or float64, because it is standardised, got {dtype}."
        )
    return dtype
