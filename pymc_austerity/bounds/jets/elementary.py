"""Exact ranges of the derivatives of elementary functions over an interval.

For phi and k = 0..n the numbers phi^(k)(x) / k! are wanted for all x from low to high. They lie between the
smallest and the largest value at either end and at the *critical points* between, the zeros of phi^(k + 1).
Most functions have none: exp, log, powers, log Gamma and others are monotone in every derivative.

Allowances for rounding are those of libm and of `special`, relative to the value or, where derivatives come
from a recursion, to its largest term. What leaves the domain of phi has an infinite radius.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.polynomial import Polynomial
from numpy.polynomial.hermite import Hermite

from pymc_austerity.bounds.jets.special import erfcx, log_gamma_derivatives
from pymc_austerity.target import Vector

# Derivatives up to this one, divided by their factorials.
LARGEST_ORDER = 5
# The functions, in the order of their codes.
FUNCTIONS = (
    "exp",
    "expm1",
    "log",
    "log1p",
    "reciprocal",
    "sigmoid",
    "softplus",
    "log1mexp",
    "gammaln",
    "digamma",
    "erf",
    "erfc",
    "erfcx",
    "log_ndtr",
    "sin",
    "cos",
    "arctan",
    "rising",
    "power",
)
(
    EXP, EXPM1, LOG, LOG1P, RECIPROCAL, SIGMOID, SOFTPLUS, LOG1MEXP, GAMMALN, DIGAMMA, ERF, ERFC, ERFCX,
    LOG_NDTR, SIN, COS, ARCTAN, RISING, POWER,
) = range(len(FUNCTIONS))  # fmt: skip

_EPS = 2.0**-52
_LIBM, _SPECIAL = 16.0 * _EPS, 4e-13
_TINY = 1e-300
_FACTORIALS = np.array([math.factorial(k) for k in range(LARGEST_ORDER + 2)], dtype=np.float64)
_TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)
_ROOT_TWO = math.sqrt(2.0)
_ROOT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)
# Sums of so many terms replace a difference of two values of log Gamma.
_FEW_TERMS = 32.0


def _table(polynomials: list[Polynomial], width: int) -> np.ndarray:
    """Coefficients of polynomials, constant first, one row for each."""
    return np.array([np.pad(p.coef, (0, width - len(p.coef))) for p in polynomials])


def _points(lists: list[list[float]]) -> np.ndarray:
    """Points of each derivative in a row, filled up with numbers that are in no interval."""
    width = max(map(len, lists), default=0)
    return np.array([[*map(float, one), *[math.nan] * (width - len(one))] for one in lists])


def _sigmoid_polynomials() -> list[Polynomial]:
    """P_k with sigmoid^(k) = P_k(s): P_(k + 1) = P_k' s (1 - s)."""
    result = [Polynomial([0.0, 1.0])]
    for _ in range(LARGEST_ORDER + 1):
        result.append(result[-1].deriv() * Polynomial([0.0, 1.0, -1.0]))
    return result


def _log1mexp_polynomials() -> list[Polynomial]:
    """Q_k with (log(1 - e^x))^(k) = Q_k(b), b = 1 / (e^-x - 1): Q_(k + 1) = Q_k' b (1 + b)."""
    result = [Polynomial([0.0]), Polynomial([0.0, -1.0])]
    for _ in range(LARGEST_ORDER - 1):
        result.append(result[-1].deriv() * Polynomial([0.0, 1.0, 1.0]))
    return result


def _lambda_polynomials() -> np.ndarray:
    """R_k with (log Phi)^(k) = R_k(x, lambda): d lambda / dx = -lambda (x + lambda)."""
    size = LARGEST_ORDER + 2
    result = np.zeros((LARGEST_ORDER + 1, size, size))
    result[1, 0, 1] = 1.0
    for k in range(1, LARGEST_ORDER):
        for i, j in zip(*np.nonzero(result[k]), strict=True):
            c = result[k, i, j]
            if i:
                result[k + 1, i - 1, j] += i * c
            result[k + 1, i + 1, j] -= j * c
            result[k + 1, i, j + 1] -= j * c
    return result


def _inside(polynomial: Polynomial, low: float, high: float) -> list[float]:
    """Real zeros of odd order, strictly between low and high."""
    roots = polynomial.roots()
    return sorted({float(np.real(r)) for r in roots if abs(np.imag(r)) < 1e-7 and low < np.real(r) < high})


_SIGMOID = _sigmoid_polynomials()
_P = _table(_SIGMOID, LARGEST_ORDER + 3)
_Q = _table(_log1mexp_polynomials(), LARGEST_ORDER + 2)
# Zeros of the derivative k + 1.
_SIGMOID_POINTS = _points(
    [[math.log(s / (1.0 - s)) for s in _inside(p, 1e-6, 1.0 - 1e-6)] for p in _SIGMOID[1:]]
)
_SOFTPLUS_POINTS = np.array([np.full(_SIGMOID_POINTS.shape[1], np.nan), *_SIGMOID_POINTS[:-1]])
_GAMMALN_POINTS = np.array([[1.4616321449683622]])
_NO_POINTS = np.empty((0, 0))
_ERF_POINTS = _points(
    [[], *([float(x) for x in Hermite.basis(k).roots()] for k in range(1, LARGEST_ORDER + 1))]
)
# Zeros of the derivatives 4, 5 and 6 of log Phi; the first three have none.
_LOG_NDTR_POINTS = _points(
    [
        [],
        [],
        [],
        [1.0023693422683706331],
        [-0.029833620926059144714, 2.0712889388088739928],
        [-0.8711321749891586931, 1.2313322903511884637, 2.7456390097167839283],
    ]
)
# Derivatives of log Phi as polynomials in x and lambda = phi / Phi: coefficient of x^i lambda^j at [k, i, j].
_LAMBDA = _lambda_polynomials()
_ARCTAN_POINTS = _points(
    [
        [math.tan(j * math.pi / (k + 1) - math.pi / 2.0) for j in range(1, k + 1)]
        for k in range(LARGEST_ORDER + 1)
    ]
)


@njit(cache=True, error_model="numpy")
def _polynomial(coefficients: Vector, x: float) -> float:
    total = 0.0
    for k in range(len(coefficients) - 1, -1, -1):
        total = total * x + coefficients[k]
    return total


@njit(cache=True, error_model="numpy")
def _exponential(x: float, n: int, out: Vector) -> None:
    value = math.exp(x)
    for k in range(n + 1):
        out[k] = value / _FACTORIALS[k]


@njit(cache=True, error_model="numpy")
def _powers(x: float, exponent: float, first: float, n: int, out: Vector) -> None:
    """Derivatives from the first on of a function whose first derivative is `first` x^exponent."""
    factor = first * x**exponent
    for k in range(1, n + 1):
        out[k] = factor / k
        factor *= (exponent - (k - 1)) / (k * x)


@njit(cache=True, error_model="numpy")
def _sigmoid(x: float, n: int, out: Vector) -> None:
    """In the smaller of s and 1 - s, with the parity of each derivative, so that tails keep their digits."""
    e = math.exp(-abs(x))
    small = e / (1.0 + e)
    out[0] = small if x < 0.0 else 1.0 / (1.0 + e)
    sign = 1.0
    for k in range(1, n + 1):
        out[k] = (1.0 if x < 0.0 else sign) * _polynomial(_P[k], small) / _FACTORIALS[k]
        sign = -sign


@njit(cache=True, error_model="numpy")
def _softplus(x: float, n: int, out: Vector) -> None:
    _sigmoid(x, max(n - 1, 0), out)
    for k in range(n, 0, -1):
        out[k] = out[k - 1] / k
    out[0] = max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@njit(cache=True, error_model="numpy")
def _log1mexp(x: float, n: int, out: Vector) -> None:
    b = 1.0 / math.expm1(-x)
    out[0] = math.log(-math.expm1(x)) if x > -0.69 else math.log1p(-math.exp(x))
    for k in range(1, n + 1):
        out[k] = _polynomial(_Q[k], b) / _FACTORIALS[k]


@njit(cache=True, error_model="numpy")
def _digamma(x: float, n: int, out: Vector, other: Vector) -> None:
    """The derivatives of log Gamma, moved by one."""
    log_gamma_derivatives(x, n + 1, other)
    for k in range(n + 1):
        out[k] = (k + 1) * other[k + 1]


@njit(cache=True, error_model="numpy")
def _rising(x: float, y: float, n: int, out: Vector, other: Vector) -> None:
    """log Gamma(x + y) - log Gamma(x): the sum of log(x + k) for a small whole y."""
    if y <= _FEW_TERMS and y == math.floor(y):
        out[: n + 1] = 0.0
        for i in range(int(y)):
            inverse = 1.0 / (x + i)
            power = -inverse
            out[0] += math.log(x + i)
            for k in range(1, n + 1):
                out[k] -= power / k
                power *= -inverse
        return
    log_gamma_derivatives(x, n, other)
    log_gamma_derivatives(x + y, n, out)
    for k in range(n + 1):
        out[k] -= other[k]


@njit(cache=True, error_model="numpy")
def _erf(x: float, n: int, sign: float, out: Vector) -> None:
    """erf (sign 1) or erfc (sign -1): derivatives are Hermite polynomials times exp(-x^2)."""
    out[0] = math.erf(x) if sign > 0.0 else math.erfc(x)
    factor = sign * _TWO_OVER_ROOT_PI * math.exp(-x * x)
    last, hermite = 0.0, 1.0
    for k in range(1, n + 1):
        out[k] = factor * hermite / _FACTORIALS[k] if factor != 0.0 else 0.0
        last, hermite = hermite, 2.0 * x * hermite - 2.0 * (k - 1) * last
        factor = -factor


@njit(cache=True, error_model="numpy")
def _erfcx(x: float, n: int, out: Vector) -> None:
    """e^(k + 1) = 2 x e^(k) + 2 k e^(k - 1), and e' = 2 x e - 2 / sqrt(pi)."""
    out[0] = erfcx(x)
    out[1] = 2.0 * x * out[0] - _TWO_OVER_ROOT_PI
    for k in range(1, n):
        out[k + 1] = 2.0 * (x * out[k] + out[k - 1]) / (k + 1)


@njit(cache=True, error_model="numpy")
def _log_ndtr(x: float, n: int, out: Vector) -> None:
    scaled = erfcx(-x / _ROOT_TWO)
    rate = _ROOT_TWO_OVER_PI / scaled
    if x > -1.0:
        out[0] = math.log1p(-0.5 * math.erfc(x / _ROOT_TWO))
    else:
        out[0] = math.log(0.5 * scaled) - 0.5 * x * x
    for k in range(1, n + 1):
        total, power = 0.0, 1.0
        if rate > 0.0:
            for i in range(k):
                inner = 0.0
                for j in range(k - i, 0, -1):
                    inner = (inner + _LAMBDA[k, i, j]) * rate
                total += power * inner
                power *= x
        out[k] = total / _FACTORIALS[k]


@njit(cache=True, error_model="numpy")
def _circular(x: float, phase: float, n: int, out: Vector) -> None:
    """sin(x + phase)."""
    for k in range(n + 1):
        out[k] = math.sin(x + phase + 0.5 * math.pi * k) / _FACTORIALS[k]


@njit(cache=True, error_model="numpy")
def _arctan(x: float, n: int, out: Vector) -> None:
    """The derivative k of arctan at tan(y) is (k - 1)! cos(y)^k sin(k (y + pi / 2))."""
    y = math.atan(x)
    out[0] = y
    for k in range(1, n + 1):
        out[k] = math.cos(y) ** k * math.sin(k * (y + 0.5 * math.pi)) / k


@njit(cache=True, error_model="numpy")
def derivatives(code: int, x: float, y: float, n: int, out: Vector, other: Vector) -> None:
    """phi^(k)(x) / k! for k = 0..n into `out`; y is the data of `rising` and `power`."""
    if code == EXP:
        _exponential(x, n, out)
    elif code == EXPM1:
        _exponential(x, n, out)
        out[0] = math.expm1(x)
    elif code == LOG:
        _powers(x, -1.0, 1.0, n, out)
        out[0] = math.log(x)
    elif code == LOG1P:
        _powers(1.0 + x, -1.0, 1.0, n, out)
        out[0] = math.log1p(x)
    elif code == RECIPROCAL:
        out[0] = 1.0 / x
        _powers(x, -2.0, -1.0, n, out)
    elif code == POWER:
        out[0] = x**y
        _powers(x, y - 1.0, y, n, out)
    elif code == SIGMOID:
        _sigmoid(x, n, out)
    elif code == SOFTPLUS:
        _softplus(x, n, out)
    elif code == LOG1MEXP:
        _log1mexp(x, n, out)
    elif code == GAMMALN:
        log_gamma_derivatives(x, n, out)
    elif code == DIGAMMA:
        _digamma(x, n, out, other)
    elif code == RISING:
        _rising(x, y, n, out, other)
    elif code == ERF:
        _erf(x, n, 1.0, out)
    elif code == ERFC:
        _erf(x, n, -1.0, out)
    elif code == ERFCX:
        _erfcx(x, n, out)
    elif code == LOG_NDTR:
        _log_ndtr(x, n, out)
    elif code == SIN:
        _circular(x, 0.0, n, out)
    elif code == COS:
        _circular(x, 0.5 * math.pi, n, out)
    else:
        _arctan(x, n, out)


@njit(cache=True, error_model="numpy")
def _outside(code: int, low: float, high: float) -> bool:
    """Does the interval leave the domain of phi?"""
    if not low <= high:
        return True
    if code in (LOG, GAMMALN, DIGAMMA, RISING, POWER):
        return low <= 0.0
    if code == LOG1P:
        return low <= -1.0
    if code == RECIPROCAL:
        return low <= 0.0 <= high
    if code == LOG1MEXP:
        return high >= 0.0
    return False


@njit(cache=True, error_model="numpy")
def _rounding(code: int, k: int, value: float, x: float, y: float, other: Vector) -> float:
    """What rounding may have added to phi^(k)(x) / k!."""
    size = abs(value)
    if code in (GAMMALN, DIGAMMA):
        # Near the zeros of log Gamma and digamma the error is that of numbers of size one.
        return _SPECIAL * (size + (1.0 if k == 0 else 0.0))
    if code == RISING:
        return _SPECIAL * (size + 2.0 * (abs(other[k]) if y > _FEW_TERMS or y != math.floor(y) else 0.0))
    if code in (ERF, ERFC):
        return _LIBM * size * (1.0 + x * x) + _LIBM * math.exp(-x * x)
    if code == ERFCX:
        return _SPECIAL * (size + (2.0 * abs(x) + 2.0) ** k * (1.0 if x > 0.0 else size))
    if code == LOG_NDTR:
        return _SPECIAL * (size + (max(-x, 0.0) + 1.0) ** k * min(1.0, math.exp(-0.5 * max(x, 0.0) ** 2)))
    if code in (SIN, COS):
        return _LIBM * (1.0 + abs(x))
    return _LIBM * size


@njit(cache=True, error_model="numpy")
def _critical(code: int) -> np.ndarray:
    """Points between which the derivatives are monotone."""
    if code == SIGMOID:
        return _SIGMOID_POINTS
    if code == SOFTPLUS:
        return _SOFTPLUS_POINTS
    if code == GAMMALN:
        return _GAMMALN_POINTS
    if code in (ERF, ERFC):
        return _ERF_POINTS
    if code == LOG_NDTR:
        return _LOG_NDTR_POINTS
    if code == ARCTAN:
        return _ARCTAN_POINTS
    return _NO_POINTS


@njit(cache=True, error_model="numpy")
def _circular_ranges(low: float, high: float, phase: float, n: int, ranges: Vector) -> None:
    """Largest and smallest values where they are in the interior; `ranges` (2, n + 1) has those at the ends."""
    for k in range(n + 1):
        for which, peak in ((1, 0.5 * math.pi), (0, -0.5 * math.pi)):
            first = peak - phase - 0.5 * math.pi * k
            turns = math.ceil((low - first) / (2.0 * math.pi))
            if first + 2.0 * math.pi * turns <= high:
                ranges[which, k] = (1.0 if which == 1 else -1.0) / _FACTORIALS[k]


@njit(cache=True, error_model="numpy")
def ranges_of(
    code: int, low: float, high: float, y: float, n: int, work: np.ndarray, middle: Vector, radius: Vector
) -> None:
    """Midpoints and radii of phi^(k) / k! over an interval, k = 0..n; `work` has shape (4, n + 1) or more."""
    if _outside(code, low, high):
        middle[: n + 1] = 0.0
        radius[: n + 1] = math.inf
        return
    least, largest, here, other = work[0], work[1], work[2], work[3]
    derivatives(code, low, y, n, least, other)
    for k in range(n + 1):
        radius[k] = _rounding(code, k, least[k], low, y, other)
    derivatives(code, high, y, n, largest, other)
    for k in range(n + 1):
        radius[k] = max(radius[k], _rounding(code, k, largest[k], high, y, other))
        if least[k] > largest[k]:
            least[k], largest[k] = largest[k], least[k]
    if code in (SIN, COS):
        _circular_ranges(low, high, 0.0 if code == SIN else 0.5 * math.pi, n, work)
    points = _critical(code)
    for k in range(min(n + 1, points.shape[0])):
        for x in points[k]:
            if low < x < high:
                derivatives(code, x, y, k, here, other)
                least[k], largest[k] = min(least[k], here[k]), max(largest[k], here[k])
                radius[k] = max(radius[k], _rounding(code, k, here[k], x, y, other))
    for k in range(n + 1):
        if math.isfinite(least[k]) and math.isfinite(largest[k]):
            middle[k] = 0.5 * (least[k] + largest[k])
            radius[k] += 0.5 * (largest[k] - least[k]) + 2.0 * _EPS * abs(middle[k]) + _TINY
        else:
            middle[k], radius[k] = 0.0, math.inf
