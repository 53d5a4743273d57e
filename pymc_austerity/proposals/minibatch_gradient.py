"""The gradient of a log density from a minibatch of its local terms."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.target import CHUNK, Index, Target, Vector


@jitable
def distinct_positions(rng: np.random.Generator, n: int, size: int) -> Index:
    """A uniform draw of n of the positions 0, ..., size - 1 without replacement; all in order if n is `size`.

    It is the shuffle of Fisher and Yates. Of the array that is shuffled only the places that have changed are
    kept, in a hash table: time and memory are in proportion to n, whatever `size`.
    """
    if n == size:
        return np.arange(size)
    length = 2
    while length < 2 * n:
        length *= 2
    places, contents = np.full(length, -1), np.empty(length, dtype=np.int64)
    drawn = np.empty(n, dtype=np.int64)
    for k in range(n):
        j = k + int(rng.random() * (size - k))
        at_k = _slot(places, k)
        moved = contents[at_k] if places[at_k] == k else k
        at_j = _slot(places, j)
        drawn[k] = contents[at_j] if places[at_j] == j else j
        places[at_j] = j
        contents[at_j] = moved
    return drawn


@jitable
def _slot(places: Index, place: int) -> int:
    """Place of the table where a number is kept, or would be."""
    last = places.shape[0] - 1
    # Neighbours are scattered by Knuth's multiplicative hash.
    slot: int = (place * 2654435761 >> 7) & last
    while places[slot] != -1 and places[slot] != place:
        slot = (slot + 1) & last
    return slot


@jitable
def estimated_gradient(
    q: Vector, index: Index, n_local: int, args: tuple[Any, ...], target: Target
) -> Vector:
    """The gradient of the global terms, and N / n times that of the local terms at n positions."""
    n = index.shape[0]
    total = np.zeros(q.shape[0])
    for start in range(0, n, CHUNK):
        part = target.local_gradient(q, index[start : min(start + CHUNK, n)], args)
        for d in range(q.shape[0]):
            total[d] += part[d]
    known = target.global_gradient(q, args)
    for d in range(q.shape[0]):
        total[d] = known[d] + total[d] * (n_local / n)
    return total
