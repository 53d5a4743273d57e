"""Metropolis-Hastings transitions that decide from a subsample: Algorithm 1 of Korattikara et al. (2014).

The functions here are plain Python in the subset that numba compiles. `model.compile` compiles them
around the functions of a model; tests run them interpreted, with identical draws.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.acceptance.base import Decide, Schedule, standard_error
from pymc_austerity.kernels.subsample import (
    draw_without_replacement,
    positions,
    random_offset,
    restore_order,
)
from pymc_austerity.proposals.base import Adapt, Propose
from pymc_austerity.target import Index, Target, Vector

# Terms evaluated at a time: memory stays small when a decision needs all of them.
CHUNK = 8192


class Outcome(NamedTuple):
    """What several transitions in a row did."""

    q: Vector
    n_accepted: int
    n_used: int
    n_stages: int
    n_exhausted: int
    accepted: bool
    log_ratio_mean: float
    log_ratio_se: float
    psi: float


@register_jitable
def transitions(
    n_transitions: int,
    tune: bool,
    rng: np.random.Generator,
    q: Vector,
    args: tuple[Any, ...],
    population: Index,
    proposal: Any,
    schedule: Schedule,
    propose: Propose,
    adapt: Adapt,
    decide: Decide,
    target: Target,
) -> Outcome:
    """Run Metropolis-Hastings transitions from `q`.

    Parameters
    ----------
    n_transitions : int
    tune : bool
        Whether the proposal learns.
    rng : numpy.random.Generator
    q : ndarray of shape (D,)
    args : tuple
        Handed to the functions of `target`.
    population : ndarray of int, shape (N // schedule.block,)
        Numbers of the blocks, in order; see `subsample`.
    proposal, schedule : NamedTuple
        State of the proposal, and stages of the decision rule.
    propose, adapt, decide : callable
        See `BoundProposal` and `AcceptanceRule`.
    target : Target

    Returns
    -------
    Outcome
    """
    n_local = schedule.ends[-1]
    n_accepted = n_used = n_stages = n_exhausted = 0
    accepted = False
    mean = error = psi = math.nan
    for _ in range(n_transitions):
        q_new, log_hastings = propose(proposal, q, rng)
        u = rng.random()
        log_u = math.log(u) if u > 0.0 else -math.inf
        base = target.global_log_ratio(q_new, q, args) + log_hastings
        psi = (log_u - base) / n_local
        if base == -math.inf or math.isnan(base):
            # Outside the support of the prior: reject without a look at the data.
            n, stages, mean, error = 0, 0, math.nan, math.nan
            accepted = False
        else:
            n, stages, mean, error = sequential_test(
                rng, psi, q_new, q, args, population, schedule, decide, target
            )
            accepted = mean > psi
            n_used += n
            n_stages += stages
            n_exhausted += n == n_local
        if accepted:
            q = q_new
            n_accepted += 1
        if tune:
            adapt(proposal, q, accepted)
    return Outcome(q, n_accepted, n_used, n_stages, n_exhausted, accepted, mean, error, psi)


@register_jitable
def sequential_test(
    rng: np.random.Generator,
    psi: float,
    q_new: Vector,
    q: Vector,
    args: tuple[Any, ...],
    population: Index,
    schedule: Schedule,
    decide: Decide,
    target: Target,
) -> tuple[int, int, float, float]:
    """Estimate the mean log ratio from more and more terms until `decide` is satisfied.

    Returns
    -------
    n : int
        Terms evaluated.
    stages : int
    mean, error : float
        Mean of the log ratios seen, and its standard error.
    """
    n_local = schedule.ends[-1]
    offset = random_offset(rng, schedule)
    n = stage = 0
    mean = m2 = 0.0
    while True:
        end = schedule.ends[stage]
        draw_without_replacement(rng, population, n // schedule.block, end // schedule.block)
        for start in range(n, end, CHUNK):
            stop = min(start + CHUNK, end)
            index = positions(population, schedule, offset, start, stop)
            log_ratios = target.log_ratios(q_new, q, index, args)
            mean, m2 = merge(start, mean, m2, log_ratios)
            n = stop
            if not math.isfinite(mean):
                break
        stage += 1
        if not math.isfinite(mean):
            break
        if decide(schedule, stage - 1, n, n_local, mean, m2, psi):
            break
    restore_order(population, end // schedule.block)
    error = standard_error(n, n_local, m2)
    return n, stage, mean, error


@register_jitable
def merge(n: int, mean: float, m2: float, batch: Vector) -> tuple[float, float]:
    """Add a batch to the running mean and sum of squared deviations of n numbers (Chan et al. 1979).

    Deviations are taken from the first number of the batch, so that equal numbers have exactly none. A
    sum that is not finite is returned as the mean: minus infinity rejects, as NaN does.
    """
    m = batch.shape[0]
    total = 0.0
    for x in batch:
        total += x
    if not math.isfinite(total):
        return total, math.nan
    origin = batch[0]
    shift = 0.0
    for x in batch:
        shift += x - origin
    shift /= m
    batch_m2 = 0.0
    for x in batch:
        deviation = x - origin - shift
        batch_m2 += deviation * deviation
    delta = origin - mean + shift
    share = m / (n + m)
    return mean + delta * share, m2 + batch_m2 + delta * delta * n * share
