"""Columns of Arrow as arrays of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.columns import Column
from pymc_austerity.extras import imported

_FLOAT = np.dtype(np.float64)


def columns_of_schema(schema: Any) -> dict[str, Column]:
    """Columns of an Arrow schema by name.

    Parameters
    ----------
    schema : pyarrow.Schema

    Raises
    ------
    ValueError
        If two columns have one name.
    """
    if len(set(schema.names)) < len(schema.names):
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        raise ValueError(f"Several columns are called {', '.join(map(repr, twice))}.")
    return {field.name: _column(field.type) for field in schema}


def _column(arrow: Any) -> Column:
    types = imported("pyarrow", "Files of Arrow and Parquet", "store").types
    described = str(arrow)
    if types.is_fixed_size_list(arrow):
        inner = _column(arrow.value_type)
        return inner._replace(
            kind="numbers" if inner.kind == "numbers" else "other",
            shape=(arrow.list_size, *inner.shape),
            described=described,
        )
    if types.is_dictionary(arrow):
        return _column(arrow.value_type)._replace(described=described)
    if types.is_boolean(arrow) or types.is_integer(arrow) or types.is_floating(arrow):
        return Column("numbers", np.dtype(arrow.to_pandas_dtype()), (), described)
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return Column("text", _FLOAT, (), described)
    return Column("other", _FLOAT, (), described)


def values_of(array: Any, column: Column, told: str, first_row: int) -> NDArray[Any]:
    """The rows of a column; missing floating-point numbers are NaN, missing text is None.

    Parameters
    ----------
    array : pyarrow.Array
    column : Column
    told : str
        What is told of it in messages.
    first_row : int
        The number of the first row in the whole source.

    Raises
    ------
    ValueError
        If integers or booleans are missing.
    """
    types = imported("pyarrow", "Files of Arrow and Parquet", "store").types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    per_row = int(np.prod(column.shape))
    if column.shape:
        _require_none_missing(array, told, first_row, 1)
    while types.is_fixed_size_list(array.type):
        array = array.flatten()
    if column.kind == "numbers" and column.dtype.kind != "f":
        _require_none_missing(array, told, first_row, per_row)
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values.reshape(-1, *column.shape)


def _require_none_missing(array: Any, told: str, first_row: int, per_row: int) -> None:
    if array.null_count:
        missing = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(
            f"Row {first_row + missing // per_row:,} of {told} is missing. Leave such rows out, or store "
            "floating-point numbers, in which NaN stands for it."
        )
