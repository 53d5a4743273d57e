"""The range of all N log ratios, for rules whose guarantee needs it.

A function ``(bound, q_new, q, args, rows, target) -> float`` returns a number that
max_i l_i - min_i l_i over the rows that are sampled from does not exceed; `bound` is whatever it needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.acceptance.base import Sample
from pymc_austerity.bounds import log_ratio_range, remainder
from pymc_austerity.exceptions import CompiledError
from pymc_austerity.kernels.subsample import CHUNK, Rows, among_others
from pymc_austerity.target import Target, Vector

RangeOf = Callable[[Any, Vector, Vector, tuple[Any, ...], Rows, Target], float]

# Rounding of log ratios, which are differences of larger numbers.
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9


class RangeBoundError(CompiledError):
    """Log ratios that were read span more than a bound on the range of all."""

    sentence = (
        "The range of the log ratios was bounded by {0}, but those of {1} terms already span {2}: the "
        "bound is wrong, and so would be the decisions. It has to bound max_i l_i - min_i l_i, which may be "
        "twice the largest |l_i|."
    )


@register_jitable
def no_range(
    bound: Any, q_new: Vector, q: Vector, args: tuple[Any, ...], rows: Rows, target: Target
) -> float:
    """For rules that do not ask for the range."""
    return math.nan


@register_jitable
def certified_range(
    bound: Any, q_new: Vector, q: Vector, args: tuple[Any, ...], rows: Rows, target: Target
) -> float:
    """From certificates, in O(D^2)."""
    return log_ratio_range.certified_range(bound, q_new, q)


@register_jitable
def certified_remainder_range(
    bound: Any, q_new: Vector, q: Vector, args: tuple[Any, ...], rows: Rows, target: Target
) -> float:
    """From certificates of Taylor remainders, in O(D^2), or O(p^2) in p features of the state."""
    return remainder.remainder_range(bound, target.features(q_new, args), target.features(q, args))


@register_jitable
def exact_range(
    bound: Any, q_new: Vector, q: Vector, args: tuple[Any, ...], rows: Rows, target: Target
) -> float:
    """Evaluate all log ratios, as the authors of MHSubLhd do."""
    low, high = math.inf, -math.inf
    for start in range(0, rows.n_others, CHUNK):
        index = among_others(np.arange(start, min(start + CHUNK, rows.n_others)), rows)
        for x in target.log_ratios(q_new, q, index, args):
            if math.isnan(x):
                return math.inf  # nothing is known of the others' order, so all are read
            low = min(low, x)
            high = max(high, x)
    return high - low


@register_jitable
def check_range(sample: Sample, width: float) -> None:
    """Raise `RangeBoundError` if a sample spans more than the range of all is said to be."""
    if sample.high - sample.low > width * (1.0 + _RELATIVE) + _ABSOLUTE:
        raise RangeBoundError(width, sample.n, sample.high - sample.low)
