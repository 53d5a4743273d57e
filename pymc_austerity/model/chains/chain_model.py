"""A latent chain of a model, as the functions that a particle filter calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors

from pymc_austerity.model.chains.found import FoundChain
from pymc_austerity.model.chains.moves import FirstMoves, LinearTable, first_moves, linear_table
from pymc_austerity.model.chains.normal import derivatives, is_quadratic
from pymc_austerity.model.chains.proposal import ChainParts
from pymc_austerity.model.chains.site_terms import SiteGraphs, SiteTerm
from pymc_austerity.model.compile.backend import current_backend
from pymc_austerity.model.compile.native import interruptible
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.graph.leaves import Leaf, extract_given
from pymc_austerity.model.graph.rewrite import INTERPRETED, rebuild

Columns = list[Variable]


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
    needed : list of str
        Functions of the target that are called.

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
        weights = _weights(parts.weights, self.weighted, self._index, self._columns(), tables)
        first = self._first_graph(parts.normal, tables)
        linear = self._linear_graph(parts.normal, tables)
        self.is_linear = linear is not None
        later = self._moves_graph(parts.normal, tables) if linear is None else linear
        moving = [self._q, self._index]
        # Simplified first, more of it turns out to be the same at all states.
        graphs = rewrite_graph(
            [weights, first, later], include=("canonicalize", "stabilize", "specialize"), clone=True
        )
        self.given, graphs = extract_given(graphs, moving, 0)
        self._set_arguments(graphs, tables)
        self._outputs = {"log_terms": graphs[0]} | ({} if self.is_linear else {"transitions": graphs[2]})
        self._tables = graphs[1:] if self.is_linear else graphs[1:2]
        arguments = [*self._args, *(given.placeholder for given in self.given)]
        self._inputs = {name: [*moving, *arguments] for name in ("log_terms", "transitions")}
        self._functions = {}
        self._table_function = interruptible(
            self.backend.entry(self.backend.function(arguments, self._tables))
        )
        self.needed = list(self._outputs)

    def _columns(self) -> Columns:
        """The components of the states of a function's argument."""
        n, m = self.found.layout.n_components, self._index.shape[0]
        return [self._q[a * m : (a + 1) * m] for a in range(n)] if n > 1 else [self._q]

    def _first_graph(self, terms: list[SiteTerm], tables: list[Leaf]) -> Variable:
        """Gradients and Hessians of the log density of first states, at zero."""
        layout = self.found.layout
        sites = pt.constant(layout.starts[:-1])
        zeros = [pt.zeros(len(layout.starts) - 1)] * layout.n_components
        present = _unknowns("present", layout.n_components)
        rows = _weights(_only(terms, layout.is_first()), layout.is_first(), sites, present, tables)
        return _at(_derivatives(rows, present), present, zeros)

    def _linear_graph(self, terms: list[SiteTerm], tables: list[Leaf]) -> Variable | None:
        """The same of all other states together with those before; None unless that density is quadratic."""
        layout = self.found.layout
        among = ~layout.is_first()
        sites = np.flatnonzero(among)
        present, before = (_unknowns(name, layout.n_components) for name in ("present", "before"))
        own: list[Leaf] = []
        rows = _weights(_only(terms, among), among, pt.constant(sites), present, own, before)
        if not is_quadratic(rows, [*present, *before]):
            return None
        tables += own
        zeros = [pt.zeros(len(sites))] * (2 * layout.n_components)
        return _at(_derivatives(rows, [*present, *before]), [*present, *before], zeros)

    def _moves_graph(self, terms: list[SiteTerm], tables: list[Leaf]) -> Variable:
        """Log density, gradient and negative Hessian of the next state, where it is equal to the one before."""
        among = ~self.found.layout.is_first()
        before = self._columns()
        present = _unknowns("present", len(before))
        rows = _weights(_only(terms, among), among, self._index, present, tables, before)
        gradient, hessian = _derivatives(rows, present)
        return _at(([rows, *gradient], [-second for second in hessian]), present, before)

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

    def moves(self, args: tuple[np.ndarray, ...]) -> tuple[FirstMoves, LinearTable, bool]:
        """Distributions of first states; transitions, if they are linear, and whether these have weights.

        Raises
        ------
        FactorisationError
            If a state has no normal distribution.
        """
        values = self._table_function(*args)
        first = first_moves(self.found, np.asarray(values[0]))
        if self.is_linear:
            return first, *linear_table(self.found, np.asarray(values[1]))
        n = self.found.layout.n_components
        vectors, matrices = np.empty((0, n)), np.empty((0, n, n))
        return first, LinearTable(vectors, matrices, matrices, vectors, matrices), True

    def interpreted_functions(self) -> dict[str, Any]:
        """The functions of the target, of states, sites and arguments; nothing is compiled."""
        return {
            name: pytensor.function(self._inputs[name], [out], mode=INTERPRETED, on_unused_input="ignore")
            for name, out in self._outputs.items()
        }


def _unknowns(name: str, n: int) -> Columns:
    return [pt.vector(f"{name}{k}") for k in range(n)]


def _only(terms: list[SiteTerm], among: np.ndarray) -> list[SiteTerm]:
    """The parts of terms that belong to some sites."""
    return [part for term in terms if (part := term.only(among)) is not None]


def _weights(
    terms: list[SiteTerm],
    among: np.ndarray,
    sites: Variable,
    present: Columns,
    tables: list[Leaf],
    before: Columns | None = None,
) -> Variable:
    """Sum of terms at some sites; data that are needed for it are added to `tables`."""
    graphs = SiteGraphs(sites, present, present if before is None else before)
    rows = [graphs.log_density(term, among) for term in terms]
    tables += graphs.tables
    return pt.add(*rows) if len(rows) > 1 else rows[0] if rows else graphs.zeros()


def _derivatives(rows: Variable, columns: Columns) -> tuple[Columns, Columns]:
    """Gradient and Hessian, entry by entry."""
    found = derivatives(rows, columns)
    assert found is not None  # they were taken before, of each term
    return found[0], [second for line in found[1] for second in line]


def _at(entries: tuple[Columns, Columns], columns: Columns, values: Columns) -> Variable:
    """Entries as one vector, at some states."""
    (result,) = rebuild([pt.concatenate([*entries[0], *entries[1]])], dict(zip(columns, values, strict=True)))
    return result
