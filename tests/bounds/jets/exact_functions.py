"""Derivatives of elementary functions, divided by their factorials, in 60 digits and more."""

import math

import mpmath
from mpmath import mp, mpf

from pymc_austerity.bounds.jets.tape import multi_indices
from tests.bounds.expressions import log_ndtr_between

mp.dps = 60

_DIGITS = 60


def taylor(op: str, x: float, n: int, y: float = 0.0) -> list[mpf]:
    """phi^(k)(x) / k! for k = 0..n."""
    with mp.workdps(_DIGITS):
        return _SERIES[op](mpf(x), n, mpf(y))


def _scaled(value: mpf, n: int) -> list[mpf]:
    return [value / math.factorial(k) for k in range(n + 1)]


def _exp(x, n, y):
    return _scaled(mp.exp(x), n)


def _log(x, n, y):
    return [mp.log(x), *(-((-1 / x) ** k) / k for k in range(1, n + 1))]


def _log1p(x, n, y):
    return [mp.log1p(x), *_log(1 + x, n, y)[1:]]


def _power(x, n, y):
    return [mpmath.binomial(y, k) * x ** (y - k) for k in range(n + 1)]


def _multiplied(a, b):
    return [sum(a[i] * b[k - i] for i in range(k + 1)) for k in range(len(a))]


def inverse_series(a: list[mpf]) -> list[mpf]:
    """Coefficients of 1 / a."""
    out = [1 / a[0]]
    for k in range(1, len(a)):
        out.append(-sum(a[j] * out[k - j] for j in range(1, k + 1)) / a[0])
    return out


def _integrated(value, slopes, n):
    """The series with this value whose derivative has the coefficients `slopes`."""
    return [value, *(slopes[k - 1] / k for k in range(1, n + 1))]


def _sigmoid(x, n, y):
    e = _exp(-x, n, y)
    return inverse_series([1 + e[0], *((-1) ** k * e[k] for k in range(1, n + 1))])


def _softplus(x, n, y):
    return _integrated(mp.log1p(mp.exp(x)), _sigmoid(x, n, y), n)


def _log1mexp(x, n, y):
    e = _exp(-x, n, y)  # the derivative is -1 / (e^-x - 1)
    slopes = inverse_series([mp.expm1(-x), *((-1) ** k * e[k] for k in range(1, n + 1))])
    return _integrated(mp.log(-mp.expm1(x)), [-s for s in slopes], n)


def _gammaln(x, n, y):
    return [mp.loggamma(x), *(mp.psi(k - 1, x) / math.factorial(k) for k in range(1, n + 1))]


def _digamma(x, n, y):
    return [mp.psi(k, x) / math.factorial(k) for k in range(n + 1)]


def _rising(x, n, y):
    return [a - b for a, b in zip(_gammaln(x + y, n, y), _gammaln(x, n, y), strict=True)]


def _rising_exp(x, n, y):
    if y == 1:
        return [x, mpf(1), *[mpf(0)] * (n - 1)]
    with mp.workdps(_DIGITS + int(n * abs(x))):
        return _composed_with_exp(_rising(mp.exp(x), n, y), [mpf(0), *_exp(x, n, y)[1:]])


def _composed_with_exp(by_exp, e):
    n = len(e) - 1
    out, power = [by_exp[0], *[mpf(0)] * n], [mpf(1), *[mpf(0)] * n]
    for c in by_exp[1:]:
        power = _multiplied(power, e)
        out = [a + c * b for a, b in zip(out, power, strict=True)]
    return out


def _gaussian(x, n, scale):
    """Coefficients of exp(-scale x^2)."""
    out = [mp.exp(-scale * x * x)]
    for k in range(n):
        out.append(-2 * scale * (x * out[k] + (out[k - 1] if k else 0)) / (k + 1))
    return out


def _erf(x, n, y):
    return _integrated(mp.erf(x), [2 / mp.sqrt(mp.pi) * g for g in _gaussian(x, n, 1)], n)


def _erfc(x, n, y):
    return [mp.erfc(x), *(-c for c in _erf(x, n, y)[1:])]


def _erfcx(x, n, y):
    with mp.workdps(_DIGITS + int(3 + 2 * n * mp.log10(abs(x) + 2))):
        out = [mp.erfc(x) * mp.exp(x * x)]
        for k in range(n):
            out.append(2 * (x * out[k] + (out[k - 1] if k else -1 / mp.sqrt(mp.pi))) / (k + 1))
        return out


def _log_ndtr(x, n, y):
    with mp.workdps(_DIGITS + int(3 + 2 * n * mp.log10(abs(x) + 2))):
        tail = mp.erfc(-x / mp.sqrt(2)) / 2
        density = [g / mp.sqrt(2 * mp.pi) for g in _gaussian(x, n - 1, mpf(1) / 2)]
        below = _integrated(tail, density, n)
        inverse = inverse_series(below)
        slopes = _multiplied([k * c for k, c in enumerate(below)][1:], inverse[:-1])
        value = mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2) if x > 0 else mp.log(tail)
        return _integrated(value, slopes, n)


def taylor_of_two(s: float, w: float, n: int) -> dict[tuple[int, int], mpf]:
    """Derivatives of log(Phi(s + w) - Phi(s)) by both, divided by factorials."""
    with mp.workdps(_DIGITS + int(n * (abs(mp.log10(w)) + 2 * mp.log10(abs(s) + w + 2)))):
        s, w = mpf(s), mpf(w)
        lower, upper = (_gaussian(x, n, mpf(1) / 2) for x in (s, s + w))
        value = log_ndtr_between(s, w)
        share = {(0, 0): mp.exp(value) * mp.sqrt(2 * mp.pi)}
        found = {(0, 0): value}
        for i, j in multi_indices(2, n)[1:]:
            k, by = i + j, 0 if i else 1
            share[i, j] = (mp.binomial(k, j) * upper[k - 1] - (lower[k - 1] if j == 0 else 0)) / k
            # The derivative of the share by one of both is the share times that of its logarithm.
            below = [(a, b) for a, b in found if a <= i and b <= j]
            rest = sum(one[by] * found[one] * share[i - one[0], j - one[1]] for one in below)
            found[i, j] = (share[i, j] - rest / (i, j)[by]) / share[0, 0]
        return found


def _sin(x, n, y):
    return [mp.sin(x + k * mp.pi / 2) / math.factorial(k) for k in range(n + 1)]


def _cos(x, n, y):
    return _sin(x + mp.pi / 2, n, y)


def _arctan(x, n, y):
    slopes = inverse_series([1 + x * x, 2 * x, mpf(1), *[mpf(0)] * n][: n + 1])
    return _integrated(mp.atan(x), slopes, n)


_SERIES = {
    "exp": _exp,
    "log": _log,
    "log1p": _log1p,
    "reciprocal": lambda x, n, y: _power(x, n, mpf(-1)),
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "log1mexp": _log1mexp,
    "gammaln": _gammaln,
    "digamma": _digamma,
    "erf": _erf,
    "erfc": _erfc,
    "erfcx": _erfcx,
    "log_ndtr": _log_ndtr,
    "sin": _sin,
    "cos": _cos,
    "arctan": _arctan,
    "rising": _rising,
    "rising_exp": _rising_exp,
    "power": _power,
}
