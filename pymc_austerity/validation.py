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
