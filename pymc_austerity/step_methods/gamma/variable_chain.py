"""One variable of a step: what is known of its likelihood, where its processes are, and a transition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.model.conjugacy.priors import GammaPrior
from pymc_austerity.model.conjugacy.statistics import Conjugacy, Structure
from pymc_austerity.step_methods.gamma.dynamics import Dynamics
from pymc_austerity.step_methods.gamma.estimates import Anchor, Estimate, Estimator, conditional, noise_ratio
from pymc_austerity.step_methods.gamma.transition import exact_transitions
from pymc_austerity.target import Array


class TransitionCost(NamedTuple):
    """Rows that a transition read, and Var(a_hat) over the exact variance."""

    n_used: int
    noise_ratio: float


@dataclass(eq=False)
class VariableChain:
    """The processes of one variable in one chain.

    Attributes
    ----------
    prior : GammaPrior
    structure : Structure
        What was found out about the likelihood.
    compiled : Conjugacy or None
        The likelihood, of size N: None in a worker before the first draw.
    log_theta : ndarray of shape (n_rows, n_parts), or None
        Where the processes are; of a simplex this includes the total, which is not in a point. None at the
        beginning of a chain.
    written : ndarray or None
        The value that was last put into a point: another step may have replaced it.
    anchor : Anchor or None
        Where statistics were last taken in full.
    fixed_parameters : (ndarray, ndarray) or None
        Those of the prior, once they are known, if they depend on no other variable and no shared data.
    """

    prior: GammaPrior
    structure: Structure
    compiled: Conjugacy | None
    log_theta: Array | None = None
    written: Array | None = None
    anchor: Anchor | None = None
    fixed_parameters: tuple[Array, Array] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Attributes without the compiled likelihood, which has size N."""
        return {**self.__dict__, "compiled": None}

    @property
    def conjugacy(self) -> Conjugacy:
        """The likelihood, compiled."""
        assert self.compiled is not None
        return self.compiled

    def transition(
        self,
        point: PointType,
        step_size: float,
        rng: np.random.Generator,
        *,
        estimator: Estimator,
        dynamics: Dynamics,
        shift: float | None,
    ) -> TransitionCost:
        """Move the variable in `point`.

        Parameters
        ----------
        point : dict of str to ndarray
            Changed in place.
        step_size : float
        rng : numpy.random.Generator
        estimator : Estimator
            Where statistics of the likelihood come from.
        dynamics : Dynamics
            How processes move.
        shift : float or None
            M of a drift that is frozen. None: that of the structure.
        """
        family, conjugacy = self.prior.family, self.conjugacy
        begins = not self._is_where_it_was(point)
        log_theta = self._log_theta_in(point) if begins or self.log_theta is None else self.log_theta
        alpha, prior_rate = self._prior_parameters(point)
        estimate = estimator.estimate(conjugacy, log_theta, point, rng, self.anchor)
        self.anchor = estimate.anchor
        shape, rate = self._conditional(alpha, prior_rate, estimate, log_theta, shift)
        dynamics.require_shape(conjugacy, estimator, shape)
        if family.carries_total and (begins or dynamics.renews_total(conjugacy, estimate)):
            total_shape = dynamics.total_shape(alpha, self._shape_of_all_data(alpha, shape, log_theta, point))
            log_theta = family.with_total(log_theta, _log_gamma_draws(rng, total_shape)[:, None])
        steps = np.full_like(shape, step_size)
        if estimate.noisy_rate:
            # Time must not be measured by the noisy rate: that would multiply the mean by E[1 / b_hat].
            assert self.structure.totals is not None
            steps *= rate / (prior_rate + self.structure.totals.t)
        moved = dynamics.move(rng, family, family.to_rate_one(log_theta, rate), shape, alpha, steps)
        self._write(family.from_rate_one(moved, rate), point)
        return TransitionCost(estimate.n_used, noise_ratio(estimate, shape, rate, family))

    def _is_where_it_was(self, point: PointType) -> bool:
        """Whether the processes are those of `point`, and not another step's or a new chain's."""
        if self.log_theta is None or self.written is None:
            return False
        return np.array_equal(self.written, point[self.prior.value_name])

    def _log_theta_in(self, point: PointType) -> Array:
        """Processes from a point."""
        log_theta = self.prior.family.log_gammas(point[self.prior.value_name])
        if not np.all(np.isfinite(log_theta)):
            raise ValueError(
                f"{self.prior.name!r} is zero or infinite in the point of the chain. Start from a point "
                "inside its support."
            )
        return log_theta

    def _prior_parameters(self, point: PointType) -> tuple[Array, Array]:
        """Shapes and rates of the prior."""
        if self.fixed_parameters is not None:
            return self.fixed_parameters
        found = self.prior.parameters(point)
        if self.prior.is_constant:
            self.fixed_parameters = found
        return found

    def _conditional(
        self, alpha: Array, prior_rate: Array, estimate: Estimate, log_theta: Array, shift: float | None
    ) -> tuple[Array, Array]:
        """Shapes and rates given the data and all other variables, as they are estimated."""
        shape, rate = conditional(self.conjugacy, (alpha, prior_rate), estimate.totals, log_theta, shift)
        if not np.all((rate > 0.0) & np.isfinite(rate)):
            terms = ", ".join(self.conjugacy.gradient.names)
            raise ValueError(
                f"The rate of {self.prior.name!r} given the data would be {float(np.min(rate))}; it must be "
                f"positive. Look at the terms {terms}; with minibatch_rate=True, take a larger batch_size."
            )
        return shape, rate

    def _shape_of_all_data(self, alpha: Array, shape: Array, log_theta: Array, point: PointType) -> Array:
        """Shape of the processes at the start of a chain, without the noise of a minibatch."""
        conjugacy = self.conjugacy
        is_noisy = conjugacy.batch_sizes is not None and conjugacy.form.is_conjugate
        if self.log_theta is not None or not is_noisy:
            return shape
        return alpha + conjugacy.full(conjugacy.place(log_theta, point)).s

    def _write(self, log_theta: Array, point: PointType) -> None:
        """Put the processes into the point."""
        value = self.prior.family.value(log_theta)
        self.written = None  # after an interrupt between the two the next transition begins at the point
        self.log_theta = log_theta
        self.written = value.copy()
        point[self.prior.value_name] = value


def _log_gamma_draws(rng: np.random.Generator, shape: Array) -> Array:
    """Logarithms of Gamma(shape, 1) variables: where processes are after an infinite time."""
    return exact_transitions(rng, np.zeros_like(shape), shape, np.inf)
