"""The proposal of theta: t-distributed normal scores with the correlation of the fitted law, or walks.

zeta_j = mean_j + spread_j T_j(s_j), where T_j is a piecewise linear table: s is nearly N(0, K) where zeta
has its fitted law, whose scales may have long tails near zero. zeta is theta, but for elements of Cholesky
factors, whose size follows the scale of their row: see `Law`.
"""

import math

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.fields.records import Law
from pymc_austerity.proposals.deviations import Deviations
from pymc_austerity.proposals.jumps import cholesky, solve, solve_transposed
from pymc_austerity.target import Index, Matrix, Vector

# Knots are equidistant in scores; beyond the last ones the straight lines go on.
LAST, N_KNOTS = 6.0, 49
_SPACING = 2.0 * LAST / (N_KNOTS - 1)
_DOF = 10.0
# Coordinates that are moved together, at most.
MOST_TOGETHER = 6


@jitable
def propose(
    rng: np.random.Generator,
    law: Law,
    walks: float,
    theta: Vector,
    result: Vector,
    deviations: Deviations,
) -> float:
    """Write a new theta, a share of times by a walk; the log of its ratio of densities, back over forth.

    The deviations of its scores are written to those of theta.
    """
    result[:] = theta
    if law.which.shape[0] == 0:
        return 0.0
    q = law.which.shape[0]
    old, new = np.empty(q), np.empty(q)
    for j in range(q):
        old[j] = new[j] = theta[law.which[j]]
    ratio = -to_zeta(law, old)
    ratio += _propose_zeta(rng, law, walks, old, new, deviations.latest)
    ratio += to_theta(law, new)
    for j in range(q):
        result[law.which[j]] = new[j]
    return ratio


@jitable
def to_zeta(law: Law, theta: Vector) -> float:
    """Write zeta over theta, of what moves; the log of the determinant of d theta / d zeta."""
    total = 0.0
    for j in range(theta.shape[0]):  # units are on their own scale, so that the order does not matter
        if law.units[j] >= 0:
            total += theta[law.units[j]]
            theta[j] *= math.exp(-theta[law.units[j]])
    return total


@jitable
def to_theta(law: Law, zeta: Vector) -> float:
    """Write theta over zeta; the log of the determinant of d theta / d zeta."""
    total = 0.0
    for j in range(zeta.shape[0]):
        if law.units[j] >= 0:
            total += zeta[law.units[j]]
            zeta[j] *= math.exp(zeta[law.units[j]])
    return total


@jitable
def _propose_zeta(
    rng: np.random.Generator, law: Law, walks: float, zeta: Vector, result: Vector, latest: Matrix
) -> float:
    """Write a new zeta; the log of its ratio of densities, back over forth."""
    q = zeta.shape[0]
    some = _some(rng, q)
    result[:] = zeta
    kind = rng.random()
    if kind < walks:
        step = 2.0 / math.sqrt(2.0 * rng.standard_gamma(1.0))
        if kind < 0.5 * walks:  # along one coordinate
            j = some[rng.integers(0, some.shape[0])]
            result[j] += step * rng.standard_normal() * law.spread[j]
        else:
            for j in some:
                result[j] += 0.7 * step * rng.standard_normal() * law.spread[j] / math.sqrt(some.shape[0])
        return 0.0
    old, new = np.empty(q), np.empty(q)
    ratio = 0.0
    for j in range(q):
        old[j], slope = score(law, j, zeta[j])
        ratio -= math.log(slope)
        new[j] = old[j]
    _write_scores(rng, law, some, old, new, latest)
    ratio += log_t(law, old) - log_t(law, new)
    for j in range(q):
        value, slope = from_score(law, j, new[j])
        ratio += math.log(slope)
        result[j] = zeta[j] if new[j] == old[j] else value  # rounding must not move it
    return ratio


@jitable
def _some(rng: np.random.Generator, q: int) -> Index:
    """Coordinates that are moved together: all, or a random few."""
    every = np.arange(q)
    if q <= MOST_TOGETHER:
        return every
    for k in range(MOST_TOGETHER):
        j = rng.integers(k, q)
        every[k], every[j] = every[j], every[k]
    return every[:MOST_TOGETHER].copy()


@jitable
def _write_scores(
    rng: np.random.Generator, law: Law, some: Index, old: Vector, new: Vector, latest: Matrix
) -> None:
    """New scores given the others, t-distributed: the more these are from the middle, the wider."""
    m, q = some.shape[0], old.shape[0]
    precision = np.zeros((m, m))
    pull = np.zeros(m)
    for a in range(m):
        for k in range(q):
            total, is_own = 0.0, False
            for i in range(q):
                total += law.inverse[i, some[a]] * law.inverse[i, k]
            for b in range(m):
                if some[b] == k:
                    precision[a, b], is_own = total, True
            if not is_own:
                pull[a] -= total * old[k]
    lower, xi = cholesky(precision), np.empty(m)
    mean = solve_transposed(lower, solve(lower, pull))
    for a in range(m):
        new[some[a]] = mean[a]
        xi[a] = rng.standard_normal()
    dof = _DOF + q - m
    width = _DOF + _distance(law, new)
    stretch = math.sqrt(width / (2.0 * rng.standard_gamma(0.5 * dof)))
    move = solve_transposed(lower, xi)
    for a in range(m):
        own, j = stretch * move[a], law.which[some[a]]
        new[some[a]] += own
        xi[:] = 0.0
        xi[a] = 1.0
        root = solve(lower, xi)
        latest[0, j], latest[1, j] = own, own * own - width / (dof - 2.0) * (root * root).sum()


@jitable
def _distance(law: Law, s: Vector) -> float:
    """The squared distance of scores from the middle, in standard deviations."""
    total = 0.0
    for j in range(s.shape[0]):
        w = 0.0
        for k in range(j + 1):
            w += law.inverse[j, k] * s[k]
        total += w * w
    return total


@jitable
def log_t(law: Law, s: Vector) -> float:
    """Log density of scores, but for a constant."""
    found: float = -0.5 * (_DOF + s.shape[0]) * math.log1p(_distance(law, s) / _DOF)
    return found


@jitable
def score(law: Law, j: int, value: float) -> tuple[float, float]:
    """The score of theta_j, and the slope of theta_j by it."""
    x, low, high = (value - law.mean[j]) / law.spread[j], 0, N_KNOTS - 1
    while high - low > 1:
        middle = (low + high) // 2
        if law.knots[j, middle] <= x:
            low = middle
        else:
            high = middle
    first = law.knots[j, low]
    slope = (law.knots[j, low + 1] - first) / _SPACING
    return low * _SPACING - LAST + (x - first) / slope, slope * law.spread[j]


@jitable
def from_score(law: Law, j: int, s: float) -> tuple[float, float]:
    """Theta_j of a score, and the slope of theta_j by it."""
    k = int(min(max((s + LAST) / _SPACING, 0.0), N_KNOTS - 2.0))
    first = law.knots[j, k]
    slope = (law.knots[j, k + 1] - first) / _SPACING
    return law.mean[j] + law.spread[j] * (first + slope * (s + LAST - k * _SPACING)), slope * law.spread[j]
