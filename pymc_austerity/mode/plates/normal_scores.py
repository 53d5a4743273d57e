"""Marginal distributions of scales, as tables from normal scores.

The logarithm of a scale is far from normal where the scale may be zero: the likelihood has nothing to say
there, the density falls as slowly as the scale itself, and a normal proposal hardly reaches that tail and
hardly leaves it. So each coordinate of theta that is no coefficient is proposed as a monotone function of a
normal variable, which gives it the marginal distribution that Laplace's approximation of all others gives
along it. The function is a table, with straight lines between its knots. It is for proposals alone: with any
table the chain has the same stationary distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.interpolate import CubicSpline
from scipy.special import ndtri

from pymc_austerity.kernels.plates.scores import LAST, N_KNOTS
from pymc_austerity.target import Index, Vector

Matrix = npt.NDArray[np.float64]
Density = Callable[[Vector], tuple[float, Vector, Matrix]]

# Log density below its largest value at which a walk along a coordinate ends: beyond the last score.
_FALL = 0.5 * LAST**2 + 4.0
# First step of the walk in standard deviations, how much longer each next one is, and their number.
_STEP, _GROWTH, _MOST_STEPS = 0.4, 1.2, 24
# Where a coordinate is looked at first, in standard deviations: if its log marginal is that of a normal
# variable there, but for this, it needs no table.
_LOOK, _NORMAL = 3.0, 0.05
# Of a tail that is added: the log density falls by so much at least in a standard deviation; points in it.
_LEAST_RATE, _TAIL = 1.0, 8
# Points at which densities are added up.
_POINTS = 4001
# A table rises at least by this share of what it would for a normal variable.
_LEAST = 1e-3


def normal_scores(
    density: Density, mode: Vector, precision: Matrix, shift: Vector, hyper: Index
) -> npt.NDArray[np.float64]:
    """Tables of coordinates, in standard deviations from their fitted mean, at equidistant scores.

    Parameters
    ----------
    density : callable
        Log density of zeta with its gradient and Hessian.
    mode : ndarray (q,)
    precision : ndarray (q, q)
        At the mode.
    shift : ndarray (q,)
        From the mode to the fitted mean: the drift of the remainders.
    hyper : ndarray of int (k,)
        Coordinates that get a table.

    Returns
    -------
    ndarray (k, n_knots)
        Rising. Equal to the scores where the density is normal.
    """
    covariance = np.linalg.inv(precision)
    normal = np.linspace(-LAST, LAST, N_KNOTS)
    tables = np.empty((len(hyper), N_KNOTS))
    for row, k in zip(tables, hyper, strict=True):
        spread = math.sqrt(covariance[k, k])
        row[:] = normal
        if _is_normal(density, mode, covariance, int(k)):
            continue
        x, log_marginal = _marginal(density, mode, covariance, int(k))
        moved = shift[k] / spread
        log_marginal = log_marginal + moved * _saturating(x, spread)
        row[:] = _quantiles(x, log_marginal, normal) - moved
    return tables


def _is_normal(density: Density, mode: Vector, covariance: Matrix, k: int) -> bool:
    others = np.arange(len(mode)) != k
    step = _LOOK * covariance[k] / math.sqrt(covariance[k, k])
    ends = [_laplace(density, mode + x * step, others) for x in (-1.0, 0.0, 1.0)]
    values = [-math.inf if at is None else at[0] for at in ends]
    return all(abs(value - values[1] + 0.5 * _LOOK**2) < _NORMAL for value in (values[0], values[2]))


def _marginal(density: Density, mode: Vector, covariance: Matrix, k: int) -> tuple[Vector, Vector]:
    """Points along a coordinate, in standard deviations from the mode, and its log marginal there.

    Where a walk ends early, a tail is added that falls as it did last, or faster.
    """
    spread, others = math.sqrt(covariance[k, k]), np.arange(len(mode)) != k
    at_mode = _laplace(density, mode, others)
    assert at_mode is not None
    found = {0.0: at_mode[0]}
    for sign in (-1.0, 1.0):
        x, step, zeta, (_, rest, slope), rate = 0.0, _STEP, mode.copy(), at_mode, _LEAST_RATE
        for _ in range(_MOST_STEPS):
            zeta[others] = rest + sign * step * spread * slope
            zeta[k] += sign * step * spread
            at = _laplace(density, zeta, others)
            if at is None:
                break
            rate = max((found[x] - at[0]) / step, _LEAST_RATE)
            x += sign * step
            found[x], rest, slope = at
            step *= _GROWTH
            if found[x] < max(found.values()) - _FALL:
                break
        left = _FALL - (max(found.values()) - found[x])
        for part in np.arange(1, _TAIL + 1) / _TAIL if left > 0.0 else ():
            found[x + sign * part * left / rate] = found[x] - part * left
    points = np.array(sorted(found))
    return points, np.array([found[one] for one in points])


def _laplace(
    density: Density, zeta: Vector, others: npt.NDArray[np.bool_]
) -> tuple[float, Vector, Vector] | None:
    """Log marginal of one coordinate, where the others have their maximum, and how that moves with it.

    The maximum is one Newton step away. None where there is none.
    """
    with np.errstate(all="ignore"):
        value, gradient, hessian = density(zeta)
    if not (math.isfinite(value) and np.isfinite(gradient).all() and np.isfinite(hessian).all()):
        return None
    if not others.any():
        return value, zeta[others], zeta[others]
    own = -hessian[np.ix_(others, others)]
    try:
        lower = np.linalg.cholesky(own)
    except np.linalg.LinAlgError:
        return None
    step, slope = np.linalg.solve(
        own, np.stack([gradient[others], hessian[others][:, ~others][:, 0]], axis=1)
    ).T
    log_marginal = value + 0.5 * float(gradient[others] @ step) - float(np.log(np.diag(lower)).sum())
    return log_marginal, zeta[others] + step, slope


def _saturating(x: Vector, spread: float) -> Vector:
    """x, but constant far below zero, as everything is that depends on the square of a scale."""
    below = np.minimum(x, 0.0)
    return np.where(x < 0.0, np.expm1(2.0 * spread * below) / (2.0 * spread), x)


def _quantiles(x: Vector, log_density: Vector, scores: Vector) -> Vector:
    """Where the distribution with this log density has the probabilities of normal scores."""
    fine = np.linspace(x[0], x[-1], _POINTS)
    log_fine = CubicSpline(x, log_density)(fine)
    density = np.exp(log_fine - log_fine.max())
    parts = 0.5 * (density[1:] + density[:-1])
    below, above = np.append(0.0, np.cumsum(parts)), np.append(np.cumsum(parts[::-1])[::-1], 0.0)
    # Tails are added up from their own end, so that small probabilities keep their digits.
    of_fine = np.where(below < above, ndtri(below / below[-1]), -ndtri(above / above[0]))[1:-1]
    found = np.interp(scores, of_fine, fine[1:-1])
    within = np.flatnonzero((scores > of_fine[0]) & (scores < of_fine[-1]))
    first, last = within[0], within[-1]
    rises = np.diff(found)
    rises[:first], rises[last:] = rises[first], rises[last - 1]  # straight on
    rises = np.maximum(rises, _LEAST * (scores[1] - scores[0]))
    table = np.append(0.0, np.cumsum(rises))
    middle = len(scores) // 2
    centred: Vector = table - table[middle] + found[middle]
    return centred
