"""The plan of a step on a field: whether a model has one, its fit and bounds, tried out on a pilot run."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pymc.initial_point import PointType
from pytensor.graph.traversal import ancestors

from pymc_austerity import work
from pymc_austerity.acceptance.base import AcceptanceRule, Exact, with_batch_size
from pymc_austerity.exceptions import RowsOnDiskError, SelfCheckError, SetUpBudgetError, warn
from pymc_austerity.kernels.fields.records import Schedule
from pymc_austerity.mode.fields.field_model import FieldModel, field_model
from pymc_austerity.mode.fields.fit import FieldFit, FittedField
from pymc_austerity.model.factorisation import (
    FEWEST_IF_SLOW,
    FEWEST_SCALED,
    Factorisation,
    block_of,
    point_of,
    row_operations,
    vector_of,
)
from pymc_austerity.model.field.find import find_field
from pymc_austerity.model.field.lookups import looked_up
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.model.field.tables import Table
from pymc_austerity.model.graph.log_density import fingerprint
from pymc_austerity.model.starting_point import require_finite
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.metropolis.engine.base import Engine
from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine
from pymc_austerity.step_methods.metropolis.field_pilot import FieldPrediction, announced, try_schedules
from pymc_austerity.step_methods.metropolis.mixing_pilot import warn_of_poor_mixing
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import Plan, Recipe, factorised, tell_joined
from pymc_austerity.target import Vector

logger = logging.getLogger(__name__)

# States that are further out than all but very few draws of the fitted distribution.
_FAR = 5.0
# Below this acceptance rate chains mix badly.
_SELDOM = 0.2
# Effects whose prior has no sampled number are coefficients like others, up to so many dimensions.
_FEW_DIMENSIONS = 500
# Rates that differ by less are near; so many times more a longer pilot run may cost.
_NEAR, _LONGER = 4.0, 20.0


# Is there a field? --------------------------------------------------------------------------------


def field_of(
    options: MetropolisOptions, fact: Factorisation, point: PointType
) -> FieldModel | NoField | None:
    """The field that a step moves; why there is none; None if rows look nothing up that would be one."""
    taylor, fewest = options.control_variate, options.fewest_groups
    is_expanded = taylor is not None and taylor.order == 2 and taylor.center == "mode"
    if not is_expanded or options.proposal is not None or not fact.n_local:
        return None
    n_dim = len(vector_of(fact, point))
    work.sized(fact.n_rows, n_dim, row_operations(fact))
    is_long = n_dim >= fewest and bool(looked_up(fact, fewest))
    if not is_long and not looked_up(fact, FEWEST_SCALED, times=True):
        return None
    try:
        found = find_field(options.model, fact)
    except NoField as reason:
        return reason if is_long else None
    except SelfCheckError as reason:  # it says that the field is not that of the model
        return NoField(str(reason))
    tables = [t for one in found.likelihoods for t in one.looked_up(found.tables, fewest, scaled=True)]
    if not tables:
        return None
    if all(table.innovation is None for table in tables):
        names = " and ".join(dict.fromkeys(table.variable for table in tables))
        return NoField(f"the prior of {names} has no rule") if is_long else None
    if n_dim <= _FEW_DIMENSIONS and not any(_has_numbers(table, fact) for table in tables):
        return None
    try:
        result = field_model(
            options.model,
            fact,
            found,
            is_tempered=options.temperature != 1.0,
            joins=options.joins_equal_rows,
        )
        tell_joined(fact, result.factorisation)
        return result
    except NoField as reason:
        if not is_long:
            return None
        names = " and ".join(dict.fromkeys(map(_said, tables)))
        return NoField(f"rows are linear in {names}, which are not moved together: {reason}")
    except RowsOnDiskError as error:  # short effects are coefficients, whatever the order of the rows
        if any(table.size >= fewest for table in tables):
            raise
        return NoField(str(error))


def _has_numbers(table: Table, fact: Factorisation) -> bool:
    """Is the location or scale of effects sampled?"""
    one = table.innovation
    if one is None:  # it is one itself, beside others
        return False
    graphs = [step.graph for step in (*table.steps, *one.steps)]
    graphs += [one.location, one.shape, *(phi for phi, _ in one.precision)]
    above = set(ancestors([graph for graph in graphs if graph is not None])) - {one.value}
    return not above.isdisjoint(block_of(fact))


def _said(table: Table) -> str:
    """A table, its size and its prior in words."""
    return f"{table.variable} ({table.size:,}, {table.said})"


# How it is moved ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FieldSweeps:
    """How a field is moved, as the configuration says it."""

    effects: str  # The value variables of the effects
    n_nodes: int
    kappa: float  # So many times the rows are drawn for moves of theta, which makes decisions less noisy


@dataclass(frozen=True, kw_only=True)
class FieldRecipe(Recipe):
    """A fitted field with its pilot, as other processes are handed it: it has the size of the effects."""

    is_field: ClassVar[bool] = True

    proposal: FieldSweeps
    fit: tuple[FittedField, ...]
    schedules: tuple[Schedule, ...]
    prediction: FieldPrediction

    @property
    def n_watched(self) -> int:
        """Coordinates that tell how well a chain mixes: long effects are drawn anew at almost every sweep."""
        return self.prediction.n_shared

    def tell(self, plan: Plan) -> None:
        """Warn if the shared variables will mix badly, or if all rows are read where few were asked for."""
        found, mixing, fact = self.prediction, self.prediction.mixing, plan.factorisation
        if found.shared_acceptance < _SELDOM:
            warn(
                f"Moves of what {found.n_effects:,} effects share are accepted at a rate of about "
                f"{found.shared_acceptance:.2f}: {found.why_few(self.n_local)}. The chain is exact, and "
                "mixes slowly. pm.NUTS may suit the model better."
            )
        elif mixing is not None and mixing.is_poor:
            name = fact.graph.variables[fact.coordinate(mixing.dimension)[0]]
            warn_of_poor_mixing(mixing, name, is_field=True)
        is_short = self.n_local < plan.options.threshold  # equal rows are joined, and few are left
        if self.reads_all and plan.options.switch_above > 0.0 and not is_short:
            warn(
                f"TunaMH would draw many of {self.n_local:,} rows for a sweep over {found.n_effects:,} "
                "effects: all are read instead."
            )

    def fitted_draw(
        self, fact: Factorisation, engine: Engine, point: PointType, rng: np.random.Generator
    ) -> Vector:
        """A draw of the distribution that is fitted to the field."""
        assert isinstance(engine, FieldEngine)
        return engine.drawn(rng, point)

    def start(
        self,
        fact: Factorisation,
        engine: Engine,
        point: PointType,
        default: Callable[[], PointType],
        rng: np.random.Generator,
        names: str,
    ) -> PointType:
        """A draw of the fitted distribution, or `point` if somebody has chosen it; see `Recipe.start`."""
        q = vector_of(fact, point)
        if np.allclose(q, vector_of(fact, default())):
            logger.info("%s: the chain starts from a draw of the fitted distribution.", names)
            return point_of(fact, self.fitted_draw(fact, engine, point, rng), point)
        assert isinstance(engine, FieldEngine)
        found, n = engine.distance(q, point), len(self.fit[0].theta)
        if found**2 > n + _FAR * math.sqrt(2.0 * n):
            warn(
                f"The chain starts {found:.3g} standard deviations from the distribution that was fitted to "
                f"the shared variables of {names}, at a point that is not the model's initial point and was "
                "therefore kept. Proposals may be rejected there for long. Without initvals the chain starts "
                "from a draw of the fitted distribution."
            )
        return point

    @property
    def rate(self) -> float:
        """Effective draws of the shared variables in a second of CPU time, roughly."""
        mixing = self.prediction.mixing
        assert mixing is not None
        return 1e9 * mixing.efficiency / self.prediction.sweep


@dataclass(frozen=True)
class FieldPlan(Plan):
    """A step that sweeps over a field. It has size N."""

    recipe: FieldRecipe
    field: FieldModel
    engine: FieldEngine  # Compiled already: the pilot has used it

    def compile(self, point: PointType) -> Engine:
        """The compiled sweeps."""
        return self.engine


def rule_of_remainders(options: MetropolisOptions) -> AcceptanceRule | None:
    """The rule that decides the moves of a field on a subsample of remainders; None for exact decisions."""
    return None if isinstance(options.acceptance, Exact) else options.acceptance


def plan_field(
    options: MetropolisOptions,
    point: PointType,
    found: FieldModel,
    fit: tuple[FieldFit, ...] | None = None,
    *,
    reads_all: bool = False,
) -> FieldPlan:
    """Fit the field, unless it is fitted, and try out how to move it; with `reads_all` on all rows."""
    fact, rule = found.factorisation, rule_of_remainders(options)
    if fit is None:
        work.sized(fact.n_rows, len(vector_of(fact, point)), row_operations(fact))
        require_finite(fact, point)
        stage("fit", f", {found.n_effects:,} effects")
        fit = found.fit()
        stage("bounds", f" of {fact.n_rows:,} rows")
    if rule is not None:
        rule = with_batch_size(rule, fact.n_rows, options.default_batch)
    reads_all = reads_all or rule is not None or options.switch_above <= 0.0
    arrays = found.arrays(fit, reads_all=reads_all, debug=options.debug)
    engine = FieldEngine(found.values, arrays, point, rule)
    tried, last = try_schedules(engine, found, point)
    if engine.draws_rows and tried.terms > options.switch_above * engine.n_readings:
        return plan_field(options, point, found, fit, reads_all=True)
    starts = [last]
    prediction = announced(
        engine, tried, lambda rng: starts.pop() if starts else engine.drawn(rng, point), point
    )
    recipe = FieldRecipe(
        data=fingerprint(fact.graph),
        n_local=fact.n_rows,
        n_dim=len(vector_of(fact, point)),
        rule=options.acceptance if rule is None else rule,
        proposal=FieldSweeps(", ".join(found.effects), found.n_nodes, float(engine.schedules[0].kappas[0])),
        proposal_state=engine.new_state(),
        fit=tuple(one.fitted for one in fit),
        prediction=prediction,
        reads_all=engine.reads_all,
        certificate=_certificate(found, reads_all=not engine.draws_rows),
        schedules=engine.schedules,
    )
    return FieldPlan(replace(options, fewest_groups=FEWEST_IF_SLOW), fact, recipe, found, engine)


def plan_again(options: MetropolisOptions, point: PointType, recipe: FieldRecipe) -> FieldPlan:
    """The plan that a recipe was made for: nothing is fitted or tried out."""
    fact = factorised(options, point, recipe)
    found = field_model(
        options.model,
        fact,
        is_tempered=options.temperature != 1.0,
        joins=options.joins_equal_rows and recipe.n_local < fact.n_rows,
    )
    rule = None if rule_of_remainders(options) is None else recipe.rule
    reads_all = rule is not None or recipe.reads_all
    arrays = found.arrays(found.fit_again(recipe.fit), reads_all=reads_all, debug=options.debug)
    engine = FieldEngine(found.values, arrays, point, rule)
    engine.take(recipe.schedules)
    return FieldPlan(options, found.factorisation, recipe, found, engine)


def _certificate(found: FieldModel, *, reads_all: bool) -> str:
    names = ", ".join(map(repr, found.factorisation.graph.likelihood))
    if found.is_normal:
        return f"{names}: normal, sums are sufficient and no row is read"
    if reads_all:
        return "not needed, as all rows are read"
    p = found.layouts[0].columns.n_predictors
    predictors = f"{p} predictors" if p > 1 else "1 predictor"
    return f"third derivatives of {names}, a function of {predictors} of each row, by interval arithmetic"


def tried_longer(plan: FieldPlan, point: PointType, rate: float) -> FieldPlan:
    """A plan whose effective draws a second are near `rate`, measured in a longer run; others as they are."""
    recipe, engine = plan.recipe, plan.engine
    if not rate / _NEAR < recipe.rate < rate * _NEAR:
        return plan
    try:
        with work.on_trial():
            prediction = announced(
                engine, recipe.prediction, lambda rng: engine.drawn(rng, point), point, times=_LONGER
            )
    except SetUpBudgetError:  # the shorter run has to do
        return plan
    return replace(plan, recipe=replace(recipe, prediction=prediction))
