"""Whether a step that was chosen mixes; and one that does, if it does not."""

from __future__ import annotations

from dataclasses import replace

import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.model.factorisation import FEWEST_IF_SLOW
from pymc_austerity.model.plates.plate_model import PlateModel
from pymc_austerity.recommendation.candidate import Choice
from pymc_austerity.recommendation.choice import blank_record, by_nuts
from pymc_austerity.recommendation.evidence import MOST_ROWS, Evidence
from pymc_austerity.recommendation.nuts import NUTS, why_no_gradient
from pymc_austerity.recommendation.plates import of_plate
from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.mixing_pilot import Mixing, warn_of_poor_mixing
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plate_plan import plan_plates
from pymc_austerity.step_methods.metropolis.plate_search import plate_for
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR, checked_tuna_options

# Less than this speaks against a plate. Where groups hardly differ a pilot of the block is too confident, so
# that a plate with half of its effective draws is preferred.
_ENOUGH, _HALF = 0.02, 0.5


def that_mixes(
    choice: Choice, evidence: Evidence, model: pm.Model, block: list[Variable], point: PointType
) -> tuple[Choice, SubsampledStep | NUTS]:
    """The chosen step, tried out on a pilot run; a small plate or `pm.NUTS` if that mixes badly."""
    step = choice.make()
    mixing = step.try_out(point) if isinstance(step, SubsampledStep) else None
    if not isinstance(step, SubsampledStep) or mixing is None:
        return choice, step
    told = _with(choice, mixing)
    slow = (
        f"with {choice.why.step} {mixing.n_draws:,} draws of a pilot run were worth about "
        f"{few_digits(mixing.effective)} independent ones of {step.name_of(mixing.dimension)}"
    )
    if evidence.plates is not None:
        if mixing.efficiency >= _ENOUGH:
            return told, step
    elif mixing.is_doubtful and evidence.is_hierarchical:
        better = _small_plate(slow, mixing, evidence, model, block, point)
        if better is not None:
            return better
    if evidence.plates is None and not mixing.is_poor:
        return told, step
    if why_no_gradient(model, block) is not None:
        warn_of_poor_mixing(mixing, step.name_of(mixing.dimension), is_plate=evidence.plates is not None)
        return told, step
    choice = by_nuts(evidence, blank_record(evidence, model, block, point), model, block, point, slow)
    return choice, choice.make()


def _with(choice: Choice, mixing: Mixing) -> Choice:
    why = choice.why._replace(mixing=mixing)
    return Choice(why, choice.make, choice.is_of_search, choice.is_exact)


def _small_plate(
    slow: str,
    of_block: Mixing,
    evidence: Evidence,
    model: pm.Model,
    block: list[Variable],
    point: PointType,
) -> tuple[Choice, SubsampledStep | NUTS] | None:
    """Sweeps over the effects of a few groups, if there are some, and they mix better."""
    fact = evidence.factorisation
    assert fact is not None
    options = checked_options(
        block,
        EXACT,
        control_variate=TAYLOR,
        model=model,
        set_up_budget=evidence.budget,
        tuna=checked_tuna_options(switch_above=MOST_ROWS),
    )
    options = replace(options, fewest_groups=FEWEST_IF_SLOW)
    try:
        found = plate_for(options, fact, point)
        if not isinstance(found, PlateModel):
            return None
        plan = plan_plates(options, point, found)
    except UnsuitableError:
        return None
    other = of_plate(plan, blank_record(evidence, model, block, point), point)
    if other is None:
        return None
    step = other.make()
    assert isinstance(step, SubsampledStep)
    mixing = step.try_out(point)
    if mixing is None or mixing.efficiency < max(_ENOUGH, _HALF * of_block.efficiency):
        return None
    why = other.why._replace(reason=f"{other.why.reason}; {slow}", mixing=mixing)
    return Choice(why, other.make, other.is_of_search, other.is_exact), step
