"""Which rows a transition reads: exact rows always, and a subsample of the others.

Rare rows that carry much of a log ratio are missed by most subsamples, and a test on means does not notice.
Evaluated at every step, these exact rows belong to what is known, like a prior.

Positions of the others are drawn without replacement, in blocks of neighbours. Memory is read a line at a
time, so 20 blocks of 25 rows come several times faster than 500 scattered rows once the data outgrow the
cache. Where the rows are stored in random order (`model.compile` sees to that) a block is itself a random
sample, and means over blocks have the variance of means over single rows. The blocks are laid out from a
random offset, around the end, so every position is as likely as every other to be read, whether or not the
block length divides N.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.acceptance.base import Schedule
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index

# Rows of a block, at most.
_LONGEST_BLOCK = 32
# Smaller populations stay in the cache, and have too few blocks for their means to vary as they should.
SMALLEST_POPULATION = 50_000


def in_blocks(schedule: Schedule, *, always: bool = False) -> Schedule:
    """Choose the longest block, up to 32, that divides the end of every stage but the last.

    Small populations are left as they are, unless `always`.
    """
    if schedule.ends[-1] < SMALLEST_POPULATION and not always:
        return schedule
    return schedule._replace(block=longest_block(schedule.ends[:-1]))


def longest_block(ends: Index) -> int:
    """The longest block, up to 32, that divides these ends of stages."""
    common = int(np.gcd.reduce(ends)) if len(ends) else 1
    return max(b for b in range(1, _LONGEST_BLOCK + 1) if common % b == 0)


class Rows(NamedTuple):
    """The N local terms: exact rows, and N' others."""

    n_others: int  # N'
    # (N' // block,): numbers of the blocks of others, in order: the work space of `draw_without_replacement`
    population: Index
    exact_rows: Index  # (K,): positions of the rows that are evaluated at every step, in order
    others_before: Index  # (K,): how many others are before each exact row
    # (N',) or (0,): the others by name, where they are no whole population: the rows that contain one element
    # of a variable
    listed: npt.NDArray[np.int32]
    first_stage: int  # Of the stages of their test, where a schedule holds those of several populations


def population_of(schedule: Schedule) -> Index:
    """The numbers of the blocks, in order: the work space of `draw_without_replacement`."""
    return np.arange(schedule.ends[-1] // schedule.block)


NO_ROWS: Index = np.empty(0, dtype=np.int64)
ALL_ROWS: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)


def rows_of(schedule: Schedule, exact_rows: Index = NO_ROWS) -> Rows:
    """Rows of a decision in these stages, of which the last is all N' others."""
    exact = np.sort(exact_rows).astype(np.int64)
    before = exact - np.arange(len(exact))
    return Rows(int(schedule.ends[-1]), population_of(schedule), exact, before, ALL_ROWS, 0)


@jitable
def among_others(index: Index, rows: Rows) -> Index:
    """Positions in the population of the others number `index`.

    Number p among the others has as many exact rows before it as have at most p others before them.
    """
    k = rows.others_before.shape[0]
    if k == 0 and rows.listed.shape[0] == 0:
        return index
    result = np.empty_like(index)
    if rows.listed.shape[0] > 0:
        for j in range(index.shape[0]):
            result[j] = rows.listed[index[j]]
        return result
    for j in range(index.shape[0]):
        p = index[j]
        low, high = 0, k
        while low < high:
            middle = (low + high) // 2
            if rows.others_before[middle] <= p:
                low = middle + 1
            else:
                high = middle
        result[j] = p + low
    return result


@jitable
def random_offset(rng: np.random.Generator, block: int, n_local: int) -> int:
    """First row of block 0 among `n_local` rows. No random number is spent where there is one choice."""
    if block == 1:
        return 0
    return int(rng.random() * n_local)


@jitable
def draw_without_replacement(rng: np.random.Generator, population: Index, start: int, end: int) -> None:
    """Put a uniform draw from what is left into places start, ..., end - 1 (Fisher-Yates).

    When everything that is left is wanted, there is nothing to draw: reading all rows spends no
    random numbers and reads them in order.
    """
    size = population.shape[0]
    if end == size:
        return
    for k in range(start, end):
        j = k + int(rng.random() * (size - k))
        chosen = population[j]
        population[j] = population[k]
        population[k] = chosen


@jitable
def positions(population: Index, block: int, n_local: int, offset: int, start: int, stop: int) -> Index:
    """Positions of the terms number start, ..., stop - 1 of the sample, of `n_local` in blocks."""
    if block == 1:
        return population[start:stop]
    index = np.empty(stop - start, dtype=np.int64)
    whole, within = start // block, start % block
    for k in range(stop - start):
        # What is left over after the last whole block comes last.
        number = population[whole] if whole < population.shape[0] else whole
        position = offset + number * block + within
        index[k] = position - n_local if position >= n_local else position
        within += 1
        if within == block:
            whole, within = whole + 1, 0
    return index


@jitable
def restore_order(population: Index, n: int) -> None:
    """Undo the shuffling of the first n places, so that a kernel keeps no state.

    An exchange only ever moves a number out of its own place and into the first n, so every place
    that was disturbed is named there.
    """
    for k in range(n):
        moved = population[k]
        if moved >= n:
            population[moved] = moved
    for k in range(n):
        population[k] = k
