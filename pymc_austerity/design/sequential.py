r"""Error and data usage of one sequential test, by quadrature.

After a share pi of the terms, tau = pi / (1 - pi), the statistic (mean - psi) / (its standard error) is
z = W(tau) / sqrt(tau), with W a Brownian motion of drift mu_std (equations 10 to 12 of Korattikara et al.
2014 in other words). The test stops at the first stage j at which \|z\| exceeds G_j, or else at the last
stage, where all terms are read and the decision is exact.

Given where W is at tau_j, the path before does not depend on the drift: it is a Brownian bridge. So let
survival_j(z) be the probability that a bridge to z at stage j has stayed within the bounds at stages 1 to
j - 1. It is 1 at stage 1, and

    survival_j(z) = int_{-G_{j-1}}^{G_{j-1}} survival_{j-1}(y) N(y; r z, 1 - r^2) dy,

with r^2 = tau_{j-1} / tau_j. One pass over the stages with this recursion serves every drift: with
a = mu_std sqrt(tau_j), the density of z at stage j, of paths that are still on their way, is
survival_j(z) phi(z - a). Unlike the density of W itself, survival_j lies in [0, 1] for any bounds and drift.

Where both are wanted at many drifts, as in averages over moves, they are interpolated (`LawCurves`).
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev
from scipy.special import ndtr, ndtri, roots_legendre

from pymc_austerity.design.checks import as_given, numbers
from pymc_austerity.target import Array

# Standard deviations beyond which a normal distribution has no mass (2e-17).
_REACH = 8.5
# Probability below which a path counts as stopped.
_NOTHING = 1e-17
# Nodes: at least, and for each unit of length over the scale of the integrand.
_LEAST, _DENSITY = 16, 3.0
# Rows of a matrix that are computed at once.
_BLOCK = 64
MOST_STAGES = 20_000
# Sizes of the polynomials to try, and the size of the last coefficients at which one is good enough.
_SIZES, _TAIL = (136, 272, 544, 1088, 2176), 1e-11
# Beyond the first bound by so many standard deviations no test stops on the wrong side, or goes on.
_CERTAIN = 8.5


def error(
    mu_std: npt.ArrayLike, pi_1: npt.ArrayLike, epsilon: npt.ArrayLike, *, boundary: npt.ArrayLike = 0.5
) -> float | Array:
    r"""Probability that a sequential test decides wrongly.

    Parameters
    ----------
    mu_std : float or array_like
        Standardised distance of the mean from the threshold, (mean - psi) sqrt(N - 1) / sigma, with sigma the
        standard deviation of all N terms (divisor N). May be infinite.
    pi_1 : float or array_like in [5e-5, 1]
        Share of the data in a batch, batch_size / N.
    epsilon : float or array_like in [0, 0.5]
        Tolerance of a single look at the data. At 0 the test is exact.
    boundary : float or array_like in [0.5, 1], default 0.5
        Shape of the stopping boundary, as of `TTest`: 0.5 is Pocock's, 1 is O'Brien and Fleming's.

    Returns
    -------
    float or ndarray
        In [0, 0.5]; a float if all parameters are numbers, otherwise of their broadcast shape.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Equation 21 of Korattikara et al. (2014) with its errata: at stage j the test stops if the z-statistic is
    beyond G_j = Phi^-1(1 - epsilon) pi_j^(1/2 - boundary); the last stage reads all terms and is exact. For
    mu_std >= 0 this is the probability of deciding mean < psi, for mu_std < 0 that of deciding mean > psi. At
    mu_std = 0 it is half the probability of stopping early, the limit from both sides and the largest value.
    By quadrature, to 1e-9; the work grows with the square of the number of stages.

    *Guarantee*: exact for means of batches that are normal with known variance.

    *When it fails*: where a batch is too small for the central limit theorem, as with skewed or heavy-tailed
    terms, real errors may be far larger. See `pymc_austerity.diagnostics.normality`.

    References
    ----------
    .. [1] Korattikara, A., Chen, Y. & Welling, M. (2014). Austerity in MCMC land: cutting the
       Metropolis-Hastings budget. ICML.
    .. [2] Wang, S. K. & Tsiatis, A. A. (1987). Approximately optimal one-parameter boundaries for group
       sequential trials. Biometrics 43.

    Examples
    --------
    Ten thousand terms in batches of 500. At the threshold a tolerance of .01 for each look becomes an error
    of .08 for the test:

    >>> from pymc_austerity.design import error
    >>> round(error(0.0, 500 / 10_000, 0.01), 4)
    0.0838
    >>> error([0.0, 1.0, 4.0], 500 / 10_000, 0.01).round(4)
    array([0.0838, 0.0141, 0.0007])
    """
    return _broadcast(mu_std, pi_1, epsilon, boundary)[0]


def data_usage(
    mu_std: npt.ArrayLike, pi_1: npt.ArrayLike, epsilon: npt.ArrayLike, *, boundary: npt.ArrayLike = 0.5
) -> float | Array:
    """Expected share of the data that a sequential test reads.

    Parameters
    ----------
    mu_std, pi_1, epsilon, boundary
        As of `error`.

    Returns
    -------
    float or ndarray
        In [pi_1, 1]; a float if all parameters are numbers, otherwise of their broadcast shape.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Equation 22 of Korattikara et al. (2014), as `error`. Guarantee and failures are those of `error`.

    Examples
    --------
    >>> from pymc_austerity.design import data_usage
    >>> data_usage([0.0, 1.0, 4.0], 500 / 10_000, 0.01).round(4)
    array([0.9073, 0.7228, 0.2595])
    """
    return _broadcast(mu_std, pi_1, epsilon, boundary)[1]


def _broadcast(mu_std: Any, pi_1: Any, epsilon: Any, boundary: Any) -> tuple[float | Array, float | Array]:
    """Error and data usage in the shape of all arguments, with one pass for each distinct test."""
    given = {"mu_std": mu_std, "pi_1": pi_1, "epsilon": epsilon, "boundary": boundary}
    away, *tests = np.broadcast_arrays(*(numbers(*each) for each in given.items()))
    wrong, used = np.empty(away.shape), np.empty(away.shape)
    for test in np.unique(np.stack(tests).reshape(3, -1), axis=1).T:
        rows = np.all([part == own for part, own in zip(tests, test, strict=True)], axis=0)
        wrong[rows], used[rows] = operating_characteristics(np.abs(away[rows]), *map(float, test))
    return as_given(wrong), as_given(used)


def operating_characteristics(
    mu_std: Array, pi_1: float, epsilon: float, boundary: float
) -> tuple[Array, Array]:
    """Error and data usage of the z-test with bounds G_j = Phi^-1(1 - epsilon) pi_j^(1/2 - boundary).

    They are the probability of stopping on the wrong side, and the expected share of the terms that are read,
    for each drift mu_std, none of them negative.
    """
    shares = stage_shares(pi_1)
    wrong, used = np.zeros(len(mu_std)), np.full(len(mu_std), shares[0])
    if len(shares) == 1 or epsilon == 0.0:
        return wrong, np.ones(len(mu_std))
    bounds = -ndtri(epsilon) * shares[:-1] ** (0.5 - boundary)
    tau = shares[:-1] / (1.0 - shares[:-1])
    back = np.sqrt(np.append(tau[:-1] / tau[1:], 0.0))  # r of the step to the next stage
    spread = np.sqrt(1.0 - back**2)

    alive = np.arange(len(mu_std))
    nodes = masses = np.empty(0)  # of survival_j on (-G_j, G_j)
    for j, (bound, time) in enumerate(zip(bounds, tau, strict=True)):
        mean = mu_std[alive] * math.sqrt(time)
        if j == 0:
            wrong[alive] += ndtr(-bound - mean)
            within = ndtr(bound - mean) - ndtr(-bound - mean)
            scale = 1.0 / math.hypot(1.0, 1.0 / spread[0])
            nodes, masses = _rule(-bound, bound, scale)
        else:
            r, s = back[j - 1], spread[j - 1]
            # Beyond the first no path stops at this stage; beyond the second the drift, which is never
            # downwards, brings none.
            end = min((bounds[j - 1] + _REACH * s) / r, bound + _REACH)
            outer, outer_weights = _rule(bound, max(end, bound), 1.0 / math.hypot(1.0, r / s))
            scale = 1.0 / math.sqrt(1.0 + (r / s) ** 2 + 1.0 / spread[j] ** 2)
            inner, weights = _rule(-bound, bound, scale)
            half = len(inner) // 2  # survival_j is even
            survival = _normal_sums(r * np.append(inner[half:], outer), s, nodes, masses)
            nodes = inner
            masses = weights * np.append(survival[:half][::-1], survival[:half])
            wrong[alive] += _normal_sums(-mean, 1.0, outer, outer_weights * survival[half:])
            within = _normal_sums(mean, 1.0, nodes, masses)
        used[alive] += (shares[j + 1] - shares[j]) * within
        alive = alive[within > _NOTHING]
        if not alive.size:
            break
    return wrong, np.clip(used, shares[0], 1.0)


def _normal_sums(means: Array, s: float, nodes: Array, masses: Array) -> Array:
    """Sums of masses * N(nodes; mean, s^2), for each mean; nodes too far to matter are left out."""
    found = np.empty(len(means))
    for begin in range(0, len(means), _BLOCK):
        mean = means[begin : begin + _BLOCK]
        low, high = np.searchsorted(nodes, (mean.min() - _REACH * s, mean.max() + _REACH * s))
        away = (nodes[low:high] - mean[:, None]) / s
        found[begin : begin + _BLOCK] = np.exp(-0.5 * away**2) @ masses[low:high]
    return found / (s * math.sqrt(2.0 * math.pi))


_roots = lru_cache(maxsize=128)(roots_legendre)


def _rule(low: float, high: float, scale: float) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on (low, high) for functions that change over `scale`."""
    half = 0.5 * (high - low)
    size = _LEAST + _DENSITY * half / scale
    # Few different sizes, so that most are at hand; even, so that no node is its own mirror image.
    x, weights = _roots(2 * math.ceil(0.5 * 1.1 ** math.ceil(math.log(size, 1.1))))
    return low + half * (1.0 + x), half * weights


def stage_shares(pi_1: float) -> Array:
    """Shares of the data at the ends of the stages; the last is 1 exactly, and its batch may be short."""
    ratio = 1.0 / pi_1
    whole = round(ratio)
    # 1 / (m / N) may be off N / m by a rounding error; no other ratio is so near a whole number.
    count = whole if abs(ratio - whole) <= 1e-12 * ratio else math.ceil(ratio)
    if count > MOST_STAGES:
        raise ValueError(
            f"pi_1 must be at least {1 / MOST_STAGES:g}, got {pi_1!r}: the test may take {count:,} stages, "
            "and the distribution of so many is not computed. Use larger batches."
        )
    shares: Array = pi_1 * np.arange(1.0, count + 1.0)
    shares[-1] = 1.0
    return shares


class LawCurves:
    """Error and data usage of one test for any mu_std >= 0, interpolated from a few points, to 1e-9.

    Both change on many scales: near 0 on that of sqrt(pi_1), and up to some 10 / sqrt(pi_1), beyond which
    the first batch decides. In x = arcsinh(mu_std / sqrt(pi_1)) they are smooth functions on a short
    interval, for which Chebyshev polynomials converge fast.
    """

    def __init__(self, pi_1: float, epsilon: float, boundary: float) -> None:
        self.pi_1, self.reads_all = pi_1, pi_1 == 1.0 or epsilon == 0.0
        # In units of sqrt(pi_1); beyond `end` the first batch decides, and rightly.
        self.unit = math.sqrt(pi_1)
        self.end = 0.0
        if self.reads_all:
            return
        bound = float(-ndtri(epsilon)) * pi_1 ** (0.5 - boundary)
        self.end = (bound + _CERTAIN) * math.sqrt((1.0 - pi_1) / pi_1)
        self._top = math.asinh(self.end / self.unit)

        def law(x: Array) -> Any:
            mu_std = self.unit * np.sinh(0.5 * self._top * (1.0 + x))
            return np.stack(operating_characteristics(mu_std, pi_1, epsilon, boundary), axis=1)

        for size in _SIZES:
            coefficients = chebyshev.chebinterpolate(law, size - 1)
            if np.abs(coefficients[-8:]).max() < _TAIL:
                break
        size_of_rest = np.cumsum(np.abs(coefficients).max(axis=1)[::-1])[::-1]
        self._coefficients = coefficients[: max(1, int(np.sum(size_of_rest > _TAIL)))]

    def __call__(self, mu_std: Array) -> tuple[Array, Array]:
        """Error and data usage at `mu_std` >= 0, in its shape."""
        if self.reads_all:
            return np.zeros_like(mu_std), np.ones_like(mu_std)
        certain = mu_std >= self.end
        x = 2.0 * np.arcsinh(np.where(certain, self.end, mu_std) / self.unit) / self._top - 1.0
        wrong, used = chebyshev.chebval(x, self._coefficients)
        wrong, used = np.clip(wrong, 0.0, 0.5), np.clip(used, self.pi_1, 1.0)
        return np.where(certain, 0.0, wrong), np.where(certain, self.pi_1, used)
