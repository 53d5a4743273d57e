"""Targets with a known distribution, as functions that run interpreted and compiled.

* A chain of a few states with N local terms for each: its transition probabilities can be written down.
* Distributions with independent coordinates, for proposals.
* A linear regression with known noise: its posterior is normal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, Target, Vector

# An enumerated chain --------------------------------------------------------------------------------


class Chain(NamedTuple):
    """States 0, ..., K - 1, of which each has N local terms and a global one.

    Attributes
    ----------
    terms : ndarray of shape (K, N)
    prior : ndarray of shape (K,)
        The global term.
    jumps : ndarray of shape (K, K)
        Probabilities of the proposal, from row to column.
    """

    terms: np.ndarray
    prior: np.ndarray
    jumps: np.ndarray

    @property
    def args(self) -> tuple[Any, ...]:
        """Arguments of the functions of `CHAIN`: the local terms, and the global one."""
        return self.terms, self.prior

    @property
    def law(self) -> np.ndarray:
        """Probabilities of the states."""
        log_density = self.terms.sum(axis=1) + self.prior
        density = np.exp(log_density - log_density.max())
        law: np.ndarray = density / density.sum()
        return law

    @property
    def log_hastings(self) -> np.ndarray:
        """Log of the reverse over the forward probability of each jump."""
        log_hastings: np.ndarray = np.log(self.jumps.T / self.jumps)
        return log_hastings

    @property
    def log_ratios(self) -> np.ndarray:
        """Log acceptance ratio of each jump."""
        total = self.terms.sum(axis=1) + self.prior
        log_ratios: np.ndarray = total[None, :] - total[:, None] + self.log_hastings
        return log_ratios

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


# Distributions with independent coordinates
# ------------------------------------------------------------------


class Law(NamedTuple):
    """A distribution with D independent coordinates, all of one kind.

    Attributes
    ----------
    log_density : callable
        ``(q) -> float``, up to a constant; `register_jitable`.
    from_normal : callable
        Makes a coordinate of a standard normal number, strictly increasing; for arrays.
    to_normal : callable
        The inverse of `from_normal`.
    """

    log_density: Callable[[Vector], float]
    from_normal: Callable[[np.ndarray], np.ndarray]
    to_normal: Callable[[np.ndarray], np.ndarray]


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


# A Gaussian regression ------------------------------------------------------------------------------


@jitable
def normal_prior(q_new: Vector, q: Vector, args: tuple[Any, ...]) -> float:
    """N(0, 2^2) for each coefficient."""
    total = 0.0
    for d in range(q.shape[0]):
        total += (q[d] - q_new[d]) * (q[d] + q_new[d]) / 8.0
    return total


@jitable
def regression_log_ratios(q_new: Vector, q: Vector, index: Index, args: tuple[Any, ...]) -> Vector:
    """y_i ~ N(x_i . q, 1); `args` is (x, y)."""
    out = np.empty(index.shape[0])
    for k in range(index.shape[0]):
        i = index[k]
        new, old = args[1][i], args[1][i]
        for d in range(q.shape[0]):
            new -= args[0][i, d] * q_new[d]
            old -= args[0][i, d] * q[d]
        out[k] = 0.5 * (old - new) * (old + new)
    return out


@jitable
def regression_terms(q: Vector, index: Index, args: tuple[Any, ...]) -> Vector:
    """Log densities of rows of a regression at one state, up to a constant."""
    out = np.empty(index.shape[0])
    for k in range(index.shape[0]):
        i = index[k]
        rest = args[1][i]
        for d in range(q.shape[0]):
            rest -= args[0][i, d] * q[d]
        out[k] = -0.5 * rest * rest
    return out


REGRESSION = Target(normal_prior, regression_log_ratios, regression_terms)


class Normal(NamedTuple):
    """A normal distribution."""

    mean: np.ndarray
    cov: np.ndarray


def regression_posterior(x: np.ndarray, y: np.ndarray) -> Normal:
    """Law of the coefficients in y ~ N(x q, 1) with q ~ N(0, 2^2)."""
    cov = np.linalg.inv(x.T @ x + np.eye(x.shape[1]) / 4.0)
    return Normal(cov @ x.T @ y, cov)
