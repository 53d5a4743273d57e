"""A rule and a proposal put into the kernels, interpreted or compiled, with all that happens recorded."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from pymc_austerity.acceptance.base import RuleFunctions
from pymc_austerity.compilation import entry, jitable
from pymc_austerity.kernels.full_data import full_transitions, unknown_sum
from pymc_austerity.kernels.metropolis import RangeOf, Rule, transitions
from pymc_austerity.kernels.subsample import Rows
from pymc_austerity.model.compile.records import constructor
from pymc_austerity.proposals.base import BoundProposal, no_adaptation
from pymc_austerity.target import Target, Vector
from pymc_austerity.testing.targets import CHAIN, Chain


class Trace(NamedTuple):
    """Result of each transition of a run.

    Attributes
    ----------
    state : ndarray of int
        Where it ended.
    accepted : ndarray of bool
    n_used, n_stages : ndarray of int
    mean, psi : ndarray of float
        Mean of the log ratios that were read, and what it was compared with.
    """

    state: np.ndarray
    accepted: np.ndarray
    n_used: np.ndarray
    n_stages: np.ndarray
    mean: np.ndarray
    psi: np.ndarray


class Jumps(NamedTuple):
    """State of a proposal that jumps between the states of a `Chain`; see there."""

    scale: Vector
    probabilities: np.ndarray
    log_hastings: np.ndarray


@jitable
def jump(state: Jumps, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
    """Draw the next state from a row of probabilities."""
    i, j, u = int(q[0]), 0, rng.random()
    while u >= state.probabilities[i, j] and j < state.probabilities.shape[1] - 1:
        u -= state.probabilities[i, j]
        j += 1
    return np.array([float(j)]), state.log_hastings[i, j]


def jumps_of(chain: Chain) -> Jumps:
    """The chain's own proposal."""
    return Jumps(np.array([np.nan]), chain.jumps, chain.log_hastings)


def one_jump(chain: Chain, there: int) -> Jumps:
    """Propose one state only, with the log_hastings of the chain's own proposal."""
    return jumps_of(chain)._replace(probabilities=np.eye(len(chain.prior))[np.full(len(chain.prior), there)])


@jitable
def tabulated_range(
    bound: Any, q_new: Vector, q: Vector, args: tuple[Any, ...], rows: Rows, target: Target
) -> float:
    """The exact range of the log ratios of a `Chain`; `bound` is its `ranges`."""
    return bound[int(q[0]), int(q_new[0])]  # type: ignore[no-any-return]


Run = Callable[..., Trace]


def interpreted(rule: RuleFunctions, range_of: RangeOf = tabulated_range) -> Run:
    """``(n, stay, rng, start, args, rows, jumps, schedule, ranges) -> Trace``.

    With `stay` each transition begins at `start`, and not where the one before ended.
    """
    make_rule, make_target = constructor(Rule(..., ..., *rule, range_of)), constructor(CHAIN)
    make_proposal = constructor(BoundProposal(None, jump, no_adaptation).kernel(...))

    def run(
        n: int,
        stay: bool,
        rng: np.random.Generator,
        start: Vector,
        args: Any,
        rows: Rows,
        jumps: Any,
        schedule: Any,
        ranges: Any,
    ) -> Trace:
        state, accepted = np.empty(n, np.int64), np.empty(n, np.bool_)
        n_used, n_stages = np.empty(n, np.int64), np.empty(n, np.int64)
        mean, psi = np.empty(n), np.empty(n)
        q = start
        for t in range(n):
            out = transitions(
                1, False, rng, q, args, rows, make_rule(schedule, ranges), make_proposal(jumps), make_target()
            )  # fmt: skip
            state[t], accepted[t], n_used[t], n_stages[t] = out.q[0], out.accepted, out.n_used, out.n_stages
            mean[t], psi[t] = out.log_ratio_mean, out.psi
            if not stay:
                q = out.q
        return Trace(state, accepted, n_used, n_stages, mean, psi)

    return run


@cache
def compiled(rule: RuleFunctions) -> Run:
    """The kernel of `interpreted`, compiled by numba.

    Raises
    ------
    AssertionError
        When it is called, if numba cannot compile the functions of the rule.
    """
    function: Any = entry(interpreted(rule), cache=False)

    def run(*args: Any) -> Trace:
        try:
            result: Trace = function(*args)
        except numba.core.errors.NumbaError as error:
            raise AssertionError(
                "numba cannot compile the functions of the rule. They have to be pure functions, marked with "
                f"numba.extending.register_jitable, of numbers and arrays of the schedule: {error}"
            ) from error
        return result

    return run


def all_terms(rule: RuleFunctions, chain: Chain, n: int, rng: np.random.Generator) -> np.ndarray:
    """Decisions of the kernel that keeps the sum at the current state, interpreted; from state 0."""
    q, accepted = np.zeros(1), np.empty(n, np.bool_)
    current = unknown_sum(chain.terms.shape[1], q)
    proposal = BoundProposal(jumps_of(chain), jump, no_adaptation)
    for t in range(n):
        out = full_transitions(
            1, False, rng, q, chain.args, current, rule, proposal.kernel(proposal.state), CHAIN
        )
        q, accepted[t] = out.q, out.accepted
    return accepted
