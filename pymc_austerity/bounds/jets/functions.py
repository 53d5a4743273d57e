"""Derivatives of elementary functions: phi^(k)(x) / k! for k = 0..n, and how large their errors may be.

Every function here takes ``(x, y, n, out, error, other)``: y is the data of `rising` and `power`, `other` is
room for work. Errors of libm are a few units in the last place. Where terms cancel, errors are relative to
the sum of their sizes, not to the result.
"""

from __future__ import annotations

import math

import numpy as np

from pymc_austerity.bounds.jets import codes
from pymc_austerity.bounds.jets.codes import LARGEST_ORDER
from pymc_austerity.bounds.jets.compiled import inner
from pymc_austerity.bounds.jets.polynomials import (
    log1mexp_polynomials,
    sigmoid_polynomials,
    taylor_table,
)
from pymc_austerity.bounds.jets.special import (
    digamma_derivatives,
    erfcx_derivatives,
    log_gamma_derivatives,
    log_ndtr_derivatives,
    rising_derivatives,
)
from pymc_austerity.target import Vector

_EPS = 2.0**-52
_LIBM = 16.0 * _EPS
_FACTORIALS = np.array([math.factorial(k) for k in range(LARGEST_ORDER + 2)], dtype=np.float64)
_TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)
_SIGMOID = taylor_table(sigmoid_polynomials())
_LOG1MEXP = taylor_table(log1mexp_polynomials())

_EXP, _EXPM1, _LOG, _LOG1P, _RECIPROCAL = codes.EXP, codes.EXPM1, codes.LOG, codes.LOG1P, codes.RECIPROCAL
_SIGMOID_CODE, _SOFTPLUS = codes.SIGMOID, codes.SOFTPLUS
# The last of those before.
LAST_ELEMENTARY = codes.LOG1MEXP
_GAMMALN, _DIGAMMA, _ERF, _ERFC, _ERFCX = codes.GAMMALN, codes.DIGAMMA, codes.ERF, codes.ERFC, codes.ERFCX
_LOG_NDTR, _SIN, _COS, _ARCTAN, _RISING = codes.LOG_NDTR, codes.SIN, codes.COS, codes.ARCTAN, codes.RISING


@inner
def elementary_derivatives(code: int, x: float, n: int, out: Vector, error: Vector) -> None:
    """Write n derivatives of function `code` up to `LAST_ELEMENTARY`: the commonest, which compile fast."""
    if code == _EXP:
        _exp(x, n, out, error)
    elif code == _EXPM1:
        _exp(x, n, out, error)
        _replace(out, error, math.expm1(x))
    elif code == _LOG:
        _log(x, n, out, error)
        _replace(out, error, math.log(x))
    elif code == _LOG1P:
        _log(1.0 + x, n, out, error)
        _replace(out, error, math.log1p(x))
    elif code == _RECIPROCAL:
        _reciprocal(x, n, out, error)
    elif code == _SIGMOID_CODE:
        _sigmoid(x, n, out, error)
    elif code == _SOFTPLUS:
        _softplus(x, n, out, error)
    else:
        _log1mexp(x, n, out, error)


@inner
def derivatives(code: int, x: float, y: float, n: int, out: Vector, error: Vector, other: Vector) -> None:
    """Write n derivatives of function `code` at x. Numba keeps no table of functions in its cache."""
    if code <= LAST_ELEMENTARY:
        elementary_derivatives(code, x, n, out, error)
    elif code == _GAMMALN:
        log_gamma_derivatives(x, n, out, error)
    elif code == _DIGAMMA:
        digamma_derivatives(x, n, out, error, other)
    elif code == _ERF:
        _gaussian(x, 1.0, n, out, error)
        _replace(out, error, math.erf(x))
    elif code == _ERFC:
        _gaussian(x, -1.0, n, out, error)
        _replace(out, error, math.erfc(x))
    elif code == _ERFCX:
        erfcx_derivatives(x, n, out, error)
    elif code == _LOG_NDTR:
        log_ndtr_derivatives(x, n, out, error)
    elif code == _SIN:
        _circular(x, 0, n, out, error)
    elif code == _COS:
        _circular(x, 1, n, out, error)
    elif code == _ARCTAN:
        _arctan(x, n, out, error)
    elif code == _RISING:
        rising_derivatives(x, y, n, out, error, other)
    else:
        _power(x, y, n, out, error)


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
