"""The law from which theta of a field is proposed: tables of normal scores, and their correlation."""

from collections.abc import Callable

import numpy as np
from scipy import stats

from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.kernels.fields.law import LAST, N_KNOTS
from pymc_austerity.kernels.fields.records import Law
from pymc_austerity.target import Index, Matrix, Vector

# How far tables of scores look, in standard deviations; at how many places, and where the density is known.
_FAR, _GRID, _KNOWN = 14.0, 281, 29
# Beyond these places a density falls by so many nats, in steps, unless it is nearly flat.
_FALL, _STEPS, _FLAT = 30.0, 120, 0.01


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
    grid = np.linspace(-_FAR, _FAR, _GRID)
    for j in range(q):
        line = covariance[:, j] / sds[j]
        known = np.linspace(-_FAR, _FAR, _KNOWN)
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
    density, widths = np.exp(log_density), np.diff(grid)
    mass = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * widths)])
    below = mass / mass[-1]
    above = np.concatenate([np.cumsum((0.5 * (density[1:] + density[:-1]) * widths)[::-1])[::-1], [0.0]])
    above /= mass[-1]
    own = np.where(
        below < 0.5, stats.norm.ppf(np.clip(below, 1e-300, 1)), stats.norm.isf(np.clip(above, 1e-300, 1))
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
    steps = np.linspace(0.0, _FALL, _STEPS + 1)[1:]
    for fall in falls:  # one end, then the other
        if log_density[0] > log_density.max() - _FALL and fall > _FLAT:
            grid = np.concatenate([grid[0] - steps[::-1] / fall, grid])
            log_density = np.concatenate([log_density[0] - steps[::-1], log_density])
        grid, log_density = -grid[::-1], log_density[::-1]
    return grid, log_density
