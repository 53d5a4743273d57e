"""Whether the model of a step has effects of groups that are moved as a plate or field, and the plan then."""

from dataclasses import replace

from pymc.initial_point import PointType
from pytensor.graph.traversal import ancestors

from pymc_austerity import work
from pymc_austerity.exceptions import NoModeError, RowsOnDiskError, SetUpBudgetError, UnsuitableError
from pymc_austerity.mode.fields.field_model import FieldModel
from pymc_austerity.mode.fields.order import WIDE
from pymc_austerity.model.factorisation import FEWEST_GROUPS, Factorisation, row_operations, vector_of
from pymc_austerity.model.plates.any_spelling import find_plates, why_none
from pymc_austerity.model.plates.gathers import NoPlate
from pymc_austerity.model.plates.limits import is_nested
from pymc_austerity.model.plates.plate_model import PlateModel
from pymc_austerity.step_methods.metropolis.field_plan import (
    FieldPlan,
    FieldRecipe,
    field_for,
    field_with_all_rows,
    plan_field,
)
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import Recipe, factorised
from pymc_austerity.step_methods.metropolis.plate_pilot import announced
from pymc_austerity.step_methods.metropolis.plate_plan import (
    PlatePlan,
    PlateRecipe,
    plan_plates,
    with_all_rows,
)

# Effects whose scale is fixed are coefficients like others, up to so many dimensions.
_FEW_DIMENSIONS = 500
# Where moves of what groups share are accepted so seldom, the model is tried out as a field.
_POOR = 0.2
# A plate that moves more numbers with theta, of several inner factors or of a crossed one that is wide, is a
# field, if that is accepted so often; slopes are one unless it is poor.
_MANY_SHARED, _GOOD = 20, 0.5
# Rates that differ by less are near; so many times more a longer pilot run may cost.
_NEAR, _LONGER = 4.0, 20.0

# A plan of sweeps over the effects of groups.
Sweeps = PlatePlan | FieldPlan


def plate_for(
    options: MetropolisOptions, fact: Factorisation, point: PointType
) -> PlateModel | FieldModel | NoPlate | None:
    """The plate of a model, or a field; why there is none; None if nothing was."""
    found = _plate_for(options, fact, point)
    if not isinstance(found, NoPlate) or found.field is None:
        return found
    try:
        field = field_for(options, fact, found.field)
    except RowsOnDiskError as error:  # short factors are coefficients, whatever the order of the rows
        if any(table.size >= options.fewest_groups for table in found.field.tables):
            raise
        return NoPlate(str(error))
    if isinstance(field, FieldModel):
        return field
    return NoPlate(f"{found}; nor are they moved as a field: {field}")


def _plate_for(
    options: MetropolisOptions, fact: Factorisation, point: PointType
) -> PlateModel | NoPlate | None:
    taylor, fewest = options.control_variate, options.fewest_groups
    is_expanded = taylor is not None and taylor.order == 2 and taylor.center == "mode"
    if not is_expanded or options.proposal is not None or not fact.n_local:
        return None
    n_dim = len(vector_of(fact, point))
    work.sized(fact.n_rows, n_dim, row_operations(fact))
    try:
        found = find_plates(options.model, fact, fewest)
    except NoPlate as reason:
        return why_none(options.model, fact, fewest, reason)
    if found is None:
        return why_none(options.model, fact, fewest, None)
    if n_dim <= _FEW_DIMENSIONS:
        block = {found.shared.graph.values[name] for name in found.shared.var_names}
        prior = [part for one in found.priors for part in (one.scale, one.location)]
        if block.isdisjoint(ancestors(prior)):  # neither scale nor location of the effects is sampled
            return None
    if found.is_normal and options.temperature != 1.0:
        tempered = NoPlate("normal residuals with a free scale and a temperature are no plate together")
        return why_none(options.model, fact, fewest, tempered)
    return found


def plan_groups(
    options: MetropolisOptions,
    point: PointType,
    recipe: Recipe | None = None,
    found: PlateModel | FieldModel | None = None,
) -> Sweeps:
    """The plan of a plate or field that was found, or that of a recipe."""
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
    field = None
    has_slopes = found.n_effects > 1
    if recipe is None and (has_slopes or _has_many(found)):
        field = _field_plan(options, point, found)
        least = _POOR if has_slopes else _GOOD
        if field is not None and field.recipe.prediction.shared_acceptance >= least:
            return field
    try:
        plan = plan_plates(options, point, found, recipe)
    except NoModeError:  # a field is fitted in another way
        field = field or _field_plan(options, point, found)
        if field is None:
            raise
        return field
    if recipe is None and plan.recipe.prediction.shared_acceptance < _POOR:
        field = field or _field_plan(options, point, found)
        if field is not None and field.recipe.rate > plan.recipe.rate:
            return field
    return plan


def _has_many(plate: PlateModel) -> bool:
    """Are there many levels of other factors among the shared variables?"""
    if plate.n_shared <= _MANY_SHARED:
        return False
    wide = [f for f, own in enumerate(plate.rows.factors) if len(own) > WIDE]
    return len(plate.inner) > 1 or any(not is_nested(plate.rows, f) for f in wide)


def _field_plan(options: MetropolisOptions, point: PointType, found: PlateModel) -> FieldPlan | None:
    """The plan of a plate as a field, if it is one; rows on disk may be in the order of the plate alone."""
    try:
        field = field_for(options, found.factorisation)
        if not isinstance(field, FieldModel):
            return None
        with work.on_trial():
            return plan_field(options, point, found=field)
    except (UnsuitableError, RowsOnDiskError):  # the plate stays
        return None


def tried_longer(plan: Sweeps, point: PointType, rate: float) -> Sweeps:
    """A plan whose effective draws a second are near `rate`, measured in a longer run; others as they are."""
    recipe, fact, engine = plan.recipe, plan.factorisation, plan.engine
    if not rate / _NEAR < recipe.rate < rate * _NEAR:
        return plan
    try:
        with work.on_trial():
            prediction = announced(
                engine,
                recipe.prediction,
                lambda rng: recipe.fitted_draw(fact, engine, point, rng),
                point,
                times=_LONGER,
            )
    except SetUpBudgetError:  # the shorter run has to do
        return plan
    return replace(plan, recipe=replace(recipe, prediction=prediction))  # type: ignore[arg-type]


def with_all_rows_of_groups(plan: Sweeps, point: PointType) -> Sweeps:
    """A plan of sweeps with the same fit, whose decisions are made on all rows; it is tried out anew."""
    if isinstance(plan, FieldPlan):
        return field_with_all_rows(plan, point)
    return with_all_rows(plan, point)
