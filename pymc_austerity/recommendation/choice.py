"""Which step the evidence speaks for, in the order of the docstring of `recommend`; nothing is compiled."""

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.gradient import grad
from pytensor.graph.basic import Variable

from pymc_austerity.acceptance import Exact, TTest
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import FactorisationError, SetUpBudgetError
from pymc_austerity.model.graph.log_density import raw_terms, typed_log_density
from pymc_austerity.model.plates.crossed import Plates
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.proposals.surrogate import Surrogate
from pymc_austerity.recommendation.advice import by_element, instead_of_nuts, too_many_rows, without_a_bound
from pymc_austerity.recommendation.evidence import Asked, Evidence, as_clause, first_sentence, why_not_normal
from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.metropolis.austerity import AusterityMH
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.crossed_plan import CrossedPlan, with_all_rows_of_groups
from pymc_austerity.step_methods.metropolis.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.metropolis.options import BATCH_OF_REMAINDERS, checked_options
from pymc_austerity.step_methods.metropolis.plan import plan_metropolis, survey
from pymc_austerity.step_methods.metropolis.plate_plan import MOST_BOUNDED, PlatePlan, PlateRecipe
from pymc_austerity.step_methods.metropolis.tuna import TunaMH
from pymc_austerity.step_methods.metropolis.tuna_plan import TAYLOR
from pymc_austerity.step_methods.recommendation import Recommendation

_EXACT = "exact: the posterior is the stationary distribution, up to rounding"
_COMPARED = f"{_EXACT}; every row that is drawn is compared with its bound"
# Of `AusterityMH`, as it is without keywords.
_EPSILON = 0.01
# Nanoseconds of NUTS for a row and an effective draw: some 15 leapfrog steps a draw, half of it effective.
_OF_NUTS = 2000.0
# Sweeps over a plate that read few rows and move well need no comparison.
_FEW, _WELL = 0.03, 0.3


class NUTS(pm.NUTS):
    """`pymc.NUTS` as it is, with a record of why it was recommended."""

    recommendation: Recommendation | None = None


class Choice(NamedTuple):
    """A step that is not yet made, and why it was chosen."""

    why: Recommendation
    make: Callable[[], SubsampledStep | NUTS]  # this compiles
    is_of_search: bool = False  # whether what the search for the evidence had to tell is about this step
    is_exact: bool = True


def choose(evidence: Evidence, asked: Asked, *, approximate: bool) -> Choice:
    """The first that applies: few rows, few rows with a small error, all rows, `pm.NUTS`."""
    blank = blank_record(evidence, asked)
    if evidence.plates is not None:
        return of_plate(evidence.plates, blank, asked.point) or by_nuts(evidence, blank, asked)
    if why_not_normal(evidence) is not None:
        return by_nuts(evidence, blank, asked)
    costly = why_costly(evidence, asked.model)
    if costly is None:
        return _of_few_rows(evidence, blank, asked.point)
    if not approximate:
        return _of_all_rows(evidence, costly, blank, asked)
    try:
        return _approximately(evidence, costly, blank, asked)
    except SetUpBudgetError as error:  # the mode is searched for once more
        found = _of_all_rows(evidence, costly, blank, asked)
        reason = f"{found.why.reason}; and {as_clause(error.reason)}"
        return found._replace(why=found.why._replace(reason=reason, otherwise=f"{error.remedy}."))


class Costly(NamedTuple):
    """Why exact decisions would need many rows, and what would help."""

    reason: str
    remedy: str


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
    if not plan.recipe.reads_all:
        return None
    assert evidence.factorisation is not None
    prediction = plan.recipe.prediction
    return Costly(
        f"TunaMH would draw about {few_digits(prediction.terms)} of {evidence.factorisation.n_rows:,} rows "
        "for a transition, more than a quarter",
        too_many_rows(prediction.total),
    )


def blank_record(evidence: Evidence, asked: Asked) -> Recommendation:
    """Record of what is the same whichever step is chosen."""
    model, block, point = asked
    names = {value: rv.name for rv, value in model.rvs_to_values.items() if value in model.value_vars}
    if evidence.factorisation is not None:
        n_local = evidence.factorisation.n_rows
    else:  # the rows of the likelihood, where shapes of the model are known
        try:
            n_local = sum(typed_log_density(model, raw_terms(model, block), point).likelihood.values())
        except FactorisationError:
            n_local = None
    return Recommendation(
        step="",
        reason="",
        vars=tuple(names.pop(value) for value in block),
        others=tuple(names.values()),
        n_local=n_local,
        n_dim=sum(np.size(point[value.name]) for value in block),
        certificate=evidence.certificate,
        rows=None,
        fit=evidence.report,
        guarantee=_EXACT,
        otherwise="",
    )


def _of_few_rows(evidence: Evidence, blank: Recommendation, point: PointType) -> Choice:
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
        guarantee=_COMPARED,
        otherwise=otherwise,
    )
    return Choice(why, lambda: TunaMH.from_plan(plan, point), is_of_search=True)


def _approximately(evidence: Evidence, costly: Costly, blank: Recommendation, asked: Asked) -> Choice:
    """`AusterityMH`, the sequential test. The rows that it reads at every transition are searched for."""
    model, block, point = asked
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


def _of_all_rows(evidence: Evidence, costly: Costly, blank: Recommendation, asked: Asked) -> Choice:
    """`MetropolisHastings` on all rows, with the proposal that is fitted to the mode."""
    model, block, point = asked
    surveyed, budget = evidence.survey, evidence.budget
    assert surveyed is not None
    if evidence.is_hierarchical:
        written = "control_variate=Taylor(exact_rows=0), proposal=Surrogate()"
        options = checked_options(
            block, Exact(), control_variate=TAYLOR, proposal=Surrogate(), model=model, set_up_budget=budget
        )
        surveyed = replace(surveyed, proposal=options.proposal)
    else:  # on the terms themselves
        written = "proposal=Laplace()"
        options = checked_options(block, Exact(), proposal=Laplace(), model=model, set_up_budget=budget)
        found = surveyed.found
        assert found is not None
        fit = found.mode_fit._replace(expansion=None)
        found = found._replace(mode_fit=fit, expanded=surveyed.factorisation)
        surveyed = replace(surveyed, proposal=options.proposal, found=found)
    plan = plan_metropolis(options, point, surveyed=surveyed)
    otherwise = (
        "recommend(approximate=True) gives AusterityMH, which reads some 150 rows for a transition, with a "
        f"small error that is not bounded. {costly.remedy}"
    )
    why = blank._replace(
        step=f"MetropolisHastings({written})",
        reason=f"the normal distribution at the mode fits, but {costly.reason}",
        rows=float(surveyed.factorisation.n_rows),
        otherwise=f"{otherwise} And {_no_plate(evidence)}." if evidence.no_plate else otherwise,
    )
    is_of_search = evidence.is_hierarchical  # it uses the Taylor polynomial, too
    return Choice(why, lambda: MetropolisHastings.from_plan(plan, point), is_of_search)


def _no_plate(evidence: Evidence) -> str:
    return f"effects of groups are not moved group by group: {evidence.no_plate}"


def by_nuts(evidence: Evidence, blank: Recommendation, asked: Asked, slow: str | None = None) -> Choice:
    """`pm.NUTS`, if it can be used; `slow` says how badly another step would mix, if that is the reason."""
    model, block, _ = asked
    reason = slow or _why_nuts(evidence)
    error = why_no_gradient(model, block)
    if error is not None:
        raise ValueError(
            f"{reason}; and pm.NUTS, which would be recommended then, needs a gradient ({error}). Leave "
            "step= out, and pm.sample() chooses a step without; or use MetropolisHastings(), a random walk."
        ) from error
    said = [instead_of_nuts(evidence, asked), by_element(evidence, model)]
    if not blank.others and len(model.value_vars) == len(model.continuous_value_vars):
        # As a step NUTS may not take all of a model.
        missing = "" if find_spec("nutpie") else " (pip install nutpie)"
        said.append(f'pm.sample(nuts_sampler="nutpie") without step= is faster than pm.NUTS{missing}')
    otherwise = " ".join(f"{sentence}." for sentence in said if sentence)
    why = blank._replace(step="pm.NUTS()", reason=reason, otherwise=otherwise)
    return Choice(why, lambda: NUTS(block, model=model))


def why_no_gradient(model: pm.Model, block: list[Variable]) -> Exception | None:
    """Reason why there is no gradient, which NUTS needs; None if there is one."""
    try:
        grad(model.logp(), block, disconnected_inputs="ignore")
    except NO_GRADIENT as error:
        return error
    return None


def _why_nuts(evidence: Evidence) -> str:
    """Sentence on what speaks against the steps of this package."""
    if evidence.plates is not None:
        return _why_no_sweeps(evidence.plates.recipe)
    reason = first_sentence(why_not_normal(evidence) or "")
    # What can be changed comes first.
    return f"{_no_plate(evidence)}; and {as_clause(reason)}" if evidence.no_plate else reason


# Of a plate: sweeps that draw rows, sweeps that read all of them, or `pm.NUTS` --------------------


def of_plate(plan: PlatePlan | CrossedPlan, blank: Recommendation, point: PointType) -> Choice | None:
    """Sweeps over a plate; None where `pm.NUTS` promises more effective draws a second."""
    recipe = plan.recipe
    found = recipe.prediction
    if found.terms <= _FEW * recipe.n_local and found.shared_acceptance >= _WELL and not recipe.reads_all:
        return _sweeps_of_drawn_rows(plan, blank, point)
    whole = plan if recipe.reads_all else with_all_rows_of_groups(plan, point)
    best = max(plan, whole, key=lambda one: one.recipe.rate)
    if best.recipe.rate < 1e9 / (_OF_NUTS * recipe.n_local):
        return None
    of_best = _sweeps_of_all_rows if best.recipe.reads_all else _sweeps_of_drawn_rows
    return of_best(best, blank, point)


def _why_no_sweeps(recipe: PlateRecipe) -> str:
    """Why a plate is not worth it."""
    found = recipe.prediction
    if found.shared_acceptance >= _WELL:
        return (
            f"sweeps over the {found.n_groups:,} groups would read {few_digits(found.terms)} rows, so that a "
            "draw of pm.NUTS costs less, roughly"
        )
    return (
        f"moves of what the {found.n_groups:,} groups share would be accepted at a rate of about "
        f"{found.shared_acceptance:.2f}: {found.why_few(recipe.n_local)}"
    )


def _plates(plan: PlatePlan | CrossedPlan) -> Plates:
    return plan.rows.crossed if isinstance(plan, CrossedPlan) else plan.rows.plate


def _effects(plan: PlatePlan | CrossedPlan) -> str:
    # Columns of a matrix are effects of one name.
    variables = dict.fromkeys(name.partition("[")[0] for name in _plates(plan).effects)
    names = " and ".join(map(repr, variables))
    return f"{names} are effects of {plan.recipe.prediction.n_groups:,} groups: all are moved at once"


def _sweeps_of_drawn_rows(plan: PlatePlan | CrossedPlan, blank: Recommendation, point: PointType) -> Choice:
    why = blank._replace(
        step="TunaMH()",
        reason=f"{_effects(plan)}, each decided by few of its rows",
        rows=plan.recipe.prediction.terms,
        guarantee=_COMPARED,
        otherwise="Where groups have very few rows, the exact test on all rows, or pm.NUTS.",
        plate=plan.recipe.prediction,
    )
    if _plates(plan).is_normal:
        why = why._replace(
            reason=f"{_effects(plan)}, decided by sums over their rows, which tell "
            "all of a normal likelihood",
            guarantee=_EXACT,
            otherwise="With another likelihood, a few rows of each group.",
        )
    return Choice(why, lambda: TunaMH.from_plan(plan, point), is_of_search=True)


def _sweeps_of_all_rows(plan: PlatePlan | CrossedPlan, blank: Recommendation, point: PointType) -> Choice:
    reason = "with so few rows a group that is cheaper"
    n = 1 if isinstance(plan, CrossedPlan) else plan.rows.plate.n_predictors
    if n > MOST_BOUNDED:
        reason = (
            f"rows are drawn where each is a function of its predictor and {MOST_BOUNDED - 1} number more "
            f"that rows share, as a dispersion, and here there are {n - 1} more"
        )
    why = blank._replace(
        step="MetropolisHastings(control_variate=Taylor())",
        reason=f"{_effects(plan)}, decided on all rows in either of two moves, as {reason}",
        rows=float(blank.n_local or 0),
        otherwise="TunaMH(), where there are more rows for each group, and rows share one number at most.",
        plate=plan.recipe.prediction,
    )
    whole = replace(plan, options=replace(plan.options, switch_above=0.0))
    return Choice(why, lambda: MetropolisHastings.from_plan(whole, point), is_of_search=True)
