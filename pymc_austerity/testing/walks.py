"""Chains of a proposal that decide exactly, interpreted or compiled."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import register_jitable

from pymc_austerity.acceptance.exact import Exact
from pymc_austerity.kernels.log_ratio_range import no_range
from pymc_austerity.kernels.metropolis import transitions
from pymc_austerity.kernels.moves import proposed_move
from pymc_austerity.kernels.stratum import NO_STRATUM
from pymc_austerity.proposals.base import Adapt, BoundProposal, Propose
from pymc_austerity.target import Index, Target, Vector
from pymc_austerity.testing.targets import Law


class Walks(NamedTuple):
    """What the checks of a proposal run.

    Attributes
    ----------
    propose : callable
        ``(state, q, rng) -> (q_new, log_hastings)``.
    run : callable
        ``(starts, n, tune, rng, population, state, schedule) -> (ends, n_accepted)``.
    """

    propose: Callable[..., Any]
    run: Callable[..., tuple[np.ndarray, int]]

    def chains(
        self, starts: np.ndarray, n: int, tune: bool, rng: np.random.Generator, state: Any
    ) -> tuple[np.ndarray, int]:
        """Run `n` transitions from each of `starts`; return where they end, and how many were accepted."""
        return self.run(starts, n, tune, rng, np.arange(1), state, Exact().bind(1))


def interpreted(bound: BoundProposal, law: Law) -> Walks:
    """In plain Python."""
    return Walks(bound.propose, _walk(bound.propose, bound.adapt, law.log_density))


def compiled(bound: BoundProposal, law: Law, starts: np.ndarray) -> Walks | None:
    """The same, compiled; None for a function of the user that numba cannot compile.

    Raises
    ------
    AssertionError
        If numba cannot compile a proposal that says it can.
    """
    walks = _dispatchers(bound.propose, bound.adapt, law.log_density)
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
def _dispatchers(propose: Propose, adapt: Adapt, log_density: Callable[[Vector], float]) -> Walks:
    """To be compiled when they are called."""

    def one(state: Any, q: Vector, rng: np.random.Generator) -> tuple[Vector, float]:
        return propose(state, q, rng)  # type: ignore[no-any-return]

    return Walks(numba.njit(one), numba.njit(_walk(propose, adapt, log_density)))


def _walk(
    propose: Propose, adapt: Adapt, log_density: Callable[[Vector], float]
) -> Callable[..., tuple[np.ndarray, int]]:
    global_log_ratio, log_ratios = _target_of(log_density)
    draw, decide, accept = Exact().functions

    def walk(
        starts: np.ndarray,
        n: int,
        tune: bool,
        rng: np.random.Generator,
        population: Index,
        state: Any,
        schedule: Any,
    ) -> tuple[np.ndarray, int]:
        ends, n_accepted = np.empty_like(starts), 0
        for c in range(starts.shape[0]):
            out = transitions(
                n, tune, rng, starts[c].copy(), (), population, NO_STRATUM, state, schedule, 0,
                proposed_move, propose, adapt, draw, decide, accept, no_range,
                Target(global_log_ratio, log_ratios),
            )  # fmt: skip
            ends[c] = out.q
            n_accepted += out.n_accepted
        return ends, n_accepted

    return walk


@lru_cache(maxsize=32)
def _target_of(log_density: Callable[[Vector], float]) -> Target:
    """One local term: the log density."""

    @register_jitable
    def log_ratios(q_new: Vector, q: Vector, index: Index, args: Any) -> Vector:
        return np.full(index.shape[0], log_density(q_new) - log_density(q))

    @register_jitable
    def global_log_ratio(q_new: Vector, q: Vector, args: Any) -> float:
        return 0.0

    return Target(global_log_ratio, log_ratios)
