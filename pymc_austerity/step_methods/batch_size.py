"""`batch_size` of steps that read minibatches: None for all rows, a number of rows, or a share of them."""

import math
from typing import Any

from pymc_austerity.validation import is_real, is_whole


def checked_batch_size(given: Any) -> int | float | None:
    """Check `batch_size` as far as that is possible without the data."""
    if given is None or (is_whole(given) and given >= 1):
        return None if given is None else int(given)
    if is_real(given) and not is_whole(given) and 0.0 < given < 1.0:
        return float(given)
    raise ValueError(
        f"batch_size must be None, a positive integer, or a share between 0 and 1, got {given!r}."
    )


def batch_rows(size: int | float | None, n_rows: int, variable: str, longest: tuple[str, int]) -> int | None:
    """Rows of a minibatch, None for all; `longest` is the longest term of the variable, and its length."""
    if size is None:
        return None
    if not n_rows:
        raise ValueError(
            f"batch_size={size}, but no term that contains {variable!r} has rows to draw: the longest is "
            f"{longest[0]!r} with {longest[1]}. Use batch_size=None for this variable."
        )
    if size > n_rows:
        raise ValueError(
            f"batch_size must be at most {n_rows}, the number of rows of the terms that contain "
            f"{variable!r} (the longest is {longest[0]!r}), got {size}. Use batch_size=None for all."
        )
    return math.ceil(size * n_rows) if isinstance(size, float) else size
