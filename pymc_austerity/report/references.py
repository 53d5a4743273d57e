"""What steps are compared with: exact Metropolis-Hastings, NUTS, or given draws; and where chains start."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep
from pytensor.graph.basic import Variable
from xarray import DataTree

from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.diagnostics.scalars import posterior_of
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.mode.find_mode import constrained
from pymc_austerity.mode.mode_fit import ModeReport
from pymc_austerity.mode.plates.center import PlateSurvey, find_center, moved_center
from pymc_austerity.mode.plates.crossed_center import CrossedSurvey, find_crossed_center
from pymc_austerity.mode.plates.draws import state_at
from pymc_austerity.mode.plates.fit import fit_shared
from pymc_austerity.model.factorisation import FEWEST_GROUPS, FEWEST_IF_SLOW, point_of
from pymc_austerity.model.factorise import factorise
from pymc_austerity.model.plates.crossed import CrossedModel, Plates
from pymc_austerity.model.starting_point import initial_point, require_finite
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.progress import stage, watched
from pymc_austerity.proposals.surrogate import Surrogate
from pymc_austerity.report.clock import Budget
from pymc_austerity.report.run import Run, Settings, run_step
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.crossed_plan import plan_groups
from pymc_austerity.step_methods.metropolis.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.metropolis.options import checked_options, proposal_for
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.plate_search import plate_for
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR

# Where a random walk is as good; `recommend` has the same limits.
_LEAST_ACCEPTANCE, _LARGEST_SPREAD = 0.2, 1.0

Reference = Literal["exact", "nuts"] | DataTree


def check_reference(reference: Any, var_names: Sequence[str]) -> None:
    """Raise an error that says what a reference may be."""
    if isinstance(reference, DataTree):
        posterior_of(reference, var_names, what="reference")
        sizes = reference["posterior"].sizes
        if not sizes.get("chain") or not sizes.get("draw"):
            raise ValueError(
                "reference must have the dimensions chain and draw, with at least one draw, got "
                f"{dict(sizes)}. Give what pm.sample() returns."
            )
    elif not isinstance(reference, str) or reference not in ("exact", "nuts"):
        got = repr(reference) if isinstance(reference, str) else type(reference).__name__
        raise ValueError(f'reference must be "exact", "nuts" or a DataTree with draws, got {got}.')


def run_reference(
    model: pm.Model, reference: Reference, budget: Budget, settings: Settings, seed: int, fewest: int
) -> Run:
    """Draw from the reference, or take the draws that were given; so few groups make a plate."""
    if isinstance(reference, DataTree):
        return Run("given", "draws that were given", idata=reference)
    began = time.perf_counter()
    if reference == "nuts":
        # Without step=, so that PyMC assigns others to discrete variables.
        return run_step(model, "nuts", [], budget, settings, seed, began=began)
    try:
        step, notes = exact_step(model, fewest)
    except UnsuitableError as error:
        raise ValueError(
            'reference="exact" is not possible for this model. Give reference="nuts" or draws of your own. '
            f"({error})"
        ) from error
    return run_step(model, "exact", [step], budget, settings, seed, notes=notes, began=began)


def exact_step(model: pm.Model, fewest: int = FEWEST_GROUPS) -> tuple[BlockedStep, list[str]]:
    """Exact Metropolis-Hastings on all continuous variables, with the best proposal that suits the model.

    It moves the effects of a plate, if the model has one; else it proposes by what is fitted to the posterior
    mode, or by a random walk, if there is no mode. With notes on why not.
    """
    block = list(model.continuous_value_vars)
    if not block:
        raise UnsuitableError("The model has no continuous variable for an exact step.")
    try:
        plate = plate_of(model, block, fewest)
        if plate is not None:
            options = checked_options(block, EXACT, control_variate=TAYLOR, model=model)
            point = initial_point(model)
            with watched("compare: the reference", True):  # sweeps that read all rows
                plan = plan_groups(options, point, found=plate)
                return MetropolisHastings.from_plan(plan, point), []
        taylor = Taylor(exact_rows=0)
        proposal = proposal_for(None, taylor, TermStructure(factorise(model, block)))
        # Sums of terms are kept from one transition to the next, those of remainders are not.
        needs = taylor if isinstance(proposal, Surrogate) else None
        step = MetropolisHastings(block, proposal=proposal, control_variate=needs, model=model)
        why = _misfit(step.mode_fit, isinstance(proposal, Surrogate))
        if not why:
            return step, []
    except UnsuitableError as error:
        why = str(error).partition(". ")[0].rstrip(".")
    note = f"The reference proposes by a random walk, for no normal distribution fits the posterior: {why}."
    return MetropolisHastings(block, model=model), [note]


def _misfit(report: ModeReport | None, is_surrogate: bool) -> str:
    """Why a proposal that is fitted to the mode would mix slowly, if it would."""
    if report is None:
        return "there is no mode"
    if report.n_modes > 1:
        return f"{report.n_modes} modes were found"
    if is_surrogate and report.remainder_sd >= _LARGEST_SPREAD:
        return f"its log density is off by {report.remainder_sd:.2g}"
    if not is_surrogate and report.acceptance < _LEAST_ACCEPTANCE:
        return f"independent draws would be accepted at a rate of {report.acceptance:.2g}"
    return ""


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
