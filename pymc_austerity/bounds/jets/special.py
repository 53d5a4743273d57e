"""Special functions that numba does not have, accurate to some 1e-14.

*Derivatives of log Gamma* are -psi(x) = zeta(1, x), without its pole, and (-1)^k (k - 1)! zeta(k, x), with
Hurwitz's zeta by Euler and Maclaurin: terms are summed until x + i is 15 or more, then

    zeta(s, x) = x^(1 - s) / (s - 1) + x^-s / 2 + sum over j of B_2j / (2j)! (s)_(2j - 1) x^(1 - s - 2j),

whose error is below the first term that is left out. For s = 1 the first term is -log(x).

*erfcx(x)* = exp(x^2) erfc(x); an asymptotic series from 25 on, where erfc underflows.
"""

from __future__ import annotations

import math

from numba import njit

from pymc_austerity.target import Vector

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
_SQRT_PI = math.sqrt(math.pi)
# Where erfcx is taken from its series, and below which exp(x^2) overflows.
_SERIES_FROM, _OVERFLOW_BELOW = 25.0, -26.6


@njit(cache=True, error_model="numpy")
def log_gamma_derivatives(x: float, n: int, out: Vector) -> None:
    """Derivatives k = 0..n of log Gamma, divided by k!, for x > 0: (-1)^k zeta(k, x) / k from k = 2 on."""
    out[0] = math.lgamma(x)
    out[1 : n + 1] = 0.0
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
    sign = -1.0
    for k in range(1, n + 1):
        out[k] *= sign / k
        sign = -sign


@njit(cache=True, error_model="numpy")
def erfcx(x: float) -> float:
    """exp(x^2) erfc(x)."""
    if x < _OVERFLOW_BELOW:
        return math.inf
    if x < _SERIES_FROM:
        return math.exp(x * x) * math.erfc(x)
    inverse = 0.5 / (x * x)
    series = 1.0 - inverse * (1.0 - 3.0 * inverse * (1.0 - 5.0 * inverse * (1.0 - 7.0 * inverse)))
    return series / (x * _SQRT_PI)
