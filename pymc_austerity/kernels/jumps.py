"""Transitions between sub-models, counted by kind: those of `kernels.metropolis`."""

import math
from typing import Any

import numpy as np

from pymc_austerity.acceptance.base import RuleFunctions
from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.metropolis import Current, Outcome, Rule, full_transitions, transitions
from pymc_austerity.kernels.subsample import Rows
from pymc_austerity.proposals.base import ProposalKernel
from pymc_austerity.proposals.jumps import OTHER
from pymc_austerity.target import Target, Vector


@jitable
def counted_transitions(
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
    """`transitions`, one at a time: what each did is added to the tally of the proposal."""
    outcome = before_any(q)
    for _ in range(n_transitions):
        last = transitions(1, False, rng, outcome.q, args, rows, rule, proposal, target)
        learn(tune, last, proposal)
        outcome = with_last(outcome, last)
    return outcome


@jitable
def counted_full_transitions(
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
    """`full_transitions`, one at a time."""
    outcome = before_any(q)
    for _ in range(n_transitions):
        last = full_transitions(1, False, rng, outcome.q, args, current, rule, proposal, target)
        learn(tune, last, proposal)
        outcome = with_last(outcome, last)
    return outcome


@jitable
def before_any(q: Vector) -> Outcome:
    """Outcome of no transitions, to begin with."""
    return Outcome(q, 0, 0, 0, 0, 0, False, math.nan, math.nan, math.nan)


@jitable
def with_last(outcome: Outcome, last: Outcome) -> Outcome:
    """Outcome of transitions with that of one more."""
    return Outcome(
        last.q,
        outcome.n_accepted + last.n_accepted,
        outcome.n_used + last.n_used,
        outcome.n_stages + last.n_stages,
        outcome.n_exhausted + last.n_exhausted,
        outcome.n_clipped + last.n_clipped,
        last.accepted,
        last.log_ratio_mean,
        last.log_ratio_se,
        last.psi,
    )


@jitable
def learn(tune: bool, last: Outcome, proposal: ProposalKernel) -> None:
    """Count a transition; the given proposal of the other moves learns from those that were its own."""
    state = proposal.state
    kind = state.kind[0]
    state.tally[kind, 0] += 1.0
    state.tally[kind, 1] += last.n_accepted
    state.tally[kind, 2] += last.n_used
    if tune and kind == OTHER:
        p = len(last.q) - len(state.expansion.linear)
        proposal.learn(state.given, last.q[p:].copy(), last.accepted)
