"""Metropolis-Hastings transitions on all the data, one pass for each."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.acceptance.base import RuleFunctions
from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.proposals.base import ProposalKernel
from pymc_austerity.target import CHUNK, Target, Vector


class Current(NamedTuple):
    """The sum of all local terms at a state, kept from one transition to the next.

    Attributes
    ----------
    n_local : int
        N.
    q : ndarray of shape (D,)
        The state.
    total : ndarray of shape (1,)
        Sum of l_i(q); NaN if it is not known.
    """

    n_local: int
    q: Vector
    total: Vector


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
    current : Current
        Read if it belongs to `q`, and left at the last state.
    rule : RuleFunctions
        Of which `draw` is called: with all terms read, there is nothing else to decide.
    proposal : ProposalKernel
    target : Target
        Its `log_terms` and `global_log_ratio` are called.

    Returns
    -------
    Outcome
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
        index = np.arange(start, min(start + CHUNK, n_local))
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
