"""A latent chain of a model, as the functions that a particle filter calls."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.utils import rewrite_graph

from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.chains.found import FoundChain
from pymc_austerity.model.chains.proposal import (
    ChainParts,
    FirstMoves,
    LinearTable,
    as_tables,
    first_moves,
    linear_table,
)
from pymc_austerity.model.chains.site_terms import SiteGraphs, SiteTerm, data_leaf
from pymc_austerity.model.compile.backend import current_backend
from pymc_austerity.model.compile.native import interruptible
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.leaves import Leaf, extract_given
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.self_check import jittered

_SEED = 24


class ChainModel(CompiledTarget):
    """All terms that contain the states of a chain, as functions of the states of a few sites.

    The functions of the target are those that `kernels.particle_gibbs` calls.
    """

    def __init__(self, found: FoundChain, parts: ChainParts) -> None:
        self.backend = current_backend()
        self.found = found
        self.values = found.graph.values
        self._orders = []
        # Sites where there are weights besides those of transitions.
        self.weighted = parts.weighted(found.layout.n_sites)
        self._q, self._index = pt.vector("states"), pt.vector("index", dtype="int64")
        tables: list[Leaf] = []
        weights = SiteGraphs(self._index, self.weighted, self._columns() * 2)
        graphs = [weights.total(parts.weights)]
        tables += weights.tables
        n, first = found.layout.n_components, found.layout.is_first()
        graphs.append(self._at_zero(_only(parts.normal, first), first, n, tables))
        later, transitions = ~first, _only(parts.normal, ~first)
        # Whether the mean of each state is a linear function of the one before, and its variance the same for
        # all. All transitions are then known before the particles are.
        self.is_linear = self._is_linear(transitions, later)
        if self.is_linear:
            graphs.append(self._at_zero(transitions, later, 2 * n, tables))
        else:
            graphs.append(self._moves_graph(transitions, later, tables))
        moving = [self._q, self._index]
        # Simplified first, more of it turns out to be the same at all states.
        graphs = rewrite_graph(graphs, include=("canonicalize", "stabilize", "specialize"), clone=True)
        names = ["log_terms"] if self.is_linear else ["log_terms", "transitions"]
        called, whole = ([graphs[0]], graphs[1:]) if self.is_linear else ([graphs[0], graphs[2]], graphs[1:2])
        self.given, called = extract_given(called, moving, 0)
        data = dict(zip((leaf.placeholder for leaf in found.leaves), found.leaf_values, strict=True))
        data |= {leaf.placeholder: leaf.source.data for leaf in tables}
        self._set_arguments([*called, *whole], data)
        self._outputs = dict(zip(names, called, strict=True))
        arguments = [*moving, *self._args, *(given.placeholder for given in self.given)]
        self._inputs = {name: arguments for name in names}
        self._functions = {}
        # Arguments that are given are for what is called, and not among these.
        self._moves = interruptible(self.backend.entry(self.backend.function(self._args, whole)))

    def _columns(self) -> list[Variable]:
        """The components of the states of a function's argument."""
        n, m = self.found.layout.n_components, self._index.shape[0]
        return [self._q[a * m : (a + 1) * m] for a in range(n)] if n > 1 else [self._q]

    def _at_zero(self, terms: list[SiteTerm], among: np.ndarray, n: int, tables: list[Leaf]) -> Variable:
        """Gradients and Hessians at zero, in the first n numbers of a state and the one before."""
        sites = data_leaf(np.flatnonzero(among), tables)
        zeros = [pt.zeros_like(sites, dtype="float64")] * (2 * self.found.layout.n_components)
        graphs = SiteGraphs(sites, among, zeros)
        _, gradient, hessian = graphs.expansion(terms, n)
        tables += graphs.tables
        return pt.concatenate([*gradient, *hessian])

    def _is_linear(self, terms: list[SiteTerm], among: np.ndarray) -> bool:
        """Is the log density of a state and the one before quadratic in both together?"""
        n = 2 * self.found.layout.n_components
        states = [pt.vector(f"state{k}") for k in range(n)]
        return all(SiteGraphs(self._index, among, states).is_quadratic(term, n) for term in terms)

    def _moves_graph(self, terms: list[SiteTerm], among: np.ndarray, tables: list[Leaf]) -> Variable:
        """Log density, gradient and negative Hessian of the next state, where it is equal to this one."""
        graphs = SiteGraphs(self._index, among, self._columns() * 2)
        start, gradient, hessian = graphs.expansion(terms, self.found.layout.n_components)
        tables += graphs.tables
        return pt.concatenate([start, *gradient, *(-second for second in hessian)])

    @property
    def function_names(self) -> list[str]:
        """Functions of the target that are called."""
        return list(self._outputs)

    def moves(self, args: tuple[np.ndarray, ...]) -> tuple[FirstMoves, LinearTable, bool]:
        """Distributions of first states; transitions, if they are linear, and whether these have weights.

        `FactorisationError` is raised if a state has no normal distribution.
        """
        values = self._moves(*args[: len(self._args)])
        first = first_moves(self.found, np.asarray(values[0]))
        if self.is_linear:
            return first, *linear_table(self.found, np.asarray(values[1]))
        n = self.found.layout.n_components
        vectors, matrices = np.empty((0, n)), np.empty((0, n, n))
        return first, LinearTable(vectors, matrices, matrices, vectors, matrices), True

    def interpreted_functions(self) -> dict[str, Any]:
        """The functions of the target, of states, sites and arguments; nothing is compiled."""
        return {name: function_of(self._inputs[name], [out]) for name, out in self._outputs.items()}


def _only(terms: list[SiteTerm], among: np.ndarray) -> list[SiteTerm]:
    """The parts of terms that belong to some sites."""
    return [part for term in terms if (part := term.only(among)) is not None]


# Compared with the model, once ------------------------------------------------------------------------------


def _log_density_of_path(chain: ChainModel, point: Mapping[str, np.ndarray], states: np.ndarray) -> float:
    """Log density of all states (n_sites, D), up to one number, as the sum of what a particle filter calls.

    `point` has the values of the other variables. `FactorisationError` is raised if a state has no normal
    distribution.
    """
    layout = chain.found.layout
    args = chain.args(point)
    first, linear, _ = chain.moves(args)
    weighted, later = np.flatnonzero(chain.weighted), np.flatnonzero(~layout.is_first())
    total = _log_normal(states[layout.starts[:-1]], first.mean, first.root).sum()
    target = chain.interpreted_functions()
    with np.errstate(all="ignore"):
        if len(weighted):
            total += target["log_terms"](states[weighted].T.ravel(), weighted, *args)[0].sum()
        before = states[later - 1]
        if chain.is_linear:
            mean = linear.mean[later] + np.einsum("mab,mb->ma", linear.slope[later], before)
            curved = np.einsum("mab,mb->ma", linear.curvature[later], before)
            total += ((linear.weight[later] + curved) * before).sum()
            return float(total + _log_normal(states[later], mean, linear.root[later]).sum())
        found = target["transitions"](before.T.ravel(), later, *args)[0]
    m = len(later)
    gradient, precision = as_tables(found[m:], m, layout.n_components)
    root = np.linalg.cholesky(precision)
    shift = np.linalg.solve(precision, gradient[..., None])[..., 0]
    gain = found[:m] + 0.5 * (gradient * shift).sum(axis=1) - _log_det(root)
    gain += 0.5 * layout.n_components * math.log(2.0 * math.pi)
    return float(total + gain.sum() + _log_normal(states[later], before + shift, root).sum())


def _log_normal(states: np.ndarray, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
    z, n = np.einsum("mba,mb->ma", root, states - mean), states.shape[1]
    return _log_det(root) - 0.5 * (z**2).sum(axis=1) - 0.5 * n * math.log(2.0 * math.pi)


def _log_det(root: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1))


def check_chain(chain: ChainModel, model: pm.Model) -> None:
    """Exchange a path for another: the log density must change as the model says.

    The model's own terms need all states, and know nothing of what was done here. `SelfCheckError` is raised
    if it does not, `FactorisationError` if a state has no normal distribution.
    """
    graph, layout, name = chain.found.graph, chain.found.layout, str(chain.found.states.name)
    point = dict(zip(graph.values, jittered(graph), strict=True))
    full = function_of(model.value_vars, [t.sum() for t in graph.raw.values()], mode=INTERPRETED)
    rng = np.random.default_rng(_SEED)
    ours, theirs = [], []
    for _ in range(2):
        states = point[name].ravel()[layout.elements] + rng.normal(size=layout.elements.shape)
        ours.append(_log_density_of_path(chain, point, states))
        h = np.empty(layout.elements.size)
        h[layout.elements] = states
        at = {**point, name: h.reshape(layout.shape)}
        with np.errstate(all="ignore"):
            theirs.append(float(np.sum(full(*(at[v.name] for v in model.value_vars)))))
    change, expected = ours[0] - ours[1], theirs[0] - theirs[1]
    # Differences of sums of many terms have the rounding errors of these sums.
    error = 1e-8 * (1.0 + max(map(abs, theirs)))
    if np.isfinite(change) and np.isfinite(expected) and abs(change - expected) > error:
        raise SelfCheckError(
            f"Self-check failed for the states {chain.found.name!r}: another path changes the log density "
            f"by {expected!r}, and the terms of its states by {change!r} (terms {', '.join(graph.raw)}). "
            "This is a defect of pymc_austerity: please report the model."
        )
