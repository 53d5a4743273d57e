"""Moves of a plate that are decided by a test on a subsample of remainders, such as the sequential t-test.

The shared move is decided from all N rows, that of a group from its own n_g rows, both as in
`kernels.metropolis`: rows are read until the rule is satisfied. Nothing bounds the remainders. So any
likelihood will do, and the error is that of the rule.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.acceptance.base import Sample
from pymc_austerity.bounds.jets.points import BLOCK
from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.elements import READS_ALL
from pymc_austerity.kernels.fields.row_tests import Remainders
from pymc_austerity.kernels.metropolis import Rule, sequential_test
from pymc_austerity.kernels.plates.decisions import Accepted, Counts
from pymc_austerity.kernels.plates.evaluation import changes, moved, phi_at
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.kernels.plates.thinning import Pair
from pymc_austerity.kernels.subsample import ALL_ROWS, NO_ROWS, Rows
from pymc_austerity.target import CHUNK, Index, Vector


class RowTests(NamedTuple):
    """The stages of the tests."""

    # (1 + G,): where the stages of the test begin in the schedule, for all rows and for those of each group;
    # `READS_ALL` where nothing is tested
    first_stage: Index
    population: Index  # (N,): numbers of rows in order: work space of `draw_without_replacement`


@jitable
def shared_by_test(rng: np.random.Generator, plate: Plate, numbers: Any, pair: Pair, base: float) -> Counts:
    """Decide on theta' from some of all rows."""
    tests, rule = numbers
    n_rows = plate.rows.predictors.shape[0] if plate.rule.has_remainders else 0
    threshold = rule.draw(rng)
    if not -math.inf < base < math.inf:  # or not a number
        return Counts(0.0, 0, 0, 0, base)
    sample, n_used = read(rng, plate, rule, tests, (pair, -1), (0, n_rows), threshold - base)
    accepted = decided(rng, rule, sample, threshold - base)
    n_whole = plate.bounds.sizes.shape[0] if sample.n == n_rows else 0
    n_clipped, log_ratio = int(rule.clipped(rule.schedule, sample)), base + sample.mean * sample.n_local
    return Counts(1.0 if accepted else 0.0, n_used, n_whole, n_clipped, log_ratio)


@jitable
def groups_by_tests(
    rng: np.random.Generator, plate: Plate, numbers: Any, pair: Pair, log_ratios: Vector, accepted: Accepted
) -> Counts:
    """Decide on every group from some of its own rows."""
    tests, rule = numbers
    n_used = n_whole = n_clipped = 0
    for g in range(log_ratios.shape[0]):
        first, n_rows = plate.rows.starts[g], plate.bounds.sizes[g] if plate.rule.has_remainders else 0
        level = rule.draw(rng) - log_ratios[g]
        if not math.isfinite(log_ratios[g]):
            continue
        sample, n_read = read(rng, plate, rule, tests, (pair, g), (first, n_rows), level)
        accepted[g] = decided(rng, rule, sample, level)
        n_used += n_read
        n_clipped += int(rule.clipped(rule.schedule, sample))
        n_whole += int(0 < n_rows == sample.n)
    return Counts(np.sum(accepted) / log_ratios.shape[0], n_used, n_whole, n_clipped, 0.0)


@jitable
def read(
    rng: np.random.Generator,
    plate: Plate,
    rule: Rule,
    tests: RowTests,
    move: tuple[Pair, int],
    which: tuple[int, int],
    level: float,
) -> tuple[Sample, int]:
    """Sample of changes of remainders that satisfies the rule, and the number of rows that were read.

    Parameters
    ----------
    rng, plate, rule, tests
    move : tuple
        Two states, and the group that moves, or -1 for all.
    which : tuple of int
        The first row, and how many there are; without rows the rest of the ratio decides.
    level : float
        What the sum of all changes is compared with.
    """
    (pair, g), (first, n_rows) = move, which
    n_local = max(1, n_rows)
    args = plate, phi_at(plate.sums, pair.d), phi_at(plate.sums, pair.d_new), first, g
    new: Any = pair.new_levels, pair.new_displaced.means, pair.d_new
    old: Any = pair.levels, pair.displaced.means, pair.d
    stage = tests.first_stage[g + 1]
    if stage == READS_ALL:
        mean, nan = total_change(new, old, n_rows, args) / n_local, math.nan
        return Sample(n_local, n_local, mean, 0.0, nan, nan, nan, nan, nan, nan), n_rows
    rows = Rows(n_local, tests.population[:n_local], NO_ROWS, NO_ROWS, ALL_ROWS, stage)
    remainders: Any = Remainders(remainder_changes)
    psi = level / n_local
    sample, _, n_read = sequential_test(rng, psi, math.nan, new, old, args, rows, rule, remainders)
    return sample, n_read


@jitable
def decided(rng: np.random.Generator, rule: Rule, sample: Sample, level: float) -> bool:
    """Whether the move is accepted; one with a sum that is not finite never is."""
    psi = level / sample.n_local
    if not math.isfinite(sample.mean):
        return False
    return rule.accept(rule.schedule, sample, psi, rng)


@jitable
def total_change(new: Any, old: Any, n_rows: int, args: Any) -> float:
    """The sum over the first n rows."""
    total = 0.0
    for start in range(0, n_rows, CHUNK):
        for change in remainder_changes(new, old, np.arange(start, min(start + CHUNK, n_rows)), args):
            total += change
    return total


@jitable
def remainder_changes(new: Any, old: Any, index: Index, args: Any) -> Vector:
    """r_i(t_i', psi') - r_i(t_i, psi) of the rows number `index` after the first."""
    plate, phi, new_phi, first, g = args
    (levels, means, d), (new_levels, new_means, new_d) = old, new
    n, starts = index.shape[0], plate.rows.starts
    result = np.empty(n)
    rows, groups = np.zeros(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    t, new_t, found = np.zeros(BLOCK), np.zeros(BLOCK), np.zeros(BLOCK)
    for begin in range(0, n, BLOCK):
        m = min(BLOCK, n - begin)
        for k in range(m):
            row = first + index[begin + k]
            rows[BLOCK - m + k] = row
            groups[k] = g if g >= 0 else np.searchsorted(starts, row, side="right") - 1
        which = rows, groups[:m]
        moved(plate.rows, plate.sums, which, (levels, means), d, t)
        moved(plate.rows, plate.sums, which, (new_levels, new_means), new_d, new_t)
        changes(plate.rows, plate.room, rows, m, (t, phi), (new_t, new_phi), found)
        result[begin : begin + m] = found[BLOCK - m :]
    return result
