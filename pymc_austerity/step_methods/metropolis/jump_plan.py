"""The plan of a step that moves between the sub-models of a variable selection."""

import gc

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.acceptance.base import with_batch_size
from pymc_austerity.kernels.jumps import counted_full_transitions, counted_transitions, selected_range
from pymc_austerity.kernels.subsample import NO_ROWS
from pymc_austerity.mode.fit import fit_mode
from pymc_austerity.mode.mode_fit import ModeFit
from pymc_austerity.model.factorisation import vector_of
from pymc_austerity.model.graph.log_density import fingerprint
from pymc_austerity.model.plates.effects_prior import evaluate
from pymc_austerity.model.selection.selection import Selection, find_selection
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.proposals.base import Block, BoundProposal, bind, proposed_move
from pymc_austerity.proposals.jumps import Jumps, JumpState, SubmodelExpansion, bound_jumps, slab_precision
from pymc_austerity.step_methods.messages import refuse_short, try_proposal
from pymc_austerity.step_methods.metropolis.engine.base import Bound, RangeBound
from pymc_austerity.step_methods.metropolis.engine.sequential import RuleEngine, range_bound_for
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import (
    BlockPlan,
    Recipe,
    certificates_for,
    require_same_data,
)

# Smallest eigenvalue of the precision of the likelihood, scaled to a unit diagonal.
_FLAT = 1e-10


def of_coefficients(range_bound: RangeBound, n_coefficients: int) -> RangeBound:
    """A bound by certificates of the full model, for states with indicators."""
    return RangeBound(selected_range, lambda point: (range_bound.at(point), n_coefficients))


def plan_jumps(
    options: MetropolisOptions, point: PointType, jumps: Jumps, recipe: Recipe | None = None
) -> BlockPlan[Recipe]:
    """Find indicators and coefficients, and the mode of the full model, if no recipe has it."""
    selection = find_selection(
        options.model,
        options.vars,
        point,
        threshold=options.threshold,
        temperature=options.temperature,
        check=recipe is None,
    )
    fact, n_local = selection.factorisation, selection.factorisation.n_local
    require_same_data(recipe, fact.graph)
    structure = TermStructure(selection.full)
    if recipe is not None:
        state, fit = recipe.proposal_state, recipe.mode_fit
        assert isinstance(state, JumpState)
        assert fit is not None
        expansion = SubmodelExpansion(int(state.numbers[0]), state.center, state.linear, state.precision)
        bound = _bound(options, jumps, n_local, expansion, fit)
        return _block_plan(options, selection, structure, bound, recipe)
    if not n_local:
        refuse_short(fact, options.threshold, options.model)
    if selection.n_coefficients == 1 and jumps.swap > 0.0:
        raise ValueError(
            f"swap={jumps.swap!r} has no meaning with one coefficient, which nothing can be swapped for. "
            "Give swap=0."
        )
    gc.collect()  # graphs that were compared are cycles, and hold vectors of all rows
    at_full = selection.full_point(point)
    mode_fit = fit_mode(options.model, structure, at_full, None, whole_block=True).mode_fit
    bound = _bound(options, jumps, n_local, _expansion(selection, mode_fit, at_full), mode_fit)
    recipe = Recipe(
        data=fingerprint(fact.graph),
        n_local=n_local,
        n_dim=len(vector_of(fact, point)),
        rule=with_batch_size(options.acceptance, n_local, options.default_batch),
        proposal=jumps,
        proposal_state=bound.state,
        mode_fit=mode_fit,
        certificates=certificates_for(options, structure, at_full, None),
    )
    return _block_plan(options, selection, structure, bound, recipe)


def _block_plan(
    options: MetropolisOptions,
    selection: Selection,
    structure: TermStructure,
    bound: BoundProposal,
    recipe: Recipe,
) -> BlockPlan[Recipe]:
    """The plan of transitions that are counted by their kind; `structure` is that of the full model."""
    fact, rule, certificates = selection.factorisation, recipe.rule, recipe.certificates

    def engine(bound: Bound, q: np.ndarray, point: PointType) -> RuleEngine:
        range_bound = range_bound_for(rule, options.range_bound, certificates, structure, q)
        if certificates is not None:
            range_bound = of_coefficients(range_bound, selection.n_coefficients)
        kernels = counted_full_transitions, counted_transitions
        return RuleEngine(bound, q, point, fact, rule, range_bound, NO_ROWS, options.subsample, kernels)

    return BlockPlan(options, fact, recipe, bound, engine)


def _expansion(selection: Selection, mode_fit: ModeFit, point: PointType) -> SubmodelExpansion:
    """The log likelihood, with the priors of all but the coefficients, as a polynomial at the mode.

    At the mode the gradient of the whole log density is zero: what remains without the slab is minus its own.
    """
    full, family, p = selection.full, selection.family, selection.n_coefficients
    mode, precision = mode_fit.proxy.mode, mode_fit.proxy.precision
    names = list(full.graph.values)
    values = [np.asarray(point[name], dtype=full.graph.values[name].dtype) for name in names]
    start = 0
    for name in full.var_names:
        size = int(np.prod(full.graph.values[name].type.shape))
        values[names.index(name)] = mode[start : start + size].reshape(full.graph.values[name].type.shape)
        start += size
    parameters = evaluate(full, selection.factorisation.slab, values)
    own = np.zeros(len(mode))
    own[:p] = [slab_precision(family, parameters, j) for j in range(p)]
    linear = precision @ mode - own * np.concatenate([parameters[:p], np.zeros(len(mode) - p)])
    return SubmodelExpansion(
        family, np.concatenate([np.ones(p), mode]), linear, _positive(precision - np.diag(own))
    )


def _positive(precision: np.ndarray) -> np.ndarray:
    """The nearest matrix without negative eigenvalues: then all its sub-matrices with slabs are positive."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(precision)), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(precision / np.outer(scale, scale))
    if values[0] >= _FLAT:
        return precision
    raised = (vectors * np.maximum(values, _FLAT)) @ vectors.T
    return np.asarray(raised * np.outer(scale, scale))


def _bound(
    options: MetropolisOptions,
    jumps: Jumps,
    n_local: int,
    expansion: SubmodelExpansion,
    mode_fit: ModeFit,
) -> BoundProposal:
    """The jumps, with the given proposal of the other moves, if there is one."""
    if jumps.other is None:
        return bound_jumps(jumps, expansion)
    n_dim = len(expansion.linear)
    rate = options.acceptance.target_accept(n_dim)
    block = Block(n_dim, n_local)
    given = bind(jumps.other, n_dim, rate, mode_fit.proxy, block)
    if given.move is not proposed_move:
        raise ValueError(
            f"proposal={jumps.other!r} needs the target of a block of continuous variables. Between jumps "
            "move by RandomWalk, AdaptiveRandomWalk, Laplace or a function, or leave proposal out."
        )
    try_proposal(given, expansion.center[-n_dim:])
    return bound_jumps(jumps, expansion, given)
