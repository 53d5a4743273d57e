"""Terms of the log density as functions of the states of two neighbouring sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_austerity.model.chains.layout import ChainLayout
from pymc_austerity.model.chains.reads import Cells, ReadingTerm, replaced
from pymc_austerity.model.graph.leaves import Leaf
from pymc_austerity.model.graph.rewrite import rebuild


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
    rows: Cells
    roles: Cells
    links: bool
    n_components: int

    @property
    def name(self) -> str:
        """Of the model's term."""
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


def site_term(reading: ReadingTerm, cells: Cells, layout: ChainLayout) -> SiteTerm:
    """Sort the rows of a term by sites.

    Parameters
    ----------
    reading : ReadingTerm
    cells : ndarray of int, shape (n_rows, k)
        What each row reads; -1 for what does not matter.
    layout : ChainLayout
    """
    site, component = layout.places()
    sites = np.where(cells < 0, -1, site[cells])
    own = sites.max(axis=1)
    is_before = sites < own[:, None]
    roles = component[np.maximum(cells, 0)] + layout.n_components * is_before
    links = bool((is_before & (cells >= 0)).any())
    roles = np.where(cells < 0, -1, roles)
    # What does not matter takes whatever the other rows take there.
    most = roles.max(axis=0)
    roles = np.where(roles < 0, np.maximum(most, 0), roles)
    return SiteTerm(reading, _by_site(own, layout.n_sites), roles, links, layout.n_components)


def _by_site(own: Cells, n_sites: int) -> Cells:
    """Numbers of the rows of each site, side by side; rows without any (-1) are left out."""
    rows = np.flatnonzero(own >= 0)
    order = rows[np.argsort(own[rows], kind="stable")]
    counts = np.bincount(own[rows], minlength=n_sites)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    table = np.full((n_sites, max(1, int(counts.max(initial=1)))), -1)
    table[own[order], np.arange(len(order)) - starts[own[order]]] = order
    return table


class SiteGraphs:
    """Graphs of terms at some sites, for some states.

    Parameters
    ----------
    sites : TensorVariable
        Numbers of sites, an integer vector of any length m.
    present, before : sequence of TensorVariable
        For each component, m numbers: the states there, and at the sites before.

    Attributes
    ----------
    tables : list of Leaf
        Data that the graphs read, with the arrays as constants in `source`.
    """

    def __init__(self, sites: Variable, present: Sequence[Variable], before: Sequence[Variable]) -> None:
        self._sites = sites
        self._columns = [*present, *before]
        self.tables: list[Leaf] = []

    def zeros(self) -> Variable:
        """Zero at each site."""
        return pt.zeros_like(self._sites, dtype="float64")

    def log_density(self, term: SiteTerm, among: np.ndarray) -> Variable:
        """Sum of the rows of a term at each site, (m,).

        Parameters
        ----------
        term : SiteTerm
        among : ndarray of bool, shape (n_sites,)
            The sites that are asked for: only for these it matters whether rows are missing.
        """
        rows = term.rows
        n_rows = rows.shape[1]
        is_missing = bool((rows[among] < 0).any())
        number, columns = self._row_numbers(rows, among), self._columns
        if n_rows > 1:
            number = number.flatten()
            columns = [pt.repeat(column, n_rows) for column in columns]
        index = pt.maximum(number, 0) if is_missing else number
        roles = term.roles
        values = [self._by_role(roles[:, k], index, columns) for k in range(roles.shape[1])]
        graph = replaced(term.reading, values)
        (graph,) = rebuild([graph], {term.reading.term.index: index})
        if is_missing:
            graph = pt.switch(pt.ge(number, 0), graph, 0.0)
        return graph.reshape((-1, n_rows)).sum(axis=1) if n_rows > 1 else graph

    def _row_numbers(self, rows: Cells, among: np.ndarray) -> Variable:
        """Numbers of rows of the sites, (m,), or (m, K) if there are several; -1 where there is none."""
        numbers = np.flatnonzero(among)
        if rows.shape[1] > 1:
            return self._table(rows)[self._sites]
        shift = rows[numbers, 0] - numbers
        if (shift == shift[0]).all():  # they are in the same order
            return self._sites + int(shift[0]) if shift[0] else self._sites
        return self._table(rows[:, 0])[self._sites]

    def _by_role(self, roles: Cells, index: Variable, columns: list[Variable]) -> Variable:
        """The number that each row takes in one of its places."""
        different = np.unique(roles)
        result = columns[different[0]]
        if len(different) > 1:
            role = self._table(roles)[index]
            for number in different[1:]:
                result = pt.switch(pt.eq(role, int(number)), columns[number], result)
        return result

    def _table(self, values: np.ndarray) -> Variable:
        table = pt.constant(np.ascontiguousarray(values, dtype=np.int64))
        self.tables.append(Leaf(table.type(name=f"table{len(self.tables)}"), table))
        return self.tables[-1].placeholder
