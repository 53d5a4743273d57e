"""Statistics of the likelihood at one transition, how they are had, and the noise in them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_austerity.kernels.cox_ingersoll_ross import cir_noise
from pymc_austerity.model.conjugacy.families import GammaFamily
from pymc_austerity.model.conjugacy.forms import Totals
from pymc_austerity.model.conjugacy.statistics import Conjugacy, Groups
from pymc_austerity.target import Array


class Anchor(NamedTuple):
    """Point at which statistics were last taken in full, and these."""

    age: int  # Transitions since then
    others: dict[str, np.ndarray]  # Values of other variables
    references: tuple[Array, ...]
    totals: Totals


class Estimate(NamedTuple):
    """Statistics of the likelihood at one transition."""

    totals: Totals  # Estimates of s and t over all data
    groups: list[Groups]  # Of the minibatch of each local term; empty if nothing was estimated
    n_used: int  # Rows that were read
    noisy_rate: bool = False  # Whether t is estimated too
    anchor: Anchor | None = None  # That from which changes were estimated


class Estimator(Protocol):
    """Source of a likelihood's statistics: all rows, or minibatches."""

    @property
    def is_subsampled(self) -> bool:
        """Whether minibatches are read."""

    @property
    def is_anchored(self) -> bool:
        """Whether only changes since an anchor are estimated."""

    def estimate(
        self,
        conjugacy: Conjugacy,
        log_theta: Array,
        point: Mapping[str, Any],
        rng: np.random.Generator,
        anchor: Anchor | None,
    ) -> Estimate:
        """Statistics of the likelihood at a point.

        Parameters
        ----------
        conjugacy : Conjugacy
        log_theta : ndarray of shape (n_rows, n_parts)
            Where the processes are.
        point : dict of str to ndarray
            Values of the other variables.
        rng : numpy.random.Generator
        anchor : Anchor or None
            That of the last call.
        """


@dataclass(frozen=True)
class AllRows:
    """Statistics of all data, which are known if they depend on no other variable."""

    is_subsampled = False
    is_anchored = False

    def estimate(
        self,
        conjugacy: Conjugacy,
        log_theta: Array,
        point: Mapping[str, Any],
        rng: np.random.Generator,
        anchor: Anchor | None,
    ) -> Estimate:
        """Exact statistics, from no row or from every one."""
        if conjugacy.structure.totals is not None:
            return Estimate(conjugacy.structure.totals, [], 0)
        return Estimate(conjugacy.full(conjugacy.place(log_theta, point)), [], conjugacy.gradient.n_local)


def conditional(
    conjugacy: Conjugacy, prior: tuple[Array, Array], totals: Totals, log_theta: Array, shift: float | None
) -> tuple[Array, Array]:
    """Shapes and rates of the processes during a transition.

    Parameters
    ----------
    conjugacy : Conjugacy
    prior : (ndarray, ndarray)
        Shapes and rates of the prior.
    totals : Totals
        Statistics of the likelihood, or estimates.
    log_theta : ndarray
        Where the processes are.
    shift : float or None
        M of a drift that is frozen. None: that of the structure.
    """
    (alpha, rate), structure = prior, conjugacy.structure
    return structure.form.gamma_parameters(
        conjugacy.prior.family,
        alpha + totals.s,
        rate + totals.t,
        log_theta,
        structure.shift if shift is None else shift,
    )


def variance_inflation(noise: float, step_size: float) -> float:
    """The sample statistic, and the square of what is told when a step is built.

    Parameters
    ----------
    noise : float
        A mean of `noise_ratio`.
    step_size : float
    """
    return 1.0 + cir_noise(step_size) * noise


def noise_ratio(estimate: Estimate, shape: Array, rate: Array, family: GammaFamily) -> float:
    """Var(a_hat) over the exact variance of gamma variables with rate one, both pooled over components.

    On a simplex it is the variance along it: noise in the total does not move w.

    Returns
    -------
    float
        Zero if nothing was estimated, NaN from a single row.
    """
    if not estimate.groups:
        return 0.0
    variance = np.zeros_like(shape)
    for totals, sizes, n_rows in estimate.groups:
        noise = totals.s - totals.t * (shape / rate) if estimate.noisy_rate else totals.s
        noise = family.relevant_noise(noise, shape)
        n = int(sizes.sum())
        if n == n_rows:
            continue
        if n == 1:
            return math.nan
        # A group of m of the n rows has the variance m (1 - m / n) S^2, given the batch.
        share = sizes[:, None, None] / n
        squares = ((noise - share * noise.sum(axis=0)) ** 2).sum(axis=0)
        variance += n_rows * (n_rows - n) / n * squares / float((sizes * (1.0 - sizes / n)).sum())
    return float(variance.sum() / family.variance(shape).sum())
