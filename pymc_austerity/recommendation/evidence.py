"""What `recommend` finds out about a block of variables, as far as it gets."""

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.control_variates.taylor import LARGEST_SECOND_ORDER, ManyDimensionsError
from pymc_austerity.exceptions import SetUpBudgetError, UnsuitableError
from pymc_austerity.mode.mode_fit import ModeReport
from pymc_austerity.model.factorisation import Factorisation, vector_of
from pymc_austerity.model.plates.crossed import Plates
from pymc_austerity.model.plates.gathers import NoPlate
from pymc_austerity.proposals.surrogate import Surrogate
from pymc_austerity.step_methods.metropolis.crossed_plan import CrossedPlan, plan_groups
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions, checked_options
from pymc_austerity.step_methods.metropolis.plan import BlockPlan, Survey, factorised, survey
from pymc_austerity.step_methods.metropolis.plate_plan import PlatePlan
from pymc_austerity.step_methods.metropolis.plate_search import plate_for
from pymc_austerity.step_methods.metropolis.tuna_plan import (
    EXACT,
    TAYLOR,
    NoBoundError,
    TunaRecipe,
    checked_tuna_options,
    plan_tuna,
    scratch_folder,
)
from pymc_austerity.work import DEFAULT_BUDGET

# What independent draws of the fitted distribution need: an acceptance rate, and how sums of remainders vary.
_ACCEPTANCE, _SPREAD = 0.2, 3.0
# A surrogate follows any prior, but accepts by the remainders alone.
_SURROGATE_SPREAD = 1.0
# Above this share of the rows a `TunaMH` is not worth it.
MOST_ROWS = 0.25


class Asked(NamedTuple):
    """What a step is wanted for: a model, its variables to update together, and where a chain starts."""

    model: pm.Model
    block: list[Variable]
    point: PointType


@dataclass(frozen=True)
class Evidence:
    """Results of the search for a step, in this order; all after the first that fails are None."""

    factorisation: Factorisation | None = None  # the local terms,
    survey: Survey | None = None  # and the mode,
    plan: BlockPlan[TunaRecipe] | None = None  # and bounds on the remainders, if the normal distribution fits
    unsuitable: UnsuitableError | None = None  # why the model has no local terms or no mode
    no_bound: NoBoundError | SetUpBudgetError | None = None  # why there are no bounds
    certificate: str = "not looked for"  # which bounds are known, in words
    plates: PlatePlan | CrossedPlan | None = None  # sweeps, tried out; nothing else is looked for then
    no_plate: str = ""  # why effects of many groups are no plate, if there are some
    budget: float = DEFAULT_BUDGET  # `set_up_budget`

    @property
    def report(self) -> ModeReport | None:
        """Report on the fitted mode; None if there is none."""
        if self.survey is None or self.survey.found is None:
            return None
        return self.survey.found.mode_fit.report

    @property
    def has_many_dimensions(self) -> bool:
        """Is an expansion refused, because there are too many?"""
        return isinstance(self.unsuitable, ManyDimensionsError)

    @property
    def is_hierarchical(self) -> bool:
        """Whether the block needs a surrogate: some of its variables are in no local term, or in features."""
        return self.survey is not None and isinstance(self.survey.proposal, Surrogate)


def options_of(asked: Asked, budget: float) -> MetropolisOptions:
    """Options of a `TunaMH` that draws few rows."""
    return checked_options(
        asked.block,
        EXACT,
        control_variate=TAYLOR,
        model=asked.model,
        set_up_budget=budget,
        **checked_tuna_options(switch_above=MOST_ROWS),
    )


def gather(asked: Asked, budget: float = DEFAULT_BUDGET) -> Evidence:
    """Find local terms, mode and bounds for a `TunaMH`; only sweeps over a plate are compiled and tried."""
    options, point = options_of(asked, budget), asked.point
    fact, no_plate = None, ""
    try:
        fact = factorised(options, point)
        scratch_folder(fact)  # an error before a long search
        plate = plate_for(options, fact, point)
        if isinstance(plate, Plates):
            plates = plan_groups(options, point, found=plate)
            return Evidence(fact, plates=plates, certificate=plates.recipe.certificate, budget=budget)
        no_plate = str(plate) if isinstance(plate, NoPlate) else ""
        surveyed = survey(options, point, certify=False, factorisation=fact)
    except UnsuitableError as error:
        return Evidence(fact, unsuitable=error, no_plate=no_plate, budget=budget)
    evidence = Evidence(fact, surveyed, no_plate=no_plate, budget=budget)
    if why_not_normal(evidence) is not None:
        return evidence
    try:
        plan = plan_tuna(options, point, surveyed=surveyed)
    except (NoBoundError, SetUpBudgetError) as error:
        certificate = f"none: {first_sentence(error.reason)}"
        return replace(evidence, no_bound=error, certificate=certificate)
    return replace(evidence, plan=plan, certificate=plan.recipe.certificate)


def why_not_normal(evidence: Evidence) -> str | None:
    """Why a step that is fitted to the mode would not work, or would mix slowly; None if it would do well."""
    if evidence.has_many_dimensions:
        fact = evidence.factorisation
        n_dim = 0 if fact is None else len(vector_of(fact, fact.graph.point))
        return f"There are {n_dim:,} dimensions, and {LARGEST_SECOND_ORDER} at most are moved all at once"
    if evidence.unsuitable is not None:
        return str(evidence.unsuitable)
    report = evidence.report
    assert report is not None
    if report.n_modes > 1:
        return (
            f"{report.n_modes} modes were found, and a step that is fitted to one of them stays there unseen"
        )
    spread = f"its log density is off by {report.remainder_sd:.2g}"
    if fits_normal(report.acceptance, report.remainder_sd, is_hierarchical=evidence.is_hierarchical):
        return None
    if evidence.is_hierarchical:
        return f"The likelihood is far from its Taylor polynomial: {spread}"
    return (
        "The posterior is far from the normal distribution at its mode: independent draws would be "
        f"accepted at a rate of about {report.acceptance:.2f}, and {spread}"
    )


def fits_normal(acceptance: float, spread: float, *, is_hierarchical: bool) -> bool:
    """Would a step that is fitted to the mode do well?"""
    if is_hierarchical:
        return spread < _SURROGATE_SPREAD
    return acceptance >= _ACCEPTANCE and spread < _SPREAD


def first_sentence(message: str) -> str:
    """The first sentence of an error: the fault, without what to do about it."""
    return re.split(r"(?<!\.)\. ", message)[0].rstrip(".")


def as_clause(reason: str) -> str:
    """A sentence without a capital letter, unless it begins with a name."""
    first = reason.split(" ")[0]
    is_word = first.isalpha() and first[0].isupper() and first[1:].islower()
    return (reason[0].lower() + reason[1:] if is_word or first == "A" else reason).rstrip(".")
