"""Which step the evidence about a block of variables speaks for, and what would make another one suit."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pymc as pm
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.acceptance import TTest
from pymc_austerity.control_variates.taylor import LARGEST_SECOND_ORDER, ManyDimensionsError, Taylor
from pymc_austerity.exceptions import (
    FactorisationError,
    NoNormalApproximationError,
    SetUpBudgetError,
    UnsuitableError,
)
from pymc_austerity.mode.mode_fit import Departures
from pymc_austerity.mode.whitening import Whitening
from pymc_austerity.model.checks import IMPUTED
from pymc_austerity.model.factorisation import FEWEST_GROUPS, Factorisation
from pymc_austerity.model.field.lookups import longest_looked_up
from pymc_austerity.model.graph.checks import only_compared
from pymc_austerity.model.graph.log_density import raw_terms, typed_log_density
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.proposals.surrogate import Surrogate
from pymc_austerity.recommendation.evidence import (
    Evidence,
    as_clause,
    first_sentence,
    fits_normal,
    why_not_normal,
)
from pymc_austerity.recommendation.nuts import NUTS, whitening_of
from pymc_austerity.step_methods.messages import few_digits
from pymc_austerity.step_methods.metropolis.austerity import AusterityMH
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.field_pilot import FieldPrediction
from pymc_austerity.step_methods.metropolis.field_plan import FieldRecipe, plan_field, tried_longer
from pymc_austerity.step_methods.metropolis.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.metropolis.options import BATCH_OF_REMAINDERS, MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import BlockPlan, Recipe, factorised, plan_metropolis, survey
from pymc_austerity.step_methods.metropolis.tuna import TunaMH
from pymc_austerity.step_methods.recommendation import Recommendation

# What is said where NUTS is recommended as a step.
FASTER = "pma.sample() without step= is faster: it runs NUTS by nutpie"


# The choice, in the order of the docstring of `recommend`; nothing is compiled --------------------


_EXACT = "exact: the posterior is the stationary distribution, up to rounding"
_COMPARED = f"{_EXACT}; every row that is drawn is compared with its bound"
# Of `AusterityMH`, as it is without keywords.
_EPSILON = 0.01
# Nanoseconds of NUTS for a row and an effective draw: some 15 leapfrog steps a draw, half of it effective.
_OF_NUTS = 2000.0
# Sweeps over a field that read few rows and move well need no comparison.
_FEW, _WELL = 0.03, 0.3
# Variables that are tried out one by one, and coordinates that are named.
_MOST_TRIED, _MOST_NAMED = 8, 3
# A coordinate is named if the posterior departs along it by this share of the largest departure.
_WORTH = 0.3
_NOTHING = "Nothing in the model is in the way"
_UNKNOWN = "No single parameter was found that is in the way"


def choose(evidence: Evidence, *, approximate: bool) -> SubsampledStep | NUTS:
    """The first that applies: few rows, few rows with a small error, all rows, `pm.NUTS`."""
    if evidence.field is not None:
        return of_field(evidence) or by_nuts(evidence)
    if why_not_normal(evidence) is not None:
        return by_nuts(evidence)
    costly = why_costly(evidence)
    if costly is None:
        return _of_few_rows(evidence)
    why, remedy = costly
    if not approximate:
        otherwise = (
            "recommend(approximate=True) gives AusterityMH, which reads some 150 rows for a transition, with "
            f"a small error that is not bounded. {remedy}"
        )
        return _of_all_rows(evidence, why, otherwise)
    try:
        return _approximately(evidence, why, remedy)
    except SetUpBudgetError as error:  # the mode is searched for once more
        return _of_all_rows(evidence, f"{why}; and {as_clause(error.reason)}", f"{error.remedy}.")


def _recommended[S: SubsampledStep | NUTS](
    step: S,
    evidence: Evidence,
    written: str,
    reason: str,
    otherwise: str,
    rows: float | None = None,
    guarantee: str = _EXACT,
    field: FieldPrediction | None = None,
) -> S:
    """The step with the record of its choice, most of which is the same whichever step is chosen."""
    model, block, point = evidence.options.model, evidence.options.vars, evidence.point
    names = {value: rv.name for rv, value in model.rvs_to_values.items() if value in model.value_vars}
    if evidence.factorisation is not None:
        n_local = evidence.factorisation.n_rows
    else:  # the rows of the likelihood, where shapes of the model are known
        try:
            n_local = sum(typed_log_density(model, raw_terms(model, block), point).likelihood.values())
        except FactorisationError:
            n_local = None
    step.recommendation = Recommendation(
        step=written,
        reason=reason,
        vars=tuple(names.pop(value) for value in block),
        others=tuple(names.values()),
        n_local=n_local,
        n_dim=sum(np.size(point[value.name]) for value in block),
        certificate=evidence.certificate,
        rows=rows,
        fit=evidence.report,
        guarantee=guarantee,
        otherwise=otherwise,
        field=field,
    )
    return step


def record_of(step: SubsampledStep | NUTS) -> Recommendation:
    """Why a step was chosen."""
    assert step.recommendation is not None
    return step.recommendation


def why_costly(evidence: Evidence) -> tuple[str, str] | None:
    """Why `TunaMH` cannot be used, or would draw too many rows, and what would help; None if it draws few."""
    plan, no_bound = evidence.plan, evidence.no_bound
    if isinstance(no_bound, SetUpBudgetError):
        return no_bound.reason[0].lower() + no_bound.reason[1:], f"{no_bound.remedy}."
    if plan is None:
        assert no_bound is not None
        return (
            f"no bound is known for all Taylor remainders: {first_sentence(no_bound.reason)}",
            f"{without_a_bound(no_bound.in_the_way, evidence.options.model)}. TunaMH(curvature=...), with a "
            "bound of your own for terms with one linear predictor, reads few and is exact.",
        )
    if not plan.recipe.reads_all:
        return None
    prediction = plan.recipe.prediction
    return (
        f"TunaMH would draw about {few_digits(prediction.terms)} of {plan.factorisation.n_rows:,} rows for a "
        "transition, more than a quarter",
        too_many_rows(prediction.total),
    )


def _of_few_rows(evidence: Evidence) -> TunaMH:
    """`TunaMH`, which draws few rows."""
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
    if missing := _names_of_missing(evidence):
        otherwise = f"{_leave_out(missing)}. {otherwise}"
    if evidence.no_field:
        otherwise = f"Effects of groups {_no_field(evidence)}. {otherwise}"
    return _recommended(
        TunaMH.from_plan(plan, evidence.point),
        evidence,
        "TunaMH()",
        "few rows decide exactly: the posterior is near normal, and a bound is known for what each row adds "
        "to that",
        otherwise,
        rows=prediction.terms,
        guarantee=_COMPARED,
    )


def _approximately(evidence: Evidence, why: str, remedy: str) -> AusterityMH:
    """`AusterityMH`, the sequential test. The rows that it reads at every transition are searched for."""
    options = replace(
        evidence.options,
        acceptance=TTest(_EPSILON),
        default_batch=BATCH_OF_REMAINDERS,
        control_variate=Taylor(),
        switch_above=0.0,
    )
    surveyed = survey(options, evidence.point, factorisation=evidence.factorisation)
    plan = plan_metropolis(options, evidence.point, surveyed=surveyed)
    return _recommended(
        AusterityMH.from_plan(plan, evidence.point),
        evidence,
        "AusterityMH(control_variate=Taylor())",
        f"approximate=True was given, and {why}",
        f"recommend() gives the exact test on all rows. {remedy}",
        rows=float(len(plan.recipe.exact_rows) + BATCH_OF_REMAINDERS),
        guarantee=f"none: the estimated probability of a wrong decision is below epsilon, {_EPSILON}",
    )


def _of_all_rows(evidence: Evidence, why: str, otherwise: str) -> MetropolisHastings:
    """`MetropolisHastings` on all rows."""
    plan, written = plan_of_all_rows(evidence)
    return _recommended(
        MetropolisHastings.from_plan(plan, evidence.point),
        evidence,
        written,
        f"the normal distribution at the mode fits, but {why}",
        f"{otherwise} And effects of groups {_no_field(evidence)}." if evidence.no_field else otherwise,
        rows=float(plan.factorisation.n_rows),
    )


def plan_of_all_rows(evidence: Evidence) -> tuple[BlockPlan[Recipe], str]:
    """The plan of a `MetropolisHastings` with the proposal that is fitted to the mode; how one writes it."""
    surveyed = evidence.survey
    assert surveyed is not None
    if evidence.is_hierarchical:
        written = "MetropolisHastings(control_variate=Taylor(exact_rows=0), proposal=Surrogate())"
        options = replace(evidence.options, proposal=Surrogate(), switch_above=0.0)
    else:  # on the terms themselves
        written = "MetropolisHastings(proposal=Laplace())"
        options = replace(evidence.options, proposal=Laplace(), control_variate=None, switch_above=0.0)
        found = surveyed.found
        assert found is not None
        fit = found.mode_fit._replace(expansion=None)
        surveyed = replace(surveyed, found=found._replace(mode_fit=fit, expanded=surveyed.factorisation))
    surveyed = replace(surveyed, proposal=options.proposal)
    return plan_metropolis(options, evidence.point, surveyed=surveyed), written


def _no_field(evidence: Evidence) -> str:
    return f"are not moved group by group: {evidence.no_field}"


def by_nuts(evidence: Evidence, slow: str | None = None) -> NUTS:
    """`pm.NUTS`, if it can be used; `slow` says how badly another step would mix, if that is the reason."""
    model, block = evidence.options.model, list(evidence.options.vars)
    reason = slow or _why_nuts(evidence)
    error = why_no_gradient(evidence.options)
    if error is not None:
        raise ValueError(
            f"{reason}; and pm.NUTS, which would be recommended then, needs a gradient ({error}). Leave "
            "step= out, and pm.sample() chooses a step without; or use MetropolisHastings(), a random walk."
        ) from error
    said = [instead_of_nuts(evidence), by_element(evidence)]
    if len(block) == len(model.value_vars):
        # As a step NUTS may not take all of a model.
        missing = "" if find_spec("nutpie") else " (pip install nutpie)"
        said.append(f"{FASTER}{missing}")
    otherwise = " ".join(f"{sentence}." for sentence in said if sentence)
    step = NUTS.in_coordinates(block, model, _whitening(evidence))
    return _recommended(step, evidence, "pm.NUTS()", reason, otherwise)


def _whitening(evidence: Evidence) -> Whitening | None:
    """Coordinates in which the posterior is nearly round, where the search has found some."""
    if (plan := evidence.field) is not None:
        return whitening_of(plan.field, plan.field.fit_again(plan.recipe.fit))
    return None if evidence.survey is None else whitening_of(evidence.survey)


def why_no_gradient(options: MetropolisOptions) -> Exception | None:
    """Reason why there is no gradient, which NUTS needs; None if there is one."""
    try:
        grad(options.model.logp(), options.vars, disconnected_inputs="ignore")
    except NO_GRADIENT as error:
        return error
    return None


def _why_nuts(evidence: Evidence) -> str:
    """Sentence on what speaks against the steps of this package."""
    if evidence.field is not None:
        return _why_no_sweeps(evidence.field.recipe)
    if jumps := _only_compared(evidence):
        return f"{_and(jumps)} is only compared with data: the density jumps, and has no slope along it"
    reason = first_sentence(why_not_normal(evidence) or "")
    if not evidence.no_field:
        return reason
    # What can be changed comes first.
    return f"effects of groups {_no_field(evidence)}; and {as_clause(reason)}"


# Of a field: sweeps that draw rows, sweeps that read all of them, or `pm.NUTS` --------------------


def of_field(evidence: Evidence) -> SubsampledStep | None:
    """Sweeps over a field; None where `pm.NUTS` promises more effective draws a second."""
    plan, point = evidence.field, evidence.point
    assert plan is not None
    recipe = plan.recipe
    found = recipe.prediction
    if found.terms > _FEW * recipe.n_local or found.shared_acceptance < _WELL or recipe.reads_all:
        whole = plan
        if not recipe.reads_all:
            fit = plan.field.fit_again(recipe.fit)
            whole = plan_field(plan.options, point, plan.field, fit, reads_all=True)
        plan = min(plan, whole, key=lambda one: one.recipe.prediction.cost)  # known better than what mixes
        of_nuts = 1e9 / (_OF_NUTS * recipe.n_local)
        plan = tried_longer(plan, point, of_nuts)
        if plan.recipe.rate < of_nuts:
            return None
    names, found = _and(plan.field.effects), plan.recipe.prediction
    reason = f"{names} are a field of {plan.field.n_effects:,} effects: all are moved at once, "
    if plan.recipe.reads_all:
        whole = replace(plan, options=replace(plan.options, switch_above=0.0))
        return _recommended(
            MetropolisHastings.from_plan(whole, point),
            evidence,
            "MetropolisHastings(control_variate=Taylor())",
            f"{reason}decided on all rows, which costs less here than decisions on some of them",
            "TunaMH() reads few rows where groups have more of them, or bounds on what rows add are tighter.",
            rows=float(plan.recipe.n_local),
            field=found,
        )
    how = "each by a decision on few of its rows"
    otherwise = "Where groups have very few rows, the exact test on all rows, or pm.NUTS."
    if plan.field.is_normal:
        how = "decided by sums over their rows, which are sufficient for a normal likelihood"
        otherwise = "With another likelihood, a few rows of each group."
    return _recommended(
        TunaMH.from_plan(plan, point),
        evidence,
        "TunaMH()",
        f"{reason}{how}",
        otherwise,
        rows=found.terms,
        guarantee=_EXACT if plan.field.is_normal else _COMPARED,
        field=found,
    )


def _why_no_sweeps(recipe: FieldRecipe) -> str:
    """Why a field is not worth it."""
    found = recipe.prediction
    if found.shared_acceptance >= _WELL:
        return (
            f"sweeps over {found.n_effects:,} effects would read {few_digits(found.terms)} rows, so that a "
            "draw of pm.NUTS costs less, roughly"
        )
    return (
        f"moves of what {found.n_effects:,} effects share would be accepted at a rate of about "
        f"{found.shared_acceptance:.2f}: {found.why_few(recipe.n_local)}"
    )


# What to change in a model for a better step, in the words of the model; or that nothing helps -----
#
# What is said of a parameter was tried: the model with a number in its place, or without its rows.


def instead_of_nuts(evidence: Evidence) -> str:
    """Advice on what would make another step than `pm.NUTS` suit the model."""
    reason, fact = evidence.unsuitable, evidence.factorisation
    if in_the_way := _imputed(evidence):
        return _leave_out(in_the_way)
    if _only_compared(evidence):
        return (
            "pm.NUTS needs a slope, too: give what is compared a step of its own, as pm.Slice, or write a "
            "smooth switch, as pm.math.sigmoid((x - place) / width), which TunaMH() follows"
        )
    if evidence.field is not None:
        if evidence.field.field.is_normal:
            return "Tighter priors of the scales may help, or fewer effects; a step of its own does not"
        return (
            f"{_NOTHING}, and no step of its own for a parameter helps: with more rows for each group "
            "TunaMH() moves effects by few of them"
        )
    if isinstance(reason, FactorisationError):
        return _of_coupled_rows(reason, evidence)
    if isinstance(reason, SetUpBudgetError):
        return reason.remedy
    if fact is not None and not fact.n_local:
        return f"{_NOTHING}: with so few rows pm.NUTS is fast"
    if fact is not None and reason is not None and (others := _others(fact)):
        return _of_others(others, fact, evidence.options.model)
    if isinstance(reason, ManyDimensionsError):
        return f"With {LARGEST_SECOND_ORDER} dimensions or fewer all of them can be moved at once"
    if isinstance(reason, NoNormalApproximationError):
        if not reason.along:
            return reason.remedy or _UNKNOWN
        return (
            f"Give {_any(reason.along)} a proper prior, or put a number in its place: data separate the "
            "responses along it, or do not identify it. A step of its own does not help"
        )
    if reason is not None:
        return "Whether a number in place of one parameter would help was not tried"
    report = evidence.report
    if report is not None and report.n_modes > 1:
        return (
            "Order what can be exchanged (the components of a mixture, by an ordered transform), give a sign "
            "that is not identified a prior on one side, and loadings that can be rotated a triangular "
            "matrix. A step of its own for a parameter does not help"
        )
    return _of_poor_fit(evidence)


def _only_compared(evidence: Evidence) -> list[str]:
    """Variables that rows have in comparisons alone, as the place where a level changes."""
    block = evidence.options.vars
    terms = raw_terms(evidence.options.model, block)
    observed = {str(rv.name) for rv in evidence.options.model.observed_RVs}
    found = only_compared([term for name, term in terms.items() if name in observed])
    return _names(evidence.options.model, [str(value.name) for value in block if value in found])


def _imputed(evidence: Evidence) -> list[str]:
    """Variables that PyMC makes of missing observations, of those that a step is refused for."""
    said = f"{evidence.no_field} {evidence.unsuitable}"
    is_long = isinstance(evidence.unsuitable, ManyDimensionsError)
    return [name for name in _names_of_missing(evidence) if is_long or name in said]


def _names_of_missing(evidence: Evidence) -> list[str]:
    """Variables that PyMC makes of missing observations, and that nothing but their own term contains."""
    model = evidence.options.model
    names = [str(rv.name) for rv in model.free_RVs if rv.name.endswith(IMPUTED)]
    return [name for name in names if set(raw_terms(model, [model.rvs_to_values[model[name]]])) == {name}]


def _leave_out(imputed: list[str]) -> str:
    data = _and([name.removesuffix(IMPUTED) for name in imputed])
    return (
        f"Leave rows out whose observation of {data} is missing: PyMC makes a variable of them "
        f"({', '.join(imputed)}), and they say nothing of the others. "
        "pm.sample_posterior_predictive predicts them"
    )


def by_element(evidence: Evidence) -> str:
    """How effects of groups that are no field may be moved, if each row looks one of them up."""
    if _imputed(evidence) or not evidence.no_field or evidence.factorisation is None:
        return ""
    longest = longest_looked_up(evidence.factorisation, FEWEST_GROUPS)
    if longest is None:
        return ""
    (name,) = _names(evidence.options.model, [longest.name])
    return (
        f"Or try MetropolisHastings([{name!r}], elementwise=True), which moves one of its "
        f"{longest.type.shape[0]:,} elements at a time by the rows that contain it, "
        "beside a step for the other variables"
    )


def _of_coupled_rows(error: FactorisationError, evidence: Evidence) -> str:
    """Rows of a term need each other: through which parameters?"""
    model, block = evidence.options.model, evidence.options.vars
    graph = raw_terms(model, None).get(error.term)
    if graph is None:
        return _UNKNOWN
    used = set(ancestors([graph]))
    inside = [value for value in block if value in used]
    outside = [value for value in block if value not in used]
    if _can_be_subsampled(evidence, outside):
        here, there = (_names(model, [v.name for v in part]) for part in (outside, inside))
        return (
            f"A step of its own for {_and(there)} helps the others: step=[recommend(vars={here}), "
            f"pm.NUTS([{', '.join(f'model[{name!r}]' for name in there)}])]"
        )
    tried = inside if len(block) > 1 and len(inside) <= _MOST_TRIED else []
    fixed = [v.name for v in tried if _can_be_subsampled(evidence, [b for b in block if b is not v], v.name)]
    if fixed:
        return (
            f"With a number in place of {_any(_names(model, fixed))} the rest can be subsampled; a step of "
            "its own for it does not help"
        )
    return (
        f"Neither a number in place of a parameter nor a step of its own helps: write {error.term!r} so that "
        "each row depends on the parameters and on its own data only"
    )


def _can_be_subsampled(evidence: Evidence, part: list[Variable], given: str | None = None) -> bool:
    """Has a part of the block local terms of its own? A number takes the place of the variable `given`."""
    if not part:
        return False
    try:
        fact = factorised(replace(evidence.options, vars=tuple(part)), evidence.point, check=False)
    except UnsuitableError:
        return False
    return fact.n_local > 0 and not set(_others(fact)) - {given}


def _others(fact: Factorisation) -> list[str]:
    """Value variables outside of the block that local terms depend on."""
    used = set(ancestors([term.rows for term in fact.locals]))
    return [name for name, v in fact.graph.values.items() if name not in fact.var_names and v in used]


def _of_others(others: list[str], fact: Factorisation, model: pm.Model) -> str:
    """Local terms depend on variables of other steps."""
    names = _names(model, others)
    discrete = [name for name in names if np.dtype(model[name].type.dtype).kind != "f"]
    if discrete:
        return (
            f"Sum {_and(discrete)} out (as pm.Mixture does), or put a number in its place: it is discrete, "
            "and no polynomial follows it. Another step for it does not help"
        )
    together = sorted({*_names(model, fact.var_names), *names})
    return f"Update {_and(names)} in the same step: recommend(vars={together})"


def _of_poor_fit(evidence: Evidence) -> str:
    """The posterior is unlike the normal distribution at its mode: along which parameters?"""
    assert evidence.survey is not None
    found, model = evidence.survey.found, evidence.options.model
    assert found is not None
    departures = Departures(found, evidence.point)
    free = np.flatnonzero(found.mode_fit.free)
    moved = list(dict.fromkeys(evidence.survey.factorisation.coordinate(int(d))[0] for d in free))
    tried = moved if 1 < len(moved) <= _MOST_TRIED else []
    fixed = [
        name
        for name in tried
        if fits_normal(*departures.with_fixed(name), is_hierarchical=evidence.is_hierarchical)
    ]
    where = ""
    apart = departures.coordinates()
    if apart:
        most = next(iter(apart.values()))
        leading = [c for c, size in apart.items() if size >= _WORTH * most][:_MOST_NAMED]
        of = [_names(model, [name])[0] + (f"[{', '.join(map(str, k))}]" if k else "") for name, k in leading]
        where = f"The posterior is least like it along {', '.join(of)}. "
    if fixed:
        return (
            f"{where}With a number in place of {_any(_names(model, fixed))} it would fit the others; a step "
            "of its own for that variable does not help. A tighter prior or more rows there may"
        )
    if tried:
        where += "Neither a number in place of one variable nor a step of its own for it helps. "
    return f"{where}More rows or tighter priors make it more like it"


def without_a_bound(in_the_way: Sequence[str], model: pm.Model) -> str:
    """Advice on what would give the remainders a bound; value variables are in the way."""
    if in_the_way:
        return (
            f"With a number in place of {_any(_names(model, in_the_way))} there may be a bound; a step of "
            "its own for it does not help"
        )
    return "No number in place of one parameter gives a bound, nor does a step of its own"


def too_many_rows(total: float) -> str:
    """Advice on how `TunaMH` would draw few rows, whose bounds near the mode add up to `total`."""
    if not np.isfinite(total):
        return (
            "Some rows have no finite bound near the mode: their log density has a kink there, or is the "
            "logarithm of a difference, which nothing helps; or a parameter comes near "
            "a value where it has a pole, which a tighter prior may."
        )
    return (
        "With more data for each dimension TunaMH reads few and is exact. A number in place of a parameter "
        "helps as far as it leaves fewer dimensions; a step of its own does not."
    )


def _names(model: pm.Model, values: Iterable[str]) -> list[str]:
    """Names of the random variables of value variables, which are given by their names."""
    names = {value.name: str(rv.name) for rv, value in model.rvs_to_values.items()}
    return [names[value] for value in values]


def _and(names: Sequence[str]) -> str:
    *others, last = map(repr, names)
    return f"{', '.join(others)} and {last}" if others else last


def _any(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names[:_MOST_NAMED]))
