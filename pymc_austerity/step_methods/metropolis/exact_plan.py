"""Which plan an exact step on drawn rows has: for a plate of effects, or for a block of variables."""

from typing import Any

from pymc.initial_point import PointType

from pymc_austerity.exceptions import UnsuitableError, warn
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import Plan, Recipe, factorised, survey
from pymc_austerity.step_methods.metropolis.tuna_plan import TunaRecipe, plan_tuna, scratch_folder
from pymc_austerity.step_methods.metropolis.which_plan import find_plate, plan_sweeps


def plan_exact(
    options: MetropolisOptions, point: PointType, recipe: Recipe | None = None, client: Any = None
) -> Plan:
    """The plan of `TunaMH`: sweeps over a plate, if the model has one; else moves of the whole block.

    With a `distributed.Client` sums over all rows, which the search for the mode needs, are computed there.
    """
    if isinstance(recipe, TunaRecipe):
        return plan_tuna(options, point, recipe)
    if recipe is not None:
        return plan_sweeps(options, point, recipe)
    fact = factorised(options, point)
    scratch_folder(fact)  # an error before a long search
    plate, why_not = (None, "") if options.chi or options.curvature else find_plate(options, fact, point)
    if plate is not None:
        if client is not None:
            warn("The set-up of a plate of effects is not distributed: client= has had no effect.")
        return plan_sweeps(options, point, found=plate)
    elsewhere = None
    if client is not None:
        # The cluster is imported where there is one.
        from pymc_austerity.step_methods.metropolis.sums_elsewhere import SumsElsewhere

        elsewhere = SumsElsewhere(client, options, point)
    try:
        surveyed = survey(options, point, certify=False, factorisation=fact, elsewhere=elsewhere)
        plan = plan_tuna(options, point, surveyed=surveyed)
    except UnsuitableError as error:
        if why_not:
            error.add_note(f"The model has effects of many groups, which are no plate: {why_not}.")
        raise
    finally:
        if elsewhere is not None:
            elsewhere.close()
    if why_not and plan.recipe.reads_all:
        warn(f"The model has effects of many groups, which could not be moved as a plate: {why_not}.")
    return plan
