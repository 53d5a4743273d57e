"""What the parameters that the functions of this package have in common may be."""

from typing import Any

import numpy as np

from pymc_austerity.target import Array
from pymc_austerity.validation import is_within, require_real

# Interval of each, and what a message says of it. At an epsilon of 1/2 the critical value is 0, and above it
# negative.
RANGES = {
    "epsilon": ("[0, 0.5]", "Smaller values read more data."),
    "boundary": ("[0.5, 1]", "0.5 is Pocock's boundary, 1 is O'Brien and Fleming's."),
    "pi_1": ("(0, 1]", "It is the share of the data in the first batch."),
    "mu": ("[-inf, inf]", ""),
    "mu_std": ("[-inf, inf]", ""),
    "sigma_l": ("[0, inf)", "Leave out moves that are impossible."),
    "delta_max": ("[0, 1]", ""),
    "eta": ("[0, 1)", "A chain that does not contract may drift anywhere."),
    "distance": ("[0, inf]", ""),
    "max_abs": ("(0, inf)", ""),
    "sd_sum": ("(0, inf)", ""),
}
TERMS = "It is the number of local terms."


def numbers(name: str, value: Any) -> Array:
    """`value` as an array of numbers, all in the range of the parameter."""
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number or an array of numbers, got {value!r}.") from error
    interval, why = RANGES[name]
    outside = found[~is_within(found, interval)]
    if outside.size:
        require_real(name, float(outside[0]), interval, why)
    return found


def as_given(found: Array) -> float | Array:
    """A float where all that was given were numbers."""
    return float(found) if found.ndim == 0 else found
