"""Whether the model of a step has effects that rows look up, and that are moved as a field."""

from dataclasses import replace

from pymc.initial_point import PointType
from pytensor.graph.traversal import ancestors

from pymc_austerity import work
from pymc_austerity.exceptions import RowsOnDiskError, SelfCheckError, SetUpBudgetError
from pymc_austerity.mode.fields.field_model import FieldModel, field_model
from pymc_austerity.model.factorisation import (
    FEWEST_SCALED,
    Factorisation,
    block_of,
    row_operations,
    vector_of,
)
from pymc_austerity.model.field.find import find_field
from pymc_austerity.model.field.lookups import looked_up
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.model.field.tables import Table
from pymc_austerity.step_methods.metropolis.field_pilot import announced
from pymc_austerity.step_methods.metropolis.field_plan import FieldPlan
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions

# Effects whose prior has no sampled number are coefficients like others, up to so many dimensions.
_FEW_DIMENSIONS = 500
# Rates that differ by less are near; so many times more a longer pilot run may cost.
_NEAR, _LONGER = 4.0, 20.0


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
    is_long = bool(looked_up(fact, fewest))
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
        return field_model(options.model, fact, found, is_tempered=options.temperature != 1.0)
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


def tried_longer(plan: FieldPlan, point: PointType, rate: float) -> FieldPlan:
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
    return replace(plan, recipe=replace(recipe, prediction=prediction))
