"""A latent chain of a model, as the functions that a particle filter calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors

from pymc_austerity.model.chains.found import FoundChain
from pymc_austerity.model.chains.moves import FirstMoves, LinearTable, first_moves, linear_table
from pymc_austerity.model.chains.proposal import ChainParts
from pymc_austerity.model.chains.site_terms import SiteGraphs, SiteTerm, data_leaf
from pymc_austerity.model.compile.backend import current_backend
from pymc_austerity.model.compile.native import interruptible
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.leaves import Leaf, extract_given


class ChainModel(CompiledTarget):
    """All terms that contain the states of a chain, as functions of the states of a few sites.

    Parameters
    ----------
    found : FoundChain
    parts : ChainParts

    Attributes
    ----------
    found : FoundChain
    weighted : ndarray of bool, shape (n_sites,)
        Where there are weights besides those of transitions.
    is_linear : bool
        Whether the mean of each state is a linear function of the one before, and its variance the same for
        all. All transitions are then known before the particles are.

    Notes
    -----
    The functions of the target are those that `kernels.particle_gibbs` calls.
    """

    def __init__(self, found: FoundChain, parts: ChainParts) -> None:
        self.backend = current_backend()
        self.found = found
        self.values = found.graph.values
        self._orders = []
        self.weighted = parts.weighted(found.layout.n_sites)
        self._q, self._index = pt.vector("states"), pt.vector("index", dtype="int64")
        tables: list[Leaf] = []
        weights = SiteGraphs(self._index, self.weighted, self._columns() * 2)
        graphs = [weights.total(parts.weights)]
        tables += weights.tables
        graphs.append(self._first_graph(parts.normal, tables))
        self.is_linear = self._is_linear(parts.normal)
        make = self._linear_graph if self.is_linear else self._moves_graph
        graphs.append(make(parts.normal, tables))
        moving = [self._q, self._index]
        # Simplified first, more of it turns out to be the same at all states.
        graphs = rewrite_graph(graphs, include=("canonicalize", "stabilize", "specialize"), clone=True)
        names = ["log_terms"] if self.is_linear else ["log_terms", "transitions"]
        called, whole = ([graphs[0]], graphs[1:]) if self.is_linear else ([graphs[0], graphs[2]], graphs[1:2])
        self.given, called = extract_given(called, moving, 0)
        self._set_arguments([*called, *whole], tables)
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

    def _first_graph(self, terms: list[SiteTerm], tables: list[Leaf]) -> Variable:
        """Gradients and Hessians of the log density of first states, at zero."""
        layout = self.found.layout
        among, sites = layout.is_first(), data_leaf(layout.starts[:-1], tables)
        zeros = [pt.zeros_like(sites, dtype="float64")] * (2 * layout.n_components)
        graphs = SiteGraphs(sites, among, zeros)
        _, gradient, hessian = graphs.expansion(_only(terms, among), layout.n_components)
        tables += graphs.tables
        return pt.concatenate([*gradient, *hessian])

    def _is_linear(self, terms: list[SiteTerm]) -> bool:
        """Is the log density of a state and the one before quadratic in both together?"""
        n, among = 2 * self.found.layout.n_components, ~self.found.layout.is_first()
        states = [pt.vector(f"state{k}") for k in range(n)]
        return all(SiteGraphs(self._index, among, states).is_quadratic(t, n) for t in _only(terms, among))

    def _linear_graph(self, terms: list[SiteTerm], tables: list[Leaf]) -> Variable:
        """Gradients and Hessians of the log density of a state and the one before together, at zero."""
        n, among = 2 * self.found.layout.n_components, ~self.found.layout.is_first()
        sites = data_leaf(np.flatnonzero(among), tables)
        graphs = SiteGraphs(sites, among, [pt.zeros_like(sites, dtype="float64")] * n)
        _, gradient, hessian = graphs.expansion(_only(terms, among), n)
        tables += graphs.tables
        return pt.concatenate([*gradient, *hessian])

    def _moves_graph(self, terms: list[SiteTerm], tables: list[Leaf]) -> Variable:
        """Log density, gradient and negative Hessian of the next state, where it is equal to this one."""
        n, among = self.found.layout.n_components, ~self.found.layout.is_first()
        graphs = SiteGraphs(self._index, among, self._columns() * 2)
        start, gradient, hessian = graphs.expansion(_only(terms, among), n)
        tables += graphs.tables
        return pt.concatenate([start, *gradient, *(-second for second in hessian)])

    def _set_arguments(self, graphs: Sequence[Variable], tables: list[Leaf]) -> None:
        """Decide which variables and data the functions take."""
        used = set(ancestors([*graphs, *(given.source for given in self.given)]))
        self.other_names = [n for n, v in self.values.items() if v in used]
        types = [self.values[n].type for n in self.other_names]
        self._others = [(n, t.dtype, t.shape) for n, t in zip(self.other_names, types, strict=True)]
        found = self.found
        data = [
            *((leaf.placeholder, value) for leaf, value in zip(found.leaves, found.leaf_values, strict=True)),
            *((leaf.placeholder, leaf.source.data) for leaf in tables),
        ]
        kept = [(leaf, value) for leaf, value in data if leaf in used]
        self.leaf_values = tuple(np.asarray(value, order="C") for _, value in kept)
        self._args = [*(self.values[n] for n in self.other_names), *(leaf for leaf, _ in kept)]

    @property
    def function_names(self) -> list[str]:
        """Functions of the target that are called."""
        return list(self._outputs)

    def moves(self, args: tuple[np.ndarray, ...]) -> tuple[FirstMoves, LinearTable, bool]:
        """Distributions of first states; transitions, if they are linear, and whether these have weights.

        Raises
        ------
        FactorisationError
            If a state has no normal distribution.
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
