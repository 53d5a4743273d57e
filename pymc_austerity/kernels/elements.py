"""Metropolis-Hastings transitions of one element of a variable at a time, by the terms that contain it.

Element e of a vector (a site of a field, the effect of a group, the weights of one expert) occurs in N_e of
the N local terms. Its move is decided from these alone, by the same rules as that of a whole block
(`kernels.metropolis`), with N_e in the place of N. So a sweep over all elements costs as much as the terms
have elements, however many elements there are.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.acceptance.base import Sample, standard_error
from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.metropolis import Rule, sequential_test
from pymc_austerity.kernels.subsample import NO_ROWS, Rows, restore_order
from pymc_austerity.proposals.base import ProposalKernel
from pymc_austerity.target import CHUNK, Index, RowNumbers, Target

# An element of which all rows are read at once, and nothing is tested.
READS_ALL = -1


class Elements(NamedTuple):
    """The elements of a block, and the rows that contain each."""

    # first, width (E,): where in q its coordinates begin, and how many there are
    first: Index
    width: Index
    own_starts: Index  # (E + 1,)
    # Rows that are read at every transition, such as those of the prior: those of element e are
    # ``own_rows[own_starts[e]:own_starts[e + 1]]``
    own_rows: RowNumbers
    # starts, rows: the same for the N_e rows of the likelihood
    starts: Index
    rows: RowNumbers
    # (E,): of the stages of its test in the schedule; `READS_ALL` where all rows are read at once
    first_stage: Index
    population: Index  # Work space of `draw_without_replacement`, as long as the largest N_e
    # (E,): the numbers of the elements, in order: work space too. Empty for sweeps in this order.
    order: Index


class ElementOutcome(NamedTuple):
    """Outcome of several transitions in a row; `n_possible` is the sum of their N_e."""

    q: npt.NDArray[Any]
    n_accepted: int
    n_used: int
    n_possible: int
    n_stages: int
    n_exhausted: int
    n_clipped: int
    accepted: bool
    log_ratio_mean: float
    log_ratio_se: float
    psi: float


@jitable
def element_transitions(
    n_transitions: int,
    tune: bool,
    rng: np.random.Generator,
    q: npt.NDArray[Any],
    args: tuple[Any, ...],
    elements: Elements,
    rule: Rule,
    proposal: ProposalKernel,
    target: Target,
) -> ElementOutcome:
    """Move elements one at a time, from `q`, of shape (D,): real numbers, or integers.

    Each transition is of another element, until all have had their turn. The proposal learns while `tune`.
    `args` are handed to the functions of `target`, of which `log_ratios` is called, at few rows. The schedule
    of the rule holds the stages of the tests of all elements, one after the other.
    """
    n_elements = elements.first.shape[0]
    q, q_new = q.copy(), q.copy()
    n_accepted = n_used = n_possible = n_stages = n_exhausted = n_clipped = 0
    accepted = False
    mean = error = psi = nan = math.nan
    for t in range(n_transitions):
        e = next_element(elements.order, t % n_elements, n_elements, rng)
        start, stop = elements.first[e], elements.first[e] + elements.width[e]
        proposal.propose(proposal.state, rng, e, q_new, start, stop)
        threshold = rule.draw(rng)
        own = elements.own_rows[elements.own_starts[e] : elements.own_starts[e + 1]]
        base = sum_of(q_new, q, args, own, target)
        listed = elements.rows[elements.starts[e] : elements.starts[e + 1]]
        n_local = max(1, listed.shape[0])  # without rows the prior decides
        n_possible += listed.shape[0]
        psi = (threshold - base) / n_local
        if base == -math.inf or math.isnan(base):
            accepted, mean, error = False, math.nan, math.nan
        elif base == math.inf:
            accepted, mean, error = leaves_zero(q_new, q, args, own, listed, target), math.nan, math.nan
        else:
            if elements.first_stage[e] == READS_ALL:
                mean = sum_of(q_new, q, args, listed, target) / n_local
                sample = Sample(n_local, n_local, mean, 0.0, nan, nan, nan, nan, nan, nan)
                n_used += listed.shape[0]
                n_stages += 1
            else:
                population = elements.population[: n_local // rule.schedule.block]
                rows = Rows(n_local, population, NO_ROWS, NO_ROWS, listed, elements.first_stage[e])
                width = rule.range_of(rule.bound, q_new, q, args, rows, target)
                sample, stages, n_read = sequential_test(rng, psi, width, q_new, q, args, rows, rule, target)
                mean = sample.mean
                n_used += n_read
                n_stages += stages
            error = standard_error(sample.n, n_local, sample.m2) if sample.n < n_local else 0.0
            if math.isfinite(mean):
                accepted = rule.accept(rule.schedule, sample, psi, rng)
            else:
                accepted = mean == math.inf and leaves_zero(q_new, q, args, own, listed, target)
            n_exhausted += sample.n == n_local
            n_clipped += rule.clipped(rule.schedule, sample)
        copy_element(q_new, q, start, stop) if accepted else copy_element(q, q_new, start, stop)
        n_accepted += accepted
        if tune:
            proposal.adapt(proposal.state, e, accepted)
    restore_order(elements.order, min(n_transitions, elements.order.shape[0]))
    return ElementOutcome(
        q, n_accepted, n_used, n_possible, n_stages, n_exhausted, n_clipped, accepted, mean, error, psi
    )


@jitable
def next_element(order: Index, t: int, n_elements: int, rng: np.random.Generator) -> int:
    """The element that is moved at place t of a sweep: at random of those that are left, or in order."""
    if order.shape[0] == 0:
        return t
    other = t + int(rng.random() * (n_elements - t))
    chosen: int = order[other]
    order[other] = order[t]
    order[t] = chosen
    return chosen


@jitable
def leaves_zero(
    q_new: npt.NDArray[Any],
    q: npt.NDArray[Any],
    args: tuple[Any, ...],
    own: RowNumbers,
    listed: RowNumbers,
    target: Target,
) -> bool:
    """Whether a log ratio of plus infinity accepts: where the rows of an element leave a density of zero.

    See `kernels.metropolis.leaves_zero`.
    """
    here = sum_of(q, q, args, own, target) + sum_of(q, q, args, listed, target)
    there = sum_of(q_new, q_new, args, own, target) + sum_of(q_new, q_new, args, listed, target)
    return math.isnan(here) and not math.isnan(there)


@jitable
def sum_of(
    q_new: npt.NDArray[Any], q: npt.NDArray[Any], args: tuple[Any, ...], rows: RowNumbers, target: Target
) -> float:
    """The sum of the log ratios of some rows."""
    total = 0.0
    for start in range(0, rows.shape[0], CHUNK):
        some = rows[start : start + CHUNK]
        index = np.empty(some.shape[0], dtype=np.int64)
        for k in range(some.shape[0]):
            index[k] = some[k]
        for x in target.log_ratios(q_new, q, index, args):
            total += x
    return total


@jitable
def copy_element(source: npt.NDArray[Any], to: npt.NDArray[Any], start: int, stop: int) -> None:
    """Copy the coordinates of one element."""
    for k in range(start, stop):
        to[k] = source[k]
