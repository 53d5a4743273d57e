"""What `recommend` finds out about a block of variables: local terms, mode, bounds, or a field."""

import re
from dataclasses import dataclass, replace

import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.control_variates.taylor import LARGEST_SECOND_ORDER, ManyDimensionsError
from pymc_austerity.exceptions import SetUpBudgetError, UnsuitableError
from pymc_austerity.mode.fields.field_model import FieldModel
from pymc_austerity.mode.mode_fit import ModeReport
from pymc_austerity.model.factorisation import Factorisation, vector_of
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.proposals.surrogate import Surrogate
from pymc_austerity.step_methods.metropolis.field_plan import FieldPlan, field_of, plan_field
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions, checked_options
from pymc_austerity.step_methods.metropolis.plan import BlockPlan, Survey, factorised, survey
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


@dataclass(frozen=True)
class Evidence:
    """Results of the search for a step, in this order; all after the first that fails are None."""

    options: MetropolisOptions  # What a step is wanted for: a model, and variables to update together
    point: PointType  # Where a chain starts
    factorisation: Factorisation | None = None  # the local terms,
    survey: Survey | None = None  # and the mode,
    plan: BlockPlan[TunaRecipe] | None = None  # and bounds on the remainders, if the normal distribution fits
    unsuitable: UnsuitableError | None = None  # why the model has no local terms or no mode
    no_bound: NoBoundError | SetUpBudgetError | None = None  # why there are no bounds
    certificate: str = "not looked for"  # which bounds are known, in words
    # Sweeps over a field, tried out; nothing else is looked for then
    field: FieldPlan | None = None
    no_field: str = ""  # why effects of many groups are no field, if there are some

    @property
    def report(self) -> ModeReport | None:
        """Report on the fitted mode; None if there is none."""
        if self.survey is None or self.survey.found is None:
            return None
        return self.survey.found.mode_fit.report

    @property
    def is_hierarchical(self) -> bool:
        """Whether the block needs a surrogate: some of its variables are in no local term, or in features."""
        return self.survey is not None and isinstance(self.survey.proposal, Surrogate)


def options_of(model: pm.Model, block: list[Variable], budget: float = DEFAULT_BUDGET) -> MetropolisOptions:
    """Options of a `TunaMH` that draws few rows."""
    return checked_options(
        block,
        EXACT,
        control_variate=TAYLOR,
        model=model,
        set_up_budget=budget,
        **checked_tuna_options(switch_above=MOST_ROWS),
    )


def gather(options: MetropolisOptions, point: PointType) -> Evidence:
    """Find local terms, mode and bounds for a `TunaMH`; only sweeps over a field are compiled and tried.

    Bounds are for steps that draw rows: with `switch_above` 0 they are not looked for.
    """
    evidence = Evidence(options, point)
    try:
        fact = factorised(options, point)
        evidence = replace(evidence, factorisation=fact)
        scratch_folder(fact)  # an error before a long search
        field = field_of(options, fact, point)
        if isinstance(field, FieldModel):
            swept = plan_field(options, point, field)
            return replace(evidence, field=swept, certificate=swept.recipe.certificate)
        evidence = replace(evidence, no_field=str(field) if isinstance(field, NoField) else "")
        surveyed = survey(options, point, certify=False, factorisation=fact)
    except UnsuitableError as error:
        return replace(evidence, unsuitable=error)
    evidence = replace(evidence, survey=surveyed)
    if options.switch_above <= 0.0 or why_not_normal(evidence) is not None:
        return evidence
    try:
        plan = plan_tuna(options, point, surveyed=surveyed)
    except (NoBoundError, SetUpBudgetError) as error:
        certificate = f"none: {first_sentence(error.reason)}"
        return replace(evidence, no_bound=error, certificate=certificate)
    return replace(evidence, plan=plan, certificate=plan.recipe.certificate)


def why_not_normal(evidence: Evidence) -> str | None:
    """Why a step that is fitted to the mode would not work, or would mix slowly; None if it would do well."""
    if isinstance(evidence.unsuitable, ManyDimensionsError):
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
