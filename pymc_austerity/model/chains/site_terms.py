"""Terms of the log density as functions of the states of two neighbouring sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.type import TensorType

from pymc_austerity.model.chains.derivatives import derivatives
from pymc_austerity.model.chains.layout import ChainLayout
from pymc_austerity.model.chains.reads import ReadingTerm, replaced
from pymc_austerity.model.graph.leaves import Leaf
from pymc_austerity.model.graph.rewrite import depends_on, rebuild
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.target import Index


@dataclass(frozen=True, eq=False)
class SiteTerm:
    """The rows of a term by the site that they belong to: the later of those that they read.

    Attributes
    ----------
    reading : ReadingTerm
    rows : ndarray of int, shape (n_sites, K)
        The rows of each site; -1 where a site has fewer than K.
    roles : ndarray of int, shape (n_rows, k)
        For each element that a row reads, its column among the D components of the site's state, and the D
        of the state before.
    links : bool
        Whether a row reads the state before.
    n_components : int
        D.
    """

    reading: ReadingTerm
    rows: Index
    roles: Index
    links: bool
    n_components: int

    @property
    def name(self) -> str:
        """Name of the term in the model."""
        return self.reading.term.name

    def has_rows(self, sites: np.ndarray) -> np.ndarray:
        """Whether any row belongs to each of some sites."""
        result: np.ndarray = self.rows[sites].max(axis=1) >= 0
        return result

    def only(self, sites: np.ndarray) -> SiteTerm | None:
        """The part that belongs to some sites, given as a mask; None if there is none."""
        rows = np.where(sites[:, None], self.rows, -1)
        used = np.unique(rows[rows >= 0])
        if not len(used):
            return None
        links = bool((self.roles[used] >= self.n_components).any())
        return SiteTerm(self.reading, rows, self.roles, links, self.n_components)


def site_term(reading: ReadingTerm, elements: Index, layout: ChainLayout) -> SiteTerm:
    """Sort the rows of a term by sites.

    Parameters
    ----------
    reading : ReadingTerm
    elements : ndarray of int, shape (n_rows, k)
        What each row reads; -1 for what does not matter.
    layout : ChainLayout
    """
    site, component = layout.places()
    sites = np.where(elements < 0, -1, site[elements])
    own = sites.max(axis=1)
    is_before = sites < own[:, None]
    roles = component[np.maximum(elements, 0)] + layout.n_components * is_before
    links = bool((is_before & (elements >= 0)).any())
    roles = np.where(elements < 0, -1, roles)
    # What does not matter takes whatever the other rows take there.
    most = roles.max(axis=0)
    roles = np.where(roles < 0, np.maximum(most, 0), roles)
    return SiteTerm(reading, _by_site(own, layout.n_sites), roles, links, layout.n_components)


def _by_site(own: Index, n_sites: int) -> Index:
    """Numbers of the rows of each site, side by side; rows without any (-1) are left out."""
    rows = np.flatnonzero(own >= 0)
    order = rows[np.argsort(own[rows], kind="stable")]
    counts = np.bincount(own[rows], minlength=n_sites)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    table = np.full((n_sites, max(1, int(counts.max(initial=1)))), -1)
    table[own[order], np.arange(len(order)) - starts[own[order]]] = order
    return table


class SiteGraphs:
    """Sums of terms at some sites, and their derivatives in the states.

    Parameters
    ----------
    sites : TensorVariable
        Numbers of sites, an integer vector of any length m.
    among : ndarray of bool, shape (n_sites,)
        The sites that are asked for: only for these it matters whether rows are missing.
    states : sequence of TensorVariable
        For each component m numbers: the states there, and after all components those at the sites before.

    Attributes
    ----------
    tables : list of Leaf
        Data that the graphs read; `source` are constants.
    """

    def __init__(self, sites: Variable, among: np.ndarray, states: Sequence[Variable]) -> None:
        self._sites, self._among = sites, among
        self._states = list(states)
        self.tables: list[Leaf] = []

    def total(self, terms: Sequence[SiteTerm]) -> Variable:
        """Sum of the rows of terms at each site, (m,)."""
        return self._sum([self._entries(term, 0)[0] for term in terms])

    def expansion(self, terms: Sequence[SiteTerm], n: int) -> tuple[Variable, list[Variable], list[Variable]]:
        """Sums at each site with gradient and Hessian in the first n numbers of the states, by entry.

        Raises
        ------
        NotImplementedError, NullTypeGradError, MethodNotDefined
            If a term has no derivatives.
        """
        entries = [self._entries(term, n) for term in terms]
        sums = [self._sum([own[k] for own in entries]) for k in range(1 + n + n * n)]
        return sums[0], sums[1 : 1 + n], sums[1 + n :]

    def is_quadratic(self, term: SiteTerm, n: int) -> bool:
        """Is each row a quadratic function of the first n numbers, as the graph of its Hessian shows?"""
        rows, _, unknown = self._rows(term)
        try:
            _, hessian = derivatives(rows, unknown[:n])
        except NO_GRADIENT:
            return False
        simple = rewrite_graph(hessian, include=("canonicalize", "stabilize", "specialize"), clone=True)
        depends = depends_on(simple, unknown[:n])
        return not any(depends.get(second, False) for second in simple)

    def _sum(self, parts: list[Variable]) -> Variable:
        if len(parts) == 1:
            return parts[0]
        return pt.add(*parts) if parts else pt.zeros_like(self._sites, dtype="float64")

    def _entries(self, term: SiteTerm, n: int) -> list[Variable]:
        """A term at each site, and its derivatives in the first n numbers of the states."""
        rows, number, unknown = self._rows(term)
        entries = [rows]
        if n:
            gradient, hessian = derivatives(rows, unknown[:n])
            entries += [*gradient, *hessian]
        n_rows = term.rows.shape[1]
        columns = [pt.repeat(column, n_rows) for column in self._states] if n_rows > 1 else self._states
        entries = rebuild(entries, dict(zip(unknown, columns, strict=True)))
        if bool((term.rows[self._among] < 0).any()):
            there = pt.ge(number, 0)
            entries = [pt.switch(there, entry, 0.0) for entry in entries]
        return [e.reshape((-1, n_rows)).sum(axis=1) for e in entries] if n_rows > 1 else entries

    def _rows(self, term: SiteTerm) -> tuple[Variable, Variable, list[Variable]]:
        """The rows of a term at the sites, one after the other; their numbers; the states that they take."""
        number = self._row_numbers(term.rows)
        index = pt.maximum(number, 0) if bool((term.rows[self._among] < 0).any()) else number
        unknown = [pt.vector(f"state{k}") for k in range(len(self._states))]
        values = [self._by_role(roles, index, unknown) for roles in term.roles.T]
        (rows,) = rebuild([replaced(term.reading, values)], {term.reading.term.index: index})
        return rows, number, unknown

    def _row_numbers(self, rows: Index) -> Variable:
        """Numbers of rows of the sites, one site after the other; -1 where there is none."""
        if rows.shape[1] > 1:
            return self._table(rows)[self._sites].flatten()
        numbers = np.flatnonzero(self._among)
        shift = rows[numbers, 0] - numbers
        if (shift == shift[0]).all():  # they are in the same order
            return self._sites + int(shift[0]) if shift[0] else self._sites
        return self._table(rows[:, 0])[self._sites]

    def _by_role(self, roles: Index, index: Variable, columns: list[Variable]) -> Variable:
        """The number that each row takes in one of its places."""
        different = np.unique(roles)
        result = columns[different[0]]
        if len(different) > 1:
            role = self._table(roles)[index]
            for number in different[1:]:
                result = pt.switch(pt.eq(role, int(number)), columns[number], result)
        return result

    def _table(self, values: np.ndarray) -> Variable:
        return data_leaf(values, self.tables)


def data_leaf(values: np.ndarray, leaves: list[Leaf]) -> Variable:
    """Whole numbers as an argument of functions; added to `leaves`."""
    table = pt.constant(np.ascontiguousarray(values, dtype=np.int64))
    leaves.append(Leaf(TensorType("int64", (None,) * table.type.ndim)(name=f"table{len(leaves)}"), table))
    return leaves[-1].placeholder
