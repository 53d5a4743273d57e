"""Add columns of data, times a number for each row, to rows of a design."""

from typing import Any

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import entry
from pymc_austerity.target import Array, Index, Vector

_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


def add_columns(result: Array, places: Index, values: npt.NDArray[Any], scale: Vector | float) -> None:
    """Add them where they belong.

    Parameters
    ----------
    result : ndarray (m, D + 1)
        Is changed.
    places : ndarray of int (k,)
        Which columns of it.
    values : ndarray (m, k)
    scale : float or ndarray (m,) or (1,)
    """
    first, last = int(places[0]), int(places[-1])
    are_neighbours = np.array_equal(places, np.arange(first, last + 1))
    if are_neighbours and values.dtype in _FLOATS and values.flags.c_contiguous:
        of_rows = np.ascontiguousarray(np.broadcast_to(scale, len(result)), dtype=np.float64)
        _add_neighbours(result, first, values, of_rows)
        return
    scaled = values if np.isscalar(scale) and scale == 1.0 else values * np.reshape(scale, (-1, 1))
    if are_neighbours:
        result[:, first : last + 1] += scaled
    else:
        result[:, places] += scaled


@entry
def _add_neighbours(result: Array, first: int, values: Array, scale: Vector) -> None:
    """Add neighbouring columns in one pass over the data, which makes no arrays."""
    for i in range(values.shape[0]):
        for k in range(values.shape[1]):
            result[i, first + k] += scale[i] * values[i, k]
