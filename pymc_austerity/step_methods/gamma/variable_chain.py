"""One variable of a step: its likelihood, where its processes are, and a transition."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from pymc.initial_point import PointType
from scipy.special import logsumexp

from pymc_austerity.kernels.cox_ingersoll_ross import cir_transitions
from pymc_austerity.model.compile.cache_key import key_of
from pymc_austerity.model.compile.native import NativeKernel, addresses_of, from_source, generator_at
from pymc_austerity.model.conjugacy.priors import GammaPrior
from pymc_austerity.model.conjugacy.statistics import Conjugacy
from pymc_austerity.step_methods.gamma.estimates import (
    Anchor,
    Estimate,
    GammaOptions,
    conditional,
    estimated,
    noise_ratio,
)
from pymc_austerity.target import Array

_SOURCE = """
def transitions(rng, log_theta, shape, step_size, result):
    result[:] = kernel(generator_at(rng), log_theta, shape, step_size)
"""


@dataclass(eq=False)
class VariableChain:
    """The processes of one variable in one chain."""

    conjugacy: Conjugacy  # Its likelihood
    # (n_rows, n_parts), or None: where the processes are; of a simplex this includes the total, which is not
    # in a point. None at the beginning of a chain.
    log_theta: Array | None = None
    # The value that was last put into a point: another step may have replaced it
    written: Array | None = None
    anchor: Anchor | None = None  # Where statistics were last taken in full

    @property
    def prior(self) -> GammaPrior:
        """The prior of the variable."""
        return self.conjugacy.prior

    def transition(
        self, point: PointType, step_size: float, rng: np.random.Generator, options: GammaOptions
    ) -> tuple[int, float]:
        """Move the variable in `point`; returns the rows that were read, and `noise_ratio`."""
        conjugacy = self.conjugacy
        family = conjugacy.prior.family
        begins = not self._is_where_it_was(point)
        log_theta = self._log_theta_in(point) if begins or self.log_theta is None else self.log_theta
        alpha, prior_rate = conjugacy.prior.parameters(point)
        estimate = estimated(conjugacy, options, log_theta, point, rng, self.anchor)
        self.anchor = estimate.anchor
        shape, rate = self._conditional(alpha, prior_rate, estimate, log_theta, options.shift)
        self._require_shape(options, shape)
        if family.carries_total and (begins or self._renews_total(estimate)):
            total_shape = shape
            if self.log_theta is None and conjugacy.batch_sizes is not None and conjugacy.form.is_conjugate:
                # At the start of a chain, without the noise of a minibatch.
                total_shape = alpha + conjugacy.full(conjugacy.place(log_theta, point)).s
            log_theta = with_total(log_theta, log_gamma_draws(rng, total_shape.sum(axis=1))[:, None])
        steps = np.full_like(shape, step_size)
        if estimate.noisy_rate:
            # Time must not be measured by the noisy rate: that would multiply the mean by E[1 / b_hat].
            assert conjugacy.structure.totals is not None
            steps *= rate / (prior_rate + conjugacy.structure.totals.t)
        moved = exact_transitions(rng, log_theta + np.log(rate), shape, steps)
        self._write(moved - np.log(rate), point)
        return estimate.n_used, noise_ratio(estimate, shape, rate, family)

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

    def _require_shape(self, options: GammaOptions, shape: Array) -> None:
        """Refuse shapes that are not positive: no gamma variable has them."""
        conjugacy = self.conjugacy
        least = float(shape.min())
        if least > 0.0 and np.isfinite(shape.sum()):
            return
        if not np.isfinite(shape.sum()):
            why = "Is the log density finite there? Take a smaller step_size, or start nearer to the mode."
        elif not conjugacy.form.is_conjugate:
            why = "Use another step method, such as pm.NUTS, or give a larger shift="
            why += " or a larger batch_size." if options.subsampled else "."
        elif options.anchored:
            why = "The anchor is too old for this minibatch: use a smaller refresh=, or a larger batch_size."
        else:
            why = "The likelihood falls with every power of the variable: use another step method."
        names = ", ".join(repr(name) for name in dict.fromkeys(conjugacy.gradient.names))
        raise ValueError(
            f"The estimate of the shape a of {conjugacy.prior.name!r} from the terms {names} is {least:.4g} "
            f"in one component; it must be positive. {why}"
        )

    def _renews_total(self, estimate: Estimate) -> bool:
        """Whether the total of a simplex, which is carried along, is drawn anew in this transition.

        It is where its shape, the sum of the a, is known and changes with other variables. Steps that move
        these know nothing of a total that is carried along, whose distribution depends on them too. Given the
        sum of the a it is a gamma variable, independent of w.
        """
        changes = bool(self.prior.parents)
        if not self.conjugacy.form.is_conjugate:  # centred: the sum is that of alpha, and M
            return changes
        return not estimate.groups and (changes or not self.conjugacy.structure.constant)

    def _write(self, log_theta: Array, point: PointType) -> None:
        """Put the processes into the point."""
        value = self.prior.family.value(log_theta)
        self.written = None  # after an interrupt between the two the next transition begins at the point
        self.log_theta = log_theta
        self.written = value.copy()
        point[self.prior.value_name] = value


def log_gamma_draws(rng: np.random.Generator, shape: Array) -> Array:
    """Logarithms of Gamma(shape, 1) variables: where processes are after an infinite time."""
    return exact_transitions(rng, np.zeros_like(shape), shape, np.full_like(shape, np.inf))


def with_total(log_theta: Array, log_total: Array) -> Array:
    """The processes of a simplex with another total in each row."""
    return log_theta - logsumexp(log_theta, axis=1, keepdims=True) + log_total


@cache
def _compiled() -> Any:
    """`cir_transitions`, compiled such that no Python code runs inside; see `model.compile.native`."""
    environment: dict[str, Any] = {
        "__name__": cir_transitions.__module__,
        "kernel": cir_transitions,
        "generator_at": generator_at,
    }
    key = key_of([_SOURCE], [cir_transitions, NativeKernel])
    return from_source(_SOURCE, "transitions", environment, key)


def exact_transitions(rng: np.random.Generator, log_theta: Array, shape: Array, step_size: Array) -> Array:
    """Transition (3.3) of Baker et al. (2018) of a table of processes with rate one.

    It takes one call unless the step sizes h differ, as they do with estimated rates.
    """
    x, a, h = log_theta.ravel(), shape.ravel(), step_size.ravel()
    moved = np.empty(x.shape[0])
    if np.all(h == h[0]):
        _compiled()(addresses_of(rng), x, a, h[0], moved)
    else:
        for i in range(len(x)):
            _compiled()(addresses_of(rng), x[i : i + 1], a[i : i + 1], h[i], moved[i : i + 1])
    return moved.reshape(log_theta.shape)
