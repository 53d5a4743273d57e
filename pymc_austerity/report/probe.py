"""All N log ratios of a few moves of a step, from states of its chain: are its batch means normal?"""

import math
import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pymc.initial_point import PointType
from pymc.step_methods.compound import BlockedStep
from xarray import DataTree

from pymc_austerity.diagnostics import normality
from pymc_austerity.diagnostics.normality import check_batches, group_of, summarise
from pymc_austerity.diagnostics.result import SAMPLE, posterior_of
from pymc_austerity.model.factorisation import vector_of
from pymc_austerity.model.starting_point import initial_point, transformed
from pymc_austerity.proposals.base import no_adaptation
from pymc_austerity.report.run import Run
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.engine.sequential import RuleEngine
from pymc_austerity.step_methods.metropolis.tuna import TunaMH
from pymc_austerity.target import CHUNK, Vector
from pymc_austerity.validation import require_whole

# For steps that read everything: what a test would see in batches of AusterityMH's default size.
_BATCH_SIZE = 500
# Moves that are decided without the data are proposed anew so many times.
_ATTEMPTS = 100


def probe(
    model: pm.Model,
    step: SubsampledStep,
    n_pairs: int = 10,
    *,
    idata: Any = None,
    point: PointType | None = None,
    tune: int = 1000,
    draws: int = 1000,
    batch_size: int | None = None,
    n_batches: int = 500,
    random_seed: Any = None,
) -> DataTree:
    """Evaluate all local terms at a few moves, to see what the decisions of a step are made from.

    Parameters
    ----------
    model : pymc.Model
    step : AusterityMH, MHSubLhd, MinibatchBarker or MetropolisHastings
        A step of this model. A copy is used; the step itself, its random numbers included, stays as it is.
    n_pairs : int >= 1, default 10
        Moves (pairs of states) to look at. 10 show `diagnostics.normality` what most moves are like; those
        that are seldom proposed, and `design.optimal_design`, need some 100.
    idata : DataTree, optional
        Result of `pymc.sample` for this model, from whose draws the states are taken. Needed if the step does
        not move all variables. Default: the states are those of a chain of the step alone.
    point : dict, optional
        Where the chain of the step starts, as ``model.initial_point()`` gives it. Default: the initial point;
        with `idata`, the first of its states.
    tune : int >= 0, default 1000
        Draws in which the proposal of the step learns, if it does. With `idata` all other variables are held
        where they are in the first state.
    draws : int >= n_pairs, default 1000
        Draws of the chain, over which the states are spread. Not used with `idata`.
    batch_size : int >= 2, optional
        Terms in a batch. Default: that of the step's test; 500 (or half of the terms) for steps that have
        none.
    n_batches : int >= 3, default 500
        Batches that are drawn for each move.
    random_seed : int, sequence of int or numpy.random.Generator, optional

    Returns
    -------
    DataTree
        With the group ``log_ratios``, about l_i = l_i(q_new) - l_i(q) of the terms that are sampled from (of
        remainders, and without the rows that are always read, with a control variate). Dimension ``pair``,
        and:

        * ``mean``, ``sd`` (divisor N), ``skewness`` of all N of them; ``n_infinite``, how many are not finite
          and left out;
        * ``global``: the rest of the log acceptance ratio (priors, Hastings factor, polynomial, rows always
          read), and ``mu`` = mean + global / N;
        * ``top_share`` (pair, k): share of the sum of squares about the mean in the top k rows;
        * ``top_terms`` (pair, rank): the largest distances from the mean;
        * ``batch_means``, ``batch_t`` (pair, batch): means of random batches, drawn without replacement, and
          the same studentised, with the finite-population correction; NaN where all terms of a batch are
          equal.

        Attributes: ``n_local`` (N), ``n_exact`` (rows always read), ``batch_size``, ``epsilon`` (NaN without
        a t-test), ``boundary``, ``rule``, ``control_variate``, ``step``.

    Raises
    ------
    TypeError
        If `step` is none of those named above.
    ValueError
        If the step belongs to another model, moves only some of the variables and there is no `idata`, or a
        parameter is out of its range; if its equal rows are joined; if no move is proposed that the prior
        allows.

    Notes
    -----
    Moves that the prior alone rejects need no data and are proposed again, and so are those of a `Surrogate`
    that stay where they are.

    A move costs one pass over the data, with one vector of N numbers in memory, and `n_batches` batches. The
    trial run costs what the step costs.

    *Guarantee*: the figures of a move are exact, without sampling error, but for the batches. The states are
    those of the step's own chain: if that is wrong, they are where it has gone.

    *When it fails*: a few moves from a short chain say little of those elsewhere. A move to a far region,
    which is seldom proposed, may have other log ratios.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import AusterityMH, RandomWalk
    >>> from pymc_austerity.diagnostics import normality
    >>> from pymc_austerity.report.probe import probe
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu")
    ...     y = pm.Normal("y", mu, observed=np.random.default_rng(1).normal(0.1, 1.0, 5000))
    ...     step = AusterityMH([mu], epsilon=0.05, proposal=RandomWalk(0.03))
    >>> tree = probe(model, step, n_pairs=5, random_seed=1)
    >>> normality(tree).verdict
    'normal enough'
    """
    _check(model, step, n_pairs, tune, draws, idata)
    for_chain, for_moves, for_batches = np.random.default_rng(random_seed).spawn(3)
    copy = deepcopy(step)
    copy.setup_chain(for_chain, tune=tune, draws=draws)
    states = [] if idata is None else states_of_result(model, idata, n_pairs)
    if point is None:
        point = states[0] if states else initial_point(model)
    point = {name: np.array(value) for name, value in point.items()}
    moves = SingleMoves(copy, point)
    if batch_size is None:
        own = getattr(copy.recipe.rule, "batch_size", None)
        batch_size = min(_BATCH_SIZE, moves.n_others // 2)
        if own is not None and 2 <= own < moves.n_others:
            batch_size = int(own)
    check_batches(batch_size, n_batches, moves.n_others)
    if moves.adapts or idata is None:
        for _ in range(tune):
            point, _ = copy.step(point)
    copy.stop_tuning()
    if idata is None:
        kept = set(spread(n_pairs, draws).tolist())
        for k in range(draws):
            point, _ = copy.step(point)
            if k in kept:
                states.append({name: np.array(value) for name, value in point.items()})
    rows, base = [], []
    for state in states:
        move = moves.from_state(state, for_moves)
        if move is None:
            raise ValueError(
                "From a state of the chain the proposal finds only moves that the prior rejects without the "
                "data, or none at all: is it too large? Give the step a proposal= of another scale."
            )
        _, added, log_ratios = move
        rows.append(summarise(log_ratios, int(batch_size), n_batches, for_batches))
        base.append(added)
    rule = copy.configuration["rule"]
    rule = rule if isinstance(rule, dict) else {"name": rule}
    attrs = {
        "n_local": moves.n_others,
        "n_exact": copy.configuration["n_exact"],
        "batch_size": int(batch_size),
        "epsilon": float(rule.get("epsilon", np.nan)),
        "boundary": float(rule.get("boundary", 0.5)),
        "rule": rule["name"],
        "control_variate": "" if copy.control_variate is None else type(copy.control_variate).__name__,
        "step": f"{type(step).__name__}({', '.join(copy.configuration['vars'])})",
    }
    return group_of(rows, base, attrs)


class SingleMoves:
    """Moves as `step` would propose them, evaluated on all data."""

    def __init__(self, step: SubsampledStep, point: PointType) -> None:
        step.require_built(point)
        engine = step.engine
        assert isinstance(engine, RuleEngine)
        if any(term.first is not None for term in step.factorisation.locals):
            raise ValueError(
                "Equal rows of the step are joined, and tests on subsamples do not: give it compress=False."
            )
        self._step, self._compiled, self._proposal = step, engine.target, engine.proposal
        self._target = self._compiled.interpreted()
        self._exact_rows = engine.exact_rows
        self._others = np.delete(np.arange(engine.n_local), self._exact_rows)
        self.n_others = engine.n_others
        # Whether the proposal learns while tuning.
        self.adapts = step.options.tune and engine.proposal.adapt is not no_adaptation

    def from_state(self, point: PointType, rng: np.random.Generator) -> tuple[Vector, float, Vector] | None:
        """Propose a move from the state in `point`; None if no move that needs the data is proposed.

        q_new (D,); the change of the global terms, the proposal's own log ratio and the log ratios of the
        rows that are always read, summed; and those of the rows that are sampled from (N',), of remainders if
        there is a control variate.
        """
        args, q = self._compiled.args(point), vector_of(self._step.factorisation, point)
        proposal = self._proposal.kernel(self._step.proposal_state)
        with np.errstate(all="ignore"):
            for _ in range(_ATTEMPTS):
                q_new, base = proposal.move(proposal, q, rng, args, self._target)
                if math.isfinite(base):
                    if len(self._exact_rows):
                        base += float(np.sum(self._target.log_ratios(q_new, q, self._exact_rows, args)))
                    chunks = [self._others[a : a + CHUNK] for a in range(0, self.n_others, CHUNK)]
                    parts = [self._target.log_ratios(q_new, q, chunk, args) for chunk in chunks]
                    return q_new, base, np.concatenate(parts)
        return None


def _check(model: pm.Model, step: Any, n_pairs: Any, tune: Any, draws: Any, idata: Any) -> None:
    """Raise an error naming what cannot be probed, and why."""
    name = type(step).__name__
    if isinstance(step, TunaMH):
        raise TypeError(
            "TunaMH draws rows in proportion to their bounds and decides exactly: no test relies on the "
            "distribution of a batch mean, so there is nothing to probe. Its sample statistic "
            "bound_violations checks the bounds."
        )
    if not isinstance(step, SubsampledStep):
        raise TypeError(
            f"probe looks at accept-or-reject decisions, and {name} makes none from subsamples of log "
            "ratios. Give it one step of AusterityMH, MHSubLhd, MinibatchBarker or MetropolisHastings."
        )
    how = "moves one element at a time, each on" if step.options.elementwise else ""
    if step.field is not None:
        how = f"sweeps over {step.field.prediction.n_effects:,} effects, each decided on"
    if how:
        raise TypeError(
            f"This {name} {how} rows of its own, and probe looks at moves that all rows decide. Compare "
            "draws with those of the exact step: compare(model, steps)."
        )
    if step.model is not model:
        raise ValueError(f"The {name} was made for another model: give probe the model of the step.")
    require_whole(0, tune=tune)
    require_whole(1, n_pairs=n_pairs, draws=draws)
    if idata is None and draws < n_pairs:
        raise ValueError(f"draws must be at least n_pairs={n_pairs}, got {draws}.")
    moved = {v.name for v in step.vars}
    others = [model.values_to_rvs[v].name for v in model.value_vars if v.name not in moved]
    if idata is None and others:
        raise ValueError(
            f"The {name} does not move {', '.join(map(str, others))}. Give probe a short run of all steps, "
            "from which it takes the states: probe(model, step, idata=pm.sample(step=[step, ...]))."
        )


def states_of_result(model: pm.Model, idata: Any, n: int) -> list[PointType]:
    """States that are spread over the draws of a result, as values of the value variables."""
    posterior = posterior_of(idata, [rv.name for rv in model.free_RVs])
    total = posterior.sizes["chain"] * posterior.sizes["draw"]
    if n > total:
        raise ValueError(f"n_pairs must be at most the {total} draws of idata, got {n}.")
    graphs = transformed(model, model.free_RVs)
    to_values = pytensor.function(model.free_RVs, graphs, on_unused_input="ignore")
    draws = [np.concatenate(posterior[rv.name].transpose(*SAMPLE, ...).values) for rv in model.free_RVs]
    states = []
    for k in spread(n, total):
        values = to_values(*(x[k].astype(rv.type.dtype) for x, rv in zip(draws, model.free_RVs, strict=True)))
        pairs = zip(model.value_vars, values, strict=True)
        states.append({value.name: np.asarray(x, value.type.dtype) for value, x in pairs})
    return states


def spread(n: int, total: int) -> np.ndarray:
    """Positions of n draws of `total`, evenly spread, the last one included."""
    return (np.arange(1, n + 1) * total) // n - 1


@dataclass(frozen=True, eq=False)
class Probed:
    """Result of a probe of a step."""

    verdict: str  # that of `diagnostics.normality`, or "not needed", "not probed"
    reason: str
    log_ratios: DataTree | None = field(default=None, repr=False)  # as `probe` returns it


def probed(model: pm.Model, blocks: Sequence[BlockedStep], run: Run, n_pairs: int, seed: int) -> Probed:
    """Probe the first step that decides on uniform subsamples."""
    if run.idata is None:
        return Probed("not probed", "The step failed.")
    subsampled = [b for b in blocks if isinstance(b, SubsampledStep)]
    deciding = [b for b in subsampled if not isinstance(b, TunaMH) and not b.engine.reads_all]
    if not deciding:
        return Probed("not needed", "Its decisions do not rely on normal batch means.")
    if not n_pairs:
        return Probed("not probed", "n_pairs is 0.")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tree = probe(model, deciding[0], n_pairs, idata=run.idata, random_seed=seed)
            found = normality(tree)
    except Exception as error:  # the step may be the user's own: its failure is told, and ends nothing
        return Probed("not probed", f"{type(error).__name__}: {error}")
    said = " ".join(str(w.message) for w in caught)
    return Probed(found.verdict, f"{found.reason} {said}".strip(), tree)
