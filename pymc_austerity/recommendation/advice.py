"""What to change in a model for a better step, in the words of the model; or that nothing helps.

What is said of a parameter was tried: the model with a number in its place, or without its rows.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.control_variates.taylor import LARGEST_SECOND_ORDER
from pymc_austerity.exceptions import (
    FactorisationError,
    NoNormalApproximationError,
    SetUpBudgetError,
    UnsuitableError,
)
from pymc_austerity.mode.remainders import Departures
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.log_density import raw_terms
from pymc_austerity.model.plates.gathers import largest_gather
from pymc_austerity.recommendation.evidence import Asked, Evidence, fits_normal
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR

# Variables that are tried out one by one, and coordinates that are named.
_MOST_TRIED, _MOST_NAMED = 8, 3
# A coordinate is named if the posterior departs along it by this share of the largest departure.
_WORTH = 0.3
_NOTHING = "Nothing in the model is in the way"
_UNKNOWN = "No single parameter was found that is in the way"


def instead_of_nuts(evidence: Evidence, asked: Asked) -> str:
    """Advice on what would make another step than `pm.NUTS` suit the model."""
    model = asked.model
    reason, fact = evidence.unsuitable, evidence.factorisation
    if evidence.plates is not None:
        return (
            f"{_NOTHING}, and no step of its own for a parameter helps: with more rows for each group "
            "TunaMH() moves effects by few of them"
        )
    if isinstance(reason, FactorisationError):
        return _of_coupled_rows(reason, asked)
    if isinstance(reason, SetUpBudgetError):
        return reason.remedy
    if fact is not None and not fact.n_local:
        return f"{_NOTHING}: with so few rows pm.NUTS is fast"
    if fact is not None and reason is not None and (others := _others(fact)):
        return _of_others(others, fact, model)
    if evidence.has_many_dimensions:
        return f"With {LARGEST_SECOND_ORDER} dimensions or fewer all of them can be moved at once"
    if isinstance(reason, NoNormalApproximationError):
        if not reason.along:
            return _UNKNOWN
        return (
            f"Give {_any(reason.along)} a proper prior, or put a number in its place: data separate the "
            "responses along it, or do not identify it. A step of its own does not help"
        )
    if reason is not None:
        return _UNKNOWN
    report = evidence.report
    if report is not None and report.n_modes > 1:
        return (
            "Order what can be exchanged (the components of a mixture, by an ordered transform), or give a "
            "sign that is not identified a prior on one side. A step of its own for a parameter does not help"
        )
    return _of_poor_fit(evidence, asked)


def by_element(evidence: Evidence, model: pm.Model) -> str:
    """How effects of groups that are no plate may be moved, if each row looks one of them up."""
    if not evidence.no_plate or evidence.factorisation is None:
        return ""
    gather = largest_gather(evidence.factorisation)
    if gather is None:
        return ""
    value = next(v for v in model.value_vars if v.name == gather.name)
    name = model.values_to_rvs[value].name
    return (
        f"Or try MetropolisHastings([{name!r}], elementwise=True), which moves one of its "
        f"{gather.n_groups:,} elements at a time by the rows that contain it, "
        "beside a step for the other variables"
    )


def _of_coupled_rows(error: FactorisationError, asked: Asked) -> str:
    """Rows of a term need each other: through which parameters?"""
    model, block, _ = asked
    graph = raw_terms(model, None).get(error.term)
    if graph is None:
        return _UNKNOWN
    used = set(ancestors([graph]))
    inside = [value for value in block if value in used]
    outside = [value for value in block if value not in used]
    if _can_be_subsampled(asked, outside):
        here, there = _names(model, outside), _names(model, inside)
        return (
            f"A step of its own for {_and(there)} helps the others: step=[recommend(vars={here}), "
            f"pm.NUTS([{', '.join(f'model[{name!r}]' for name in there)}])]"
        )
    tried = inside if len(block) > 1 and len(inside) <= _MOST_TRIED else []
    fixed = [v for v in tried if _can_be_subsampled(asked, [b for b in block if b is not v], given=v)]
    if fixed:
        return (
            f"With a number in place of {_any(_names(model, fixed))} the rest can be subsampled; a step of "
            "its own for it does not help"
        )
    return (
        f"Neither a number in place of a parameter nor a step of its own helps: write {error.term!r} so that "
        "each row depends on the parameters and on its own data only"
    )


def _can_be_subsampled(asked: Asked, part: list[Variable], given: Variable | None = None) -> bool:
    """Has a part of the block local terms of its own? A number takes the place of `given`."""
    if not part:
        return False
    try:
        options = checked_options(part, EXACT, control_variate=TAYLOR, model=asked.model)
        fact = factorised(options, asked.point, check=False)
    except UnsuitableError:
        return False
    return fact.n_local > 0 and not set(_others(fact)) - {given.name if given is not None else None}


def _others(fact: Factorisation) -> list[str]:
    """Value variables outside of the block that local terms depend on."""
    used = set(ancestors([term.rows for term in fact.locals]))
    return [name for name, v in fact.graph.values.items() if name not in fact.var_names and v in used]


def _of_others(others: list[str], fact: Factorisation, model: pm.Model) -> str:
    """Local terms depend on variables of other steps."""
    values = {value.name: value for value in model.value_vars}
    names = _names(model, [values[name] for name in others])
    discrete = [n for n, o in zip(names, others, strict=True) if np.dtype(values[o].type.dtype).kind != "f"]
    if discrete:
        return (
            f"Sum {_and(discrete)} out (as pm.Mixture does), or put a number in its place: it is discrete, "
            "and no polynomial follows it. Another step for it does not help"
        )
    block = _names(model, [values[name] for name in fact.var_names])
    return f"Update {_and(names)} in the same step: recommend(vars={sorted({*block, *names})})"


def _of_poor_fit(evidence: Evidence, asked: Asked) -> str:
    """The posterior is unlike the normal distribution at its mode: along which parameters?"""
    assert evidence.survey is not None
    found = evidence.survey.found
    assert found is not None
    fact = evidence.survey.factorisation
    departures = Departures(found, asked.point)
    names = {value.name: rv.name for rv, value in asked.model.rvs_to_values.items()}
    moved = list(dict.fromkeys(fact.coordinate(int(d))[0] for d in np.flatnonzero(found.mode_fit.free)))
    tried = moved if 1 < len(moved) <= _MOST_TRIED else []
    fixed = [
        names[v]
        for v in tried
        if fits_normal(*departures.with_fixed(v), is_hierarchical=evidence.is_hierarchical)
    ]
    where = ""
    apart = departures.coordinates()
    if apart:
        most = next(iter(apart.values()))
        leading = [c for c, size in apart.items() if size >= _WORTH * most][:_MOST_NAMED]
        of = ", ".join(names[n] + (f"[{', '.join(map(str, k))}]" if k else "") for n, k in leading)
        where = f"The posterior is least like it along {of}. "
    if fixed:
        return (
            f"{where}With a number in place of {_any(fixed)} it would fit the others; a step of its own for "
            "that variable does not help. A tighter prior or more rows there may"
        )
    if tried:
        where += "Neither a number in place of one variable nor a step of its own for it helps. "
    return f"{where}More rows or tighter priors make it more like it"


def without_a_bound(in_the_way: Sequence[str], model: pm.Model) -> str:
    """Advice on what would give the remainders a bound; value variables are in the way."""
    if in_the_way:
        names = _names(model, [value for value in model.value_vars if value.name in in_the_way])
        return (
            f"With a number in place of {_any(names)} there may be a bound; a step of its own for it does "
            "not help"
        )
    return "No number in place of one parameter gives a bound, nor does a step of its own"


def too_many_rows(total: float) -> str:
    """Advice on how `TunaMH` would draw few rows, whose bounds near the mode add up to `total`."""
    if not np.isfinite(total):
        return (
            "Some rows have no finite bound near the mode: their log density has a kink there, which nothing "
            "helps, or a parameter comes near a value where it has a pole, which a tighter prior may."
        )
    return (
        "With more data for each dimension TunaMH reads few and is exact. A number in place of a parameter "
        "helps as far as it leaves fewer dimensions; a step of its own does not."
    )


def _names(model: pm.Model, values: Iterable[Variable]) -> list[str]:
    return [str(model.values_to_rvs[value].name) for value in values]


def _and(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names)) if len(names) < 3 else ", ".join(map(repr, names))


def _any(names: Sequence[str]) -> str:
    return " or ".join(map(repr, names[:_MOST_NAMED]))
