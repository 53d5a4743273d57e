"""How gamma processes move: what `SCIR` and `SGRLD` differ in."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from pymc_austerity.model.conjugacy.families import GammaFamily
from pymc_austerity.model.conjugacy.statistics import Conjugacy
from pymc_austerity.step_methods.gamma.estimates import Estimate, Estimator
from pymc_austerity.target import Array


class Dynamics(ABC):
    """Transitions of tables of processes with rate one. Objects hold nothing: all is in the arguments."""

    @abstractmethod
    def move(
        self,
        rng: np.random.Generator,
        family: GammaFamily,
        log_theta: Array,
        shape: Array,
        alpha: Array,
        step_size: Array,
    ) -> Array:
        """Logarithms of the processes after one transition.

        Parameters
        ----------
        rng : numpy.random.Generator
        family : GammaFamily
        log_theta : ndarray of shape (n_rows, n_parts)
            Where they are.
        shape, alpha : ndarray of shape (n_rows, n_parts)
            Gamma shapes given the data, as they are estimated, and those of the prior.
        step_size : ndarray of shape (n_rows, n_parts)
        """

    @abstractmethod
    def require_shape(self, conjugacy: Conjugacy, estimator: Estimator, shape: Array) -> None:
        """Refuse gamma shapes for which there is no transition."""

    def total_shape(self, alpha: Array, shape: Array) -> Array:
        """Gamma shape of the total of a simplex at the beginning, of each row."""
        return shape.sum(axis=1)

    def renews_total(self, conjugacy: Conjugacy, estimate: Estimate) -> bool:
        """Whether the total of a simplex is drawn anew in every transition."""
        return False
