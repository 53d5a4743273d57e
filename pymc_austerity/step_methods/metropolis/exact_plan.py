"""Which plan an exact step on drawn rows has: for a plate of effects, or for a block of variables."""

from __future__ import annotations

from typing import Any

from pymc.initial_point import PointType
from pytensor.graph.traversal import ancestors

from pymc_austerity.acceptance import Exact
from pymc_austerity.exceptions import UnsuitableError, warn
from pymc_austerity.model.factorisation import Factorisation, vector_of
from pymc_austerity.model.plates.crossed import Plates, crossed_model
from pymc_austerity.model.plates.gathers import FEWEST_GROUPS, LargeFactor, NoPlate
from pymc_austerity.model.plates.plate_model import PlateModel, plate_model
from pymc_austerity.model.plates.unknown_forms import unknown_form
from pymc_austerity.step_methods.metropolis.crossed_plan import CrossedPlan, plan_groups
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import factorised, survey
from pymc_austerity.step_methods.metropolis.plate_plan import PlateDecision, PlatePlan
from pymc_austerity.step_methods.metropolis.sums_elsewhere import SumsElsewhere
from pymc_austerity.step_methods.metropolis.tuna_plan import (
    TunaOptions,
    TunaPlan,
    plan_tuna,
    scratch_folder,
)

# Effects whose scale is fixed are coefficients like others, up to so many dimensions.
_FEW_DIMENSIONS = 500


def plan_exact(
    options: MetropolisOptions,
    tuna: TunaOptions,
    decision: PlateDecision,
    point: PointType,
    fewest: int = FEWEST_GROUPS,
    client: Any = None,
) -> TunaPlan | PlatePlan | CrossedPlan:
    """The plan of `TunaMH`: sweeps over a plate, if the model has one; else moves of the whole block.

    With a `distributed.Client` sums over all rows, which the search for the mode needs, are computed there.
    """
    fact = factorised(options, point)
    scratch_folder(fact)  # an error before a long search
    found = None if tuna.chi or tuna.curvature else plate_for(options, fact, point, fewest)
    if isinstance(found, Plates):
        if client is not None:
            warn("The set-up of a plate of effects is not distributed: client= has had no effect.")
        return plan_groups(options, decision, found, point)
    elsewhere = None if client is None else SumsElsewhere(client, options, point)
    try:
        surveyed = survey(options, point, certify=False, factorisation=fact, elsewhere=elsewhere)
        plan = plan_tuna(options, tuna, point, surveyed)
    except UnsuitableError as error:
        if found is not None:
            error.add_note(f"The model has effects of many groups, which are no plate: {found}.")
        raise
    finally:
        if elsewhere is not None:
            elsewhere.close()
    if found is not None and plan.recipe.reads_all:
        warn(f"The model has effects of many groups, which could not be moved as a plate: {found}.")
    return plan


def plate_for(
    options: MetropolisOptions, fact: Factorisation, point: PointType, fewest: int = FEWEST_GROUPS
) -> Plates | NoPlate | None:
    """The plate of a model, or two crossed ones, if it is to be moved so; why not; None if nothing was."""
    taylor = options.control_variate
    is_expanded = taylor is not None and taylor.order == 2 and taylor.center == "mode"
    if not is_expanded or options.proposal is not None or not fact.n_local:
        return None
    try:
        found = _plates(options, fact, fewest)
    except NoPlate as reason:  # that of a form which is not known comes first: it is what is to be changed
        return unknown_form(options.model, fact, fewest) or reason
    if found is None:
        return unknown_form(options.model, fact, fewest)
    if (
        isinstance(found, PlateModel)
        and not _is_hierarchical(found)
        and len(vector_of(fact, point)) <= _FEW_DIMENSIONS
    ):
        return None
    if found.is_normal and options.temperature != 1.0:
        return NoPlate("normal residuals with a free scale and a temperature are not supported together")
    return found


def _plates(options: MetropolisOptions, fact: Factorisation, fewest: int) -> Plates | None:
    """One plate; two if a second factor is too large for the shared coefficients, and is not nested."""
    try:
        return plate_model(options.model, fact, fewest)
    except LargeFactor:
        found = crossed_model(options.model, fact, fewest)
        if found is None:
            raise
    if not isinstance(options.acceptance, Exact):
        raise NoPlate(
            f"{' and '.join(map(repr, found.effects))} are crossed factors, whose moves are decided exactly: "
            "use TunaMH(), or MetropolisHastings(control_variate=Taylor())"
        )
    return found


def _is_hierarchical(found: PlateModel) -> bool:
    """Are scale or location of the effects sampled?"""
    block = {found.shared.graph.values[name] for name in found.shared.var_names}
    return not block.isdisjoint(
        ancestors([part for one in found.priors for part in (one.scale, one.location)])
    )
