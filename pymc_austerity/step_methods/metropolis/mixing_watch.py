"""Notice a chain that mixes far worse than was announced."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.exceptions import warn

# Batches at most; where there are so many, each two of them become one.
_BATCHES = 64
_FEWEST_BATCHES = 8
# Draws after tuning that a verdict needs.
_ENOUGH = 500
# Less than this share of what was announced is told.
_SHARE = 0.1

_SLOW = (
    "Its decisions are what they were, but the posterior is not explored yet: make many more draws, or use "
    "pm.NUTS."
)
# The coordinates of a plate are the same, however its effects are written.
_OF_A_BLOCK = (
    " If a scale is near 0, as where groups do not differ, the model mixes better with effects that are "
    "written non-centred; if the chain began far outside of the posterior, with another start."
)
_OF_A_PLATE = " If the chain began far outside of the posterior, another start mends that."
_UNTUNED = (
    "It had no tuning draws (tune=0), so it started from PyMC's initial point or from initvals, and may "
    "still be on its way. Without initvals tune=100 lets it start near the mode."
)


class Watched(NamedTuple):
    """Sums over batches of the draws after tuning.

    Attributes
    ----------
    counts : ndarray of int, shape (5,)
        Draws seen, draws to come in all, length of a batch, batches that are full, and whether there were
        draws of tuning before.
    sums : ndarray of float, shape (batches, D)
        Of the coordinates, less the first draw.
    first, square : ndarray of float, shape (D,)
        The first draw, and the sum of squared differences from it.
    """

    counts: npt.NDArray[np.int64]
    sums: npt.NDArray[np.float64]
    first: npt.NDArray[np.float64]
    square: npt.NDArray[np.float64]


def start(n_dim: int, n_draws: int, n_tune: int) -> Watched:
    """Begin to watch `n_draws` draws after `n_tune` draws of tuning."""
    counts = np.array([0, n_draws, 1, 0, n_tune > 0])
    return Watched(counts, np.zeros((_BATCHES, n_dim)), np.zeros(n_dim), np.zeros(n_dim))


def watch(watched: Watched, q: npt.NDArray[np.float64]) -> bool:
    """Add a draw. Was it the last?"""
    counts, sums, square = watched.counts, watched.sums, watched.square
    q = q[: sums.shape[1]]
    if counts[0] == 0:
        watched.first[:] = q
    counts[0] += 1
    change = q - watched.first
    square += change**2
    sums[counts[3]] += change
    if counts[0] % counts[2] == 0:
        counts[3] += 1
    if counts[3] == _BATCHES:
        half = _BATCHES // 2
        sums[:half] = sums[::2] + sums[1::2]
        sums[half:] = 0.0
        counts[2] *= 2
        counts[3] = half
    return bool(counts[0] == counts[1])


def efficiency(watched: Watched) -> npt.NDArray[np.float64]:
    """Effective draws for each draw, by the variance of batch means; one in all where nothing moved.

    Means of batches that are shorter than the chain remembers vary too little. So neighbours are joined, down
    to a few long batches, and the length that shows fewest effective draws counts.
    """
    n, _, length, full, _ = (int(count) for count in watched.counts)
    variance = watched.square / n - (watched.sums.sum(axis=0) / n) ** 2
    lowest = np.full(len(variance), np.inf)
    sums = watched.sums[:full]
    while len(sums) >= _FEWEST_BATCHES:
        with np.errstate(all="ignore"):
            found = variance * length / sums.var(axis=0, ddof=1)
        lowest = np.fmin(lowest, found)
        pairs = len(sums) // 2
        sums, length = sums[: 2 * pairs].reshape(pairs, 2, -1).sum(axis=1), 2 * length
    return np.where(np.isfinite(lowest), lowest, 1.0 / n)


def warn_if_slow(
    watched: Watched, announced: float, name_of: Callable[[int], str], *, is_plate: bool = False
) -> None:
    """Tell that effective draws are less than a tenth of those announced.

    Parameters
    ----------
    watched : Watched
    announced : float
        Effective draws for each draw.
    name_of : callable
        From a coordinate to the variable that it belongs to.
    is_plate : bool, default False
        Whether effects of groups are moved as a plate.
    """
    n = int(watched.counts[0])
    if n < _ENOUGH:
        return
    seen = efficiency(watched)
    worst = int(np.argmin(seen))
    slow = _SLOW + (_OF_A_PLATE if is_plate else _OF_A_BLOCK)
    if seen[worst] < _SHARE * announced:
        warn(
            f"The chain mixes far worse than was announced: its {n:,} draws are worth about "
            f"{seen[worst] * n:,.0f} independent ones of {name_of(worst)}, and {announced * n:,.0f} were "
            f"expected. {slow if watched.counts[4] else _UNTUNED}"
        )
