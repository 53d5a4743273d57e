"""The plan of a step on two crossed plates: fits in turn, tried out on a short pilot run."""

from dataclasses import dataclass, replace

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity import work
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.kernels.plates.records import GroupSums, Plate
from pymc_austerity.mode.fields.field_model import FieldModel
from pymc_austerity.mode.plates.center import moments
from pymc_austerity.mode.plates.crossed_center import CrossedSurvey, around, find_crossed_center
from pymc_austerity.mode.plates.crossed_sums import crossing_of
from pymc_austerity.mode.plates.expansion import Expanded
from pymc_austerity.mode.plates.fit import SharedFit, fit_shared
from pymc_austerity.mode.plates.group_bounds import no_bounds
from pymc_austerity.mode.plates.row_tables import fixed
from pymc_austerity.model.factorisation import FEWEST_GROUPS, point_of, row_operations, vector_of
from pymc_austerity.model.graph.log_density import fingerprint
from pymc_austerity.model.plates.any_spelling import find_plates
from pymc_austerity.model.plates.crossed import CrossedModel, Plates
from pymc_austerity.model.starting_point import density_of_block, require_finite
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.metropolis.crossed_pilot import (
    best_crossed_pilot,
    crossed_pilot,
    with_arrays,
)
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel
from pymc_austerity.step_methods.metropolis.engine.crossed import CrossedEngine
from pymc_austerity.step_methods.metropolis.field_plan import (
    FieldPlan,
    FieldRecipe,
    field_for,
    field_with_all_rows,
    plan_field,
)
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import Plan, Recipe, factorised
from pymc_austerity.step_methods.metropolis.plate_pilot import KAPPAS, announced, starts_of, with_kappa
from pymc_austerity.step_methods.metropolis.plate_plan import (
    PlatePlan,
    PlateRecipe,
    PlateSweeps,
    once_found,
    plan_plates,
    plate_arrays,
    with_all_rows,
)
from pymc_austerity.target import Vector

_SEED = 2035
# Where moves of what groups share are accepted so seldom, the model is tried out as a field.
_POOR = 0.2
# Draws of the other factor's effects, on both sides of their center, for the first fit.
_DRAWS = 2


@dataclass(frozen=True, kw_only=True)
class CrossedRecipe(PlateRecipe):
    """What of the plan travels to other processes: constants of size G + H, none of size N."""

    other_fit: SharedFit  # Of the second turn
    # In either turn, the effects of the other factor at the center, less their location
    held: tuple[Vector, Vector]
    scales: tuple[Vector, Vector]  # Standard deviations of the effects of either plate
    kappas: tuple[float, float]


@dataclass(frozen=True)
class CrossedPlan(Plan):
    """A step that sweeps over two crossed plates. It has size N."""

    recipe: CrossedRecipe
    rows: CrossedSurvey
    engine: CrossedEngine  # Compiled already: the pilot has used it

    def compile(self, point: PointType) -> CompiledKernel:
        """The compiled sweeps."""
        return self.engine


def plan_groups(
    options: MetropolisOptions,
    point: PointType,
    recipe: Recipe | None = None,
    found: Plates | FieldModel | None = None,
) -> PlatePlan | CrossedPlan | FieldPlan:
    """The plan of a plate that was found, of two that are crossed, or of a field; or that of a recipe."""
    if isinstance(found, FieldModel) or isinstance(recipe, FieldRecipe):
        return plan_field(options, point, recipe, found if isinstance(found, FieldModel) else None)
    assert recipe is None or isinstance(recipe, PlateRecipe)
    if recipe is not None:
        fact, fewest = factorised(options, point, recipe), min(FEWEST_GROUPS, recipe.proposal.n_groups)
        found = find_plates(options.model, fact, fewest)
    assert found is not None
    if recipe is None:
        fact = found.factorisation
        work.sized(fact.n_rows, len(vector_of(fact, point)), row_operations(fact))
    if isinstance(found, CrossedModel):
        assert recipe is None or isinstance(recipe, CrossedRecipe)
        return plan_crossed(options, point, found, recipe)
    plan = plan_plates(options, point, found, recipe)
    if recipe is None and plan.recipe.prediction.shared_acceptance < _POOR:
        field = field_for(options, found.factorisation)
        if isinstance(field, FieldModel):
            try:
                other = plan_field(options, point, found=field)
            except UnsuitableError:  # the plate stays
                return plan
            if other.recipe.prediction.cost < plan.recipe.prediction.cost:
                return other
    return plan


def with_all_rows_of_groups(
    plan: PlatePlan | CrossedPlan | FieldPlan, point: PointType
) -> PlatePlan | CrossedPlan | FieldPlan:
    """The same fit with decisions on all rows, tried out anew."""
    if isinstance(plan, FieldPlan):
        return field_with_all_rows(plan, point)
    return _all_rows(plan, point) if isinstance(plan, CrossedPlan) else with_all_rows(plan, point)


def plan_crossed(
    options: MetropolisOptions, point: PointType, crossed: CrossedModel, recipe: CrossedRecipe | None = None
) -> CrossedPlan:
    """Fit each plate given the other, try both out, and fit them again about the means of the pilot.

    With a recipe nothing is fitted or tried out.
    """
    if recipe is not None:
        return _plan_again(options, point, crossed, recipe)
    require_finite(crossed.factorisation, point)
    n_groups = f", {crossed.n_groups:,} groups of two factors"
    stage("order of rows", n_groups)
    survey = CrossedSurvey(crossed, point)
    centers, scales = find_crossed_center(survey)
    stage("fit", f" 1/2{n_groups}")
    reads_all = options.switch_above <= 0.0
    fits, arrays = [], []
    for t, (own, center) in enumerate(zip(survey.surveys, centers, strict=True)):
        beside = survey.beside(t, around(scales[1 - t], _DRAWS))
        fit, at, sums = fit_shared(own, center, beside=beside)
        fits.append(fit)
        arrays.append(turn_arrays(survey, t, fit, (at, sums), scales[1 - t], options, reads_all=reads_all))
    engine = CrossedEngine(survey, arrays, fits, point)
    rng, fact = np.random.default_rng(_SEED), crossed.factorisation
    point = point_of(fact, engine.starts(fits[0], point, density_of_block(fact, point))(rng), point)
    found = crossed_pilot(engine, point, rng)
    stage("fit", f" 2/2{n_groups}")
    for t in range(2):
        survey.hold(t, found.effects[1 - t])
    for t, own in enumerate(survey.surveys):
        beside = survey.beside(t, found.states[1 - t] - survey.held[t])
        fits[t], at, sums = fit_shared(own, found.centers[t], found.eps[t], 2, beside)
        if t == 0:  # what the second turn is bounded by; the first had those of the search
            scales[0] = moments(own.shared, sums, fits[0].theta)[2]
        arrays[t] = turn_arrays(survey, t, fits[t], (at, sums), scales[1 - t], options, reads_all=reads_all)
    with_arrays(engine, arrays)
    found = best_crossed_pilot(engine, found.point, rng)
    if not reads_all and found.prediction.terms > options.switch_above * engine.n_local:
        reads_all = True
        _read_all(engine)
        found = crossed_pilot(engine, found.point, rng)
    starts = starts_of(engine, fits[0], vector_of(fact, found.point), fact, point)
    prediction = announced(engine, found.prediction, starts, point)
    first, second = (one.plate.rule.kappa for one in engine.turns)
    recipe = CrossedRecipe(
        data=fingerprint(fact.graph),
        n_local=engine.n_local,
        n_dim=len(vector_of(crossed.factorisation, point)),
        rule=options.acceptance,
        proposal=PlateSweeps(", ".join(crossed.effects), crossed.n_groups, first),
        proposal_state=engine.new_state(),
        mode_fit=None,
        fit=fits[0],
        prediction=prediction,
        reads_all=engine.reads_all,
        certificate=_certificate(crossed, reads_all=reads_all),
        other_fit=fits[1],
        held=(survey.held[0], survey.held[1]),
        scales=(scales[0], scales[1]),
        kappas=(first, second),
    )
    return CrossedPlan(once_found(options), fact, recipe, survey, engine)


def turn_arrays(
    survey: CrossedSurvey,
    turn: int,
    fit: SharedFit,
    expanded: tuple[Expanded, GroupSums],
    scales: Vector,
    options: MetropolisOptions,
    *,
    reads_all: bool,
) -> Plate:
    """All that the kernel needs in a turn; `scales` are standard deviations of the other factor's effects."""
    own, (at, sums) = survey.surveys[turn], expanded
    cells = survey.sums(turn, at, sums)
    arrays = plate_arrays(
        own, fit, at, sums, reads_all=reads_all, debug=options.debug, farther=cells.farther(scales)
    )
    levels = (len(sums.linear) + survey.levels[turn]).astype(np.int32)
    # What is written in each turn is the turn's own.
    written = sums._replace(
        slopes=sums.slopes.copy(), gradient=sums.gradient.copy(), other_squares=np.zeros(1)
    )
    return arrays._replace(
        rows=arrays.rows._replace(levels=fixed(levels[None])),
        sums=written,
        proposal=arrays.proposal._replace(mean=arrays.proposal.mean.copy()),
        crossing=crossing_of(own.shared, fit, sums, cells),
    )


def _read_all(engine: CrossedEngine) -> None:
    """Decide on all rows from here on."""
    arrays = []
    for own, turn in zip(engine.survey.surveys, engine.turns, strict=True):
        bounds, weights = no_bounds(own, turn.plate.sums)
        arrays.append(with_kappa(turn.plate._replace(bounds=bounds, weights=weights), KAPPAS[0]))
    with_arrays(engine, arrays)


def _all_rows(plan: CrossedPlan, point: PointType) -> CrossedPlan:
    engine, crossed = plan.engine.copy(), plan.rows.crossed
    _read_all(engine)
    rng, fact = np.random.default_rng(_SEED), crossed.factorisation
    start = point_of(fact, engine.starts(plan.recipe.fit, point, density_of_block(fact, point))(rng), point)
    found = crossed_pilot(engine, start, rng)
    starts = starts_of(engine, plan.recipe.fit, vector_of(fact, found.point), fact, point)
    prediction = announced(engine, found.prediction, starts, point)
    certificate = _certificate(crossed, reads_all=True)
    recipe = replace(plan.recipe, prediction=prediction, reads_all=True, certificate=certificate)
    return replace(plan, recipe=recipe, engine=engine)


def _plan_again(
    options: MetropolisOptions, point: PointType, crossed: CrossedModel, recipe: CrossedRecipe
) -> CrossedPlan:
    """The same plan in another process."""
    survey, fits, arrays = CrossedSurvey(crossed, point), [recipe.fit, recipe.other_fit], []
    for t, (own, fit) in enumerate(zip(survey.surveys, fits, strict=True)):
        survey.hold(t, recipe.held[t])
        expanded = own.expand(fit.center)
        found = turn_arrays(
            survey, t, fit, expanded, recipe.scales[1 - t], options, reads_all=recipe.reads_all
        )
        arrays.append(with_kappa(found, recipe.kappas[t]))
    engine = CrossedEngine(survey, arrays, fits, point)
    return CrossedPlan(options, crossed.factorisation, recipe, survey, engine)


def _certificate(crossed: CrossedModel, *, reads_all: bool) -> str:
    if crossed.is_normal:
        return f"{crossed.name!r}: normal, sums are sufficient and no row is read"
    if reads_all:
        return "not needed, as all rows are read"
    own = f"third derivatives of {crossed.name!r}"
    return f"{own}, a function of 1 predictor of each row, by interval arithmetic"
