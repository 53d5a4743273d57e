"""g(s, w) = log(Phi(s + w) - Phi(s)) for w > 0: ranges of its derivatives by both over a box.

Of a standard normal X between s and s + w, T = X - s has a density f(t) = exp(-s t - t^2 / 2) / F on [0, w].
With a = f(w), b = f(0), the mean mu of T, its variance v and cumulants k_j, and delta = w - mu,

    g_s = -(s + mu),  g_ss = v - 1,  derivative j >= 3 by s is (-1)^j k_j,  g_w = a,
    a_s = -delta a,  delta_s = v,  v_s = -k_3,  a_w = -(delta + b) a,
    (delta + b)_s = 1 + a_s = v + mu b,  (delta + b)_w = 1 + a_w = v + mu b - a b,

and the others follow by the product rule. At a point, moments are integrals by the rule of Gauss and Legendre
over the t at which f is above e^-50 of its peak.

*Ranges.* As f is log-concave, v <= min(delta, mu)^2, delta a <= 1 and 0 <= (delta + b) a <= 1 + 1 / w^2. So a
falls in s and in w; b rises in s and falls in w; mu falls in s and rises in w; delta and s + mu rise in both;
g and v rise in w, and in s up to -w / 2, from where they fall. Their ranges are those of corners. T is skew
to the right where s + w / 2 > 0, and else to the left.

*Cumulants.* |k_3| <= 2 v^(3/2) (Bubeck and Eldan 2014). As v <= V = min(1, w^2 / 12) for every s, the
function that generates cumulants is regular within r = (2 / V)^(1/2) of the line, where its real part grows
by at most V r^2 / 2: |k_j| <= j! r^(2 - j) V (Borel and Caratheodory). Where s > 0, v < 1 / s^2, too, and
the same holds for r = 0.58 s with V = 5.7 / s^2. For w > 14 the end that is farther away, or both, are seven
or more from the mode, and change nothing that counts. So |k_3|, |k_4| and |k_5| have to be looked for in
-w / 2 < s < 6 and 1.4 < w < 14 only, where boxes of this file, which know no more than the above, show that
they are below 0.3, 0.4 and 0.6 (a test of full size). On a grid they reach 0.296, 0.38 and 0.42.
"""

import math

import numpy as np

from pymc_austerity.bounds.jets.compiled import inner
from pymc_austerity.target import Array, Vector

# Nodes and weights, and up to which exponent few are enough.
_FEW, _MANY = (np.array(np.polynomial.legendre.leggauss(n)) for n in (24, 48))
_SMALL, _EXPONENT = 8.0, 50.0
_FARTHEST = 1e100  # squares must not overflow
_EPS, _TINY = 2.0**-52, 1e-300
_INTEGRAL = 1e-12  # relative errors of integrals
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_FACTORIALS = np.array([math.factorial(k) for k in range(7)], dtype=np.float64)
_MOST_K3, _MOST_K4, _MOST_K5 = 0.3, 0.4, 0.6
# What is known at a point: g, s + mu, a, b, mu, delta, v, and cumulants from k_3 to k_5.
_G, _MEAN, _A, _B, _MU, _DELTA, _V, _K3 = range(8)
_KNOWN = _K3 + 3


@inner
def between_derivatives(
    s: float, w: float, s_reach: float, w_reach: float, n: int, middle: Vector, radius: Vector
) -> None:
    """Midpoints and radii of derivatives to order n, divided by factorials, over s +- s_reach, w +- w_reach.

    They are in the order of `tape.multi_indices`. Nothing is known where w may be zero, or very far out.
    """
    for place in range((n + 1) * (n + 2) // 2):
        middle[place], radius[place] = 0.0, math.inf
    s_low, s_high, w_low, w_high = s - s_reach, s + s_reach, w - w_reach, w + w_reach
    if not (w_low > 0.0 and w_high < _FARTHEST and abs(s) + s_reach < _FARTHEST):
        return
    low, high = np.full(_KNOWN, math.inf), np.full(_KNOWN, -math.inf)
    for i in range(2 if s_reach > 0.0 else 1):
        for j in range(2 if w_reach > 0.0 else 1):
            _include(s_high if i else s_low, w_high if j else w_low, low, high)
    if s_low < -0.5 * w_high < s_high:
        _include(-0.5 * w_high, w_high, low, high)
    for k in range(_A, _V + 1):
        low[k] = max(low[k], 0.0)
    # Taylor coefficients, their lower and upper ends: of a, of delta by s alone, and of delta + b.
    coefficients = np.zeros((3, 2, n + 1, n + 1))
    a, delta, outer = coefficients[0], coefficients[1], coefficients[2]
    _set(a, 0, 0, low[_A], high[_A])
    _set(delta, 0, 0, low[_DELTA], high[_DELTA])
    _set(outer, 0, 0, low[_DELTA] + low[_B], high[_DELTA] + high[_B])
    if n > 1:
        _set(delta, 1, 0, low[_V], high[_V])
        _set(outer, 1, 0, low[_V] + low[_MU] * low[_B], high[_V] + high[_MU] * high[_B])
        _set(outer, 0, 1, outer[0, 1, 0] - high[_A] * high[_B], outer[1, 1, 0] - low[_A] * low[_B])
    least, largest, most = np.empty(6), np.empty(6), _largest_cumulants(w_high, high[_V])
    # First by these alone, then by those at the corners, too.
    for is_last in (False, True):
        for k in range(3, n + 1):
            least[k], largest[k] = -most[k], most[k]
            if k == 3 and s_low + 0.5 * w_low >= 0.0:
                least[k] = 0.0
            if k == 3 and s_high + 0.5 * w_high <= 0.0:
                largest[k] = 0.0
            slack = s_reach * most[k + 1] + w_reach * _FACTORIALS[k] * max(-a[0, k, 0], a[1, k, 0])
            if is_last and slack < math.inf:
                at = _K3 + k - 3
                least[k], largest[k] = max(least[k], low[at] - slack), min(largest[k], high[at] + slack)
            factor = (1.0 if k % 2 == 0 else -1.0) / _FACTORIALS[k - 1]
            ends = least[k] * factor, largest[k] * factor
            _set(delta, k - 1, 0, min(ends), max(ends))
        for i in range(n):
            _set_product(a, i + 1, 0, delta, i, 0, 1.0 / (i + 1.0))
            if i == 0:
                _clip(a, 1, 0, -1.0, 0.0)
            elif i == 1:
                _clip(a, 2, 0, 0.0, 0.5 * high[_DELTA])
    for i in range(2, n):
        outer[0, i, 0], outer[1, i, 0] = a[0, i, 0], a[1, i, 0]
    for j in range(n - 1):
        for i in range(n - 1 - j):
            _set_product(a, i, j + 1, outer, i, j, 1.0 / (j + 1.0))
            if i + j == 0:
                _clip(a, 0, 1, -1.0 - 1.0 / (w_low * w_low), 0.0)
            else:
                outer[0, i, j + 1], outer[1, i, j + 1] = a[0, i, j + 1], a[1, i, j + 1]
    found = np.empty((2, 1, 1))
    for degree in range(n + 1):
        for j in range(degree + 1):
            i = degree - j
            if j > 0:
                _set(found, 0, 0, a[0, i, j - 1] / j, a[1, i, j - 1] / j)
            elif degree == 0:
                _set(found, 0, 0, low[_G], high[_G])
            elif degree == 1:
                _set(found, 0, 0, -high[_MEAN], -low[_MEAN])
            elif degree == 2:
                _set(found, 0, 0, 0.5 * low[_V] - 0.5, min(0.5 * high[_V] - 0.5, 0.0))
            else:
                sign = 1.0 if degree % 2 == 0 else -1.0
                ends = (
                    sign * least[degree] / _FACTORIALS[degree],
                    sign * largest[degree] / _FACTORIALS[degree],
                )
                _set(found, 0, 0, min(ends), max(ends))
            place, size = degree * (degree + 1) // 2 + j, found[1, 0, 0] - found[0, 0, 0]
            if 0.0 <= size < math.inf:
                middle[place] = 0.5 * found[0, 0, 0] + 0.5 * found[1, 0, 0]
                radius[place] = 0.5 * size + 4.0 * _EPS * (abs(middle[place]) + size) + _TINY


@inner
def _largest_cumulants(w: float, v: float) -> Vector:
    """Bounds of |k_3| to |k_6| for widths up to w, and variances up to v."""
    top = min(1.0, w * w / 12.0) * (1.0 + 1e-12)
    found = np.empty(7)
    for k in range(3, 7):
        found[k] = 2.0 * _FACTORIALS[k] * (0.5 * top) ** (0.5 * k)
    found[3] = min(_MOST_K3, 2.0 * v * math.sqrt(v) * (1.0 + 1e-12))
    found[4], found[5] = min(found[4], _MOST_K4), min(found[5], _MOST_K5)
    return found


@inner
def _include(s: float, w: float, low: Vector, high: Vector) -> None:
    """Enlarge ranges by what is known at a point, and its errors."""
    is_mirrored = s < -0.5 * w  # so that the peak is in the lower half
    at = -(s + w) if is_mirrored else s
    peak, slope = max(-at, 0.0), max(at, 0.0)
    rest = w - peak
    left = -min(peak, math.sqrt(2.0 * _EXPONENT))
    right = min(rest, 2.0 * _EXPONENT / (slope + math.sqrt(slope * slope + 2.0 * _EXPONENT)))
    half, center = 0.5 * (right - left), 0.5 * (right + left)
    falls = max(right * (slope + 0.5 * right), 0.5 * left * left)
    rule = _FEW if falls < _SMALL else _MANY
    p, total, mean = np.empty(rule.shape[1]), 0.0, 0.0
    for i in range(rule.shape[1]):
        y = center + half * rule[0, i]
        p[i] = rule[1, i] * math.exp(-y * (slope + 0.5 * y))
        total += p[i]
        mean += p[i] * y
    mean /= total
    v, third, fourth, fifth, size, more = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(rule.shape[1]):
        u = center - mean + half * rule[0, i]
        square = u * u * p[i] / total
        v += square
        third += square * u
        size += square * abs(u)
        fourth += square * u * u
        fifth += square * u * u * u
        more += square * u * u * abs(u)
    integral, down, up = half * total, rest * (slope + 0.5 * rest), 0.5 * peak * peak
    end, start = math.exp(-down) / integral, math.exp(-up) / integral
    end_error, start_error = (_INTEGRAL + 8.0 * _EPS * down) * end, (_INTEGRAL + 8.0 * _EPS * up) * start
    sign = -1.0 if is_mirrored else 1.0
    if is_mirrored:
        end, start, end_error, start_error = start, end, start_error, end_error
    value = math.log(integral) - 0.5 * slope * slope - _HALF_LOG_TWO_PI
    lower, upper = peak + mean, rest - mean
    _take(low, high, _G, value, _INTEGRAL * (1.0 + abs(value)))
    _take(low, high, _MEAN, sign * (slope + mean), _INTEGRAL * (slope + mean + min(w, 1.0)))
    _take(low, high, _A, end, end_error)
    _take(low, high, _B, start, start_error)
    _take(low, high, _MU, upper if is_mirrored else lower, _INTEGRAL * (upper if is_mirrored else lower))
    _take(low, high, _DELTA, lower if is_mirrored else upper, _INTEGRAL * (lower if is_mirrored else upper))
    _take(low, high, _V, v, _INTEGRAL * v)
    _take(low, high, _K3, sign * third, _INTEGRAL * size)
    _take(low, high, _K3 + 1, fourth - 3.0 * v * v, _INTEGRAL * (fourth + 3.0 * v * v))
    _take(low, high, _K3 + 2, sign * (fifth - 10.0 * third * v), _INTEGRAL * (more + 10.0 * size * v))


@inner
def _take(low: Vector, high: Vector, which: int, value: float, error: float) -> None:
    if abs(value) + error < math.inf:
        low[which] = min(low[which], value - error - _TINY)
        high[which] = max(high[which], value + error + _TINY)
    else:
        low[which], high[which] = -math.inf, math.inf


@inner
def _set(x: Array, i: int, j: int, low: float, high: float) -> None:
    """Write a coefficient, with an allowance for the rounding of its ends."""
    x[0, i, j], x[1, i, j] = low - 4.0 * _EPS * abs(low), high + 4.0 * _EPS * abs(high)


@inner
def _clip(x: Array, i: int, j: int, low: float, high: float) -> None:
    x[0, i, j], x[1, i, j] = max(x[0, i, j], low), min(x[1, i, j], high)


@inner
def _set_product(a: Array, i: int, j: int, rate: Array, k: int, m: int, factor: float) -> None:
    """Write a coefficient of a as -factor times coefficient (k, m) of the product of a and its rate."""
    least, largest, size = 0.0, 0.0, 0.0
    for p in range(k + 1):
        for q in range(m + 1):
            x, y = rate[0, p, q], rate[1, p, q]
            z, t = a[0, k - p, m - q], a[1, k - p, m - q]
            one, two, three, four = x * z, x * t, y * z, y * t
            least += min(min(one, two), min(three, four))
            largest += max(max(one, two), max(three, four))
            size += abs(one) + abs(two) + abs(three) + abs(four)
    if size < math.inf:
        rounding = 32.0 * _EPS * size
        a[0, i, j], a[1, i, j] = -factor * (largest + rounding), -factor * (least - rounding)
    else:
        a[0, i, j], a[1, i, j] = -math.inf, math.inf
