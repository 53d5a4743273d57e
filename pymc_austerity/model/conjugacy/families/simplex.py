"""Shares of a whole: gamma variables of one row, divided by their sum."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from pymc_austerity.model.conjugacy.families.base import GammaFamily
from pymc_austerity.model.conjugacy.forms import AFFINE, ConjugateForm
from pymc_austerity.target import Array


class SimplexFamily(GammaFamily):
    """w_j = theta_j / sum of theta, with rate one. Only ratios matter, so the total belongs to the chain."""

    forms: ClassVar[tuple[ConjugateForm, ...]] = (AFFINE,)
    carries_total = True

    @abstractmethod
    def tangent(self, table: Array, weights: Array) -> Array:
        """Derivatives along the simplex, whatever the graph is outside of it."""

    def with_total(self, log_theta: Array, log_total: Array) -> Array:
        """The table of shares with another total in each row."""
        return log_theta - logsumexp(log_theta, axis=1, keepdims=True) + log_total

    def log_density(self, log_theta: Array, alpha: Array, rate: Array) -> Array:
        """Log density of the shares; the Jacobian of PyMC's log ratios is the product of shares."""
        log_shares = log_theta - logsumexp(log_theta, axis=1, keepdims=True)
        return ((alpha if self.transformed else alpha - 1.0) * log_shares).sum(axis=1)

    def to_rate_one(self, log_theta: Array, rate: Array) -> Array:
        """The processes themselves, whose rate is one."""
        return log_theta

    def from_rate_one(self, log_theta: Array, rate: Array) -> Array:
        """The processes themselves, whose rate is one."""
        return log_theta

    def default_shift(self, derivatives: Array, n_terms: int) -> float:
        """The number of terms: no row adds more than one to the sum of the s_j, if it is a mixture."""
        return float(n_terms)

    def shifted(self, shape: Array, rate: Array, log_theta: Array, shift: float) -> tuple[Array, Array]:
        """M w_j added to the shapes."""
        theta = np.exp(log_theta)
        return shape + shift * theta / theta.sum(axis=1, keepdims=True), rate

    def relevant_noise(self, noise: Array, shape: Array) -> Array:
        """Noise along the simplex: that in the total does not move w."""
        return noise - _shares(shape) * noise.sum(axis=-1, keepdims=True)

    def variance(self, shape: Array) -> Array:
        """A component has the variance a_j (1 - w_j) along the simplex."""
        return shape * (1.0 - _shares(shape))


def _shares(shape: Array) -> Array:
    return shape / shape.sum(axis=1, keepdims=True)
