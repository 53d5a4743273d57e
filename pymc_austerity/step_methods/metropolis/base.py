"""What all subsampled Metropolis steps share: PyMC's step contract around a compiled kernel.

A draw goes: point -> vector q -> `kernels.metropolis.transitions`, compiled around the model -> point.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor
from pymc.initial_point import PointType
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import RandomGenerator, get_random_generator
from pytensor.graph.basic import Variable

from pymc_austerity.acceptance.base import AcceptanceRule, log_uniform
from pymc_austerity.bounds.log_ratio_range import RangeCertificates
from pymc_austerity.bounds.remainder import RemainderCertificate
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import warn
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.kernels.stratum import NO_STRATUM
from pymc_austerity.mode.fit import expanded_again
from pymc_austerity.mode.mode_fit import Centre, CentreReport, Found, start_near
from pymc_austerity.model.factorisation import Factorisation, point_of
from pymc_austerity.model.factorise import build, model_of, value_variables
from pymc_austerity.model.graph.shared_data import fingerprint
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.model.starting_point import require_finite
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.proposals.base import BoundProposal, bind, is_fitted
from pymc_austerity.step_methods.base import RebuiltStep
from pymc_austerity.step_methods.configuration import plain
from pymc_austerity.step_methods.messages import (
    refuse_discrete,
    refuse_short,
    try_proposal,
    warn_of_long_deterministics,
    warn_of_temperature,
)
from pymc_austerity.step_methods.metropolis import drift_watch, fit_watch
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel
from pymc_austerity.step_methods.metropolis.engine.range_bound import certificates_of, range_bound_for
from pymc_austerity.step_methods.metropolis.engine.sequential import Engine
from pymc_austerity.step_methods.metropolis.options import (
    Subsample,
    centre_for,
    control_variate_of,
    proposal_for,
    share_of_independent_moves,
    subsample_of,
)
from pymc_austerity.step_methods.metropolis.statistics import (
    DTYPES_SHAPES,
    progress_columns,
    progress_updates,
    statistics,
)
from pymc_austerity.target import Index
from pymc_austerity.validation import is_real, is_whole


@dataclass_state
class SubsampledState(StepMethodState):
    """All that a subsampled step carries from draw to draw. Nothing in it has size N."""

    tune: bool
    start_checked: bool
    proposal_state: Any
    drift: Any
    fit: Any


class SubsampledStep(RebuiltStep):
    """A step that updates a block of continuous variables by subsampled Metropolis-Hastings.

    Subclasses set `name` and define `_rule_for`.
    """

    _rebuilt = ("_factorisation", "_engine")
    _state_class = SubsampledState
    # For rules that need to know the range of the log ratios; see `range_bounds`.
    _range_bound: Any = None
    # Whether remainders are bounded all at once, and the rows with the largest bounds are known.
    _bounds_together: ClassVar[bool] = True
    _certificates: RangeCertificates | RemainderCertificate | None = None
    # Fingerprint of the data that `_certificates` and `_centre` were made from.
    _data_seen: Any = None
    _centre: Centre | None = None
    stats_dtypes_shapes: ClassVar[dict[str, tuple[type, list[int]]]] = DTYPES_SHAPES

    def __init__(
        self,
        vars: Variable | Sequence[Variable] | None,
        *,
        proposal: Any = None,
        control_variate: Taylor | None = None,
        subsample: Subsample | None = None,
        steps_per_draw: int = 1,
        threshold: int = 1000,
        temperature: float = 1.0,
        tune: bool = True,
        model: pm.Model | None = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if not is_real(temperature) or not 0.0 < temperature < np.inf:
            raise ValueError(f"temperature must be a positive number, got {temperature!r}.")
        if not is_whole(steps_per_draw) or steps_per_draw < 1:
            raise ValueError(f"steps_per_draw must be a positive integer, got {steps_per_draw!r}.")
        if compile_kwargs:
            warn(
                f"{type(self).__name__} compiles with numba whatever compile_kwargs says; "
                f"{compile_kwargs!r} was not used."
            )
        if not isinstance(tune, bool | np.bool_):
            raise ValueError(f"tune must be True or False, got {tune!r}.")
        self._model = model_of(model)
        self.vars = value_variables(self._model, vars)
        refuse_discrete(self.vars)
        if temperature != 1.0:
            warn_of_temperature(self._model, self.vars)
        self.rng = get_random_generator(rng)
        self.tune = self._adapts = bool(tune)
        self._steps_per_draw = int(steps_per_draw)
        self._threshold = threshold
        self._temperature = float(temperature)
        self._proposal = proposal
        self._taylor = control_variate_of(control_variate)
        self._subsample = subsample_of(subsample)
        if initial_point is None:
            initial_point = default_point(self._model)
        warn_of_long_deterministics(self._model, initial_point)
        self._build(initial_point, check=True)
        self._begin_chain(n_tune=0)

    # What a subclass decides ----------------------------------------------------------------

    def _rule_for(self, n_local: int) -> AcceptanceRule:
        """The decision rule for a population of `n_local` terms."""
        raise NotImplementedError

    # Building -------------------------------------------------------------------------------

    def _build(self, point: PointType, *, check: bool) -> None:
        """Factorise the model, bind rule and proposal, and compile."""
        # PyTensor keeps a stack trace with each of some thousand nodes unless told not to.
        with pytensor.config.change_flags(traceback__limit=0):
            self._engine: Any = None  # should anything below fail, nothing of the old data is used
            fact = self._factorised(point, check=check)
            data = fingerprint(fact.graph)
            fresh = data != self._data_seen
            if fresh and not check:  # other data than in the process that made the step
                fact = self._factorised(point, check=True)
            if not fact.n_local:
                refuse_short(fact, self._threshold)
            self._data_seen = None
            structure = TermStructure(fact)
            proposal = proposal_for(self._proposal, self._taylor, structure)
            self._is_fitted = is_fitted(proposal)
            found = self._found(structure, point, proposal, fresh)
            self._centre = None if found is None else found.centre
            self._n_local, self._chosen_proposal = fact.n_local, proposal
            self._decides_by = rule = self._rule_for(fact.n_local - len(self._exact_rows))
            self._independent = share_of_independent_moves(proposal)
            if rule.functions.draw is not log_uniform:  # Barker's rule accepts every other move of no change
                self._independent *= 0.5
            self._n_dim = sum(np.size(point[v.name]) for v in self.vars)
            proxy = None if self._centre is None else self._centre.proxy
            bound = bind(proposal, self._n_dim, rule.target_accept(self._n_dim), proxy)
            self._factorisation = fact
            self._initial_proposal_state = bound.state
            q = self._ravel(point)
            try_proposal(bound, q)
            self._engine = self._engine_for(fact, found, rule, bound, q, point, fresh)
            self._data_seen = data

    @property
    def _exact_rows(self) -> Index:
        """Rows that are read at every transition."""
        return NO_STRATUM.rows if self._centre is None else self._centre.exact

    def _found(self, structure: TermStructure, point: PointType, proposal: Any, fresh: bool) -> Found | None:
        """Mode and expansion: searched for, or what another process has found."""
        if fresh:
            return centre_for(self._model, structure, point, self._taylor, proposal, self._bounds_together)
        return None if self._centre is None else expanded_again(structure, point, self._centre)

    def _engine_for(
        self,
        fact: Factorisation,
        found: Found | None,
        rule: AcceptanceRule,
        bound: BoundProposal,
        q: np.ndarray,
        point: PointType,
        fresh: bool,
    ) -> CompiledKernel:
        """Compiled transitions; `fresh` if the data are not those of the last time."""
        if getattr(rule, "needs_range", False) and self._range_bound is None and fresh:
            self._certificates = certificates_of(fact, point, self._centre)
        range_bound = range_bound_for(rule, self._range_bound, self._certificates, fact, q)
        expanded = fact if found is None else found.expanded
        return Engine(expanded, rule, bound, range_bound, self._exact_rows, self._subsample, q, point)

    def _factorised(self, point: PointType, *, check: bool) -> Factorisation:
        return build(
            self._model,
            self.vars,
            threshold=self._threshold,
            initial_point=point,
            check=check,
            temperature=self._temperature,
        )

    def _run(self, n: int, tune: bool, point: PointType) -> Outcome:
        q = self._ravel(point)
        try:
            return self._engine.run(n, tune, self.rng, q, point, self.proposal_state)
        except BaseException:
            self._engine.restart()
            raise

    # PyMC's contract ------------------------------------------------------------------------

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain afresh; rebuild if shared data have changed since the step was built."""
        super().setup_chain(rng, tune, draws)
        if self._factorisation is not None and self._data_changed():
            self._build(default_point(self._model), check=True)
        self.tune = bool(tune)
        self._begin_chain(tune)

    def _data_changed(self) -> bool:
        graph = self._factorisation.graph
        if fingerprint(graph) != self._data_seen:
            return True
        graph.adopt_data()
        return False

    def reset_tuning(self) -> None:
        """Forget what the proposal has learnt."""
        self._begin_chain(int(self.drift.counts[1]))

    def _begin_chain(self, n_tune: int) -> None:
        self.proposal_state = deepcopy(self._initial_proposal_state)
        self.drift = drift_watch.start(self._n_dim, n_tune)
        self.fit = fit_watch.start(n_tune if self._taylor is not None else 0)
        self.start_checked = False
        if self._engine is not None:
            self._engine.restart()

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Make `steps_per_draw` transitions from `point`."""
        if self._engine is None:
            seen = self._data_seen
            self._build(point, check=False)  # in the process that made the step it was checked
            if self._data_seen != seen:  # other data in this process: shapes and centre may differ
                self._begin_chain(int(self.drift.counts[1]))
        if not self.start_checked:
            require_finite(self._factorisation, point)
            point = self._first_point(point)
            self.start_checked = True
        tune = self.tune and self._adapts
        n = self._steps_per_draw
        outcome = self._run(n, tune, point)
        q = outcome.q
        if self.fit.counts[1] and fit_watch.watch(self.fit, outcome, n, self._engine.n_others):
            assert self._centre is not None
            fit_watch.warn_if_unlike(
                self.fit,
                self._centre.report,
                self._independent,
                reads_all=self._engine.reads_all,
                needs_range=self._engine.needs_range,
            )
            self.fit = fit_watch.start(0)
        if self.drift.counts[1] and drift_watch.watch(self.drift, q):
            drift_watch.warn_if_drifting(self.drift, n, self._factorisation.coordinate)
            self.drift = drift_watch.start(len(q), 0)
        new_point = point_of(self._factorisation, q, point)
        return new_point, [self._statistics(outcome, n)]

    def _first_point(self, point: PointType) -> PointType:
        """Where a chain begins that was told to begin at `point`."""
        if self._centre is None or not self._is_fitted or not self.tune:
            return point
        names = ", ".join(str(self._model.values_to_rvs[v].name) for v in self.vars)
        q = start_near(
            self._centre, self._ravel(point), lambda: self._ravel(default_point(self._model)), names, self.rng
        )
        return point_of(self._factorisation, q, point)

    def _statistics(self, outcome: Outcome, n: int) -> dict[str, Any]:
        """Sample statistics of a draw of n transitions."""
        return statistics(outcome, n, self._engine.n_local, self.proposal_state.scale[0])

    def _settings(self) -> dict[str, Any]:
        taylor = None if self._taylor is None else replace(self._taylor, exact_rows=len(self._exact_rows))
        return {
            "rule": plain(self._decides_by),
            "proposal": plain(self._chosen_proposal),
            "control_variate": plain(taylor),
            "range_bound": plain(self._range_bound),
            "steps_per_draw": self._steps_per_draw,
            "subsample": self._subsample,
            "threshold": plain(self._threshold),
            "temperature": self._temperature,
            "tune": self._adapts,
            "n_local": self._n_local,
            "n_exact": len(self._exact_rows),
        }

    @property
    def centre(self) -> CentreReport | None:
        """What the search for the posterior mode found, if there was one."""
        return None if self._centre is None else self._centre.report

    def _ravel(self, point: PointType) -> np.ndarray:
        if len(self.vars) == 1:
            return np.array(point[self.vars[0].name], dtype=np.float64).ravel()
        return np.concatenate([np.ravel(point[v.name]) for v in self.vars]).astype(np.float64)

    def _own(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {"_engine": None if self._engine is None else self._engine.copy()}

    # Progress bar ---------------------------------------------------------------------------

    _progressbar_config = staticmethod(progress_columns)
    _make_progressbar_update_functions = staticmethod(progress_updates)
