"""The compiled loops behind `incidence`: rows sorted by the elements that they contain, in one pass each."""

import numpy as np

from pymc_austerity.compilation import entry
from pymc_austerity.target import Index, RowNumbers

# In the place of an element that a row does not contain.
NO_ELEMENT = -1


@entry
def count(table: RowNumbers, first: int, counts: Index, last: Index) -> None:
    """Count the rows of each element; `last` is the last row in which it was seen."""
    for i in range(table.shape[0]):
        for k in range(table.shape[1]):
            e = table[i, k]
            if e != NO_ELEMENT and last[e] != first + i:
                last[e] = first + i
                counts[e] += 1


@entry
def fill(table: RowNumbers, first: int, ends: Index, last: Index, rows: RowNumbers) -> None:
    """Write row numbers; `ends` is where the next of each element goes."""
    for i in range(table.shape[0]):
        for k in range(table.shape[1]):
            e = table[i, k]
            if e != NO_ELEMENT and last[e] != first + i:
                last[e] = first + i
                rows[ends[e]] = first + i
                ends[e] += 1


@entry
def shuffle(starts: Index, rows: RowNumbers, seed: int) -> None:
    """Put the rows of each element in a random order, always the same."""
    state = np.uint64(seed)
    for e in range(starts.shape[0] - 1):
        start = starts[e]
        for k in range(starts[e + 1] - start - 1, 0, -1):
            # SplitMix64: a generator of its own, so that a map is a function of the data alone.
            state += np.uint64(0x9E3779B97F4A7C15)
            z = state
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
            j = int(z % np.uint64(k + 1))
            kept = rows[start + k]
            rows[start + k] = rows[start + j]
            rows[start + j] = kept
