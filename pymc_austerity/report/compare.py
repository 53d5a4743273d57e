"""`compare`: run several steps on one model, and say which of them to trust."""

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep
from xarray import DataTree

from pymc_austerity.diagnostics.agreement import NotComparableError
from pymc_austerity.diagnostics.result import posterior_of
from pymc_austerity.exceptions import (
    FactorisationError,
    NoNormalApproximationError,
    SubsamplingWarning,
    UnsuitableError,
)
from pymc_austerity.mode.fields.field_model import FieldModel
from pymc_austerity.mode.find_mode import constrained, find_mode
from pymc_austerity.model.bambi import as_fitted, compared_by_bambi, is_of_bambi, kept_by_bambi
from pymc_austerity.model.checks import explained
from pymc_austerity.model.factorisation import FEWEST_GROUPS, FEWEST_IF_SLOW, point_of
from pymc_austerity.model.factorise import model_of
from pymc_austerity.model.field.of_model import factorise
from pymc_austerity.model.graph.many import many_graphs
from pymc_austerity.model.starting_point import initial_point, require_finite
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.progress import stage, watched
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.recommendation.choice import plan_of_all_rows
from pymc_austerity.recommendation.evidence import Evidence, first_sentence, gather, why_not_normal
from pymc_austerity.report.comparison import Comparison
from pymc_austerity.report.judgement import Judgement, convergence, judge
from pymc_austerity.report.probe import probed
from pymc_austerity.report.run import Budget, Run, Settings, Steps, budget_of, named, run_step
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.field_plan import field_of
from pymc_austerity.step_methods.metropolis.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions, checked_options, proposal_for
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR
from pymc_austerity.validation import is_real, require_whole
from pymc_austerity.work import budgeted

Reference = Literal["exact", "nuts"] | DataTree

# Below PyMC's logger, which shows messages as `pm.sample` does: all chains together may take minutes.
logger = logging.getLogger("pymc.austerity")


def compare(
    model: Any,
    steps: Steps,
    *,
    reference: Reference = "exact",
    budget: float | Mapping[str, float] = 10.0,
    reference_budget: float | Mapping[str, float] | None = None,
    tune: int = 1000,
    chains: int = 4,
    initvals: Literal["mode"] | Mapping[str, Any] | None = "mode",
    var_names: Sequence[str] | None = None,
    tolerance: float = 0.2,
    n_pairs: int = 10,
    max_draws: int = 20_000,
    random_seed: int | None = None,
) -> Comparison:
    """Run each step for the same budget, and compare costs and posteriors with a reference.

    Parameters
    ----------
    model : pymc.Model or bambi.Model
        Draws of a model of Bambi are compared in the form that its method `fit` returns.
    steps : dict of str to step, or sequence of steps
        Made for the model. A step may be a list of steps that move different variables; variables that no
        step moves are left to `pymc.sample`. Without names, steps are called by their class and parameters.
    reference : "exact", "nuts" or DataTree, default "exact"
        What the posterior is compared with: `MetropolisHastings` on all data, with a proposal that suits the
        model (effects of many groups are moved as `TunaMH` moves them); NUTS (`pymc.sample` without
        ``step=``); or draws that you have.
    budget : float or dict, default 10.0
        Seconds for each step, all its chains together; or ``{"terms": n}``, the local terms that it may
        evaluate; or ``{"draws": n}`` for each chain. Tuning and compiling are not counted, but reported.
    reference_budget : float or dict, optional
        The same for the reference. Default: that of the steps. A comparison is no more precise than its
        reference.
    tune : int >= 0, default 1000
        Tuning draws of each chain; at most 100 for steps on effects of many groups, which tune nothing.
    chains : int >= 1, default 4
        Chains run one after the other, so that their times do not depend on each other.
    initvals : "mode", dict or None, default "mode"
        Where chains start: at the posterior mode, at given values, or (None) at PyMC's starting points, which
        are taken too if there is no mode. With effects of many groups "mode" is that of what the groups
        share, with the effects integrated out: at the joint mode their scale may be 0.
    var_names : sequence of str, optional
        Variables that are compared. Default: all free variables of the model, or what `fit` of Bambi returns.
    tolerance : float > 0, default 0.2
        The difference that matters, in posterior standard deviations for means, and in the logarithm of the
        ratio for standard deviations. "Agrees" means that larger ones are excluded.
    n_pairs : int >= 0, default 10
        Moves at which all local terms are evaluated after the run, to find whether batch means are
        normal (`probe`, `diagnostics.normality`); 0 for none.
    max_draws : int, default 20000
        Draws that a chain makes at most, where the budget is not one of draws. Limits memory.
    random_seed : int, optional

    Returns
    -------
    Comparison
        Print it, or look at ``to_html("comparison.html")``.

    Raises
    ------
    TypeError, ValueError
        If a parameter is of the wrong kind or out of range, or a step was made for another model. What goes
        wrong while a step runs is told in the report instead.

    Notes
    -----
    The comparison of approximate Metropolis-Hastings with regular inference of Chen, Mansinghka &
    Ghahramani (2015), made automatically. A step "differs" if the mean, the sd or the distribution of a
    scalar is further from the reference than Monte Carlo errors explain, with a probability of 0.01 that a
    step with the right distribution is said to differ, whatever the number of scalars (Bonferroni). It
    "agrees" if none is, and differences of `tolerance` are excluded. Else, and where chains have not
    converged, it "cannot tell".

    *Guarantee*: none, this is a test. The Monte Carlo errors of both sides are part of it.

    *When it fails*: all chains start at the mode and may miss the same part of the posterior; compare with
    ``reference="nuts", initvals=None`` where there may be several modes. Where the reference is wrong, right
    steps differ from it. Tests of single scalars do not see a wrong dependence between them.

    References
    ----------
    .. [1] Chen, Y., Mansinghka, V. & Ghahramani, Z. (2015). Sublinear-time approximate MCMC transitions for
       probabilistic programs.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import AusterityMH, compare
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=np.random.default_rng(1).normal(size=2000))
    >>> result = compare(
    ...     model, {"quarter": AusterityMH(epsilon=0.25, batch_size=100, model=model)}, budget={"draws": 100},
    ...     tune=100, chains=2, n_pairs=0, random_seed=1
    ... )
    >>> list(result.to_dataframe().index)
    ['exact (reference)', 'quarter']
    """
    of_bambi = model if is_of_bambi(model) else None
    model = model_of(model)
    named_steps = named(steps, model)
    names = _names(model, of_bambi, var_names)
    check_reference(reference, names)
    each = budget_of(budget)
    of_reference = each if reference_budget is None else budget_of(reference_budget, "reference_budget")
    require_whole(0, tune=tune, n_pairs=n_pairs)
    require_whole(1, chains=chains, max_draws=max_draws)
    if not is_real(tolerance) or not 0.0 < tolerance < np.inf:
        raise ValueError(f"tolerance must be a positive number of posterior sds, got {tolerance!r}.")
    notes: list[str] = []
    fewest = fewest_groups(block for blocks in named_steps.values() for block in blocks)
    start = _start(model, initvals, notes, fewest)
    try:  # N, for the steps of PyMC
        fact = factorise(model)
        n_local = fact.n_rows if fact.n_local else None
    except FactorisationError:
        n_local = None
    kept = None if of_bambi is None else kept_by_bambi(of_bambi)
    settings = Settings(int(chains), int(tune), int(max_draws), start, n_local, kept)
    seeds = [int(s) for s in np.random.SeedSequence(random_seed).generate_state(2 * len(named_steps) + 1)]

    logger.info("compare: 1 of %d, the reference", len(named_steps) + 1)
    standard = run_reference(model, reference, of_reference, settings, seeds[0], fewest)
    if of_bambi is not None and not isinstance(reference, DataTree) and standard.idata is not None:
        as_fitted(of_bambi, standard.idata)
    results = []
    for k, (name, blocks) in enumerate(named_steps.items()):
        logger.info("compare: %d of %d, %s", k + 2, len(named_steps) + 1, name)
        run = run_step(model, name, blocks, each, settings, seeds[2 * k + 1])
        probe = probed(model, blocks, run, int(n_pairs), seeds[2 * k + 2])
        if of_bambi is not None and run.idata is not None:
            as_fitted(of_bambi, run.idata)
        results.append((run, judged(run, standard, names, float(tolerance)), probe))
    return Comparison(tuple(results), standard, tuple(names), float(tolerance), settings, tuple(notes))


def judged(run: Run, standard: Run, names: list[str], tolerance: float) -> Judgement:
    """Verdict on a run, also where it or the reference failed."""
    if run.idata is None:
        return Judgement("failed", run.error)
    if standard.idata is None:
        reason = f"the reference failed ({standard.error})."
        return Judgement("cannot tell", reason, convergence=convergence(run.idata, names))
    try:
        return judge(run.idata, standard.idata, names, tolerance)
    except NotComparableError as error:  # given draws may have other variables; what was run is kept
        return Judgement("cannot tell", f"the draws could not be compared with the reference: {error}")


def _names(model: pm.Model, of_bambi: Any, var_names: Sequence[str] | None) -> list[str]:
    """Check `var_names`; by default all free variables, or what `fit` of Bambi returns."""
    known = [rv.name for rv in model.unobserved_RVs] if of_bambi is None else compared_by_bambi(of_bambi)
    if var_names is None:
        return known if of_bambi is not None else [rv.name for rv in model.free_RVs]
    chosen = [var_names] if isinstance(var_names, str) else list(var_names)
    if not chosen or any(name not in known for name in chosen):
        raise ValueError(f"var_names must be some of {', '.join(known)}, got {chosen!r}.")
    return chosen


# Where chains start, and the reference ------------------------------------------------------------


def _start(model: pm.Model, initvals: Any, notes: list[str], fewest: int) -> Mapping[str, Any] | None:
    """Where chains start; what was done instead is added to `notes`. So few groups make a field."""
    if initvals is None:
        return None
    if isinstance(initvals, Mapping):
        known = {rv.name for rv in model.free_RVs} | {value.name for value in model.value_vars}
        if unknown := [str(name) for name in initvals if getattr(name, "name", name) not in known]:
            raise ValueError(f"initvals has values of {', '.join(unknown)}, no free variables of the model.")
        return initvals
    if not isinstance(initvals, str) or initvals != "mode":
        raise ValueError(f'initvals must be "mode", a dict of values, or None, got {initvals!r}.')
    with warnings.catch_warnings():
        warnings.simplefilter("error", SubsamplingWarning)  # a mode that was not reached is none
        try:
            start = start_of_field(model, fewest) if model.continuous_value_vars else None
            return find_mode(model, model.continuous_value_vars or None) if start is None else start
        except (UnsuitableError, SubsamplingWarning) as error:
            notes.append(f"Chains start where PyMC starts them, for no mode was found: {error}")
            return None


def start_of_field(model: pm.Model, fewest: int) -> dict[str, Any] | None:
    """Where chains on a field start, by name: the joint mode has scales near zero, far from all draws."""
    options, point = _of_all_rows(model, fewest), initial_point(model)
    field = field_of(options, factorised(options, point), point)
    if not isinstance(field, FieldModel):
        return None
    require_finite(field.factorisation, point)
    with watched("compare: where chains start", True):
        stage("fit", f", {field.n_effects:,} effects")
        return constrained(model, point_of(field.factorisation, field.center(), point))


def _of_all_rows(model: pm.Model, fewest: int) -> MetropolisOptions:
    """Options of an exact step that moves effects of so many groups as a field, and reads all rows."""
    options = checked_options(model.continuous_value_vars, EXACT, control_variate=TAYLOR, model=model)
    return replace(options, fewest_groups=fewest)


def fewest_groups(steps: Iterable[BlockedStep]) -> int:
    """Effects that make a field: fewer than usual, if one of the steps sweeps over so few."""
    fields = [step.field for step in steps if isinstance(step, SubsampledStep)]
    few = any(field is not None and field.prediction.n_nodes <= FEWEST_GROUPS for field in fields)
    return FEWEST_IF_SLOW if few else FEWEST_GROUPS


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
    """Draw from the reference, or take the draws that were given; so few groups make a field."""
    if isinstance(reference, DataTree):
        return Run("given", "draws that were given", idata=reference)
    if reference == "nuts":
        # Without step=, so that PyMC assigns others to discrete variables.
        return run_step(model, "nuts", [], budget, settings, seed)
    try:
        step, notes = exact_step(model, fewest)
    except UnsuitableError as error:
        raise ValueError(
            'reference="exact" is not possible for this model. Give reference="nuts" or draws of your own. '
            f"({error})"
        ) from error
    return run_step(model, "exact", [step], budget, settings, seed, notes=notes)


def exact_step(model: pm.Model, fewest: int = FEWEST_GROUPS) -> tuple[BlockedStep, list[str]]:
    """Exact Metropolis-Hastings with the best proposal that suits the model; notes say why it is a walk."""
    if not model.continuous_value_vars:
        raise UnsuitableError("The model has no continuous variable for an exact step.")
    options, point = _of_all_rows(model, fewest), initial_point(model)
    with watched("compare: the reference", True):  # sweeps that read all rows
        with many_graphs(), explained(model), budgeted(options.set_up_budget):
            evidence = gather(options, point)
            why = None if evidence.field else why_not_normal(evidence)
            if why is None:
                try:
                    plan = evidence.field or plan_of_all_rows(evidence)[0]
                    return MetropolisHastings.from_plan(plan, point), []
                except UnsuitableError as error:
                    why = str(error)
        step = _without_polynomial(evidence)
        if step is not None:
            return step, []
    why = first_sentence(why)
    note = f"The reference proposes by a random walk, for no normal distribution fits the posterior: {why}."
    return MetropolisHastings(model.continuous_value_vars, model=model), [note]


def _without_polynomial(evidence: Evidence) -> MetropolisHastings | None:
    """A step with a normal proposal, where only a Taylor polynomial was refused.

    Without one there may be many dimensions, and rows may depend on variables of other steps.
    """
    fact, refusal = evidence.factorisation, evidence.unsuitable
    if fact is None or refusal is None or isinstance(refusal, NoNormalApproximationError):
        return None
    try:
        proposal = proposal_for(None, TAYLOR, TermStructure(fact))
        if not isinstance(proposal, Laplace):
            return None
        step = MetropolisHastings(
            list(evidence.options.vars), proposal=proposal, model=evidence.options.model
        )
    except UnsuitableError:
        return None
    return None if step.mode_fit is None or step.mode_fit.n_modes > 1 else step
