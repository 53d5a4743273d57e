"""What `SCIR` and `SGRLD` share: PyMC's step contract around gamma processes with a stochastic gradient.

A draw goes, for each variable in turn: point -> log theta -> shape and rate, from prior and likelihood
(`gamma_statistics`) -> a transition of theta (the subclass) -> point.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pymc as pm
from pymc.initial_point import PointType
from pymc.util import RandomGenerator, get_random_generator
from pytensor.graph.basic import Variable
from scipy.special import logsumexp

from pymc_austerity.exceptions import warn
from pymc_austerity.kernels.cox_ingersoll_ross import cir_noise
from pymc_austerity.model.conjugacy.forms import Conjugacy, Structure
from pymc_austerity.model.conjugacy.gradients import LikelihoodGradient
from pymc_austerity.model.conjugacy.priors import GammaPrior, gamma_priors
from pymc_austerity.model.conjugacy.recognise import analyse
from pymc_austerity.model.factorise import model_of, value_variables
from pymc_austerity.model.graph.shared_data import fingerprint
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.step_methods.base import RebuiltStep
from pymc_austerity.step_methods.batch_size import batch_rows, checked_batch_size
from pymc_austerity.step_methods.configuration import plain
from pymc_austerity.step_methods.gamma.counts import Counter, counted, require_counts
from pymc_austerity.step_methods.gamma.estimates import (
    Anchor,
    Estimate,
    allotted,
    estimate_at,
    exact,
    noise_ratio,
    shifted,
)
from pymc_austerity.step_methods.gamma.messages import require_forms, tell, warn_of_unused
from pymc_austerity.step_methods.gamma.state import (
    DTYPES_SHAPES,
    ControlVariate,
    GammaProcessState,
    check_options,
    progress_columns,
    progress_updates,
)
from pymc_austerity.step_methods.gamma.step_size import DecreasingStepSize, step_size_of
from pymc_austerity.step_methods.gamma.transition import exact_transitions
from pymc_austerity.step_methods.messages import refuse_discrete, tell_if_slow, warn_of_long_deterministics

Array = npt.NDArray[np.float64]
# The order of rows and random points of a build: the same in every process.
_SEED = 2018
# Transitions after which forms are verified once more.
_SETTLED = 50
# Values of a given initial point up to this size are kept for when data are replaced.
_FEW = 1000


class GammaProcessStep(RebuiltStep):
    """A step for variables made of gamma variables. Subclasses set `name` and define `_move`."""

    _rebuilt = ("_conjugacies",)
    _state_class = GammaProcessState
    stats_dtypes_shapes: ClassVar[dict[str, tuple[type, list[int]]]] = DTYPES_SHAPES

    def __init__(
        self,
        vars: Variable | Sequence[Variable] | None = None,
        *,
        step_size: float | DecreasingStepSize = 0.1,
        batch_size: int | float | None = None,
        control_variate: ControlVariate | None = None,
        refresh: int = 100,
        minibatch_rate: bool = False,
        shift: float | None = None,
        counts: Counter | None = None,
        steps_per_draw: int = 1,
        threshold: int | None = None,
        model: pm.Model | None = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        check_options(batch_size, control_variate, refresh, minibatch_rate, shift, steps_per_draw, threshold)
        if compile_kwargs:
            warn(
                f"{type(self).__name__} compiles with numba; compile_kwargs={compile_kwargs!r} was not used."
            )
        self._schedule = step_size_of(step_size)
        self._model = model_of(model)
        self.vars = value_variables(self._model, vars)
        self.rng = get_random_generator(rng)
        self.tune = False
        self._batch_size = checked_batch_size(batch_size)
        self._anchored, self._refresh = control_variate is not None, int(refresh)
        if counts is not None and not (hasattr(counts, "vars") and callable(getattr(counts, "counts", None))):
            raise TypeError(f"counts must be a step such as MinibatchCategoricalGibbs([z]), got {counts!r}.")
        if counts is not None and batch_size is not None:
            raise ValueError(f"counts= makes statistics exact: leave out batch_size={batch_size!r}.")
        if counts is not None and len(self.vars) != 1:
            raise ValueError(
                f"counts= is for one variable, got {len(self.vars)}: make a step for each of them."
            )
        self._counter = counts
        self._minibatch_rate, self._shift = bool(minibatch_rate), shift
        self._steps_per_draw, self._threshold = int(steps_per_draw), threshold
        point = default_point(self._model) if initial_point is None else dict(initial_point)
        self._priors = gamma_priors(self._model, self.vars, point)
        refuse_discrete(self.vars)
        warn_of_long_deterministics(self._model, point)
        self._given_point = {n: np.array(v) for n, v in (initial_point or {}).items() if np.size(v) <= _FEW}
        self._structures: list[Structure] = []
        self._build(point, fresh=True)
        self._begin_chain()
        self._check_counts(point)

    # What a subclass decides ----------------------------------------------------------------

    def _move(
        self, prior: GammaPrior, log_theta: Array, shape: Array, alpha: Array, step_size: Array
    ) -> Array:
        """One transition of processes with rate one; all tables are (n_rows, n_parts)."""
        raise NotImplementedError

    def _check_shape(self, prior: GammaPrior, conjugacy: Conjugacy, shape: Array) -> None:
        """Refuse shapes for which there is no transition."""

    def _first_total(self, alpha: Array, shape: Array) -> Array:
        """Shape of the gamma variable at which the total of a simplex begins, of each row."""
        return shape.sum(axis=1)

    def _renews_total(self, conjugacy: Conjugacy, estimate: Estimate) -> bool:
        """Whether the total of a simplex is drawn anew in every transition."""
        return False

    # Building -------------------------------------------------------------------------------

    def _build(self, point: PointType, *, fresh: bool) -> None:
        """Compile, and if `fresh` find out what the likelihood is."""
        self._conjugacies: list[Conjugacy] | None = None
        found, structures = [], []
        with tell_if_slow():
            for k, prior in enumerate(self._priors):
                prior.parameters(point)
                gradient = LikelihoodGradient(
                    self._model,
                    prior,
                    point,
                    threshold=self._threshold,
                    subsampled=self._batch_size is not None,
                    check=fresh,
                )
                if fresh:
                    structure = analyse(self._model, prior, gradient, point, np.random.default_rng(_SEED))
                else:
                    structure = self._structures[k]
                structures.append(structure)
                found.append(Conjugacy(prior, gradient, structure))
        counts = [self._counts(c) for c in found]
        self._structures, self._row_counts = structures, counts
        if fresh:
            warn_of_unused(
                found,
                shift=self._shift,
                minibatch_rate=self._minibatch_rate,
                subsampled=self._batch_size is not None,
            )
            for conjugacy, count in zip(found, counts, strict=True):
                tell(
                    conjugacy,
                    count,
                    point,
                    self._schedule(0),
                    minibatch_rate=self._minibatch_rate,
                    anchored=self._anchored,
                )
        self._data_seen = [fingerprint(c.gradient.graph) for c in found]
        self._n_local = sum(c.gradient.n_local for c in found)
        self._conjugacies = found
        self._counts_checked = not fresh

    def _rebuild(self) -> None:
        """For other data, whose shapes may be others."""
        point = default_point(self._model)
        for name, value in self._given_point.items():
            if name in point and np.shape(value) == np.shape(point[name]):
                point[name] = value
        self._priors = gamma_priors(self._model, self.vars, point)
        self._build(point, fresh=True)

    def _counts(self, conjugacy: Conjugacy) -> list[int] | None:
        gradient, prior = conjugacy.gradient, conjugacy.prior
        n = batch_rows(self._batch_size, gradient.n_local, prior.name, gradient.longest)
        return None if n is None else allotted(n, gradient.sizes)

    # PyMC's contract ------------------------------------------------------------------------

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain afresh; rebuild if shared data have changed since the step was built."""
        super().setup_chain(rng, tune, draws)
        if self._conjugacies is not None:
            if [fingerprint(c.gradient.graph) for c in self._conjugacies] != self._data_seen:
                self._rebuild()
            else:
                for conjugacy in self._conjugacies:
                    conjugacy.gradient.graph.adopt_data()
        self.tune = False
        self._begin_chain()

    def _begin_chain(self) -> None:
        n = len(self.vars)
        self.n_transitions = 0
        self.log_theta: list[Array | None] = [None] * n
        self.written: list[Array | None] = [None] * n
        self.anchors: list[Anchor | None] = [None] * n
        # Parameters of priors that do not depend on other variables.
        self._fixed_parameters: list[tuple[Array, Array] | None] = [None] * n

    def reset_tuning(self) -> None:
        """Nothing is tuned."""

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Make `steps_per_draw` transitions of every variable in turn."""
        if self._conjugacies is None:
            seen = self._data_seen
            self._priors = gamma_priors(self._model, self.vars, point)
            self._build(point, fresh=False)
            if self._data_seen != seen:  # other data in this process
                self._build(point, fresh=True)
        self._check_counts(point)
        began = self.n_transitions
        new, n_used, ratios, h = dict(point), 0, 0.0, 0.0
        for _ in range(self._steps_per_draw):
            h = self._schedule(self.n_transitions)
            for k in range(len(self.vars)):
                used, ratio = self._transition(k, new, h)
                n_used += used
                ratios += ratio
            self.n_transitions += 1
        assert self._conjugacies is not None
        if began < _SETTLED <= self.n_transitions:
            require_forms(self._conjugacies, self.log_theta, new)
        per_transition = n_used / self._steps_per_draw
        noise = ratios / self._steps_per_draw / len(self.vars)
        stats = {
            "step_size": h,
            "n_used": per_transition,
            "fraction_used": per_transition / self._n_local if self._n_local else 0.0,
            "variance_inflation": 1.0 + cir_noise(h) * noise,
        }
        return new, [stats]

    def _check_counts(self, point: PointType) -> None:
        """Compare the counts of another step with the likelihood, once."""
        if self._counter is not None and not self._counts_checked:
            assert self._conjugacies is not None
            require_counts(self._conjugacies[0], self._counter, point)
            self._counts_checked = True

    def _transition(self, k: int, point: PointType, step_size: float) -> tuple[int, float]:
        """Move variable number k, in place; returns the rows read and Var(a_hat) over the exact variance."""
        assert self._conjugacies is not None
        prior, conjugacy = self._priors[k], self._conjugacies[k]
        log_theta, seen = self.log_theta[k], self.written[k]
        begins = log_theta is None or not np.array_equal(seen, point[prior.value_name])  # type: ignore[arg-type]
        if log_theta is None or begins:
            log_theta = prior.log_gammas(point[prior.value_name])
            if not np.all(np.isfinite(log_theta)):
                raise ValueError(
                    f"{prior.name!r} is zero or infinite in the point of the chain. Start from a point "
                    "inside its support."
                )
        alpha, rate = alpha_and_rate = self._parameters(k, point)
        estimate = self._estimate(k, conjugacy, log_theta, point)
        shape, rate = alpha + estimate.totals.s, rate + estimate.totals.t
        if conjugacy.structure.form == "frozen":
            shape, rate = shifted(conjugacy, self._shift, log_theta, shape, rate)
        if not np.all((rate > 0.0) & np.isfinite(rate)):
            terms = ", ".join(conjugacy.gradient.names)
            raise ValueError(
                f"The rate of {prior.name!r} given the data would be {float(np.min(rate))}; it must be "
                f"positive. Look at the terms {terms}; with minibatch_rate=True, take a larger batch_size."
            )
        self._check_shape(prior, conjugacy, shape)
        if prior.is_simplex and (begins or self._renews_total(conjugacy, estimate)):
            log_theta = log_theta - logsumexp(log_theta, axis=1, keepdims=True)
            log_theta = log_theta + self._log_total(k, alpha, shape, point)
        steps = np.full_like(shape, step_size)
        if estimate.noisy_rate:
            # Time must not be measured by the noisy rate: that would multiply the mean by E[1 / b_hat].
            assert conjugacy.structure.totals is not None
            steps *= rate / (alpha_and_rate[1] + conjugacy.structure.totals.t)
        scaled = log_theta if prior.is_simplex else log_theta + np.log(rate)
        moved = self._move(prior, scaled, shape, alpha, steps)
        log_theta = moved if prior.is_simplex else moved - np.log(rate)
        value = prior.value(log_theta)
        self.written[k] = None  # after an interrupt between the two the next transition begins at the point
        self.log_theta[k] = log_theta
        self.written[k] = value.copy()
        point[prior.value_name] = value
        return estimate.n_used, noise_ratio(estimate, shape, rate, is_simplex=prior.is_simplex)

    def _log_total(self, k: int, alpha: Array, shape: Array, point: PointType) -> Array:
        """Logarithms of new totals of a simplex: those of all data at the start of a chain."""
        assert self._conjugacies is not None
        conjugacy = self._conjugacies[k]
        if (
            self.log_theta[k] is None
            and self._row_counts[k] is not None
            and conjugacy.structure.form != "frozen"
        ):
            references = conjugacy.structure.references
            shape = alpha + conjugacy.full(references, conjugacy.gradient.args(point)).s
        total = self._first_total(alpha, shape)
        # After an infinite time the process has forgotten where it was: a gamma variable.
        return exact_transitions(self.rng, np.zeros_like(total), total, np.inf)[:, None]

    def _parameters(self, k: int, point: PointType) -> tuple[Array, Array]:
        fixed = self._fixed_parameters[k]
        if fixed is None:
            fixed = self._priors[k].parameters(point)
            if not self._priors[k].parents:  # shared data may be replaced, but not while a chain runs
                self._fixed_parameters[k] = fixed
        return fixed

    def _estimate(self, k: int, conjugacy: Conjugacy, log_theta: Array, point: PointType) -> Estimate:
        if self._counter is not None:
            return Estimate(counted(conjugacy, self._counter, point), [], 0, False)
        counts = self._row_counts[k]
        if counts is None:
            return exact(conjugacy, log_theta, point)
        found, self.anchors[k] = estimate_at(
            conjugacy,
            log_theta,
            point,
            counts,
            self.rng,
            minibatch_rate=self._minibatch_rate,
            anchor=self.anchors[k],
            refresh=self._refresh if self._anchored else None,
        )
        return found

    @property
    def forms(self) -> dict[str, str]:
        """What the likelihood is in each variable: "counts", "affine", "rate" (all conjugate) or "frozen"."""
        return {p.name: s.form for p, s in zip(self._priors, self._structures, strict=True)}

    def _settings(self) -> dict[str, Any]:
        return {
            "step_size": plain(self._schedule if self._schedule.kappa else self._schedule.h),
            "batch_size": plain(self._batch_size),
            "control_variate": "anchor" if self._anchored else None,
            "refresh": self._refresh if self._anchored else None,
            "minibatch_rate": self._minibatch_rate,
            "shift": plain(self._shift),
            "counts": None if self._counter is None else type(self._counter).__name__,
            "steps_per_draw": self._steps_per_draw,
            "threshold": plain(self._threshold),
            "forms": self.forms,
            "n_local": self._n_local,
        }

    def _own(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {
            "_fixed_parameters": deepcopy(self._fixed_parameters, memo),
            "_counter": memo.get(id(self._counter), self._counter),  # a copy, if that was copied before
        }

    # Progress bar ---------------------------------------------------------------------------

    _progressbar_config = staticmethod(progress_columns)
    _make_progressbar_update_functions = staticmethod(progress_updates)
