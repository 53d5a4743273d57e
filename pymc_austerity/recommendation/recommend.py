"""`recommend`: a step that suits a model, and why."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomType

from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import (
    FactorisationError,
    SelfCheckError,
    SubsamplingWarning,
    UnsuitableError,
    warn,
)
from pymc_austerity.model.factorise import model_of, value_variables
from pymc_austerity.model.impossible import refuse_cut_counts, require_start
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.proposals.surrogate import Surrogate
from pymc_austerity.recommendation.candidates import CostlyError, Search, first_sentence
from pymc_austerity.recommendation.record import Recommendation
from pymc_austerity.step_methods.messages import refuse_discrete
from pymc_austerity.step_methods.metropolis.austerity import AusterityMH
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.metropolis.options import BATCH_OF_REMAINDERS

_EXACT = "exact: the posterior is the stationary law, up to rounding"


def recommend(
    model: pm.Model | None = None,
    vars: Variable | Sequence[Variable] | None = None,
    *,
    approximate: bool = False,
) -> SubsampledStep | pm.NUTS:
    """Choose a step that suits the model, and say why; an exact one unless you allow another.

    Parameters
    ----------
    model : pymc.Model, optional
        Default: the model of the context.
    vars : random or value variables, optional
        Continuous variables to update together. Default: all of the model. Others, such as discrete ones, are
        left to the steps that `pymc.sample` assigns.
    approximate : bool, default False
        Whether `AusterityMH` may be chosen, where an exact step would read all rows.

    Returns
    -------
    TunaMH, MetropolisHastings, AusterityMH or pm.NUTS
        Ready for `pymc.sample`. Its attribute `recommendation` is a record of the reasons; print it.

    Raises
    ------
    ValueError
        If there is no continuous variable, or one of `vars` is not a free, continuous variable of the model.
        If no chain could start: rows of the data are missing, infinite or outside of the support of the
        likelihood, or the log density is not finite at the start nor near it. The message says which.
        The start is that of the model: `initvals` of `pymc.sample` are not seen here.
    FactorisationError
        If the log density contains random draws (`pm.Minibatch`), with which no step has a stationary law.

    Warns
    -----
    SubsamplingWarning
        If the step is approximate; and what the chosen step has to tell.

    Notes
    -----
    The first of these that applies:

    1. `TunaMH`, if the normal law at the posterior mode fits, a bound is known for the remainders of all
       local terms, and at most a quarter of the rows is expected for a transition.
    2. ``AusterityMH(control_variate=Taylor())``, if the normal law fits, and with ``approximate=True`` only.
    3. `MetropolisHastings` on all data with the proposal that is fitted to the mode, if the normal law fits.
    4. `pm.NUTS`: the model cannot be factorised, no vector of terms has 1,000 rows, there is no mode or more
       than one, the likelihood depends on variables of other steps, or the normal law does not fit.

    It fits if independent draws would be accepted at a rate of 0.2 or more, and sums of Taylor remainders
    vary by less than 3; for hierarchical models, which need the proposal `Surrogate`, by less than 1.

    *Guarantee*: with ``approximate=False`` the posterior is the stationary law of the step.

    *When it fails*: the fit is measured near the mode, on a few draws. A posterior that is unlike the normal
    law elsewhere is sampled exactly, but slowly; steps warn of that while they tune. The choice is made for
    the present data: after `pm.set_data` ask again.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import recommend
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model:
    ...     step = recommend()
    >>> step.recommendation.step
    'TunaMH()'
    >>> print(step.recommendation)  # doctest: +ELLIPSIS
    TunaMH() for level, slope
      because      few rows decide exactly...
    """
    if not isinstance(approximate, bool | np.bool_):
        raise ValueError(f"approximate must be True or False, got {approximate!r}.")
    model = model_of(model)
    block = model.continuous_value_vars if vars is None else value_variables(model, vars)
    if not block:
        raise ValueError(
            "The model has no continuous free variable, and steps of pymc_austerity update no others. Leave "
            "step= out: pm.sample() chooses steps for discrete variables."
        )
    refuse_discrete(block)
    refuse_cut_counts(model)
    point = default_point(model)
    search = Search(model, block, point)
    chosen: Any = None
    problem: UnsuitableError | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SubsamplingWarning)  # also where they are errors
        try:
            chosen = search.tuna()
        except UnsuitableError as error:
            problem = error
        except SelfCheckError:  # a defect, unless it is the data that are impossible
            require_start(model, point)
            raise
    if problem is not None and not isinstance(problem, CostlyError):
        if isinstance(problem, FactorisationError) and _is_random(model):
            raise problem
        require_start(model, point)
    names = {value: rv.name for rv, value in model.rvs_to_values.items() if value in model.value_vars}
    why = Recommendation(
        step="pm.NUTS()",
        reason="",
        vars=tuple(names.pop(value) for value in block),
        others=tuple(names.values()),
        n_local=None if search.fact is None else search.fact.n_local,
        n_dim=sum(np.size(point[value.name]) for value in block),
        certificate=search.certificate,
        rows=None,
        fit=None if search.found is None else search.found.centre.report,
        guarantee=_EXACT,
        otherwise="1,000 or more rows that depend on these variables and on their own data only, and a "
        "posterior like a normal law at its only mode: many data for each parameter, proper priors, "
        "hierarchies written centred. For a whole model pm.sample() without step= is as good as this step, "
        "and starts each chain at another point.",
    )
    if problem is None:
        why = _of_few_rows(search, why)
    elif not isinstance(problem, CostlyError):
        why = why._replace(reason=first_sentence(str(problem)))
        chosen = _nuts(model, block, why.reason)
    elif approximate:
        chosen, why = _approximate(search, problem, why)
    else:
        chosen, why = _of_all_rows(search, problem, why)
    if getattr(chosen, "_taylor", None) is not None:  # what the search had to tell is about this step
        for told in caught:
            warnings.warn_explicit(told.message, told.category, told.filename, told.lineno)
    chosen.recommendation = why
    return chosen


def _of_few_rows(search: Search, why: Recommendation) -> Recommendation:
    """The record of a `TunaMH`."""
    assert search.prediction is not None
    assert search.found is not None
    assert search.fact is not None
    otherwise = (
        "Where more than a quarter of the rows is expected (fewer data, more dimensions), the exact test on "
        "all rows."
    )
    report = search.found.centre.report
    if search.prediction.is_loose(report):
        otherwise = search.prediction.advice(report, search.fact.n_local)
    return why._replace(
        step="TunaMH()",
        reason="few rows decide exactly: the normal law at the mode fits, and remainders have bounds",
        rows=search.prediction.terms,
        guarantee=f"{_EXACT}; every row that is drawn is compared with its bound",
        otherwise=otherwise,
    )


def _approximate(
    search: Search, problem: CostlyError, why: Recommendation
) -> tuple[AusterityMH, Recommendation]:
    """The sequential test, and its record."""
    chosen = search.other(AusterityMH, control_variate=Taylor())
    warn(
        "AusterityMH was chosen, which is approximate: its stationary law differs from the posterior by "
        "an amount that is not bounded. That shrinks with epsilon and with larger batches, and grows "
        "with rows of large remainders that batches seldom meet (rare features, outliers). Without "
        "approximate=True an exact step is recommended."
    )
    return chosen, why._replace(
        step="AusterityMH(control_variate=Taylor())",
        reason=f"approximate=True was given, and {problem}",
        rows=float(len(chosen._centre.exact) + BATCH_OF_REMAINDERS),
        guarantee="none: the estimated probability of a wrong decision is below epsilon, 0.01",
        otherwise=f"recommend() gives the exact test on all rows. {problem.remedy}",
    )


def _of_all_rows(
    search: Search, problem: CostlyError, why: Recommendation
) -> tuple[MetropolisHastings, Recommendation]:
    """The exact test with the proposal that is fitted to the mode, and its record."""
    step = "proposal=Laplace()"
    options: dict[str, Any] = {"proposal": Laplace()}
    if search.is_surrogate:
        step = "control_variate=Taylor(exact_rows=0), proposal=Surrogate()"
        options = {"control_variate": Taylor(exact_rows=0), "proposal": Surrogate()}
    chosen = search.other(MetropolisHastings, **options)
    return chosen, why._replace(
        step=f"MetropolisHastings({step})",
        reason=f"the normal law at the mode fits, but {problem}",
        rows=float(chosen._engine.n_local),
        otherwise="recommend(approximate=True) gives AusterityMH, which reads some 150 rows for a "
        f"transition, with a small error that is not bounded. {problem.remedy}",
    )


def _nuts(model: pm.Model, block: list[Variable], reason: str) -> pm.NUTS:
    try:
        grad(model.logp(), block, disconnected_inputs="ignore")
    except NO_GRADIENT as error:
        raise ValueError(
            f"{reason}; and pm.NUTS, which would be recommended then, needs a gradient ({error}). Leave "
            "step= out, and pm.sample() chooses a step without; or use MetropolisHastings(), a random walk."
        ) from error
    return pm.NUTS(block, model=model)


def _is_random(model: pm.Model) -> bool:
    """Does the log density contain random draws?"""
    return any(isinstance(source.type, RandomType) for source in graph_inputs([model.logp()]))
