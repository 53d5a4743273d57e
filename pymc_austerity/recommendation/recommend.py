"""`recommend`: a step that suits a model, and why."""

import logging
import warnings
from collections.abc import Sequence
from dataclasses import replace

import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomType

from pymc_austerity.exceptions import (
    FactorisationError,
    SelfCheckError,
    SubsamplingWarning,
    UnsuitableError,
    warn,
)
from pymc_austerity.mode.fields.field_model import FieldModel
from pymc_austerity.model.checks import explained, refuse_data, require_start, warn_of_long_deterministics
from pymc_austerity.model.factorisation import FEWEST_IF_SLOW
from pymc_austerity.model.factorise import model_of, value_variables
from pymc_austerity.model.graph.many import many_graphs
from pymc_austerity.model.starting_point import initial_point
from pymc_austerity.progress import stage, watched
from pymc_austerity.recommendation.choice import by_nuts, choose, of_field, record_of, why_no_gradient
from pymc_austerity.recommendation.evidence import Evidence, as_clause, gather, options_of
from pymc_austerity.recommendation.nuts import NUTS
from pymc_austerity.step_methods.messages import few_digits, refuse_discrete, rows_of_draw
from pymc_austerity.step_methods.metropolis.austerity import AusterityMH
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.field_plan import field_of, plan_field
from pymc_austerity.step_methods.metropolis.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.metropolis.mixing_pilot import Mixing, warn_of_poor_mixing
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.tuna import TunaMH
from pymc_austerity.step_methods.recommendation import Recommendation
from pymc_austerity.validation import require_switches
from pymc_austerity.work import DEFAULT_BUDGET, budgeted, checked_budget

# Below PyMC's logger, which shows messages as `pm.sample` does.
logger = logging.getLogger("pymc.austerity")

_MOST_NAMED = 5
# Less than this speaks against a field. Where groups hardly differ a pilot of the block is too confident, so
# that a field with half of its effective draws is preferred.
_ENOUGH, _HALF = 0.02, 0.5


def recommend(
    model: pm.Model | None = None,
    vars: Variable | str | Sequence[Variable | str] | None = None,
    *,
    approximate: bool = False,
    verbose: bool = True,
    progressbar: bool = True,
    set_up_budget: float = DEFAULT_BUDGET,
) -> SubsampledStep | NUTS:
    """Choose a step that suits the model, and say why; an exact one unless you allow another.

    Parameters
    ----------
    model : pymc.Model or bambi.Model, optional
        Default: the model of the context.
    vars : variables or their names, optional
        Continuous variables to update together. Default: all of the model. Others, such as discrete ones, are
        left to the steps that `pymc.sample` assigns.
    approximate : bool, default False
        Whether `AusterityMH` may be chosen, where an exact step would read all rows.
    verbose : bool, default True
        Whether the choice is told, by the logger ``pymc.austerity``: the step and the rows it will read, or
        why all rows are read, and what would change that.
    progressbar : bool, default True
        Whether a set-up that takes more than a second is shown while it lasts.
    set_up_budget : float > 0, default 60.0
        What the search for a step may cost, in units of 1e9 operations, each about a second of a core;
        compilation is not counted. Work is counted, not timed, so that the choice is the same everywhere. A
        search that would cost more ends with what is cheaper, mostly `pm.NUTS`, and with that reason. It may
        always cost as much as 1,000 gradients of all rows: `pm.NUTS` takes more to tune. ``inf``: no budget.

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
        If the log density contains random draws (`pm.Minibatch`), with which no step has a stationary
        distribution.

    Warns
    -----
    SubsamplingWarning
        If the step is approximate; and what the chosen step has to tell.

    Notes
    -----
    Effects of 30 groups or more, whose scale is sampled, are moved as a field: by `TunaMH`; by
    `MetropolisHastings` on all rows, where a pilot run promises more of it; or by `pm.NUTS`, where groups
    have too few rows. For other models the first of these that applies:

    1. `TunaMH`, if the normal distribution at the posterior mode fits, a bound is known for the remainders
       of all local terms, and at most a quarter of the rows is expected for a transition.
    2. ``AusterityMH(control_variate=Taylor())``, if the normal distribution fits, and with
       ``approximate=True`` only.
    3. `MetropolisHastings` on all data with the proposal that is fitted to the mode, if the normal
       distribution fits.
    4. `pm.NUTS`: the model cannot be factorised, no vector of terms has 1,000 rows, there is no mode or more
       than one, the likelihood depends on variables of other steps, or the normal distribution does not fit.

    It fits if independent draws would be accepted at a rate of 0.2 or more, and sums of Taylor remainders
    vary by less than 3; for hierarchical models, which need the proposal `Surrogate`, by less than 1.

    A step other than `pm.NUTS` is tried out on a short pilot run, where that is cheap. In a hierarchical
    model with fewer than 3 effective draws in 10, effects of 3 groups or more are tried as a field. With
    fewer than 1 in 20 `pm.NUTS` is taken.

    *Guarantee*: with ``approximate=False`` the posterior is the stationary distribution of the step.

    *When it fails*: the fit is measured near the mode, on a few draws. A posterior that is unlike the normal
    distribution elsewhere is sampled exactly, but slowly; steps warn of that while they tune. The choice is
    made for the present data: after `pm.set_data` ask again.

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
    require_switches(approximate=approximate, verbose=verbose, progressbar=progressbar)
    model = model_of(model)
    block = model.continuous_value_vars if vars is None else value_variables(model, vars)
    if not block:
        raise ValueError(
            "The model has no continuous free variable, and steps of pymc_austerity update no others. Leave "
            "step= out: pm.sample() chooses steps for discrete variables."
        )
    refuse_discrete(block)
    refuse_data(model)
    budget = checked_budget(set_up_budget)
    with watched("recommend", bool(progressbar)), many_graphs(), explained(model), budgeted(budget):
        stage("reading the model")
        point = initial_point(model)
        warn_of_long_deterministics(model, point)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SubsamplingWarning)  # also where they are errors
            evidence = _evidence(options_of(model, block, budget), point)
        step = _that_mixes(choose(evidence, approximate=bool(approximate)), evidence)
    if isinstance(step, TunaMH | MetropolisHastings) and step.control_variate is not None:
        for told in caught:  # of the mode and the polynomial that the step uses
            warnings.warn_explicit(told.message, told.category, told.filename, told.lineno)
    if isinstance(step, AusterityMH):
        warn(
            "AusterityMH was chosen, which is approximate: its stationary distribution differs from the "
            "posterior by an amount that is not bounded. That shrinks with epsilon and with larger batches, "
            "and grows with rows of large remainders that batches seldom meet (rare features, outliers). "
            "Without approximate=True an exact step is recommended."
        )
    if verbose:
        logger.info("%s", announcement(record_of(step)))
    return step


def _evidence(options: MetropolisOptions, point: PointType) -> Evidence:
    """Evidence about the block; an error if no chain could start."""
    model = options.model
    try:
        evidence = gather(options, point)
    except SelfCheckError:  # a defect, unless it is the data that are impossible
        require_start(model, point)
        raise
    if evidence.plan is None and evidence.no_bound is None:  # no step of this package will do
        if isinstance(evidence.unsuitable, FactorisationError):
            sources = graph_inputs([model.logp()])
            if any(isinstance(source.type, RandomType) for source in sources):  # such as of pm.Minibatch
                raise evidence.unsuitable
        require_start(model, point)
    return evidence


def _that_mixes(step: SubsampledStep | NUTS, evidence: Evidence) -> SubsampledStep | NUTS:
    """The chosen step, tried out on a pilot run; a small field or `pm.NUTS` if that mixes badly."""
    if not isinstance(step, SubsampledStep) or (mixing := step.try_out(evidence.point)) is None:
        return step
    why, name = record_of(step), step.name_of(mixing.dimension)
    step.recommendation = why._replace(mixing=mixing)
    is_field = evidence.field is not None
    slow = (
        f"with {why.step}{'' if is_field else ' for one block'} {mixing.n_draws:,} draws of a pilot run were "
        f"worth about {few_digits(mixing.effective)} independent ones of {name}"
    )
    if not is_field and mixing.is_doubtful and evidence.is_hierarchical:
        better = _small_field(slow, mixing, evidence)
        if better is not None:
            return better
    if mixing.efficiency < _ENOUGH if is_field else mixing.is_poor:
        if why_no_gradient(evidence.options) is None:
            return by_nuts(evidence, slow)
        warn_of_poor_mixing(mixing, name, is_field=is_field)
    return step


def _small_field(slow: str, of_block: Mixing, evidence: Evidence) -> SubsampledStep | None:
    """Sweeps over the effects of a few groups, if there are some, and they mix better."""
    fact, point = evidence.factorisation, evidence.point
    assert fact is not None
    options = replace(evidence.options, fewest_groups=FEWEST_IF_SLOW)
    try:
        found = field_of(options, fact, point)
        if not isinstance(found, FieldModel):
            return None
        step = of_field(replace(evidence, field=plan_field(options, point, found)))
    except UnsuitableError:
        return None
    mixing = None if step is None else step.try_out(point)
    if step is None or mixing is None or mixing.efficiency < max(_ENOUGH, _HALF * of_block.efficiency):
        return None
    why = record_of(step)
    step.recommendation = why._replace(reason=f"{why.reason}; {slow}", mixing=mixing)
    return step


def announcement(why: Recommendation) -> str:
    """The step, its variables and its rows; for a fallback also the reason, and what would do better."""
    name = why.step.partition("(")[0]
    named, others = ", ".join(why.vars[:_MOST_NAMED]), len(why.vars) - _MOST_NAMED
    if others > 0:
        named += f" and {others} other{'s' if others > 1 else ''}"
    if why.rows is None and not why.others:
        named = "all variables"
    begin = f"recommend: {name} for {named}"
    if why.rows is None:
        return f"{begin}, because {as_clause(why.reason)}. {why.otherwise}"
    rows = rows_of_draw(why.rows, why.n_local or 0)
    if why.mixing is not None and why.mixing.is_doubtful:
        rows += f", {why.mixing}"
    if name == "TunaMH":
        return f"{begin}: {rows}"
    return f"{begin}: {rows}, because {as_clause(why.reason)}. {why.otherwise}"
