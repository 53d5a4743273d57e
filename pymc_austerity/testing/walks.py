"""Chains of a proposal that decide exactly, interpreted or compiled."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.acceptance.exact import Exact
from pymc_austerity.compilation import entry, jitable
from pymc_austerity.kernels.metropolis import Rule, no_range, transitions
from pymc_austerity.kernels.subsample import Rows, rows_of
from pymc_austerity.model.compile.records import constructor
from pymc_austerity.proposals.base import BoundProposal, ProposalKernel
from pymc_austerity.target import Index, Target, Vector
from pymc_austerity.testing.targets import Law


class Walks(NamedTuple):
    """Functions of a proposal that its checks run.

    Attributes
    ----------
    propose : callable
        ``(state, q, rng) -> (q_new, log_hastings)``.
    run : callable
        ``(starts, n, tune, rng, rows, state, schedule) -> (ends, n_accepted)``.
    """

    propose: Callable[..., Any]
    run: Callable[..., tuple[np.ndarray, int]]

    def chains(
        self, starts: np.ndarray, n: int, tune: bool, rng: np.random.Generator, state: Any
    ) -> tuple[np.ndarray, int]:
        """Run `n` transitions from each of `starts`; return where they end, and how many were accepted."""
        schedule = Exact().bind(1)
        return self.run(starts, n, tune, rng, rows_of(schedule), state, schedule)


def interpreted(bound: BoundProposal, law: Law) -> Walks:
    """Walks of a proposal in plain Python."""
    return Walks(bound.propose, _walk(bound.kernel(...), law.log_density))


def compiled(bound: BoundProposal, law: Law, starts: np.ndarray) -> Walks | None:
    """Walks of a proposal compiled by numba; None for a function of the user that numba cannot compile.

    Raises
    ------
    AssertionError
        If numba cannot compile a proposal that says it can.
    """
    walks = _dispatchers(bound.kernel(...), law.log_density)
    rng, state = np.random.default_rng(0), deepcopy(bound.state)
    try:
        walks.propose(state, starts[0], rng)
        walks.chains(starts[:1], 1, False, rng, state)
    except Exception as error:  # numba passes some errors of the code it compiles through
        if bound.compilable:
            raise AssertionError(f"numba cannot compile the proposal, which says it is: {error}") from error
        return None
    return walks


@lru_cache(maxsize=32)
def _dispatchers(proposal: ProposalKernel, log_density: Callable[[Vector], float]) -> Walks:
    """Walks of a proposal that are compiled when they are called."""
    propose = proposal.propose

    def one(state: Any, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
        return propose(state, q, rng)

    return Walks(entry(one, cache=False), entry(_walk(proposal, log_density), cache=False))


def _walk(
    proposal: ProposalKernel, log_density: Callable[[Vector], float]
) -> Callable[..., tuple[np.ndarray, int]]:
    make_target, make_proposal = constructor(_target_of(log_density)), constructor(proposal)
    make_rule = constructor(Rule(..., 0, *Exact().functions, no_range))

    def walk(
        starts: np.ndarray,
        n: int,
        tune: bool,
        rng: np.random.Generator,
        rows: Rows,
        state: Any,
        schedule: Any,
    ) -> tuple[np.ndarray, int]:
        ends, n_accepted = np.empty_like(starts), 0
        for c in range(starts.shape[0]):
            out = transitions(
                n, tune, rng, starts[c].copy(), (), rows, make_rule(schedule), make_proposal(state),
                make_target(),
            )  # fmt: skip
            ends[c] = out.q
            n_accepted += out.n_accepted
        return ends, n_accepted

    return walk


@lru_cache(maxsize=32)
def _target_of(log_density: Callable[[Vector], float]) -> Target:
    """Target with one local term: the log density."""

    @jitable
    def log_ratios(q_new: Vector, q: Vector, index: Index, args: Any) -> Vector:
        return np.full(index.shape[0], log_density(q_new) - log_density(q))

    @jitable
    def global_log_ratio(q_new: Vector, q: Vector, args: Any) -> float:
        return 0.0

    return Target(global_log_ratio, log_ratios)
