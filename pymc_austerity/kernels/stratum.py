"""Rows that are evaluated at every step, and how the others are numbered.

Rare rows that carry much of a log ratio are missed by most subsamples, and a test on means does not notice.
Evaluated always, they belong to what is known, like a prior, and the subsample is one of the others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.target import Index


class Stratum(NamedTuple):
    """Some positions of a population.

    Attributes
    ----------
    rows : ndarray of int, shape (K,)
        The positions, in order.
    shifts : ndarray of int, shape (K,)
        How many others are before each.
    """

    rows: Index
    shifts: Index


def stratum_of(rows: Index) -> Stratum:
    """The stratum of these rows; there may be none."""
    rows = np.sort(rows).astype(np.int64)
    return Stratum(rows, rows - np.arange(len(rows)))


NO_STRATUM = stratum_of(np.empty(0, dtype=np.int64))


@register_jitable
def among_others(index: Index, stratum: Stratum) -> Index:
    """Positions in the population of the others number `index`.

    Number p among the others has as many rows of the stratum before it as have at most p others before them.
    """
    k = stratum.shifts.shape[0]
    if k == 0:
        return index
    result = np.empty_like(index)
    for j in range(index.shape[0]):
        p = index[j]
        low, high = 0, k
        while low < high:
            middle = (low + high) // 2
            if stratum.shifts[middle] <= p:
                low = middle + 1
            else:
                high = middle
        result[j] = p + low
    return result
