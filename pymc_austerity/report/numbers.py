"""Numbers as text: few digits, and Monte Carlo errors in brackets."""

from __future__ import annotations

from typing import Any

import numpy as np

ABSENT = "\N{EN DASH}"


def number(value: Any, digits: int = 3) -> str:
    """A few digits; thousands grouped; words as they are."""
    if isinstance(value, str):
        return value
    if value is None or not np.isfinite(value):
        return ABSENT
    size = abs(float(value))
    if size >= 1e7:
        exponent = int(np.floor(np.log10(size)))
        return f"{value / 10**exponent:.1f}e{exponent}"
    if size >= 100 or (float(value).is_integer() and size >= 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def with_error(value: float, error: float, sign: bool = False) -> str:
    """A number with its Monte Carlo error in brackets, to two digits of the error."""
    if not np.isfinite(value):
        return ABSENT
    if not np.isfinite(error) or error <= 0.0:
        return f"{value:+.3g}" if sign else f"{value:.3g}"
    places = max(0, 1 - int(np.floor(np.log10(error)))) if error < 10 else 0
    return f"{value:{'+' if sign else ''}.{places}f} ({error:.{places}f})"
