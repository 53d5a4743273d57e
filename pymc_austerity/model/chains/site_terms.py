"""Terms of the log density as functions of the states of two neighbouring sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.type import TensorType

from pymc_austerity.model.chains.layout import ChainLayout, ReadingTerm, replaced
from pymc_austerity.model.graph.leaves import Leaf
from pymc_austerity.model.graph.rewrite import depends_on, rebuild
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.target import Index


@dataclass(frozen=True, eq=False)
class SiteTerm:
    """The rows of a term by the site that they belong to: the later of those that they read."""

    reading: ReadingTerm
    rows: Index  # (n_sites, K): the rows of each site; -1 where a site has fewer than K
    # (n_rows, k): for each element that a row reads, its column among the D components of the site's state,
    # and the D of the state before
    roles: Index
    links: bool  # Whether a row reads the state before
    n_components: int  # D

    @property
    def name(self) -> str:
        """Name of the term in the model."""
        return self.reading.term.name

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

    `elements`, of shape (n_rows, k), are what each row reads; -1 for what does not matter.
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

    `sites` are numbers of sites, an integer vector of any length m. `among`, of shape (n_sites,), says which
    sites are asked for: only for these it matters whether rows are missing. `states` has m numbers for each
    component: the states there, and after all components those at the sites before. Data that the graphs
    read, whose `source` are constants, are added to `tables`.
    """

    def __init__(
        self, sites: Variable, among: np.ndarray, states: Sequence[Variable], tables: list[Leaf]
    ) -> None:
        self._sites, self._among = sites, among
        self._states, self._tables = list(states), tables

    def total(self, terms: Sequence[SiteTerm]) -> Variable:
        """Sum of the rows of terms at each site, (m,)."""
        return self._sum([self._entries(term, 0)[0] for term in terms])

    def expansion(self, terms: Sequence[SiteTerm], n: int) -> tuple[Variable, list[Variable], list[Variable]]:
        """Sums at each site with gradient and Hessian in the first n numbers of the states, by entry.

        One of `NO_GRADIENT` is raised if a term has no derivatives.
        """
        entries = [self._entries(term, n) for term in terms]
        sums = [self._sum([own[k] for own in entries]) for k in range(1 + n + n * n)]
        return sums[0], sums[1 : 1 + n], sums[1 + n :]

    def is_quadratic(self, term: SiteTerm, n: int) -> bool:
        """Is each row a quadratic function of the first n numbers, as the graph of its Hessian shows?"""
        rows, _, unknown = self._rows(term)
        try:
            _, hessian = _derivatives(rows, unknown[:n])
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
            gradient, hessian = _derivatives(rows, unknown[:n])
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
            return data_leaf(rows, self._tables)[self._sites].flatten()
        numbers = np.flatnonzero(self._among)
        shift = rows[numbers, 0] - numbers
        if (shift == shift[0]).all():  # they are in the same order
            return self._sites + int(shift[0]) if shift[0] else self._sites
        return data_leaf(rows[:, 0], self._tables)[self._sites]

    def _by_role(self, roles: Index, index: Variable, columns: list[Variable]) -> Variable:
        """The number that each row takes in one of its places."""
        different = np.unique(roles)
        result = columns[different[0]]
        if len(different) > 1:
            role = data_leaf(roles, self._tables)[index]
            for number in different[1:]:
                result = pt.switch(pt.eq(role, int(number)), columns[number], result)
        return result


def data_leaf(values: np.ndarray, leaves: list[Leaf]) -> Variable:
    """Whole numbers as an argument of functions; added to `leaves`."""
    table = pt.constant(np.ascontiguousarray(values, dtype=np.int64))
    leaves.append(Leaf(TensorType("int64", (None,) * table.type.ndim)(name=f"table{len(leaves)}"), table))
    return leaves[-1].placeholder


def _derivatives(rows: Variable, columns: Sequence[Variable]) -> tuple[list[Variable], list[Variable]]:
    """Gradient and Hessian of each row in its own numbers: n and n * n entries, (m,) each.

    Row i of `rows` (m,) depends on number i of each of `columns`, n vectors (m,). One of `NO_GRADIENT` is
    raised if an operation has no gradient.
    """
    gradient = _slopes(rows, columns)
    n = len(columns)
    upper = {
        (a, b): second for a in range(n) for b, second in enumerate(_slopes(gradient[a], columns[a:]), a)
    }
    return gradient, [upper[min(a, b), max(a, b)] for a in range(n) for b in range(n)]


def _slopes(rows: Variable, columns: Sequence[Variable]) -> list[Variable]:
    return [pt.as_tensor(x) for x in grad(rows.sum(), list(columns), disconnected_inputs="ignore")]
