"""Exact ranges of the derivatives of elementary functions over an interval.

For phi and k = 0..n the numbers phi^(k)(x) / k! are wanted for all x from low to high. They lie between the
smallest and the largest value at either end and at the *critical points* between, the zeros of phi^(k + 1).
Most functions have none: exp, log, powers, log Gamma and others are monotone in every derivative. What leaves
the domain of phi has an infinite radius.

*h(x) = log Gamma(e^x + y) - log Gamma(e^x)* for whole y is x plus the sum of log(i) + softplus(x - log(i))
for 0 < i < y. The first five derivatives of a sigmoid s are at most s', which changes by a factor of e^d at
most over a distance d, and is at most 1/4. So |h^(k)| <= h'' <= min(e^d h''(m), (y - 1) / 4) for k >= 2 at a
distance d from m, and h^(k) is within d times that of its value at m. Intervals by e^x instead cancel badly.
"""

import math

import numpy as np
import numpy.typing as npt
from numpy.polynomial.hermite import Hermite

from pymc_austerity.bounds.jets import codes
from pymc_austerity.bounds.jets.codes import FUNCTIONS, LARGEST_ORDER
from pymc_austerity.bounds.jets.compiled import entry, inner
from pymc_austerity.bounds.jets.functions import add_exponential, address_of_special, derivatives
from pymc_austerity.bounds.jets.polynomials import sigmoid_polynomials, zeros_inside
from pymc_austerity.target import Vector

# Rows of numbers to work with, the last two for results, and how many are in each.
WORK = (8, (LARGEST_ORDER + 1) * (LARGEST_ORDER + 2) // 2)

_EPS = 2.0**-52
_TINY = 1e-300
_NORMAL = 2.3e-308  # the smallest number that is rounded as others are, and a little more
_FACTORIALS = np.array([math.factorial(k) for k in range(LARGEST_ORDER + 1)], dtype=np.float64)


def _sigmoid_points() -> list[list[float]]:
    polynomials = sigmoid_polynomials()[1:]
    return [[math.log(s / (1.0 - s)) for s in zeros_inside(p, 1e-6, 1.0 - 1e-6)] for p in polynomials]


def _erf_points() -> list[list[float]]:
    return [[], *([float(x) for x in Hermite.basis(k).roots()] for k in range(1, LARGEST_ORDER + 1))]


def _arctan_points() -> list[list[float]]:
    return [
        [math.tan(j * math.pi / (k + 1) - math.pi / 2.0) for j in range(1, k + 1)]
        for k in range(LARGEST_ORDER + 1)
    ]


# For each k the zeros of the derivative k + 1. The first three derivatives of log Phi have none.
_POINTS = {
    codes.SIGMOID: _sigmoid_points(),
    codes.SOFTPLUS: [[], *_sigmoid_points()[:-1]],
    codes.GAMMALN: [[1.4616321449683622]],
    codes.ERF: _erf_points(),
    codes.ERFC: _erf_points(),
    codes.LOG_NDTR: [
        [],
        [],
        [],
        [1.0023693422683706331],
        [-0.029833620926059144714, 2.0712889388088739928],
        [-0.8711321749891586931, 1.2313322903511884637, 2.7456390097167839283],
    ],
    codes.ARCTAN: _arctan_points(),
}
_BELOW, _ABOVE = -math.inf, math.inf
# Ends of the domains that are not everything: they are outside.
_DOMAINS = {
    codes.LOG: (0.0, _ABOVE),
    codes.LOG1P: (-1.0, _ABOVE),
    codes.LOG1MEXP: (_BELOW, 0.0),
    codes.GAMMALN: (0.0, _ABOVE),
    codes.DIGAMMA: (0.0, _ABOVE),
    codes.RISING: (0.0, _ABOVE),
    codes.POWER: (0.0, _ABOVE),
}


def _critical_points() -> npt.NDArray[np.float64]:
    """Points of all functions, filled up with numbers that are in no interval: [code, k, point]."""
    width = max(len(points) for lists in _POINTS.values() for points in lists)
    table = np.full((len(FUNCTIONS), LARGEST_ORDER + 1, width), math.nan)
    for code, lists in _POINTS.items():
        for k, points in enumerate(lists):
            table[code, k, : len(points)] = points
    return table


CRITICAL_POINTS = _critical_points()
DOMAINS = np.array([_DOMAINS.get(code, (-math.inf, math.inf)) for code in range(len(FUNCTIONS))])


@inner
def ranges_of(
    code: int,
    low: float,
    high: float,
    y: float,
    n: int,
    work: npt.NDArray[np.float64],
    middle: Vector,
    radius: Vector,
    special: int,
) -> None:
    """Midpoints and radii of phi^(k) / k! over an interval, for k = 0..n.

    `work` has the shape `WORK`, and `special` is `functions.address_of_special`.
    """
    is_composed = code == codes.RISING_EXP and y != math.floor(y)
    if is_composed:
        code, low, high = codes.RISING, math.exp(low), math.exp(high)
    if is_outside(code, low, high) or (is_composed and not (low > _NORMAL and high < math.inf)):
        for k in range(n + 1):
            middle[k], radius[k] = 0.0, math.inf
        return
    if code == codes.RISING_EXP:
        _of_rising_exp(low, high, y, n, work, middle, radius, special)
        return
    least, largest, error, here, more = work[0], work[1], work[2], work[3], work[4]
    other = work[5]
    derivatives(code, low, y, n, least, error, other, special)
    derivatives(code, high, y, n, largest, more, other, special)
    for k in range(n + 1):
        error[k] += more[k]
        if least[k] > largest[k]:
            least[k], largest[k] = largest[k], least[k]
    if code in (codes.SIN, codes.COS):
        _peaks(low, high, code == codes.COS, n, least, largest)
    for k in range(n + 1):
        for i in range(CRITICAL_POINTS.shape[2]):
            x = CRITICAL_POINTS[code, k, i]
            if low < x < high:
                derivatives(code, x, y, k, here, more, other, special)
                least[k], largest[k] = min(least[k], here[k]), max(largest[k], here[k])
                error[k] += more[k]
        middle[k] = 0.5 * least[k] + 0.5 * largest[k]
        spread = 0.5 * largest[k] - 0.5 * least[k]
        radius[k] = spread + error[k] + 4.0 * _EPS * (abs(middle[k]) + spread) + _TINY
    if is_composed:
        add_exponential(0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low + 4.0 * _EPS * high, n, middle, radius)
    _forget_infinite(n, middle, radius)


@inner
def _forget_infinite(n: int, middle: Vector, radius: Vector) -> None:
    """Replace midpoints and radii that are infinite, or not a number, by 0 and infinity."""
    for k in range(n + 1):
        if not (radius[k] < math.inf and abs(middle[k]) < math.inf):
            middle[k], radius[k] = 0.0, math.inf


@inner
def _of_rising_exp(
    low: float,
    high: float,
    y: float,
    n: int,
    work: npt.NDArray[np.float64],
    middle: Vector,
    radius: Vector,
    special: int,
) -> None:
    """Log Gamma(e^x + y) - log Gamma(e^x) for a whole y."""
    here, error = work[0], work[2]
    at, rest = 0.5 * low + 0.5 * high, max(y - 1.0, 0.0)
    half = 0.5 * high - 0.5 * low
    half += 4.0 * _EPS * (abs(low) + abs(high))
    bend = 0.25 * rest
    is_near = half < 700.0 and abs(at) < 700.0
    if is_near:
        derivatives(codes.RISING_EXP, at, y, max(n, 2), here, error, work[5], special)
        bend = min(bend, math.exp(half) * 2.0 * (abs(here[2]) + error[2])) * (1.0 + 16.0 * _EPS)
    for k in range(n + 1):
        # The slope is from 0 or 1 to y. Of the value nothing is known far away.
        slope = 0.5 * rest if k == 1 else (bend if k > 1 else math.inf)
        middle[k], radius[k] = (y - slope if k == 1 else 0.0), slope / _FACTORIALS[k]
        if is_near:
            step = half * (bend if k > 0 else min(y, abs(here[1]) + error[1] + half * bend)) / _FACTORIALS[k]
            if step + error[k] < radius[k]:
                middle[k], radius[k] = here[k], step + error[k]
        radius[k] += 16.0 * _EPS * (abs(middle[k]) + radius[k]) + _TINY
    _forget_infinite(n, middle, radius)


def largest_derivative(
    code: int, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64], order: int
) -> npt.NDArray[np.float64]:
    """The largest |phi^(order)| over each of some intervals; infinite outside of the domain."""
    result = np.empty(low.size)
    _largest(code, low.ravel(), high.ravel(), order, result, address_of_special([code]))
    return result.reshape(low.shape) * math.factorial(order)


@entry
def _largest(code: int, low: Vector, high: Vector, order: int, result: Vector, special: int) -> None:
    work = np.empty(WORK)
    for i in range(low.shape[0]):
        ranges_of(code, low[i], high[i], 0.0, order, work, work[6], work[7], special)
        result[i] = _size(work[6, order], work[7, order])


@inner
def _size(middle: float, radius: float) -> float:
    return (abs(middle) + radius) * (1.0 + 4.0 * _EPS)


@inner
def is_outside(code: int, low: float, high: float) -> bool:
    """Does the interval leave the domain of phi?"""
    if not low <= high or (code == codes.RECIPROCAL and low <= 0.0 <= high):
        return True
    first, last = DOMAINS[code, 0], DOMAINS[code, 1]
    return bool((first > -math.inf and low <= first) or (last < math.inf and high >= last))


@inner
def _peaks(low: float, high: float, is_cosine: bool, n: int, least: Vector, largest: Vector) -> None:
    """Largest and smallest values of sin or cos, and of their derivatives, where they are in the interior."""
    for k in range(n + 1):
        phase = 0.5 * math.pi * (k + 1 if is_cosine else k)
        if _reached(low + phase, high + phase, 0.5 * math.pi):
            largest[k] = 1.0 / _FACTORIALS[k]
        if _reached(low + phase, high + phase, -0.5 * math.pi):
            least[k] = -1.0 / _FACTORIALS[k]


@inner
def _reached(low: float, high: float, peak: float) -> bool:
    """Is the peak, or a whole number of turns after it, between low and high?"""
    return peak + 2.0 * math.pi * math.ceil((low - peak) / (2.0 * math.pi)) <= high
