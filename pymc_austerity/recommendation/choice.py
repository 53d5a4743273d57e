"""Which step the evidence speaks for, in the order of the docstring of `recommend`; nothing is compiled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.acceptance import Exact, TTest
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import FactorisationError, SetUpBudgetError
from pymc_austerity.model.graph.log_density import raw_terms, typed_log_density
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.proposals.surrogate import Surrogate
from pymc_austerity.recommendation.advice import by_element, instead_of_nuts, too_many_rows, without_a_bound
from pymc_austerity.recommendation.announcement import as_clause
from pymc_austerity.recommendation.candidate import EXACT_GUARANTEE, Choice
from pymc_austerity.recommendation.evidence import Evidence, first_sentence, why_not_normal
from pymc_austerity.recommendation.nuts import NUTS, why_no_gradient
from pymc_austerity.recommendation.plates import of_plate, why_no_sweeps
from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.metropolis.austerity import AusterityMH
from pymc_austerity.step_methods.metropolis.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.metropolis.options import (
    BATCH_OF_REMAINDERS,
    ProposalOption,
    checked_options,
)
from pymc_austerity.step_methods.metropolis.plan import Survey, plan_metropolis, survey
from pymc_austerity.step_methods.metropolis.tuna import TunaMH
from pymc_austerity.step_methods.metropolis.tuna_plan import TAYLOR
from pymc_austerity.step_methods.recommendation import Recommendation

# Of `AusterityMH`, as it is without keywords.
_EPSILON = 0.01


@dataclass(frozen=True)
class Costly:
    """Why exact decisions would need many rows, and what would help."""

    reason: str
    remedy: str


def choose(
    evidence: Evidence, model: pm.Model, block: list[Variable], point: PointType, *, approximate: bool
) -> Choice:
    """The first that applies: few rows, few rows with a small error, all rows, `pm.NUTS`."""
    blank = blank_record(evidence, model, block, point)
    if evidence.plates is not None:
        return of_plate(evidence.plates, blank, point) or by_nuts(evidence, blank, model, block, point)
    if why_not_normal(evidence) is None:
        costly = why_costly(evidence, model)
        if costly is None:
            return of_few_rows(evidence, blank, point)
        if approximate:
            try:
                return approximately(evidence, costly, blank, model, block, point)
            except SetUpBudgetError as error:  # the mode is searched for once more
                found = of_all_rows(evidence, costly, blank, model, block, point)
                reason = f"{found.why.reason}; and {as_clause(error.reason)}"
                why = found.why._replace(reason=reason, otherwise=f"{error.remedy}.")
                return replace(found, why=why)
        return of_all_rows(evidence, costly, blank, model, block, point)
    return by_nuts(evidence, blank, model, block, point)


def why_costly(evidence: Evidence, model: pm.Model) -> Costly | None:
    """Why `TunaMH` cannot be used, or would draw too many rows; None if it draws few."""
    plan = evidence.plan
    if plan is None:
        assert evidence.no_bound is not None
        if isinstance(evidence.no_bound, SetUpBudgetError):
            reason, remedy = evidence.no_bound.reason, evidence.no_bound.remedy
            return Costly(reason[0].lower() + reason[1:], f"{remedy}.")
        return Costly(
            f"no bound is known for all Taylor remainders: {first_sentence(evidence.no_bound.reason)}",
            f"{without_a_bound(evidence.no_bound.in_the_way, model)}. TunaMH(curvature=...), with a bound of "
            "your own for terms with one linear predictor, reads few and is exact.",
        )
    if plan.recipe.reads_all:
        assert evidence.factorisation is not None
        rows, n_rows = plan.recipe.prediction.terms, evidence.factorisation.n_rows
        return Costly(
            f"TunaMH would draw about {few_digits(rows)} of {n_rows:,} rows for a transition, more "
            "than a quarter",
            too_many_rows(plan.recipe.prediction.total),
        )
    return None


def blank_record(
    evidence: Evidence, model: pm.Model, block: list[Variable], point: PointType
) -> Recommendation:
    """Record of what is the same whichever step is chosen."""
    names = {value: rv.name for rv, value in model.rvs_to_values.items() if value in model.value_vars}
    return Recommendation(
        step="",
        reason="",
        vars=tuple(names.pop(value) for value in block),
        others=tuple(names.values()),
        n_local=_rows_of_likelihood(evidence, model, block, point),
        n_dim=sum(np.size(point[value.name]) for value in block),
        certificate=evidence.certificate,
        rows=None,
        fit=evidence.report,
        guarantee=EXACT_GUARANTEE,
        otherwise="",
    )


def _rows_of_likelihood(
    evidence: Evidence, model: pm.Model, block: list[Variable], point: PointType
) -> int | None:
    """Number of rows, also without local terms; None where even shapes of the model are unknown."""
    if evidence.factorisation is not None:
        return evidence.factorisation.n_rows
    try:
        return sum(typed_log_density(model, raw_terms(model, block), point).likelihood.values())
    except FactorisationError:
        return None


def of_few_rows(evidence: Evidence, blank: Recommendation, point: PointType) -> Choice:
    """The choice of `TunaMH`, which draws few rows."""
    plan, report = evidence.plan, evidence.report
    assert plan is not None
    assert report is not None
    prediction = plan.recipe.prediction
    otherwise = (
        "Where more than a quarter of the rows is expected (fewer data, more dimensions), the exact test on "
        "all rows."
    )
    if prediction.is_loose(report):
        otherwise = prediction.advice(report, plan.factorisation.n_rows)
    if evidence.no_plate:
        no_plate = _no_plate(evidence)
        otherwise = f"{no_plate[0].upper()}{no_plate[1:]}. {otherwise}"
    why = blank._replace(
        step="TunaMH()",
        reason="few rows decide exactly: the posterior is near normal, and a bound is known for what each "
        "row adds to that",
        rows=prediction.terms,
        guarantee=f"{EXACT_GUARANTEE}; every row that is drawn is compared with its bound",
        otherwise=otherwise,
    )
    return Choice(why, lambda: TunaMH.from_plan(plan, point), is_of_search=True)


def approximately(
    evidence: Evidence,
    costly: Costly,
    blank: Recommendation,
    model: pm.Model,
    block: list[Variable],
    point: PointType,
) -> Choice:
    """`AusterityMH`, the sequential test. The rows that it reads at every transition are searched for."""
    options = checked_options(
        block,
        TTest(_EPSILON),
        default_batch=BATCH_OF_REMAINDERS,
        control_variate=Taylor(),
        model=model,
        set_up_budget=evidence.budget,
    )
    surveyed = survey(options, point, factorisation=evidence.factorisation)
    plan = plan_metropolis(options, point, surveyed=surveyed)
    why = blank._replace(
        step="AusterityMH(control_variate=Taylor())",
        reason=f"approximate=True was given, and {costly.reason}",
        rows=float(len(plan.recipe.exact_rows) + BATCH_OF_REMAINDERS),
        guarantee=f"none: the estimated probability of a wrong decision is below epsilon, {_EPSILON}",
        otherwise=f"recommend() gives the exact test on all rows. {costly.remedy}",
    )
    return Choice(why, lambda: AusterityMH.from_plan(plan, point), is_exact=False)


def of_all_rows(
    evidence: Evidence,
    costly: Costly,
    blank: Recommendation,
    model: pm.Model,
    block: list[Variable],
    point: PointType,
) -> Choice:
    """`MetropolisHastings` on all rows, with the proposal that is fitted to the mode."""
    surveyed, budget = evidence.survey, evidence.budget
    assert surveyed is not None
    if evidence.is_hierarchical:
        written = "control_variate=Taylor(exact_rows=0), proposal=Surrogate()"
        options = checked_options(
            block, Exact(), control_variate=TAYLOR, proposal=Surrogate(), model=model, set_up_budget=budget
        )
        surveyed = replace(surveyed, proposal=options.proposal)
    else:
        written = "proposal=Laplace()"
        options = checked_options(block, Exact(), proposal=Laplace(), model=model, set_up_budget=budget)
        surveyed = without_expansion(surveyed, options.proposal)
    plan = plan_metropolis(options, point, surveyed=surveyed)
    why = blank._replace(
        step=f"MetropolisHastings({written})",
        reason=f"the normal distribution at the mode fits, but {costly.reason}",
        rows=float(surveyed.factorisation.n_rows),
        otherwise="recommend(approximate=True) gives AusterityMH, which reads some 150 rows for a "
        f"transition, with a small error that is not bounded. {costly.remedy}",
    )
    if evidence.no_plate:
        why = why._replace(otherwise=f"{why.otherwise} And {_no_plate(evidence)}.")
    is_of_search = evidence.is_hierarchical  # it uses the Taylor polynomial, too
    return Choice(why, lambda: MetropolisHastings.from_plan(plan, point), is_of_search)


def without_expansion(surveyed: Survey, proposal: ProposalOption) -> Survey:
    """The survey for a step on the terms themselves, whose proposal is fitted to the mode."""
    found = surveyed.found
    assert found is not None
    found = found._replace(mode_fit=found.mode_fit._replace(expansion=None), expanded=surveyed.factorisation)
    return replace(surveyed, proposal=proposal, found=found)


def _no_plate(evidence: Evidence) -> str:
    return f"effects of groups are not moved group by group: {evidence.no_plate}"


def _faster(blank: Recommendation, model: pm.Model) -> str:
    """Sentence on a faster sampler than `pm.NUTS` as a step, where it may take all of a model."""
    if blank.others or len(model.value_vars) != len(model.continuous_value_vars):
        return ""
    missing = "" if find_spec("nutpie") else " (pip install nutpie)"
    return f'pm.sample(nuts_sampler="nutpie") without step= is faster than pm.NUTS{missing}'


def _why_nuts(evidence: Evidence) -> str:
    """Sentence on what speaks against the steps of this package."""
    if evidence.plates is not None:
        return why_no_sweeps(evidence.plates.recipe)
    reason = first_sentence(why_not_normal(evidence) or "")
    # What can be changed comes first.
    return f"{_no_plate(evidence)}; and {as_clause(reason)}" if evidence.no_plate else reason


def by_nuts(
    evidence: Evidence,
    blank: Recommendation,
    model: pm.Model,
    block: list[Variable],
    point: PointType,
    slow: str | None = None,
) -> Choice:
    """`pm.NUTS`, if it can be used; `slow` says how badly another step would mix, if that is the reason."""
    reason = slow or _why_nuts(evidence)
    error = why_no_gradient(model, block)
    if error is not None:
        raise ValueError(
            f"{reason}; and pm.NUTS, which would be recommended then, needs a gradient ({error}). Leave "
            "step= out, and pm.sample() chooses a step without; or use MetropolisHastings(), a random walk."
        ) from error
    why = blank._replace(
        step="pm.NUTS()",
        reason=reason,
        otherwise=" ".join(
            f"{said}."
            for said in (
                instead_of_nuts(evidence, model, block, point),
                by_element(evidence, model),
                _faster(blank, model),
            )
            if said
        ),
    )
    return Choice(why, lambda: NUTS(block, model=model))
