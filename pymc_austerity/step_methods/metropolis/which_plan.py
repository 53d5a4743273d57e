"""Which plan a step with a decision rule has: of single elements, of a field of effects, or of a block.

Rooms of single elements and of fields are imported where they are needed. Most steps need neither.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pymc.initial_point import PointType

from pymc_austerity.model.factorisation import FEWEST_SCALED, Factorisation
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import Plan, Recipe, factorised, plan_metropolis, survey

if TYPE_CHECKING:
    from pymc_austerity.mode.fields.field_model import FieldModel


def plan(options: MetropolisOptions, point: PointType, recipe: Recipe | None = None) -> Plan:
    """The plan of a step with a decision rule; with a recipe, the same plan in another process."""
    if options.elementwise:
        from pymc_austerity.step_methods.metropolis.element_plan import plan_elements

        return plan_elements(options, point, recipe)
    if recipe is not None:
        return (
            plan_sweeps(options, point, recipe)
            if recipe.is_field
            else plan_metropolis(options, point, recipe)
        )
    if options.control_variate is None or getattr(options.acceptance, "needs_range", False):
        return plan_metropolis(options, point)
    fact = factorised(options, point)
    field, _ = field_or_reason(options, fact, point)
    if field is not None:
        return plan_sweeps(options, point, found=field)
    return plan_metropolis(options, point, surveyed=survey(options, point, factorisation=fact))


def field_or_reason(
    options: MetropolisOptions, fact: Factorisation, point: PointType
) -> tuple[FieldModel | None, str]:
    """The field of effects that a model has, if any; and why effects of many groups are none."""
    sizes = [math.prod(fact.graph.values[name].type.shape) for name in fact.var_names]
    if max(sizes, default=0) < min(options.fewest_groups - 1, FEWEST_SCALED):  # sums to zero have one fewer
        return None, ""
    from pymc_austerity.model.field.priors import NoField
    from pymc_austerity.step_methods.metropolis.field_plan import field_of

    found = field_of(options, fact, point)
    return (None, str(found)) if isinstance(found, NoField) else (found, "")


def plan_sweeps(
    options: MetropolisOptions,
    point: PointType,
    recipe: Recipe | None = None,
    found: FieldModel | None = None,
) -> Plan:
    """The plan of sweeps over a field that was found, or that a recipe was made for."""
    from pymc_austerity.step_methods.metropolis.field_plan import FieldRecipe, plan_again, plan_field

    if found is not None:
        return plan_field(options, point, found)
    assert isinstance(recipe, FieldRecipe)
    return plan_again(options, point, recipe)
