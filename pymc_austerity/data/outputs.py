"""What is written under which name, decided from the columns of the source before it is read.

Then values become those that are stored: numbers in another dtype if they stay the same, or codes of
categories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pymc_austerity.data.files import Label
from pymc_austerity.data.sources import Block, Column, Dtype
from pymc_austerity.validation import nearest

ColumnChoice = Mapping[str, str | Sequence[str]]
OneDtype = str | type | Dtype
DtypeChoice = OneDtype | Mapping[str, OneDtype] | None
CategoryChoice = Sequence[str] | Mapping[str, Sequence[Label]]

# What a store holds, and compiled code reads.
STORED = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
)  # fmt: skip

# Codes of categories that are not known beforehand.
_CODES = np.dtype(np.int32)
_FLOAT = np.dtype(np.float64)


class Output(NamedTuple):
    """An array of the store that is to be written."""

    name: str
    parts: tuple[str, ...]  # columns of the source: several only if they are stacked
    stacked: bool  # whether they become columns of a matrix
    shape: tuple[int, ...]  # of one row
    raw: Dtype  # before the second pass
    dtype: Dtype  # as it is stored
    # Of its categories: none if they are found when rows are read; None if the values are no categories.
    labels: tuple[Label, ...] | None
    standardised: bool

    def values(self, block: Block, first_row: int, labels: Labels) -> NDArray[Any]:
        """Rows of the output, of dtype `raw`, from those of the source from `first_row` on."""
        parts = []
        for part in self.parts:
            rows = block[part] if self.labels is None else labels.codes(block[part], first_row)
            parts.append(converted(rows, self.raw, f"column {part!r}", first_row))
        return np.stack(parts, axis=1) if self.stacked else parts[0]

    def scaled(self, values: NDArray[Any], mean: Any, sd: Any, first_row: int) -> NDArray[Any]:
        """Rows as they are stored, from those of dtype `raw`, shifted and scaled."""
        return converted((values - mean) / sd, self.dtype, f"{self.name!r}, standardised", first_row)


def plan_outputs(
    found: Mapping[str, Column],
    columns: ColumnChoice | None,
    dtype: DtypeChoice,
    categories: CategoryChoice | None,
    standardise: Sequence[str] | None,
    sort_by: str | None,
) -> tuple[Output, ...]:
    """Decide which arrays are written from the columns `found`, or say which column is in the way."""
    chosen = _chosen(found, columns)
    dtypes: Mapping[str, OneDtype] = {}
    if dtype is not None:
        dtypes = dtype if isinstance(dtype, Mapping) else dict.fromkeys(chosen, dtype)
    _require_known(dtypes, "dtype", chosen)
    labels = _labels(categories, chosen)
    scaled = _names(standardise, "standardise", chosen)
    outputs = {}
    for name, choice in chosen.items():
        stacked = not isinstance(choice, str)
        parts = (choice,) if isinstance(choice, str) else tuple(choice)
        is_category, standardised = name in labels, name in scaled
        for part in parts:
            column = found[part]
            if stacked and column.shape:
                raise ValueError(
                    f"columns[{name!r}]: {part!r} has rows of shape {column.shape} and cannot be stacked."
                )
            if column.kind == "other" or (column.kind == "text" and not is_category):
                codes = f"categories=[{name!r}] makes codes of text. " if column.kind == "text" else ""
                raise ValueError(
                    f"Column {part!r} ({column.described}) has no numbers. {codes}Leave it out by columns=."
                )
        shape = (len(parts),) if stacked else found[parts[0]].shape
        final = _CODES if is_category else np.result_type(*(found[part].dtype for part in parts))
        if is_category and (shape or standardised):
            raise ValueError(f"categories={name!r}: categories are one column, and are not standardised.")
        if standardised and final.kind != "f":
            final = _FLOAT
        if name in dtypes:
            final = np.dtype(dtypes[name]).newbyteorder("=")
        if final.name not in STORED:
            raise ValueError(
                f"{name!r} would be stored as {final}. Give it one of {', '.join(STORED)} in dtype=."
            )
        if standardised and final.kind != "f":
            raise ValueError(
                f"dtype[{name!r}] must be float32 or float64, because it is standardised, got {final}."
            )
        outputs[name] = Output(
            name, parts, stacked, shape, _FLOAT if standardised else final, final,
            labels.get(name), standardised,
        )  # fmt: skip
    if sort_by is not None:
        _require_known([sort_by], "sort_by", outputs)
        if outputs[sort_by].shape:
            told = f"has rows of shape {outputs[sort_by].shape}: name a single column."
            raise ValueError(f"sort_by={sort_by!r} {told}")
    return tuple(outputs.values())


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


def _labels(given: CategoryChoice | None, known: Mapping[str, Any]) -> dict[str, tuple[Label, ...]]:
    """Labels of each array of categories; none where they are found on the way."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(_names(given, "categories", known), ())
    _require_known(given, "categories", known)
    for name, labels in given.items():
        if isinstance(labels, str) or not all(isinstance(label, str | int) for label in labels):
            raise ValueError(
                f"categories[{name!r}] must be a list of texts or whole numbers, got {labels!r}."
            )
        if not len(labels) or len(set(labels)) < len(labels):
            raise ValueError(f"categories[{name!r}] must be one label or more, each once, got {labels!r}.")
    return {name: tuple(labels) for name, labels in given.items()}


class Labels:
    """Labels of one column, and the codes 0, 1, ... of its rows.

    Labels that are not `known` are an error if that is `closed`. Else they get the next codes, in the order
    of first appearance.
    """

    def __init__(self, column: str, known: Sequence[Label], closed: bool) -> None:
        self._column, self._closed = column, closed
        self.known: list[Label] = []
        self._codes: dict[Label, int] = {}
        self.add(known)

    def add(self, labels: Iterable[Label]) -> None:
        """Give labels the next codes."""
        for label in labels:
            self._codes[label] = len(self.known)
            self.known.append(label)

    def codes(self, values: NDArray[Any], first_row: int) -> NDArray[np.int64]:
        """Codes of some rows; `first_row` is the number of the first in the whole source."""
        places, distinct = pd.factorize(values if values.dtype.kind in "biu" else values.astype(object))
        if (places < 0).any():
            row = first_row + int(np.argmax(places < 0))
            raise ValueError(
                f"Row {row:,} of column {self._column!r} is missing. Leave such rows out, or give them a "
                "label."
            )
        codes: NDArray[np.int64] = np.empty(len(distinct), np.int64)
        for place, value in enumerate(distinct):
            label = value.item() if isinstance(value, np.generic) else value
            is_label = isinstance(label, str | int)
            if not is_label or (self._closed and label not in self._codes):
                row = first_row + int(np.argmax(places == place))
                why = "none of the categories that were given" if is_label else (
                    "neither text nor a whole number: it is no category"
                )  # fmt: skip
                raise ValueError(f"{label!r} in row {row:,} of column {self._column!r} is {why}.")
            if label not in self._codes:
                self.add([label])
            codes[place] = self._codes[label]
        of_rows: NDArray[np.int64] = codes[places]
        return of_rows


def converted(values: NDArray[Any], dtype: Dtype, column: str, first_row: int) -> NDArray[Any]:
    """Numbers or booleans (rows, ...) in another dtype; `first_row` is the number of the first in the source.

    Floating-point numbers may be rounded. Everything else has to stay as it is: a `ValueError` names the
    first integer, infinity or fraction that does not fit, and where it is in the `column`.
    """
    if values.dtype == dtype:
        return values
    # What does not fit is found by comparing, so NumPy need not warn of it.
    with np.errstate(all="ignore"):
        result = values.astype(dtype)
        wrong = _misfits(values, result)
    if wrong.any():
        place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        within = f", column {', '.join(str(i) for i in place[1:])}" if len(place) > 1 else ""
        raise ValueError(
            f"{values[place]!s} in row {first_row + int(place[0]):,} of {column}{within} does not fit into "
            f"{dtype} ({_holds(dtype)}). Give RowStore.write a wider one in dtype=."
        )
    return result


def _misfits(values: NDArray[Any], result: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the values that another dtype has changed."""
    before, after = values.dtype, result.dtype
    if before.kind == "f" and after.kind in "iu":
        limits = np.iinfo(after)
        # Limits as powers of two are exact in every floating-point dtype that can reach them.
        inside = (values >= float(limits.min)) & (values < float(limits.max + 1))
        return np.asarray(~(inside & (values == np.floor(values))))
    if after.kind in "biu":
        return np.asarray(values != result)
    if before.kind == "f":
        overflow = np.isfinite(values) & ~np.isfinite(result)
        return np.asarray(overflow | ((values != 0) & (result == 0)))
    exact = 2 ** (np.finfo(after).nmant + 1)
    return np.asarray((values < -exact) | (values > exact))


def _holds(dtype: Dtype) -> str:
    if dtype.kind == "b":
        return "0 and 1"
    if dtype.kind in "iu":
        return f"whole numbers from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"
    info = np.finfo(dtype)
    return f"up to {info.max:.3g}, from {info.smallest_subnormal:.3g}, whole numbers to 2^{info.nmant + 1}"
