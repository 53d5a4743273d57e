"""Notice a chain that is still on its way when tuning ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.exceptions import warn

# Shift of the mean between the last two quarters of tuning, in units of the standard deviation within
# one. A straight drift gives 3.5; a settled chain with some 5 effective draws in a quarter stays below 2.5.
_LIMIT = 2.5
# A random walk in D dimensions takes about this times D transitions for such a number of effective draws.
# In shorter quarters only what is almost a straight line is called a drift.
_TRANSITIONS_PER_DIMENSION = 20
_LIMIT_IN_SHORT_QUARTERS = 2.75
# A chain that runs away moves ever faster: its spread in the last quarter is so many times that in the third.
# In quarters of fewer draws a proposal that learns may do that. And as it grows exponentially, its distance
# from zero is about its spread in either quarter; where a chain that was stuck goes on, it is not.
_RUNAWAY, _FEWEST_DRAWS = 12.0, 50
_NEAREST, _FARTHEST = 0.25, 2.0


class Drift(NamedTuple):
    """Mean and squared deviations of q over the third and the fourth quarter of tuning.

    Attributes
    ----------
    counts : ndarray of int, shape (4,)
        Draws seen, draws of tuning, and draws in either quarter.
    mean, m2 : ndarray of float, shape (2, D)
    """

    counts: npt.NDArray[np.int64]
    mean: npt.NDArray[np.float64]
    m2: npt.NDArray[np.float64]


def start(n_dim: int, n_tune: int) -> Drift:
    """Begin to watch a chain that tunes for `n_tune` draws."""
    return Drift(np.array([0, n_tune, 0, 0]), np.zeros((2, n_dim)), np.zeros((2, n_dim)))


def watch(drift: Drift, q: npt.NDArray[np.float64]) -> bool:
    """Add a draw of the tuning phase. Was it the last?"""
    seen, n_tune = drift.counts[:2]
    drift.counts[0] += 1
    quarter = int(4 * seen // n_tune) - 2 if seen < n_tune else -1
    if quarter >= 0:
        drift.counts[2 + quarter] += 1
        delta = q - drift.mean[quarter]
        drift.mean[quarter] += delta / drift.counts[2 + quarter]
        drift.m2[quarter] += delta * (q - drift.mean[quarter])
    return bool(seen + 1 >= n_tune)


def shift(drift: Drift) -> npt.NDArray[np.float64]:
    """Shift between the quarters in standard deviations, for each dimension."""
    spread = np.sqrt(drift.m2.sum(axis=0) / max(int(drift.counts[2:].sum()) - 2, 1))
    moved = np.abs(drift.mean[1] - drift.mean[0])
    return np.divide(moved, spread, out=np.zeros_like(moved), where=spread > 0)


def still_drifting(drift: Drift, steps_per_draw: int) -> npt.NDArray[np.int64]:
    """Dimensions that moved too far during the second half of tuning, worst first."""
    shortest = int(drift.counts[2:].min())
    if shortest < 10:
        return np.empty(0, dtype=np.int64)
    enough = shortest * steps_per_draw >= _TRANSITIONS_PER_DIMENSION * drift.mean.shape[1]
    size = shift(drift)
    order = np.argsort(-size)
    return order[size[order] > (_LIMIT if enough else _LIMIT_IN_SHORT_QUARTERS)]


def running_away(drift: Drift) -> npt.NDArray[np.int64]:
    """Dimensions in which the chain moved ever faster."""
    if drift.counts[2:].min() < _FEWEST_DRAWS:
        return np.empty(0, dtype=np.int64)
    spread, distance = np.sqrt(drift.m2 / drift.counts[2:, None]), np.abs(drift.mean)
    grows = np.all((_NEAREST * spread < distance) & (distance < _FARTHEST * spread), axis=0)
    return np.flatnonzero(grows & (spread[1] > _RUNAWAY * spread[0]))


def warn_if_drifting(
    drift: Drift, steps_per_draw: int, coordinate: Callable[[int], tuple[str, tuple[int, ...]]]
) -> None:
    """Tell that the chain was still on its way; see `Factorisation.coordinate`."""
    fleeing = running_away(drift)
    if len(fleeing):
        names = list(dict.fromkeys(coordinate(int(d))[0] for d in fleeing))
        warn(
            f"The chain runs away in {', '.join(names)}: while tuning it moved ever faster. The posterior "
            "may not exist, as with a flat prior and responses that a covariate separates perfectly. "
            "find_mode(model) says so if there is no mode. Give the variable a proper prior."
        )
        return
    moving = still_drifting(drift, steps_per_draw)
    if len(moving):
        names = list(dict.fromkeys(coordinate(int(d))[0] for d in moving))
        warn(
            f"Tuning ended while the chain was still drifting in {', '.join(names)}. The mean moved by "
            "more than two standard deviations from the third to the last quarter of tuning. Tune for "
            "longer, and start near the mode: pm.sample(initvals=find_mode(model))."
        )
