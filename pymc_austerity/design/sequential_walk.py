r"""How often the sequential test errs and how much it reads, by quadrature.

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
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, roots_legendre

from pymc_austerity.target import Array

# Standard deviations beyond which a normal distribution has no mass (2e-17).
_REACH = 8.5
# Probability below which a path counts as stopped.
_NOTHING = 1e-17
# Nodes: at least, and for each unit of length over the scale of the integrand.
_LEAST, _DENSITY = 16, 3.0
# Rows of a matrix that are computed at once.
_BLOCK, _CHUNK = 64, 2048
MOST_STAGES = 20_000


class OperatingCharacteristics(NamedTuple):
    """Error and data usage of a sequential test for each mu_std, the drift.

    Attributes
    ----------
    error : ndarray of shape (M,)
        Probability of stopping on the wrong side.
    data_usage : ndarray of shape (M,)
        Expected share of the terms that are read.
    """

    error: Array
    data_usage: Array


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


def operating_characteristics(
    mu_std: Array, pi_1: float, epsilon: float, boundary: float
) -> OperatingCharacteristics:
    """Error and data usage of the z-test with bounds G_j = Phi^-1(1 - epsilon) pi_j^(1/2 - boundary).

    Parameters
    ----------
    mu_std : ndarray of shape (M,)
        The drift, not negative.
    pi_1 : float in (0, 1]
    epsilon : float in [0, 0.5]
    boundary : float in [0.5, 1]

    Returns
    -------
    OperatingCharacteristics
    """
    shares = stage_shares(pi_1)
    wrong, used = np.zeros(len(mu_std)), np.full(len(mu_std), shares[0])
    if len(shares) == 1 or epsilon == 0.0:
        return OperatingCharacteristics(wrong, np.ones(len(mu_std)))
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
            survival = _survival(np.append(inner[half:], outer), r, s, nodes, masses)
            nodes = inner
            masses = weights * np.append(survival[:half][::-1], survival[:half])
            wrong[alive] += _density_sum(-mean, outer, outer_weights * survival[half:])
            within = _density_sum(mean, nodes, masses)
        used[alive] += (shares[j + 1] - shares[j]) * within
        alive = alive[within > _NOTHING]
        if not alive.size:
            break
    return OperatingCharacteristics(wrong, np.clip(used, shares[0], 1.0))


def _survival(z: Array, r: float, s: float, nodes: Array, masses: Array) -> Array:
    """One step of the recursion, at increasing z; nodes too far to matter are left out."""
    found = np.empty(len(z))
    for begin in range(0, len(z), _BLOCK):
        center = r * z[begin : begin + _BLOCK]
        low, high = np.searchsorted(nodes, (center[0] - _REACH * s, center[-1] + _REACH * s))
        away = (nodes[low:high] - center[:, None]) / s
        found[begin : begin + _BLOCK] = np.exp(-0.5 * away**2) @ masses[low:high]
    return found / (s * math.sqrt(2.0 * math.pi))


def _density_sum(mean: Array, nodes: Array, masses: Array) -> Array:
    """Sums over nodes of masses * phi(node - mean), for each mean."""
    found = np.empty(len(mean))
    for begin in range(0, len(mean), _CHUNK):
        away = nodes - mean[begin : begin + _CHUNK, None]
        found[begin : begin + _CHUNK] = np.exp(-0.5 * away**2) @ masses
    return found / math.sqrt(2.0 * math.pi)


def _rule(low: float, high: float, scale: float) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on (low, high) for functions that change over `scale`."""
    half = 0.5 * (high - low)
    x, weights = _legendre(_LEAST + _DENSITY * half / scale)
    return low + half * (1.0 + x), half * weights


def _legendre(size: float) -> tuple[Array, Array]:
    # Few different sizes, so that most are at hand; even, so that no node is its own mirror image.
    return _even_legendre(2 * math.ceil(0.5 * 1.1 ** math.ceil(math.log(size, 1.1))))


@lru_cache(maxsize=128)
def _even_legendre(size: int) -> tuple[Array, Array]:
    x, weights = roots_legendre(size)
    return np.asarray(x, dtype=np.float64), np.asarray(weights, dtype=np.float64)
