"""Moves of a field that are decided by a test on a subsample of remainders, such as the sequential t-test.

A node decides from the rows below it, and theta with the root from all N rows, both as in
`kernels.metropolis`: rows are read until the rule is satisfied. Nothing bounds the remainders. So any
likelihood will do, and the error is that of the rule.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.acceptance.base import Sample
from pymc_austerity.bounds.jets.points import BLOCK
from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.elements import READS_ALL
from pymc_austerity.kernels.fields.decisions import write_remainders
from pymc_austerity.kernels.fields.records import FieldArrays
from pymc_austerity.kernels.fields.state import log_prior_change
from pymc_austerity.kernels.metropolis import Rule, sequential_test
from pymc_austerity.kernels.subsample import ALL_ROWS, NO_ROWS, Rows
from pymc_austerity.target import CHUNK, Index, Vector, chunk_from


class FieldTests(NamedTuple):
    """The tests of a turn."""

    first_row: Index  # (V,): rows below each node lie together: the first,
    n_rows: Index  # (V,): and how many there are
    # (V,): where the stages of the test of each node begin in the schedule; `READS_ALL` where nothing is
    # tested
    first_stage: Index
    population: Index  # (N,): numbers of rows in order: work space of `draw_without_replacement`


class Remainders(NamedTuple):
    """The part of a `Target` that a test calls."""

    log_ratios: Callable[..., Vector]


@jitable
def root_by_test(rng: np.random.Generator, plan: FieldArrays, numbers: Any, now: int, counts: Vector) -> bool:
    """Decide on theta with the root, from some of all rows."""
    root = plan.tree.first.shape[0] - 1
    return tested(rng, plan, numbers, now, root, plan.room.base[root], counts)


@jitable
def nodes_by_tests(
    rng: np.random.Generator, plan: FieldArrays, numbers: Any, now: int, k: int, pull: float, counts: Vector
) -> None:
    """Decide on nodes that propose, each from some of the rows below it; see `moves.nodes_by_drawn_rows`."""
    room, intercept = plan.room, plan.prior.intercept
    own, base, accepted, moved = room.deciding, room.base, room.accepted, room.moved
    for v in range(own.shape[0]):
        if own[v] == v:
            ratio = base[v]
            if intercept >= 0:
                ratio += log_prior_change(plan, now, pull + moved[v]) - log_prior_change(plan, now, pull)
            accepted[v] = tested(rng, plan, numbers, now, v, ratio, counts)
            if accepted[v]:
                pull += moved[v]


@jitable
def tested(
    rng: np.random.Generator,
    plan: FieldArrays,
    numbers: tuple[FieldTests, Rule],
    now: int,
    v: int,
    base: float,
    counts: Vector,
) -> bool:
    """Decide on a node by its rows, where the log ratio of all else is `base`.

    `counts` are rows that were read, those of nodes that were read as a whole, and clipped decisions.
    """
    tests, rule = numbers
    level = rule.draw(rng) - base
    if not math.isfinite(level):
        return False
    n_rows = tests.n_rows[v] if plan.has_remainders else 0
    n_local = max(1, n_rows)
    args, stage, nothing = (plan, now, tests.first_row[v]), tests.first_stage[v], np.zeros(0)
    if stage == READS_ALL or n_rows == 0:
        mean, nan = total_change(n_rows, args) / n_local, math.nan
        sample, n_used = Sample(n_local, n_local, mean, 0.0, nan, nan, nan, nan, nan, nan), n_rows
    else:
        rows = Rows(n_local, tests.population[:n_local], NO_ROWS, NO_ROWS, ALL_ROWS, stage)
        remainders: Any = Remainders(remainder_changes)
        sample, _, n_used = sequential_test(
            rng, level / n_local, math.nan, nothing, nothing, args, rows, rule, remainders
        )
    counts[0] += n_used
    if sample.n == n_local:
        counts[1] += n_used
    counts[2] += int(rule.clipped(rule.schedule, sample))
    plan.room.base[v] = base + sample.mean * n_local
    if not math.isfinite(sample.mean):
        return False
    return rule.accept(rule.schedule, sample, level / n_local, rng)


@jitable
def total_change(n_rows: int, args: Any) -> float:
    """The sum over the first n rows."""
    total, nothing = 0.0, np.zeros(0)
    for start in range(0, n_rows, CHUNK):
        index = chunk_from(start, n_rows)
        for change in remainder_changes(nothing, nothing, index, args):
            total += change
    return total


@jitable
def remainder_changes(new: Vector, old: Vector, index: Index, args: Any) -> Vector:
    """Changes of remainders of the rows number `index` after the first; both states are in the room."""
    plan, now, first = args
    n, which = index.shape[0], np.full((3, BLOCK), -1)
    result, changes = np.empty(n), np.empty(BLOCK)
    for begin in range(0, n, BLOCK):
        m = min(BLOCK, n - begin)
        for k in range(m):
            which[0, k] = first + index[begin + k]
        write_remainders(plan, now, which, m, changes)
        for k in range(m):
            result[begin + k] = changes[k]
    return result
