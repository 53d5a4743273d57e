"""Ranges of the parameters that the functions of this package have in common."""

import math
from typing import Any

import numpy as np

from pymc_austerity.target import Array
from pymc_austerity.validation import is_real, is_whole


def numbers(name: str, value: Any) -> Array:
    """`value` as an array of numbers, none of them NaN."""
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number or an array of numbers, got {value!r}.") from error
    if np.isnan(found).any():
        raise ValueError(f"{name} must not be NaN, got {value!r}.")
    return found


def as_given(found: Array) -> float | Array:
    """A float where all that was given were numbers."""
    return float(found) if found.ndim == 0 else found


# Least and largest values of parameters, and how a message says so. At an epsilon of 1/2 the critical value
# is 0, and above it negative.
_RANGES = {
    "epsilon": (0.0, 0.5, "[0, 0.5] (smaller values read more data)"),
    "boundary": (0.5, 1.0, "[0.5, 1] (0.5 is Pocock's boundary, 1 is O'Brien and Fleming's)"),
    "pi_1": (math.ulp(0.0), 1.0, "(0, 1] (the share of the data in the first batch)"),
}


def in_range(name: str, value: Any) -> Array:
    """`value` as an array of numbers, all in the range of the parameter."""
    found, (low, high, said) = numbers(name, value), _RANGES[name]
    outside = found[~((found >= low) & (found <= high))]
    if outside.size:
        raise ValueError(f"{name} must be in {said}, got {float(outside[0])!r}.")
    return found


def check_count(name: str, value: Any, least: int, reason: str) -> int:
    """A whole number of at least `least`."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}: {reason}")
    return int(value)


def check_real(name: str, value: Any, low: float, high: float, said: str) -> float:
    """A number strictly between `low` and `high`."""
    if not is_real(value) or not low < value < high:
        raise ValueError(f"{name} must be {said}, got {value!r}.")
    return float(value)
