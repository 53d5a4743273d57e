"""What a source has in each of its columns, told before anything is read."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

Dtype = np.dtype[Any]
Kind = Literal["numbers", "text", "other"]

# What a store holds, and compiled code reads.
STORED = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)


class Column(NamedTuple):
    """A column of a table, or an array.

    Attributes
    ----------
    kind : "numbers", "text" or "other"
    dtype : dtype
        Of its numbers, in the byte order of this machine; float64 for anything else.
    shape : tuple of int
        Of one row.
    described : str
        The type in the words of the source.
    """

    kind: Kind
    dtype: Dtype
    shape: tuple[int, ...]
    described: str


def column_of_array(dtype: Dtype, shape: tuple[int, ...]) -> Column:
    """The column of an array with these rows.

    Parameters
    ----------
    dtype : dtype
    shape : tuple of int
        Of one row.
    """
    if dtype.kind in "biuf":
        return Column("numbers", dtype.newbyteorder("="), shape, str(dtype))
    # Objects may be text: that is found out when they are read.
    kind: Kind = "text" if dtype.kind in "OUT" and not shape else "other"
    return Column(kind, np.dtype(np.float64), shape, str(dtype))
