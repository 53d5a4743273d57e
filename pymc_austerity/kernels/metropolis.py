"""Metropolis-Hastings transitions that decide from a subsample, and those on all the data.

Algorithm 1 of Korattikara et al. (2014), figure 3 of Bardenet et al. (2014) and algorithm 1 of Seita et al.
(2017) have one shape: propose, then read more and more log ratios until a rule is satisfied. They differ in
the functions of the rule (`acceptance.base`). A move from q to q' is accepted if the sum of the local
log ratios exceeds log u - base; `base` is the rest of the log ratio, which the proposal tells
(`proposals.base`). `full_transitions` make one pass over all the data for each transition.

The functions here are plain Python in the subset that numba compiles. `model.compile` compiles them
once, and hands them the functions of a model; tests run them interpreted, with identical draws.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.acceptance.base import (
    Accept,
    Clipped,
    Decide,
    Draw,
    Others,
    RuleFunctions,
    Sample,
    nothing_read,
    standard_error,
)
from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import CompiledError
from pymc_austerity.kernels.subsample import (
    Rows,
    among_others,
    draw_without_replacement,
    positions,
    random_offset,
    restore_order,
)
from pymc_austerity.proposals.base import ProposalKernel
from pymc_austerity.target import CHUNK, Target, Vector, chunk_from

RangeOf = Callable[[Any, Vector, Vector, tuple[Any, ...], Rows, Target], float]

# Rounding of log ratios, which are differences of larger numbers.
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9


class RangeBoundError(CompiledError):
    """Log ratios that were read span more than a bound on the range of all."""

    sentence = (
        "The range of the log ratios was bounded by {0}, but those of {1} terms already span {2}: the "
        "bound is wrong, and so would be the decisions. It has to bound max_i l_i - min_i l_i, which may be "
        "twice the largest |l_i|."
    )


class Rule(NamedTuple):
    """A decision rule for a population: its numbers, then its functions."""

    schedule: Any  # Stages of the decision, a `Schedule` or one like it
    bound: Any  # What `range_of` needs
    # draw, decide, accept, others, clipped: see `RuleFunctions`
    draw: Draw
    decide: Decide
    accept: Accept
    others: Others
    clipped: Clipped
    range_of: RangeOf  # see `kernels.log_ratio_range`


class Outcome(NamedTuple):
    """Outcome of several transitions in a row."""

    q: Vector
    n_accepted: int
    n_used: int
    n_stages: int
    n_exhausted: int
    n_clipped: int
    accepted: bool
    log_ratio_mean: float
    log_ratio_se: float
    psi: float


@jitable
def transitions(
    n_transitions: int,
    tune: bool,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    rows: Rows,
    rule: Rule,
    proposal: ProposalKernel,
    target: Target,
) -> Outcome:
    """Run Metropolis-Hastings transitions from `q`, of shape (D,), which the rule decides from a subsample.

    The proposal learns while `tune`. `args` are handed to the functions of `target`. Exact rows are read at
    every transition, the others are sampled from.
    """
    n_exact = rows.exact_rows.shape[0]
    n_accepted = n_used = n_stages = n_exhausted = n_clipped = 0
    accepted = False
    mean = error = psi = math.nan
    for _ in range(n_transitions):
        q_new, base = proposal.move(proposal, q, rng, args, target)
        threshold = rule.draw(rng)
        # A surrogate may stay where it is; then there is nothing to decide.
        stayed = base == math.inf and np.all(q_new == q)
        if -math.inf < base < math.inf and n_exact > 0:
            for x in target.log_ratios(q_new, q, rows.exact_rows, args):
                base += x
            n_used += n_exact
        psi = (threshold - base) / rows.n_others
        if stayed:
            accepted, mean, error = True, 0.0, 0.0
        elif base == -math.inf or math.isnan(base):
            # Outside the support of the prior: reject without a look at the data.
            accepted, mean, error = False, math.nan, math.nan
        elif base == math.inf:
            accepted, mean, error = (
                leaves_zero(q_new, q, args, n_exact + rows.n_others, target),
                math.nan,
                0.0,
            )
        else:
            width = rule.range_of(rule.bound, q_new, q, args, rows, target)
            sample, stages, n_read = sequential_test(rng, psi, width, q_new, q, args, rows, rule, target)
            if math.isfinite(sample.mean):
                accepted = rule.accept(rule.schedule, sample, psi, rng)
            else:
                is_infinite = sample.mean == math.inf
                accepted = is_infinite and leaves_zero(q_new, q, args, n_exact + rows.n_others, target)
            mean, error = sample.mean, standard_error(sample.n, rows.n_others, sample.m2)
            n_used += n_read
            n_stages += stages
            n_exhausted += sample.n == rows.n_others
            n_clipped += rule.clipped(rule.schedule, sample)
        if accepted:
            q = q_new
            n_accepted += 1
        if tune:
            proposal.adapt(proposal.state, q, accepted)
    return Outcome(q, n_accepted, n_used, n_stages, n_exhausted, n_clipped, accepted, mean, error, psi)


@jitable
def leaves_zero(q_new: Vector, q: Vector, args: tuple[Any, ...], n_local: int, target: Target) -> bool:
    """Whether a log ratio of plus infinity accepts: where the density is zero at q, and finite at q_new.

    It is infinite as well where rounding makes the new density infinite. A chain would never leave that.
    """
    return not has_density(q, args, n_local, target) and has_density(q_new, args, n_local, target)


@jitable
def has_density(q: Vector, args: tuple[Any, ...], n_local: int, target: Target) -> bool:
    """Is the density at q positive and finite? Else the log of its ratio to itself is not a number."""
    if math.isnan(target.global_log_ratio(q, q, args)):
        return False
    for start in range(0, n_local, CHUNK):
        for x in target.log_ratios(q, q, chunk_from(start, n_local), args):
            if math.isnan(x):
                return False
    return True


@jitable
def sequential_test(
    rng: np.random.Generator,
    psi: float,
    width: float,
    q_new: Vector,
    q: Vector,
    args: tuple[Any, ...],
    rows: Rows,
    rule: Rule,
    target: Target,
) -> tuple[Sample, int, int]:
    """Read more and more log ratios until the rule is satisfied, or others after a pilot.

    Returns the sample of the rows that decide, the number of stages, and that of the rows that were read,
    those of a pilot too.
    """
    schedule, population = rule.schedule, rows.population
    block = schedule.block
    offset = random_offset(rng, block, rows.n_others)
    sample = nothing_read(rows.n_others)
    begin, end = 0, schedule.ends[rows.first_stage]
    stage = n_pilot = 0
    while True:
        draw_without_replacement(rng, population, begin // block, end // block)
        for start in range(begin, end, CHUNK):
            stop = min(start + CHUNK, end)
            index = among_others(positions(population, block, rows.n_others, offset, start, stop), rows)
            sample = merge(sample, target.log_ratios(q_new, q, index, args))
            if not math.isfinite(sample.mean):
                break
        if sample.high - sample.low > width * (1.0 + _RELATIVE) + _ABSOLUTE:
            raise RangeBoundError(width, sample.n, sample.high - sample.low)
        stage += 1
        if n_pilot > 0 or not math.isfinite(sample.mean):
            break
        if rule.decide(schedule, rows.first_stage + stage - 1, sample, psi, width):
            break
        others = rule.others(schedule, sample)
        begin = end
        if others > 0:
            n_pilot, end = sample.n, end + others
            sample = nothing_read(rows.n_others)
        else:
            end = schedule.ends[rows.first_stage + stage]
    restore_order(population, end // block)
    return sample, stage, n_pilot + sample.n


@jitable
def merge(sample: Sample, batch: Vector) -> Sample:
    """Add a batch to what is known of a sample (mean and squares as in Chan et al. 1979).

    Deviations are taken from the first number of the batch, so that equal numbers have exactly none. A
    sum that is not finite is returned as the mean: minus infinity rejects, as NaN does.
    """
    n, m = sample.n, batch.shape[0]
    total = 0.0
    for x in batch:
        total += x
    if not math.isfinite(total):
        return Sample(
            n + m, sample.n_local, total, math.nan, math.nan, math.nan, math.nan, math.nan, math.nan, math.nan
        )
    origin = batch[0]
    shift = 0.0
    for x in batch:
        shift += x - origin
    shift /= m
    batch_m2 = 0.0
    low, high = sample.low, sample.high
    center = sample.center if n else origin + shift
    absolute, cubed, signed_cubed = sample.absolute, sample.cubed, sample.signed_cubed
    for x in batch:
        deviation = x - origin - shift
        batch_m2 += deviation * deviation
        low = min(low, x)
        high = max(high, x)
        departure = x - center
        distance = abs(departure)
        absolute += distance
        cubed += distance * distance * distance
        signed_cubed += distance * distance * departure
    delta = origin - sample.mean + shift
    share = m / (n + m)
    mean = sample.mean + delta * share
    m2 = sample.m2 + batch_m2 + delta * delta * n * share
    return Sample(n + m, sample.n_local, mean, m2, low, high, center, absolute, cubed, signed_cubed)


@jitable
def no_range(
    bound: Any, q_new: Vector, q: Vector, args: tuple[Any, ...], rows: Rows, target: Target
) -> float:
    """NaN as the range, for rules that do not ask for it."""
    return math.nan


class Current(NamedTuple):
    """The sum of all local terms at a state, kept from one transition to the next."""

    n_local: int  # N
    q: Vector  # (D,): the state
    total: Vector  # (1,): sum of l_i(q); NaN if it is not known


def unknown_sum(n_local: int, q: Vector) -> Current:
    """The sum at a state where nothing has been summed: NaN."""
    return Current(n_local, q.copy(), np.array([np.nan]))


@jitable
def full_transitions(
    n_transitions: int,
    tune: bool,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    current: Current,
    rule: RuleFunctions,
    proposal: ProposalKernel,
    target: Target,
) -> Outcome:
    """Run Metropolis-Hastings transitions from `q`, of shape (D,), on all the data.

    The proposal learns while `tune`. `args` are handed to the functions of `target`, of which `log_terms` and
    `global_log_ratio` are called. `current` is read if it belongs to `q`, and left at the last state. Of the
    rule `draw` is called: with all terms read, there is nothing else to decide.
    """
    n_local = current.n_local
    n_accepted = n_used = n_stages = 0
    accepted = False
    mean = error = psi = math.nan
    here = current.total[0]
    if n_transitions and (math.isnan(here) or np.any(current.q != q)):
        here = total(q, args, n_local, target)
    if n_transitions:
        current.total[0] = math.nan  # until the end, in case a user's proposal raises
    for _ in range(n_transitions):
        q_new, base = proposal.move(proposal, q, rng, args, target)
        threshold = rule.draw(rng)
        psi = (threshold - base) / n_local
        if (
            base == math.inf
            and not np.all(q_new == q)
            and not math.isnan(target.global_log_ratio(q, q, args))
        ):
            base = math.nan  # rounding has made the new density infinite: a chain would never leave it
        if base == -math.inf or math.isnan(base):
            accepted, mean, error = False, math.nan, math.nan
        else:
            there = total(q_new, args, n_local, target)
            mean, error = (there - here) / n_local, 0.0
            accepted = mean > psi and there < math.inf
            n_used += n_local
            n_stages += 1
            if accepted:
                here = there
        if accepted:
            q = q_new
            n_accepted += 1
        if tune:
            proposal.adapt(proposal.state, q, accepted)
    if n_transitions:
        for i in range(len(q)):  # q[:] = ... takes numba seconds to compile
            current.q[i] = q[i]
        current.total[0] = here
    return Outcome(q, n_accepted, n_used, n_stages, n_stages, 0, accepted, mean, error, psi)


@jitable
def total(q: Vector, args: tuple[Any, ...], n_local: int, target: Target) -> float:
    """Sum of all local terms at q, by Neumaier's compensated summation.

    A difference of two sums of a million terms is compared with a number of the order of one.
    """
    result = lost = 0.0
    for start in range(0, n_local, CHUNK):
        index = chunk_from(start, n_local)
        part = 0.0
        for x in target.log_terms(q, index, args):
            part += x
        new = result + part
        if abs(result) >= abs(part):
            lost += (result - new) + part
        else:
            lost += (part - new) + result
        result = new
    return result + lost if math.isfinite(result) else result
