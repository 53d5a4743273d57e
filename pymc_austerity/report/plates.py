"""What a comparison does on a model with effects of many groups: its reference, and where chains start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep
from pytensor.graph.basic import Variable

from pymc_austerity.mode.find_mode import constrained
from pymc_austerity.mode.plates.center import PlateSurvey, find_center, moved_center
from pymc_austerity.mode.plates.crossed_center import CrossedSurvey, find_crossed_center
from pymc_austerity.mode.plates.draws import state_at
from pymc_austerity.mode.plates.fit import fit_shared
from pymc_austerity.model.factorisation import FEWEST_GROUPS, FEWEST_IF_SLOW, point_of
from pymc_austerity.model.plates.crossed import CrossedModel, Plates
from pymc_austerity.model.starting_point import initial_point, require_finite
from pymc_austerity.progress import stage, watched
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.crossed_plan import plan_groups
from pymc_austerity.step_methods.metropolis.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.plate_search import plate_for
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR


def fewest_groups(steps: Iterable[BlockedStep]) -> int:
    """Groups that make a plate: fewer than usual, if one of the steps sweeps over so few."""
    plates = [step.plate for step in steps if isinstance(step, SubsampledStep)]
    few = any(plate is not None and plate.prediction.n_groups < FEWEST_GROUPS for plate in plates)
    return FEWEST_IF_SLOW if few else FEWEST_GROUPS


def plate_of(model: pm.Model, block: list[Variable], fewest: int) -> Plates | None:
    """The effects of many groups among the variables of a block, if there are some."""
    options = checked_options(block, EXACT, control_variate=TAYLOR, model=model)
    point = initial_point(model)
    options = replace(options, fewest_groups=fewest)
    found = plate_for(options, factorised(options, point), point)
    return found if isinstance(found, Plates) else None


def exact_sweeps(model: pm.Model, block: list[Variable], plate: Plates) -> MetropolisHastings:
    """Exact sweeps over a plate, which read all rows."""
    options = checked_options(block, EXACT, control_variate=TAYLOR, model=model)
    point = initial_point(model)
    with watched("compare: the reference", True):
        plan = plan_groups(options, point, found=plate)
        return MetropolisHastings.from_plan(plan, point)


def start_of_plate(model: pm.Model, plate: Plates) -> dict[str, Any]:
    """Where chains on a plate start, by name: the joint mode has scales near zero, far from all draws."""
    point = initial_point(model)
    require_finite(plate.factorisation, point)
    with watched("compare: where chains start", True):
        stage("order of rows", f", {plate.n_groups:,} groups")
        if isinstance(plate, CrossedModel):
            crossed = CrossedSurvey(plate, point)
            centers, _ = find_crossed_center(crossed)
            return constrained(model, crossed.point_at(centers, point))
        survey = PlateSurvey(plate, point)
        center, _ = find_center(survey)
        stage("fit", f" 1/1, {plate.n_groups:,} groups")
        fit, _, sums = fit_shared(survey, center)
        q: np.ndarray = state_at(survey, moved_center(survey, sums, fit.theta))
    return constrained(model, point_of(plate.factorisation, q, point))
