"""How far proposals are from their known means and variances: sums of a chain, by batches of its draws.

These have mean zero whatever the posterior is, and move with the draws where most proposals are accepted:
control variates (Liu, Dellaportas & Titsias 2024), which `estimates` subtracts.
"""

from typing import NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Array, Index

# Batches of a chain, at most; an even number.
_BATCHES = 32


class Deviations(NamedTuple):
    """Sums of deviations, of first and second moments. A walk leaves the latest independent proposal."""

    latest: Array  # (2, D): x - E x and (x - E x)^2 - Var x of the latest proposal of each coordinate
    sums: Array  # (B, 2, D): over the transitions of each batch
    counts: Index  # (2,): transitions of a batch, and transitions so far


def no_deviations(n_dim: int) -> Deviations:
    """Deviations of a state that is in no chain yet: nothing is summed."""
    return Deviations(np.zeros((2, n_dim)), np.zeros((0, 2, n_dim)), np.array([1, 0], dtype=np.int64))


def with_room(deviations: Deviations) -> Deviations:
    """Deviations of the proposals of a chain, with room for their sums."""
    return deviations._replace(sums=np.zeros((_BATCHES, *deviations.latest.shape)))


def begin_again(deviations: Deviations, n_transitions: int) -> None:
    """Forget what was summed; a draw takes so many transitions."""
    deviations.sums[:] = 0.0
    deviations.counts[:] = n_transitions, 0


@jitable
def note(deviations: Deviations) -> None:
    """Add the latest deviations, once for each transition: full batches are joined two by two."""
    sums, counts, latest = deviations.sums, deviations.counts, deviations.latest
    n_batches = sums.shape[0]
    if n_batches == 0:
        return
    if counts[1] == n_batches * counts[0]:
        for b in range(n_batches // 2):
            sums[b] = sums[2 * b] + sums[2 * b + 1]
        sums[n_batches // 2 :] = 0.0
        counts[0] *= 2
    sums[counts[1] // counts[0]] += latest
    counts[1] += 1
