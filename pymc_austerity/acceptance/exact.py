"""Decisions from all the data: Metropolis's test, and Barker's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pymc_austerity.acceptance.base import (
    RuleFunctions,
    Sample,
    Schedule,
    above,
    log_uniform,
    metropolis_target_accept,
)
from pymc_austerity.compilation import jitable


@dataclass(frozen=True)
class Exact:
    """Metropolis's test on all N local terms: accept if log u < log ratio.

    Notes
    -----
    *Guarantee*: the ordinary Metropolis-Hastings algorithm. Steps keep the sum of the l_i at the current
    state, so a transition evaluates every term once, at the proposed state.

    *When it fails*: it does not; it costs O(N) for each transition. Where the terms depend on variables that
    other steps have moved since, the current state is evaluated too.

    Examples
    --------
    >>> from pymc_austerity import Exact
    >>> Exact().error_bound(n_local=10_000)
    0.0

    It is what a step uses that is told nothing else: ``MetropolisHastings(acceptance=Exact())``.
    """

    def bind(self, n_local: int) -> Schedule:
        """Schedule of one stage, which reads all n_local terms."""
        return Schedule(np.array([n_local], dtype=np.int64), np.array([0.0]))

    def target_accept(self, n_dim: int) -> float:
        """Acceptance rate for Metropolis's rule."""
        return metropolis_target_accept(n_dim)

    def error_bound(self, n_local: int) -> float:
        """Error of acceptance probabilities: 0, since all terms are read."""
        return 0.0

    @property
    def functions(self) -> RuleFunctions:
        """Decided when everything is seen."""
        return RuleFunctions(log_uniform, all_seen, above)


@dataclass(frozen=True)
class ExactBarker:
    """Barker's test on all N local terms: accept with probability 1 / (1 + exp(-log ratio)).

    Notes
    -----
    Barker (1965); equations 9-10 of Seita et al. (2017): accept if the log ratio exceeds a logistic random
    number.

    *Guarantee*: detailed balance holds exactly. For one proposal Barker's test accepts less often than
    Metropolis's, at least half as often.

    *When it fails*: it does not; it costs O(N) for each transition, as `Exact`.

    Examples
    --------
    >>> from pymc_austerity.acceptance import ExactBarker
    >>> ExactBarker().target_accept(n_dim=10)
    0.19

    Give it to a step: ``MetropolisHastings(acceptance=ExactBarker())``.
    """

    def bind(self, n_local: int) -> Schedule:
        """Schedule of one stage, which reads all n_local terms."""
        return Schedule(np.array([n_local], dtype=np.int64), np.array([0.0]))

    def target_accept(self, n_dim: int) -> float:
        """Acceptance rate for Barker's rule."""
        return barker_target_accept(n_dim)

    def error_bound(self, n_local: int) -> float:
        """Error of acceptance probabilities: 0, since all terms are read."""
        return 0.0

    @property
    def functions(self) -> RuleFunctions:
        """Decided when everything is seen."""
        return RuleFunctions(logistic, all_seen, above)


def barker_target_accept(n_dim: int) -> float:
    """Acceptance rate to aim at with Barker's rule, which tends to 0.158 (Agrawal et al. 2023)."""
    for largest, rate in ((1, 0.27), (2, 0.23), (4, 0.21), (10, 0.19), (20, 0.17)):
        if n_dim <= largest:
            return rate
    return 0.16


@jitable
def logistic(rng: np.random.Generator) -> float:
    """Draw from the logistic distribution by inversion."""
    u = rng.random()
    return math.log(u / (1.0 - u)) if u > 0.0 else -math.inf


@jitable
def all_seen(schedule: Schedule, stage: int, sample: Sample, psi: float, width: float) -> bool:
    """Has every term been seen?"""
    return sample.n == sample.n_local
