"""What all subsampled Metropolis steps share: PyMC's step contract around a compiled kernel.

A draw goes: point -> vector q -> `kernels.metropolis.transitions`, compiled -> point.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, Unpack, cast

import numpy as np
from pymc.initial_point import PointType
from pymc.step_methods.compound import BlockedStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import RandomGenerator, get_random_generator

from pymc_austerity.acceptance.base import AcceptanceRule, never_clipped
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.mode.mode_fit import ModeReport
from pymc_austerity.model.checks import explained
from pymc_austerity.model.compile.backend import NUMBA
from pymc_austerity.model.compile.native import outcome_of
from pymc_austerity.model.factorisation import Factorisation, point_of, vector_of
from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.model.starting_point import require_finite
from pymc_austerity.progress import stage
from pymc_austerity.proposals.base import is_fitted
from pymc_austerity.proposals.deviations import Deviations, begin_again, with_room
from pymc_austerity.proposals.surrogate import Surrogate
from pymc_austerity.step_methods.base import ROWS, RebuiltStep, floats, warn_of_compile_kwargs
from pymc_austerity.step_methods.messages import plain, warn_of_temperature
from pymc_austerity.step_methods.metropolis.engine.base import Engine
from pymc_austerity.step_methods.metropolis.mixing_pilot import (
    Mixing,
    draws_of_pilot,
    mixing_of,
    nanoseconds_of_draw,
    try_out,
)
from pymc_austerity.step_methods.metropolis.options import AskedOptions, MetropolisOptions, checked_options
from pymc_austerity.step_methods.metropolis.plan import OtherDataError, Plan, Recipe
from pymc_austerity.step_methods.metropolis.watch import (
    DriftWatch,
    Expected,
    FitWatch,
    MixingWatch,
    Watch,
    look,
    n_tuning,
)
from pymc_austerity.step_methods.metropolis.which_plan import plan
from pymc_austerity.step_methods.recommendation import Recommendation
from pymc_austerity.work import DEFAULT_BUDGET, budgeted

if TYPE_CHECKING:
    from pymc_austerity.step_methods.metropolis.field_plan import FieldRecipe

# `accepted` is a float, as in pm.Metropolis: equal names must have equal types. PyMC's traces show
# `mean_tree_accept` as `acceptance_rate`, of NUTS too: equal names stack.
WITHOUT_RULE = floats("accepted", "mean_tree_accept", "n_used", "fraction_used", "exhausted", "scale")
DTYPES_SHAPES = WITHOUT_RULE | floats("n_stages", "log_ratio_mean", "log_ratio_se", "psi")


class Ahead(NamedTuple):
    """Draws that were made in one call, one below another."""

    values: dict[str, np.ndarray]  # (n, ...): of the value variables
    statistics: dict[str, np.ndarray]  # (n,)
    is_interrupted: bool  # by Ctrl-C: there may be fewer than were asked for

    @property
    def n(self) -> int:
        """Number of draws."""
        return len(next(iter(self.statistics.values())))


@dataclass_state
class SubsampledState(StepMethodState):
    """All that a subsampled step carries from draw to draw. Nothing in it has size N."""

    tune: bool
    start_checked: bool
    proposal_state: Any
    watches: Any


class SubsampledStep(RebuiltStep):
    """A step that updates a block of continuous variables by subsampled Metropolis-Hastings.

    It is a plan with a compiled engine. A subclass sets `name`, and hands a decision rule to `__init__`. What
    differs between a block and a field of effects is answered by the recipe of the plan.
    """

    _defaults: ClassVar[dict[str, Any]] = {
        **RebuiltStep._defaults,
        "elementwise": False,
        "set_up_budget": DEFAULT_BUDGET,
        "temperature": 1.0,
        "threshold": 1000,
        "tune": True,
    }
    _shown = (*RebuiltStep._shown, "mixing", "mode_fit", "recommendation", "steps_per_draw")
    # What a pilot run said of the draws of the step, if there was one.
    mixing: Mixing | None = None
    _reads_disk = True
    _rebuilt = ("_factorisation", "_engine")
    _columns: ClassVar[dict[str, tuple[str, str, str]]] = {
        "acceptance_rate": ("mean_tree_accept", "0.2f", "Accept"),
        **ROWS,
    }
    # Whether it updates discrete variables.
    _discrete: ClassVar[bool] = False
    # Whether statistics of a draw are in the outcome of the kernel alone, and not in the proposal's state.
    _counts_in_outcome: ClassVar[bool] = True
    _state_class = SubsampledState
    stats_dtypes_shapes: ClassVar[dict[str, tuple[type, list[int]]]] = DTYPES_SHAPES
    _factorisation: Factorisation | None = None
    _engine: Engine | None = None
    _recipe: Recipe
    # Why `recommend` chose the step, if it did.
    recommendation: Recommendation | None = None

    def __init__(
        self,
        vars: Any,
        acceptance: AcceptanceRule,
        *,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        progressbar: bool = True,
        **options: Unpack[AskedOptions],
    ) -> None:
        warn_of_compile_kwargs(self, compile_kwargs)
        asked = checked_options(vars, acceptance, discrete=self._discrete, **options)
        if asked.temperature != 1.0:
            warn_of_temperature(asked.model, list(asked.vars))
        self._begin(asked, rng)
        self._build_first(initial_point, progressbar)
        self._begin_chain(n_tune=0)

    @classmethod
    def from_plan(cls, plan: Plan, point: PointType) -> Self:
        """The step of a plan: what is left to do is to compile it.

        Parameters
        ----------
        plan : Plan
        point : dict
            Values of all variables, to compile with.
        """
        # PyMC adds to a new object what its steps have.
        vars, model = list(plan.options.vars), plan.options.model
        step: Self = BlockedStep.__new__(cls, vars, model=model, blocked=True)
        step._begin(plan.options, None)
        step._compile(plan, point)
        step._begin_chain(n_tune=0)
        return step

    def _begin(self, options: MetropolisOptions, rng: Any) -> None:
        self._options, self._model = options, options.model
        self.vars = list(options.vars)
        self.rng = get_random_generator(rng)
        self.tune = options.tune
        if options.acceptance.functions.clipped is not never_clipped:
            self._also_report(floats("clipped"))  # takes a variance for smaller than it is
        if options.debug:
            self._also_report(floats("bound_violations"))

    def _also_report(self, more: dict[str, tuple[type, list[int]]]) -> None:
        """Announce sample statistics that this step has, and not every step of its class."""
        own = {**self.stats_dtypes_shapes, **more}
        kinds = {name: kind for name, (kind, _) in own.items()}
        self.__dict__.update(stats_dtypes_shapes=own, stats_dtypes=[kinds])

    # Building -------------------------------------------------------------------------------

    def _planned(self, point: PointType, recipe: Recipe | None = None) -> Plan:
        """The plan of the step; with a recipe, the same plan as in another process."""
        return plan(self._options, point, recipe)

    def _tell(self, plan: Plan) -> None:
        """Warn of what a new plan means for the user."""
        plan.recipe.tell(plan)

    def _build_anew(self, point: PointType) -> None:
        with budgeted(self._options.set_up_budget):
            super()._build_anew(point)

    def _build(self, point: PointType) -> None:
        plan = self._planned(point)
        self._tell(plan)
        self._compile(plan, point)

    def _rebuild(self, point: PointType) -> bool:
        try:
            plan = self._planned(point, self._recipe)
        except OtherDataError:
            return False
        self._compile(plan, point)
        return True

    def _compile(self, plan: Plan, point: PointType) -> None:
        recipe = plan.recipe
        if "_recipe" in self.__dict__ and recipe.is_field != self._recipe.is_field:
            now = "has a field of effects" if recipe.is_field else "has no field of effects any more"
            raise ValueError(
                f"With the data that replaced those of before the model {now}, and this step was made for "
                f"the other kind. Make {type(self).__name__} anew."
            )
        stage("transitions")
        engine = plan.compile(point)
        # The plan goes: the designs that it holds have the size of the data. The engine comes last: it tells
        # that the step is built, also after an interrupt.
        self._options, self._factorisation, self._recipe = plan.options, plan.factorisation, recipe
        self._data_seen = [recipe.data]
        if self.field is not None:
            self.mixing = self.field.prediction.mixing
        self._engine = engine
        if engine.columns:
            self._also_report(engine.columns)

    def _graphs(self) -> list[LogDensityGraph]:
        return [self.factorisation.graph]

    # What other rooms read ------------------------------------------------------------------

    @property
    def factorisation(self) -> Factorisation:
        """The local terms. They have size N, and are not there before `require_built`."""
        assert self._factorisation is not None
        return self._factorisation

    @property
    def options(self) -> MetropolisOptions:
        """What the step was asked for."""
        return self._options

    @property
    def steps_per_draw(self) -> int:
        """Transitions of a draw."""
        return self._options.steps_per_draw or self._recipe.sweep

    @property
    def recipe(self) -> Recipe:
        """What of the plan travels to other processes."""
        return self._recipe

    @property
    def field(self) -> FieldRecipe | None:
        """What is known of the field, if the step sweeps over one."""
        return cast("FieldRecipe", self._recipe) if self._recipe.is_field else None

    @property
    def n_moves(self) -> int:
        """Moves of a transition, each of which may read all rows."""
        return 1 if self._engine is None else self._engine.n_moves

    @property
    def engine(self) -> Engine:
        """The compiled transitions. They have size N, and are not there before `require_built`."""
        assert self._engine is not None
        return self._engine

    @property
    def control_variate(self) -> Taylor | None:
        """The control variate that was asked for."""
        return self._options.control_variate

    @property
    def mode_fit(self) -> ModeReport | None:
        """What the search for the posterior mode found, if there was one."""
        return None if self._recipe.mode_fit is None else self._recipe.mode_fit.report

    @property
    def centre(self) -> ModeReport | None:
        """Old name of `mode_fit`."""
        warnings.warn("step.centre is now step.mode_fit.", FutureWarning, stacklevel=2)
        return self.mode_fit

    def try_out(self, point: PointType) -> Mixing | None:
        """Make a short pilot run, and keep what it says as `mixing`; None where it would take long.

        There is none where the plan has measured it, or where nothing is compiled: Python itself is too slow.
        """
        recipe, steps, engine = self._recipe, self.steps_per_draw, self._engine
        is_surrogate = isinstance(recipe.proposal, Surrogate)
        n_draws = draws_of_pilot(recipe.rows_a_draw, recipe.n_watched, steps, is_surrogate=is_surrogate)
        if n_draws and is_fitted(recipe.proposal) and engine is not None and engine.backend is NUMBA:
            draws = try_out(
                engine,
                lambda rng: recipe.fitted_draw(self.factorisation, engine, point, rng),
                point,
                recipe.proposal_state,
                n_draws=n_draws,
                steps_per_draw=steps,
                n_watched=recipe.n_watched,
            )
            self.mixing = None if draws is None else mixing_of(draws)
        return self.mixing

    def name_of(self, dimension: int) -> str:
        """The variable that a coordinate belongs to, as the model calls it."""
        fact = self.factorisation
        return fact.graph.variables[fact.coordinate(dimension)[0]]

    @property
    def _efficiency(self) -> float | None:
        """Effective draws for a draw, as they were announced."""
        return None if self.mixing is None else self.mixing.efficiency

    # PyMC's contract ------------------------------------------------------------------------

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain afresh; rebuild if shared data have changed since the step was built."""
        super().setup_chain(rng, tune, draws)
        self.tune = bool(tune)
        if self._efficiency and draws:
            self.watches.append(MixingWatch(draws, self._recipe.n_watched, has_tuned=self.tune))

    def reset_tuning(self) -> None:
        """Forget what the proposal has learnt."""
        later = [watch for watch in self.watches if not watch.of_tuning]
        self._begin_chain(n_tuning(self.watches))
        self.watches += later

    def stop_tuning(self) -> None:
        """End tuning: deviations of proposals are summed for the draws that follow."""
        super().stop_tuning()
        if self.deviations is not None:
            begin_again(self.deviations, self.steps_per_draw)

    @property
    def deviations(self) -> Deviations | None:
        """How far proposals of the chain are from their known moments, if these are known."""
        return _deviations_of(getattr(self, "proposal_state", None))

    @property
    def names_of_deviations(self) -> list[tuple[str, int]]:
        """Variable and element that each coordinate of the deviations is of, or is nearest to."""
        return self.engine.names_of_coordinates(self.factorisation)

    def _begin_chain(self, n_tune: int) -> None:
        if self._recipe.is_field:  # all is fitted before a chain begins
            n_tune = 0
        self.proposal_state: Any = _of_chain(deepcopy(self._recipe.proposal_state))
        self.watches: list[Watch] = []
        if n_tune and self.control_variate is not None:
            self.watches.append(FitWatch(n_tune))
        # Elements have walks of their own, of which some are slow by chance.
        if n_tune and self._recipe.sweep == 1:
            self.watches.append(DriftWatch(n_tune, self._recipe.n_dim))
        self.start_checked = False
        if self._engine is not None:
            self._engine.restart()

    def _step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Make `steps_per_draw` transitions from `point`."""
        goes_on = self.start_checked
        if self.require_built(point):  # other data: shapes and mode may differ
            self._begin_chain(n_tuning(self.watches))
        if not self.start_checked:
            with explained(self._model, point, by_start=False):
                require_finite(self.factorisation, point)
            if self.tune and not goes_on:
                names = ", ".join(str(self._model.values_to_rvs[v].name) for v in self._vars)
                point = self._recipe.start(
                    self.factorisation,
                    self.engine,
                    point,
                    lambda: default_point(self._model),
                    self.rng,
                    names,
                )
            self.start_checked = True
        n = self.steps_per_draw
        outcome = self._run(n, self.tune and self._options.tune, point)
        if self.watches:
            look(self.watches, outcome, n, tunes=self.tune, expected=self._expected)
        new_point = point_of(self.factorisation, outcome.q, point)
        return new_point, [self._statistics(outcome, n)]

    @property
    def runs_ahead(self) -> bool:
        """Whether `draw_ahead` may be called: draws after tuning, by compiled code, of this step alone."""
        counts = self._counts_in_outcome and not hasattr(self.proposal_state, "n_read")
        if self.tune or not counts or not self.is_built or self._options.debug:
            return False
        return self.engine.runs_ahead(self.proposal_state)

    @property
    def nanoseconds_of_draw(self) -> float:
        """What a draw takes, roughly, of one thread."""
        recipe, is_surrogate = self._recipe, isinstance(self._recipe.proposal, Surrogate)
        return nanoseconds_of_draw(
            recipe.rows_a_draw, recipe.n_watched, self.steps_per_draw, is_surrogate=is_surrogate
        )

    def draw_ahead(self, point: PointType, n_draws: int) -> Ahead:
        """Draws as `step` makes them one after another, in one call of compiled code."""
        if self.require_built(point):
            raise ValueError("Data were replaced (pm.set_data) while a chain ran. Begin another chain.")
        fact, n, q = self.factorisation, self.steps_per_draw, vector_of(self.factorisation, point)
        self._left, self._to_make = None, 0
        of_kernel = outcome_of(self.engine.kernel)
        draws = np.empty((n_draws, len(q)), q.dtype)
        numbers = np.full((n_draws, len(of_kernel._fields) - 1), -np.inf)
        is_interrupted = False
        try:
            self.engine.run_ahead(n, self.rng, q, point, self.proposal_state, draws, numbers)
        except KeyboardInterrupt:  # draws that were made are kept
            is_interrupted = True
            self.engine.restart()
        except BaseException:
            self.engine.restart()
            raise
        n_made = int(np.count_nonzero(numbers[:, 0] > -np.inf))
        draws, numbers = draws[:n_made], numbers[:n_made]
        outcome = of_kernel(draws, *numbers.T)
        if self.watches and n_made:
            look(self.watches, outcome, n, tunes=False, expected=self._expected)
        statistics = self._statistics(outcome, n)
        stats = {name: np.broadcast_to(value, n_made) for name, value in statistics.items()}
        return Ahead(point_of(fact, draws, {}), stats, is_interrupted)

    def _run(self, n: int, tune: bool, point: PointType) -> Outcome:
        engine, q = self.engine, vector_of(self.factorisation, point)
        try:
            return engine.run(n, tune, self.rng, q, point, self.proposal_state)
        except BaseException:
            engine.restart()
            raise

    def _expected(self) -> Expected:
        """What a chain of the step is compared with."""
        engine, fact = self.engine, self.factorisation
        return Expected(
            report=self.mode_fit,
            independent_moves=self._recipe.independent_moves,
            reads_all=engine.reads_all,
            needs_range=engine.needs_range,
            n_others=engine.n_others,
            n_transitions=self.steps_per_draw,
            efficiency=self._efficiency or 0.0,
            is_field=self._recipe.is_field,
            value_name=lambda k: fact.coordinate(k)[0],
            name=self.name_of,
        )

    def _statistics(self, outcome: Outcome, n: int) -> dict[str, Any]:
        """Means over n transitions; from `log_ratio_mean` to `psi` those of the last transition.

        `fraction_used` is `n_used` / N: passes over the data. A sweep over a field may need more than one, as
        each of its moves is decided on up to N rows. Of moves of single elements it is a share of the rows
        that contain them, and `scale` the mean over the elements.
        """
        engine, state, n_used = self.engine, self.proposal_state, outcome.n_used
        n_read = getattr(state, "n_read", None)  # since the last draw, by a proposal that reads local terms
        if n_read is not None:
            n_used += int(n_read[0])
            n_read[0] = 0
        found = {
            "accepted": 1.0 * outcome.accepted,
            "mean_tree_accept": outcome.n_accepted / n,
            "n_used": n_used / n,
            "fraction_used": n_used / n / max(1, engine.n_local),
            "n_stages": outcome.n_stages / n,
            "exhausted": outcome.n_exhausted / n,
            "log_ratio_mean": outcome.log_ratio_mean,
            "log_ratio_se": outcome.log_ratio_se,
            "psi": outcome.psi,
            "scale": state.scale[0],
        }
        if "clipped" in self.stats_dtypes_shapes:
            found["clipped"] = outcome.n_clipped / n
        engine.statistics(found, outcome, n)
        if "bound_violations" in self.stats_dtypes_shapes:
            found["bound_violations"] = engine.take_violations()
        return {name: found[name] for name in self.stats_dtypes_shapes if name in found}

    def _settings(self) -> dict[str, Any]:
        options, recipe = self._options, self._recipe
        n_exact = len(recipe.exact_rows)
        taylor = options.control_variate
        return {
            "rule": plain(recipe.rule),
            "proposal": plain(recipe.proposal),
            "control_variate": plain(None if taylor is None else replace(taylor, exact_rows=n_exact)),
            "range_bound": plain(options.range_bound),
            "steps_per_draw": self.steps_per_draw,
            "subsample": options.subsample,
            "threshold": plain(options.threshold),
            "temperature": options.temperature,
            "tune": options.tune,
            **({"elementwise": True} if options.elementwise else {}),
            "n_local": recipe.n_local,
            "n_exact": n_exact,
        }

    def _own(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {"_engine": None if self._engine is None else self._engine.copy()}


def _deviations_of(state: Any) -> Deviations | None:
    """What a state of proposals notes of them; that of a field has it in its memory."""
    found: Deviations | None = getattr(getattr(state, "memory", state), "deviations", None)
    return found


def _of_chain(state: Any) -> Any:
    """The state of proposals with room for the sums of a chain."""
    deviations = _deviations_of(state)
    if deviations is None:
        return state
    if hasattr(state, "memory"):
        return state._replace(memory=state.memory._replace(deviations=with_room(deviations)))
    return state._replace(deviations=with_room(deviations))
