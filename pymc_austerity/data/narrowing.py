"""Other dtypes for numbers, if they stay the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.columns import Dtype


def converted(values: NDArray[Any], dtype: Dtype, column: str, first_row: int) -> NDArray[Any]:
    """Values in another dtype.

    Floating-point numbers may be rounded. Everything else has to stay as it is.

    Parameters
    ----------
    values : array, shape (rows, ...)
        Numbers or booleans.
    dtype : dtype
    column : str
        What is told of it in the message.
    first_row : int
        The number of the first row in the whole source.

    Raises
    ------
    ValueError
        If an integer, an infinity or a fraction does not fit; it names the first.
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
            f"{dtype} ({_holds(dtype)}). Give a wider one in dtype=."
        )
    return result


def _misfits(values: NDArray[Any], result: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the values that another dtype has changed."""
    before, after = values.dtype, result.dtype
    if after.kind == "b":
        return np.asarray((values != 0) & (values != 1))
    if after.kind in "iu":
        limits = np.iinfo(after)
        if before.kind == "f":
            # Limits as powers of two are exact in every floating-point dtype that can reach them.
            inside = (values >= float(limits.min)) & (values < float(limits.max + 1))
            return np.asarray(~(inside & (values == np.floor(values))))
        return _outside(values, int(limits.min), int(limits.max))
    if before.kind == "f":
        overflow = np.isfinite(values) & ~np.isfinite(result)
        return np.asarray(overflow | ((values != 0) & (result == 0)))
    exact = 2 ** (np.finfo(after).nmant + 1)
    return _outside(values, -exact, exact)


def _outside(values: NDArray[Any], low: int, high: int) -> NDArray[np.bool_]:
    """Mask of integers or booleans outside two limits, which need not fit into their dtype."""
    if values.dtype.kind == "b":
        return np.zeros(values.shape, np.bool_)
    wrong: NDArray[np.bool_] = (values < low) | (values > high)
    return wrong


def _holds(dtype: Dtype) -> str:
    if dtype.kind == "b":
        return "0 and 1"
    if dtype.kind in "iu":
        return f"whole numbers from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"
    info = np.finfo(dtype)
    return f"up to {info.max:.3g}, from {info.smallest_subnormal:.3g}, whole numbers to 2^{info.nmant + 1}"
