"""What counts as a number among parameters: NumPy's too, but not booleans."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, TypeGuard


def is_real(value: Any) -> TypeGuard[float]:
    """Is this a real number?"""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: Any) -> TypeGuard[int]:
    """Is this a whole number?"""
    return isinstance(value, Integral) and not isinstance(value, bool)


class DefaultSize(int):
    """A batch size that the user did not choose: it may exceed the number of terms."""


def enough(batch_size: int, n_local: int) -> bool:
    """Are there enough terms for a first batch? An explicit batch size must not exceed them."""
    if batch_size > n_local and not isinstance(batch_size, DefaultSize):
        raise ValueError(
            f"batch_size must be at most the number of local terms, {n_local}, got {batch_size}."
        )
    return batch_size <= n_local
