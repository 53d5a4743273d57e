"""Theta of a field: the maximum of log p^, and the law from which it is proposed.

The law has tables of normal scores, and their correlation.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np
import scipy
from scipy import special

from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.kernels.fields.law import LAST, N_KNOTS
from pymc_austerity.kernels.fields.records import Law
from pymc_austerity.mode.fields.maps import Coordinates
from pymc_austerity.target import Index, Matrix, Vector

# Differences for derivatives of log p^.
_STEP = 1e-3
# Newton steps after each pass over the rows; the step at which they end, in posterior deviations.
_STEPS, EXACTLY, ROUGHLY = 12, 0.01, 0.3
# So far away a log density that changes by less is flat.
_FAR, _FLAT = 1e3, 1e-2
# How far tables of scores look, in standard deviations; at how many places, and where the density is known.
_END, _GRID, _KNOWN = 14.0, 281, 29
# Beyond these places a density falls by so many nats, in steps, unless it is nearly flat.
_FALL, _PIECES, _LEVEL = 30.0, 120, 0.01


def maximum(
    log_density: Callable[[Vector], float],
    zeta: Vector,
    covariance: Matrix | None,
    near: float,
    most: int | None = None,
) -> tuple[Vector, Matrix, bool]:
    """The maximum, or a place `near` so many deviations of it or `most` steps away, and the covariance there.

    Second derivatives are those of `covariance`, with which an earlier search has ended, as long as steps
    with them get shorter fast. The last result is whether another search should still begin with them.
    """
    q = len(zeta)
    steps = np.eye(q) * _STEP

    def value(zeta: Vector) -> float:
        found = -log_density(zeta)
        return found if np.isfinite(found) else 1e300

    def gradient(zeta: Vector) -> Vector:
        return np.array([(value(zeta + s) - value(zeta - s)) / (2.0 * _STEP) for s in steps])

    def hessian(zeta: Vector) -> Matrix:
        middle, far = value(zeta), 10.0 * steps
        sides = np.array([value(zeta + s) + value(zeta - s) - 2.0 * middle for s in far])
        found = np.diag(sides)
        for j, k in zip(*np.triu_indices(q, 1), strict=True):
            s = far[j] + far[k]
            both = value(zeta + s) + value(zeta - s) - 2.0 * middle
            found[j, k] = found[k, j] = 0.5 * (both - sides[j] - sides[k])
        return found / (10.0 * _STEP) ** 2

    last, h = math.inf, None if covariance is None else np.linalg.inv(covariance)
    for _ in range(_STEPS if most is None else most):
        g = gradient(zeta)
        h = hessian(zeta) if h is None else h
        lam, vectors = np.linalg.eigh(h)
        lam = np.maximum(np.abs(lam), 0.1)
        move = -vectors @ ((vectors.T @ g) / lam)
        size = math.sqrt(max(float(-g @ move), 0.0))
        if size < near:
            break
        move *= min(1.0, 1.5 / max(np.abs(move).max(), 1e-300))
        start, t = value(zeta), 1.0
        while t > 1e-3 and not value(zeta + t * move) < start + 1e-9:
            t /= 2.0
        if t <= 1e-3:
            break
        zeta = zeta + t * move
        if t < 1.0 or size > min(1.0, 0.5 * last):  # the second derivatives are those of another place
            h = None
        last = size
    return zeta, (vectors / lam) @ vectors.T, h is not None


def require_curvature(log_density: Callable[[Vector], float], zeta: Vector, names: list[str]) -> None:
    """Refuse numbers without a proper prior on which no row depends; `names` are their variables."""
    height = log_density(zeta)
    for name, far in zip(names, _FAR * np.eye(len(zeta)), strict=True):
        with np.errstate(all="ignore"):
            changes = [abs(log_density(one) - height) for one in (zeta + far, zeta - far)]
        if max(changes) < _FLAT:
            raise NoNormalApproximationError(
                f"{name!r} has no proper prior, and the rows do not depend on it. Give it a prior."
            )


def without_prior(coordinates: Iterable[Coordinates]) -> list[Coordinates]:
    """Effects without a proper prior."""
    return [one for one in coordinates if not np.any(one.precision.coefficients)]


def without_maximum(coordinates: Iterable[Coordinates]) -> NoNormalApproximationError:
    """The error that there is no mode."""
    names = [one.innovation.variable for one in without_prior(coordinates)]
    why = "The expansion of a field has no maximum at its scales."
    if names:
        why = (
            f"There is no mode along {' and '.join(map(repr, names))}, without a proper prior: the rows "
            "separate the responses perfectly, or tell it from no other variable. Give it a proper prior."
        )
    return NoNormalApproximationError(why, along=names)


def no_law() -> Law:
    """The law of no numbers."""
    nothing = np.zeros((0, 0))
    none = np.zeros(0, np.int64)
    return Law(none, np.zeros(0), np.zeros(0), np.zeros((0, N_KNOTS)), nothing, nothing, none)


def law_of(
    log_density: Callable[[Vector], float],
    mode: Vector,
    covariance: Matrix,
    which: Index,
    units: Index,
    names: list[str],
) -> Law:
    """The law of zeta with a log density, its mode and covariance there; `names` are its variables.

    Scores of each coordinate are by its density along the mean of the others given it.

    Raises
    ------
    NoNormalApproximationError
        If the density has no mass where a normal one has.
    """
    q = len(mode)
    sds = np.sqrt(np.diag(covariance))
    knots = np.empty((q, N_KNOTS))
    scores = np.linspace(-LAST, LAST, N_KNOTS)
    grid = np.linspace(-_END, _END, _GRID)
    for j in range(q):
        line = covariance[:, j] / sds[j]
        known = np.linspace(-_END, _END, _KNOWN)
        heights = np.array([log_density(mode + t * line) for t in known])
        beside_normal = np.maximum(heights - heights.max(), -700.0) + 0.5 * known**2
        falls = (heights[[1, -2]] - heights[[0, -1]]) / (known[1] - known[0])
        found = _table(grid, np.interp(grid, known, beside_normal) - 0.5 * grid**2, scores, falls)
        if found is None:
            raise NoNormalApproximationError(
                f"{names[j]!r}, which effects share, has a density at its mode that no normal distribution "
                "is like: rows tell little of it. Give a prior that says more, or fewer effects than rows.",
                along=[names[j]],
            )
        knots[j] = found
    correlation = covariance / np.outer(sds, sds)
    factor = np.linalg.cholesky(correlation)
    return Law(which, mode, sds, knots, factor, np.linalg.inv(factor), units)


def _table(grid: Vector, log_density: Vector, scores: Vector, falls: Vector) -> Vector | None:
    """Places at which a density has the distribution function of normal scores, increasing; None without.

    Beyond its ends the log density `falls` on as a straight line, as that of a scale near zero does.
    """
    grid, log_density = _with_tails(grid, log_density, falls)
    density = np.exp(log_density)
    below = scipy.integrate.cumulative_trapezoid(density, grid, initial=0.0)
    above = scipy.integrate.cumulative_trapezoid(density[::-1], -grid[::-1], initial=0.0)[::-1] / below[-1]
    below /= below[-1]
    own = np.where(
        below < 0.5,
        special.ndtri(np.clip(below, 1e-300, 1)),
        -special.ndtri(np.clip(above, 1e-300, 1)),
    )
    inside = np.abs(own) < LAST + 2.0
    inside &= np.concatenate([[True], np.diff(own) > 1e-9])
    if inside.sum() < 2:
        return None
    found = np.interp(scores, own[inside], grid[inside])
    slope = np.maximum(np.diff(found), 0.02)
    middle = len(scores) // 2
    return found[middle] + np.concatenate([[0.0], np.cumsum(slope)]) - slope[:middle].sum()


def _with_tails(grid: Vector, log_density: Vector, falls: Vector) -> tuple[Vector, Vector]:
    """A log density on a longer grid: where it ends above nothing, it falls on, at either end by so much."""
    steps = np.linspace(0.0, _FALL, _PIECES + 1)[1:]
    for fall in falls:  # one end, then the other
        if log_density[0] > log_density.max() - _FALL and fall > _LEVEL:
            grid = np.concatenate([grid[0] - steps[::-1] / fall, grid])
            log_density = np.concatenate([log_density[0] - steps[::-1], log_density])
        grid, log_density = -grid[::-1], log_density[::-1]
    return grid, log_density
