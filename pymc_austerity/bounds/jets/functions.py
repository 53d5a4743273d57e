"""Derivatives of elementary functions: phi^(k)(x) / k! for k = 0..n, and how large their errors may be.

Every function here takes ``(x, y, n, out, error, other)``: y is the data of `rising`, `rising_exp` and
`power`, other is room for work. Of `log_ndtr_between` y moves, too, and x and y are known up to the first two
numbers in other: `between` has its derivatives by both. Errors of libm are a few units in the last place.
Where terms cancel, errors are relative to the sum of their sizes, not to the result.

*Special functions that numba does not have: derivatives divided by k!, and their errors.* *Derivatives of log
Gamma* are -psi(x) = zeta(1, x), without its pole, and (-1)^k (k - 1)! zeta(k, x), with Hurwitz's zeta by
Euler and Maclaurin: terms are summed until x + i is 15 or more, then

    zeta(s, x) = x^(1 - s) / (s - 1) + x^-s / 2 + sum over j of B_2j / (2j)! (s)_(2j - 1) x^(1 - s - 2j),

whose error is below the first term that is left out. For s = 1 the first term is -log(x).

*erfcx(x)* = exp(x^2) erfc(x), and log Phi. Their derivatives follow from recursions, which cancel in one
tail; there asymptotic series are differentiated term by term.
"""

import math
from collections.abc import Iterable

import numpy as np
from numba.core import types
from numba.extending import overload

from pymc_austerity.bounds.jets import codes
from pymc_austerity.bounds.jets.between import between_derivatives
from pymc_austerity.bounds.jets.codes import LARGEST_ORDER
from pymc_austerity.bounds.jets.compiled import entry, inner
from pymc_austerity.bounds.jets.polynomials import (
    log1mexp_polynomials,
    log_ndtr_polynomials,
    sigmoid_polynomials,
    tail_series,
    taylor_table,
)
from pymc_austerity.packed import address_of, caller
from pymc_austerity.target import Vector

_EPS = 2.0**-52
# Relative errors.
_SPECIAL = 4e-13
_LIBM = 16.0 * _EPS
# Terms are summed up to here.
_FAR = 15.0
# B_2j / (2j)!
_BERNOULLI = (
    1.0 / 12.0,
    -1.0 / 720.0,
    1.0 / 30240.0,
    -1.0 / 1209600.0,
    1.0 / 47900160.0,
    -691.0 / 1307674368000.0,
)
# Sums of so many terms replace a difference of two values of log Gamma.
_FEW_TERMS = 32.0
_SQRT_PI, _ROOT_TWO = math.sqrt(math.pi), math.sqrt(2.0)
_ROOT_TWO_OVER_PI, _HALF_LOG_TWO_PI = math.sqrt(2.0 / math.pi), 0.5 * math.log(2.0 * math.pi)
_FACTORIALS = np.array([math.factorial(k) for k in range(LARGEST_ORDER + 2)], dtype=np.float64)
# Where series are used, and below which exp(x^2) overflows.
_SERIES_FROM, _OVERFLOW_BELOW = 12.0, -26.6
_TAIL, _LOG_TAIL = tail_series()
_LAMBDA = log_ndtr_polynomials()


@inner
def log_gamma_derivatives(x: float, n: int, out: Vector, error: Vector) -> None:
    """Log Gamma for x > 0. The first derivative, and the value, have zeros: there errors are absolute."""
    value = math.lgamma(x)
    for k in range(n + 1):
        out[k] = 0.0
    while x < _FAR:
        inverse = 1.0 / x
        power = inverse
        for k in range(1, n + 1):
            out[k] += power
            power *= inverse
        x += 1.0
    inverse = 1.0 / x
    square = inverse * inverse
    power = 1.0  # x^(1 - k)
    for k in range(1, n + 1):
        total = -math.log(x) if k == 1 else power / (k - 1)
        total += 0.5 * power * inverse
        rising, last = float(k), power * square
        for j in range(len(_BERNOULLI)):
            total += _BERNOULLI[j] * rising * last
            rising *= (k + 2 * j + 1) * (k + 2 * j + 2)
            last *= square
        out[k] += total
        power *= inverse
    out[0] = value
    sign = -1.0
    for k in range(n + 1):
        if k:
            out[k] *= sign / k
            sign = -sign
        error[k] = _SPECIAL * (abs(out[k]) + (1.0 if k < 2 else 0.0))


@inner
def digamma_derivatives(x: float, n: int, out: Vector, error: Vector, other: Vector) -> None:
    """The derivatives of log Gamma, moved by one."""
    log_gamma_derivatives(x, n + 1, other, other[n + 2 :])
    for k in range(n + 1):
        out[k] = (k + 1) * other[k + 1]
        error[k] = (k + 1) * other[n + 3 + k]


@inner
def rising_derivatives(x: float, y: float, n: int, out: Vector, error: Vector, other: Vector) -> None:
    """Log Gamma(x + y) - log Gamma(x): the sum of log(x + k) for a small whole y."""
    if y <= _FEW_TERMS and y == math.floor(y):
        for k in range(n + 1):
            out[k], error[k] = 0.0, 0.0
        for i in range(int(y)):
            inverse = 1.0 / (x + i)
            power = -inverse
            value = math.log(x + i)
            out[0] += value
            error[0] += _SPECIAL * abs(value) + 2.0 * _EPS
            for k in range(1, n + 1):
                out[k] -= power / k
                error[k] += _SPECIAL * abs(power) / k
                power *= -inverse
        return
    log_gamma_derivatives(x, n, other, error)
    for k in range(n + 1):
        other[n + 1 + k] = error[k]
    log_gamma_derivatives(x + y, n, out, error)
    for k in range(n + 1):
        out[k] -= other[k]
        error[k] += other[n + 1 + k]


@inner
def rising_exp_derivatives(x: float, y: float, n: int, out: Vector, error: Vector, other: Vector) -> None:
    """Log Gamma(e^x + y) - log Gamma(e^x): x for y >= 1, and a function of e^x."""
    first = 1.0 if y >= 1.0 else 0.0
    rising_derivatives(math.exp(x) + first, y - first, n, out, error, other)
    add_exponential(math.exp(x), 0.0, n, out, error)
    out[0] += first * x
    if n > 0:
        out[1] += first
    for k in range(min(n, 1) + 1):
        error[k] += _EPS * (abs(out[k]) + abs(x))


@inner
def add_exponential(e: float, reach: float, n: int, out: Vector, error: Vector) -> None:
    """Replace phi^(k)(u) / k! for u = e +- reach, and their errors, by derivatives of phi(e^x).

    Derivative k is the sum over j of S(k, j) u^j phi^(j)(u), with Stirling's numbers S.
    """
    for k in range(n, 0, -1):
        total, size, wrong, power, most = 0.0, 0.0, 0.0, 1.0, 1.0
        for j in range(1, k + 1):
            power, most = power * e, most * (e + reach)
            total += _STIRLING[k, j] * power * out[j]
            size += _STIRLING[k, j] * power * abs(out[j])
            wrong += _STIRLING[k, j] * (most * error[j] + (most - power) * abs(out[j]))
        out[k], error[k] = total, wrong * (1.0 + _LIBM) + _LIBM * size


def _stirling() -> np.ndarray:
    """S(k, j) j! / k!: the coefficients of (e^x - 1)^j."""
    table = np.zeros((LARGEST_ORDER + 2, LARGEST_ORDER + 2))
    table[0, 0] = 1.0
    for k in range(1, LARGEST_ORDER + 2):
        for j in range(1, k + 1):
            table[k, j] = (table[k - 1, j] + table[k - 1, j - 1]) * j / k
    return table


_STIRLING = _stirling()


@inner
def erfcx_derivatives(x: float, n: int, out: Vector, error: Vector) -> None:
    """e^(k + 1) = 2 x e^(k) + 2 k e^(k - 1), and e' = 2 x e - 2 / sqrt(pi)."""
    if x > _SERIES_FROM:
        _series(_TAIL, x, 0.5, 1.0, n, out, error)
        for k in range(n + 1):
            out[k] /= _SQRT_PI
        return
    out[0] = math.exp(x * x) * math.erfc(x) if x > _OVERFLOW_BELOW else math.inf
    error[0] = _SPECIAL * out[0]
    last, last_error = -1.0 / _SQRT_PI, _EPS
    for k in range(n):
        out[k + 1] = 2.0 * (x * out[k] + last) / (k + 1)
        error[k + 1] = 2.0 * (abs(x) * error[k] + last_error) / (k + 1) + 4.0 * _EPS * abs(out[k + 1])
        last, last_error = out[k], error[k]


@inner
def log_ndtr_derivatives(x: float, n: int, out: Vector, error: Vector) -> None:
    """Log Phi: polynomials in x and phi / Phi, or series."""
    if x < -_SERIES_FROM:
        _log_ndtr_tail(x, n, out, error)
        return
    z = -x / _ROOT_TWO
    scaled = math.exp(z * z) * math.erfc(z) if z > _OVERFLOW_BELOW else math.inf
    rate = _ROOT_TWO_OVER_PI / scaled
    if x > -1.0:
        out[0] = math.log1p(-0.5 * math.erfc(-z))
    else:
        out[0] = math.log(0.5 * scaled) - 0.5 * x * x
    error[0] = _SPECIAL * abs(out[0])
    for k in range(1, n + 1):
        total, size, power = 0.0, 0.0, 1.0
        if rate > 0.0:
            for i in range(k):
                inner, inner_size = 0.0, 0.0
                for j in range(k - i, 0, -1):
                    inner = (inner + _LAMBDA[k, i, j]) * rate
                    inner_size = (inner_size + abs(_LAMBDA[k, i, j])) * rate
                total += power * inner
                size += abs(power) * inner_size
                power *= x
        out[k] = total / _FACTORIALS[k]
        error[k] = _SPECIAL * size / _FACTORIALS[k]


@inner
def _log_ndtr_tail(x: float, n: int, out: Vector, error: Vector) -> None:
    """-t^2 / 2 - log(t) - log(2 pi) / 2 + log A(1 / t^2) at t = -x, whose derivatives by x are positive."""
    t = -x
    _series(_LOG_TAIL, t, 1.0, 0.0, n, out, error)
    out[0] -= 0.5 * t * t + math.log(t) + _HALF_LOG_TWO_PI
    error[0] = _SPECIAL * abs(out[0])
    power = 1.0
    for k in range(1, n + 1):
        power /= t
        out[k] = power / k + (out[k] if k % 2 == 0 else -out[k])
        if k == 1:
            out[k] += t
        elif k == 2:
            out[k] -= 0.5
        error[k] = _SPECIAL * abs(out[k])


@inner
def _series(table: Vector, x: float, scale: float, first: float, n: int, out: Vector, error: Vector) -> None:
    """Derivatives of the sum of c_j scale^j x^-(first + 2 j)."""
    inverse = 1.0 / x
    v = scale * inverse * inverse
    for k in range(n + 1):
        total, binomial = 0.0, 1.0
        term = inverse if first == 1.0 else 1.0
        for _ in range(k):
            term *= -inverse
        for j in range(table.shape[0]):
            m = first + 2.0 * j
            binomial = 1.0
            for i in range(k):
                binomial *= (m + i) / (i + 1.0)
            total += table[j] * binomial * term
            term *= v
        out[k] = total
        error[k] = _SPECIAL * abs(total)


_TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)
_SIGMOID = taylor_table(sigmoid_polynomials())
_LOG1MEXP = taylor_table(log1mexp_polynomials())

# The last of those that are computed without special functions.
LAST_ELEMENTARY = codes.LOG1MEXP


@inner
def elementary_derivatives(code: int, x: float, n: int, out: Vector, error: Vector) -> None:
    """Write n derivatives of function `code` up to `LAST_ELEMENTARY`: the commonest, which compile fast."""
    if code == codes.EXP:
        _exp(x, n, out, error)
    elif code == codes.LOG:
        _log(x, n, out, error)
        _replace(out, error, math.log(x))
    elif code == codes.LOG1P:
        _log(1.0 + x, n, out, error)
        _replace(out, error, math.log1p(x))
    elif code == codes.RECIPROCAL:
        _reciprocal(x, n, out, error)
    elif code == codes.SIGMOID:
        _sigmoid(x, n, out, error)
    elif code == codes.SOFTPLUS:
        _softplus(x, n, out, error)
    else:
        _log1mexp(x, n, out, error)


@inner
def derivatives(
    code: int, x: float, y: float, n: int, out: Vector, error: Vector, other: Vector, special: int
) -> None:
    """Write n derivatives of function `code` at x; `special` is `address_of_special`, if that is needed."""
    if code <= LAST_ELEMENTARY:
        elementary_derivatives(code, x, n, out, error)
    else:
        special_derivatives(special, code, x, y, n, out, error, other)


def special_derivatives(
    special: int, code: int, x: float, y: float, n: int, out: Vector, error: Vector, other: Vector
) -> None:
    """Write n derivatives of a function beyond `LAST_ELEMENTARY`; compiled code calls it at an address."""
    _special(code, x, y, n, out, error, other)


@overload(special_derivatives)
def _special_derivatives(special, code, x, y, n, out, error, other):  # type: ignore[no-untyped-def]
    def call(special, code, x, y, n, out, error, other):  # type: ignore[no-untyped-def]
        _call_special(special, (code, x, y, n, out, error, other))

    return call


@entry
def _special(code: int, x: float, y: float, n: int, out: Vector, error: Vector, other: Vector) -> None:
    """All special functions. Numba keeps no table of functions in its cache."""
    if code == codes.GAMMALN:
        log_gamma_derivatives(x, n, out, error)
    elif code == codes.DIGAMMA:
        digamma_derivatives(x, n, out, error, other)
    elif code == codes.ERF:
        _gaussian(x, 1.0, n, out, error)
        _replace(out, error, math.erf(x))
    elif code == codes.ERFC:
        _gaussian(x, -1.0, n, out, error)
        _replace(out, error, math.erfc(x))
    elif code == codes.ERFCX:
        erfcx_derivatives(x, n, out, error)
    elif code == codes.LOG_NDTR:
        log_ndtr_derivatives(x, n, out, error)
    elif code == codes.SIN:
        _circular(x, 0, n, out, error)
    elif code == codes.COS:
        _circular(x, 1, n, out, error)
    elif code == codes.ARCTAN:
        _arctan(x, n, out, error)
    elif code == codes.RISING:
        rising_derivatives(x, y, n, out, error, other)
    elif code == codes.RISING_EXP:
        rising_exp_derivatives(x, y, n, out, error, other)
    elif code == codes.LOG_NDTR_BETWEEN:
        between_derivatives(x, y, other[0], other[1], n, out, error)
    else:
        _power(x, y, n, out, error)


_VECTOR = types.Array(types.float64, 1, "C")
_OF_SPECIAL = types.void(
    types.int64, types.float64, types.float64, types.int64, _VECTOR, _VECTOR, _VECTOR
)  # fmt: skip
_call_special = caller(_OF_SPECIAL)


def address_of_special(numbers: Iterable[int]) -> int:
    """Where the machine code of special functions is, if one of some functions is special; else 0."""
    return address_of(_special, _OF_SPECIAL) if max(numbers, default=0) > LAST_ELEMENTARY else 0


@inner
def _replace(out: Vector, error: Vector, value: float) -> None:
    out[0], error[0] = value, _LIBM * abs(value)


@inner
def _exp(x: float, n: int, out: Vector, error: Vector) -> None:
    value = math.exp(x)
    for k in range(n + 1):
        out[k] = value / _FACTORIALS[k]
        error[k] = _LIBM * out[k]


@inner
def _log(x: float, n: int, out: Vector, error: Vector) -> None:
    """Derivatives of the logarithm, without its value."""
    inverse = 1.0 / x
    power = inverse
    for k in range(1, n + 1):
        out[k] = power / k
        error[k] = _LIBM * abs(power)
        power *= -inverse


@inner
def _reciprocal(x: float, n: int, out: Vector, error: Vector) -> None:
    inverse = 1.0 / x
    power = inverse
    for k in range(n + 1):
        out[k] = power
        error[k] = _LIBM * abs(power)
        power *= -inverse


@inner
def _power(x: float, y: float, n: int, out: Vector, error: Vector) -> None:
    """Binomial coefficients times x^(y - k), where the rounding of y - k counts log(x) times."""
    binomial, relative = 1.0, _LIBM * (1.0 + abs(math.log(x)))
    for k in range(n + 1):
        out[k] = binomial * x ** (y - k) if binomial != 0.0 else 0.0
        error[k] = relative * abs(out[k]) if out[k] != 0.0 else 0.0
        binomial *= (y - k) / (k + 1)


@inner
def _sigmoid(x: float, n: int, out: Vector, error: Vector) -> None:
    """Derivatives as polynomials in the smaller of s and 1 - s, by parity: tails keep their digits."""
    e = math.exp(-abs(x))
    small = e / (1.0 + e)
    sign = -1.0 if x > 0.0 else 1.0
    flip = sign
    for k in range(1, n + 1):
        flip *= sign  # even derivatives are odd functions
        _polynomial(_SIGMOID, k, small, out, error)
        out[k] *= flip
    _replace(out, error, small if x < 0.0 else 1.0 / (1.0 + e))


@inner
def _softplus(x: float, n: int, out: Vector, error: Vector) -> None:
    if n > 0:
        _sigmoid(x, n - 1, out, error)
    for k in range(n, 0, -1):
        out[k] = out[k - 1] / k
        error[k] = error[k - 1]
    _replace(out, error, max(x, 0.0) + math.log1p(math.exp(-abs(x))))


@inner
def _log1mexp(x: float, n: int, out: Vector, error: Vector) -> None:
    b = 1.0 / math.expm1(-x)
    for k in range(1, n + 1):
        _polynomial(_LOG1MEXP, k, b, out, error)
    _replace(out, error, math.log(-math.expm1(x)) if x > -0.69 else math.log1p(-math.exp(x)))


@inner
def _polynomial(table: np.ndarray, k: int, x: float, out: Vector, error: Vector) -> None:
    """The polynomial k of a table at x >= 0, and an error relative to the sum of the sizes of its terms.

    Its degree is at most k + 1.
    """
    total, size = 0.0, 0.0
    for j in range(min(k + 1, table.shape[1] - 1), -1, -1):
        total = total * x + table[k, j]
        size = size * x + abs(table[k, j])
    out[k], error[k] = total, 2.0 * _LIBM * size


@inner
def _gaussian(x: float, sign: float, n: int, out: Vector, error: Vector) -> None:
    """Derivatives of erf but the first: Hermite polynomials times exp(-x^2), whose error grows with x^2."""
    factor = sign * _TWO_OVER_ROOT_PI * math.exp(-x * x)
    last, hermite, last_size, size = 0.0, 1.0, 0.0, 1.0
    for k in range(1, n + 1):
        out[k], error[k] = 0.0, 0.0
        if factor != 0.0:
            out[k] = factor * hermite / _FACTORIALS[k]
            error[k] = _LIBM * (1.0 + x * x) * abs(factor) * size / _FACTORIALS[k]
        last, hermite = hermite, 2.0 * x * hermite - 2.0 * (k - 1) * last
        last_size, size = size, 2.0 * abs(x) * size + 2.0 * (k - 1) * last_size
        factor = -factor


@inner
def _circular(x: float, quarters: int, n: int, out: Vector, error: Vector) -> None:
    """sin(x) after some quarters of a turn."""
    for k in range(n + 1):
        turned = (quarters + k) % 4
        value = math.cos(x) if turned % 2 else math.sin(x)
        out[k] = (-value if turned > 1 else value) / _FACTORIALS[k]
        error[k] = _LIBM


@inner
def _arctan(x: float, n: int, out: Vector, error: Vector) -> None:
    """Derivative k is (k - 1)! times the imaginary part of -(-(a + i b))^k, a + i b = 1 / (x - i)."""
    b, a = 1.0 / (1.0 + x * x), 1.0 / (x + 1.0 / x)
    re, im, re_size, im_size, sign = 1.0, 0.0, 1.0, 0.0, 1.0
    for k in range(1, n + 1):
        re, im = re * a - im * b, re * b + im * a
        re_size, im_size = re_size * abs(a) + im_size * b, re_size * b + im_size * abs(a)
        out[k] = sign * im / k
        error[k] = 2.0 * _LIBM * im_size
        sign = -sign
    _replace(out, error, math.atan(x))
