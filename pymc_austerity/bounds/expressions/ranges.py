"""Arithmetic of ranges: what contains all values of a sum, a product, a function of ranges.

Ends are moved outward by some units in the last place, because they are computed in floating point. Ends that
are zero stay: the sign of a product, or of a sum of numbers of one sign, is not subject to rounding.
"""

import math
from collections.abc import Callable, Iterable

from pymc_austerity.bounds.expressions.node import EVERYWHERE, Range

_SLACK = 2.0**-50

BOOLEAN = Range(0.0, 1.0)
POSITIVE = Range(0.0, math.inf, True)
NEGATIVE = Range(-math.inf, 0.0, True)
NOT_NEGATIVE = Range(0.0, math.inf)


def _made(low: float, high: float, slack: float, nonzero: bool) -> Range:
    if math.isnan(low) or math.isnan(high):
        return EVERYWHERE
    low = low - slack - _SLACK * abs(low) if math.isfinite(low) else min(low, 1.7e308)
    high = high + slack + _SLACK * abs(high) if math.isfinite(high) else max(high, -1.7e308)
    return Range(low, high, nonzero)


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0.0 or b == 0.0 else a * b


def excludes_zero(r: Range) -> bool:
    """Whether zero is not in the range."""
    return r.nonzero or r.low > 0.0 or r.high < 0.0


def scaled(r: Range, by: float) -> Range:
    """The range of a range's numbers times a number."""
    ends = sorted((_times(r.low, by), _times(r.high, by)))
    nonzero = by != 0.0 and excludes_zero(r)
    # Twice, half or minus a number is not rounded, nor is a product of small whole numbers.
    is_whole = (
        by.is_integer() and r.low.is_integer() and r.high.is_integer() and max(map(abs, ends)) < 2.0**53
    )
    if is_whole or abs(math.frexp(by)[0]) == 0.5:
        return Range(ends[0], ends[1], nonzero)
    return _made(ends[0], ends[1], 0.0, nonzero)


def _sum_below(ends: list[float]) -> float:
    """A number that is not above the sum, and equal to it if it is a floating point number."""
    found = sum(ends)
    if not math.isfinite(found):
        return found
    found = math.fsum(ends)
    return found if math.fsum([*ends, -found]) >= 0.0 else math.nextafter(found, -math.inf)


def total(added: float, parts: Iterable[Range]) -> Range:
    """The range of sums of a number and one number from each range."""
    ranges = [r for r in parts if (r.low, r.high) != (0.0, 0.0)]
    if added != 0.0:
        ranges.append(Range(added, added, True))
    if len(ranges) == 1:
        return ranges[0]
    low, high = _sum_below([r.low for r in ranges]), -_sum_below([-r.high for r in ranges])
    if math.isnan(low) or math.isnan(high):
        return EVERYWHERE
    # An end is left out where that of one range is.
    is_above = low > 0.0 or (low == 0.0 and any(r.is_positive and r.low == 0.0 for r in ranges))
    is_below = high < 0.0 or (high == 0.0 and any(r.is_negative and r.high == 0.0 for r in ranges))
    return Range(low, high, is_above or is_below)


def times(a: Range, b: Range) -> Range:
    """The range of products of one number from each of two ranges."""
    ends = [_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return _made(min(ends), max(ends), 0.0, excludes_zero(a) and excludes_zero(b))


def squared(r: Range) -> Range:
    """The range of the squares of a range's numbers."""
    ends = _times(r.low, r.low), _times(r.high, r.high)
    low = 0.0 if r.low <= 0.0 <= r.high else min(ends)
    return _made(low, max(ends), 0.0, excludes_zero(r))


def inverse(r: Range) -> Range:
    """The range of the reciprocals; of a range on both sides of zero, all numbers."""
    if not (r.low >= 0.0 or r.high <= 0.0) or (r.low, r.high) == (0.0, 0.0):
        return Range(-math.inf, math.inf, True)
    low = -math.inf if r.high == 0.0 else 1.0 / r.high
    high = math.inf if r.low == 0.0 else 1.0 / r.low
    return _made(low, high, 0.0, True)


def monotone(function: Callable[[float], float], r: Range, within: Range = EVERYWHERE) -> Range:
    """The range of a monotone function whose values are known to be `within`."""
    ends = function(r.low), function(r.high)
    found = _made(
        min(ends), max(ends), 16 * _SLACK * sum(abs(end) for end in ends if math.isfinite(end)), False
    )
    return Range(max(found.low, within.low), min(found.high, within.high), within.nonzero)


def union(a: Range, b: Range) -> Range:
    """The smallest range that contains two ranges."""
    if any(math.isnan(end) for end in (a.low, b.low)):
        return EVERYWHERE
    return Range(min(a.low, b.low), max(a.high, b.high), excludes_zero(a) and excludes_zero(b))
