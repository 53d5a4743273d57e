"""Targets with a known distribution, as functions that run interpreted and compiled, and runs on them.

* A chain of a few states with N local terms for each: its transition probabilities can be written down.
* Distributions with independent coordinates, for proposals.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.metropolis import Rule, transitions
from pymc_austerity.kernels.subsample import Rows
from pymc_austerity.model.compile.protocol import constructor
from pymc_austerity.proposals.base import ProposalKernel
from pymc_austerity.target import Index, Target, Vector

# An enumerated chain --------------------------------------------------------------------------------


class Chain(NamedTuple):
    """States 0, ..., K - 1, of which each has N local terms and a global one."""

    terms: np.ndarray  # (K, N)
    prior: np.ndarray  # (K,): the global term
    jumps: np.ndarray  # (K, K): probabilities of the proposal, from row to column

    @property
    def args(self) -> tuple[Any, ...]:
        """Arguments of the functions of `CHAIN`: the local terms, and the global one."""
        return self.terms, self.prior

    @property
    def law(self) -> np.ndarray:
        """Probabilities of the states."""
        log_density = self.terms.sum(axis=1) + self.prior
        density = np.exp(log_density - log_density.max())
        return np.asarray(density / density.sum())

    @property
    def log_hastings(self) -> np.ndarray:
        """Log of the reverse over the forward probability of each jump."""
        return np.asarray(np.log(self.jumps.T / self.jumps))

    @property
    def log_ratios(self) -> np.ndarray:
        """Log acceptance ratio of each jump."""
        total = self.terms.sum(axis=1) + self.prior
        return np.asarray(total[None, :] - total[:, None] + self.log_hastings)

    @property
    def ranges(self) -> np.ndarray:
        """Range of the N log ratios of each jump."""
        return np.array([[np.ptp(new - old) for new in self.terms] for old in self.terms])


# Probabilities of jumps, far from symmetric.
_JUMPS = np.array(
    [
        [0.10, 0.40, 0.30, 0.20],
        [0.25, 0.15, 0.35, 0.25],
        [0.45, 0.20, 0.15, 0.20],
        [0.20, 0.35, 0.25, 0.20],
    ]
)
_PRIOR = np.array([0.2, -0.3, 0.4, 0.1])
_TOTALS = np.array([0.0, 2.2, 0.6, -0.5])
# Standard deviation of the log likelihood if terms were drawn with replacement; a jump has the root of
# the sum of two squares: 0.9 to 2.9. Decisions between such states take more than one stage, seldom all N.
_SPREADS = np.array([0.5, 0.77, 1.5, 2.5])


def normal_chain(n_local: int = 2000) -> Chain:
    """A chain whose log ratios are normal quantiles, so that batch means are nearly normal."""
    z = ndtri((np.arange(n_local) + 0.5) / n_local)
    z /= z.std()
    rng = np.random.default_rng(0)
    deviations = np.array([rng.permutation(z) for _ in _SPREADS])
    terms = _TOTALS[:, None] / n_local + _SPREADS[:, None] * deviations / np.sqrt(n_local)
    return Chain(terms, _PRIOR, _JUMPS)


def two_point_chain(n_local: int = 2000) -> Chain:
    """A chain whose log ratios have two values, half of them each: the most variance that a range allows.

    Here bounds on the range are as sharp as they can be. All log ratios are zero in total, and far from zero
    one by one, so every subsample leaves the decision open.
    """
    signs = np.where(np.arange(n_local) % 2 == 0, 1.0, -1.0)
    terms = np.array([[0.0], [0.5], [1.0], [1.5]]) * signs
    return Chain(terms, np.zeros(4), np.full((4, 4), 0.25))


@jitable
def chain_global(q_new: Vector, q: Vector, args: tuple[Any, ...]) -> float:
    """Difference of the global terms of two states."""
    return args[1][int(q_new[0])] - args[1][int(q[0])]  # type: ignore[no-any-return]


@jitable
def chain_log_ratios(q_new: Vector, q: Vector, index: Index, args: tuple[Any, ...]) -> Vector:
    """Differences of the local terms of two states."""
    return args[0][int(q_new[0])][index] - args[0][int(q[0])][index]  # type: ignore[no-any-return]


@jitable
def chain_terms(q: Vector, index: Index, args: tuple[Any, ...]) -> Vector:
    """Local terms of a state."""
    return args[0][int(q[0])][index]  # type: ignore[no-any-return]


CHAIN = Target(chain_global, chain_log_ratios, chain_terms)


# Distributions with independent coordinates ---------------------------------------------------------


class Law(NamedTuple):
    """A distribution with D independent coordinates, all of one kind."""

    log_density: Callable[[Vector], float]  # ``(q) -> float``, up to a constant; `register_jitable`
    # Makes a coordinate of a standard normal number, strictly increasing; for arrays.
    from_normal: Callable[[np.ndarray], np.ndarray]
    to_normal: Callable[[np.ndarray], np.ndarray]  # the inverse of `from_normal`


@jitable
def _log_normal_density(q: Vector) -> float:
    total = 0.0
    for x in q:
        total -= 0.5 * (x - 1.5) * (x - 1.5)
    return total


@jitable
def _log_of_log_normal_density(q: Vector) -> float:
    total = 0.0
    for x in q:
        if x <= 0.0:
            return -np.inf
        total -= 0.5 * (np.log(x) / 0.7) ** 2 + np.log(x)
    return total


# On all of the real line, and off center, so that a proposal that scales is not symmetric.
NORMAL = Law(_log_normal_density, lambda z: z + 1.5, lambda q: q - 1.5)
# For proposals of positive numbers.
LOG_NORMAL = Law(_log_of_log_normal_density, lambda z: np.exp(0.7 * z), lambda q: np.log(q) / 0.7)


# Runs on either of them, with all that happens recorded ---------------------------------------------------


class Trace(NamedTuple):
    """Result of each transition of a run, chain by chain: vectors of a length of C n."""

    q: np.ndarray  # (C n, D): where it ended
    accepted: np.ndarray  # of bool
    n_used: np.ndarray
    n_stages: np.ndarray
    mean: np.ndarray  # of the log ratios that were read
    psi: np.ndarray  # what the mean was compared with


Run = Callable[..., Trace]


def runs(target: Target, proposal: ProposalKernel, rule: Rule) -> Run:
    """``(starts, n, tune, rng, args, rows, state, schedule, bound) -> Trace``, interpreted.

    Of n transitions from each of C starts, of shape (C, D). The state of the proposal, and the schedule and
    the bound of the rule, are open: ellipses.
    """
    make_target, make_proposal, make_rule = constructor(target), constructor(proposal), constructor(rule)

    def run(
        starts: np.ndarray,
        n: int,
        tune: bool,
        rng: np.random.Generator,
        args: Any,
        rows: Rows,
        state: Any,
        schedule: Any,
        bound: Any,
    ) -> Trace:
        length = starts.shape[0] * n
        q, accepted = np.empty((length, starts.shape[1])), np.empty(length, np.bool_)
        n_used, n_stages = np.empty(length, np.int64), np.empty(length, np.int64)
        mean, psi = np.empty(length), np.empty(length)
        for c in range(starts.shape[0]):
            here = starts[c].copy()
            for t in range(c * n, (c + 1) * n):
                out = transitions(
                    1, tune, rng, here, args, rows, make_rule(schedule, bound), make_proposal(state),
                    make_target(),
                )  # fmt: skip
                here = out.q
                q[t], accepted[t], n_used[t], n_stages[t] = here, out.accepted, out.n_used, out.n_stages
                mean[t], psi[t] = out.log_ratio_mean, out.psi
        return Trace(q, accepted, n_used, n_stages, mean, psi)

    return run
