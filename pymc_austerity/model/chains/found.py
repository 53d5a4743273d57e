"""Find a latent chain in a model: its layout, and the rows of all terms that contain it, by site."""

import math
from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.chains.layout import (
    ChainLayout,
    ReadingTerm,
    elements_that_matter,
    find_layout,
    no_chain,
    reading_term,
)
from pymc_austerity.model.factorisation import LocalTerm
from pymc_austerity.model.factorise import terms_of_all_rows
from pymc_austerity.model.graph.leaves import Leaf, extract_leaves, leaf_values
from pymc_austerity.model.graph.log_density import LogDensityGraph, typed_log_density
from pymc_austerity.model.graph.terms import Piece, tables
from pymc_austerity.model.lift.indexing import select_early
from pymc_austerity.model.lift.lifter import Lifter
from pymc_austerity.model.lift.rows import lift_piece
from pymc_austerity.model.self_check import jittered
from pymc_austerity.target import Index

# Every axis has rows: none may be computed in full.
_SHORTEST = 2
# Tables of data that are longer than this are arguments of what is compiled.
_LONG_DATA = 1000


@dataclass(frozen=True, eq=False)
class SiteTerm:
    """The rows of a term by the site that they belong to: the later of those that they read."""

    reading: ReadingTerm
    rows: Index  # (n_sites, K): the rows of each site; -1 where a site has fewer than K
    # (n_rows, k): for each element that a row reads, its column among the D components of the site's state,
    # and the D of the state before
    roles: Index
    links: bool  # Whether a row reads the state before

    @property
    def name(self) -> str:
        """Name of the term in the model."""
        return self.reading.term.name


@dataclass(frozen=True, eq=False)
class FoundChain:
    """A latent chain of a model."""

    name: str  # Of the random variable
    graph: LogDensityGraph  # Of the terms that contain it
    states: Variable  # The variable, in that graph
    layout: ChainLayout
    terms: list[SiteTerm]
    leaves: list[Leaf]
    leaf_values: list[np.ndarray]

    @property
    def n_rows(self) -> int:
        """Rows of all terms that contain states."""
        return sum(int((term.rows >= 0).sum()) for term in self.terms)

    def names_at(self, site: int) -> str:
        """Names of the terms that have rows at a site."""
        return ", ".join(dict.fromkeys(term.name for term in self.terms if (term.rows[site] >= 0).any()))


def find_chain(model: pm.Model, value: Variable, point: PointType) -> FoundChain:
    """Take all terms that contain a variable apart, and find the chains that their rows form.

    If they form none, a `FactorisationError` says which term is in the way.
    """
    name = model.values_to_rvs[value].name
    graph = typed_log_density(model, terms_of_all_rows(model, [value]), point)
    states = graph.values[value.name]
    shape = tuple(int(k) for k in states.type.shape)
    if math.prod(shape) < _SHORTEST:
        raise FactorisationError(
            f"The variable {name!r} of shape {shape} is not a chain: it has one element, and a chain "
            "has at least two times. Use pm.NUTS for it."
        )
    try:
        terms, single = _rows_of(graph, states)
    except FactorisationError as error:
        reason = str(error).split(" Use another step method")[0].rstrip(".")
        raise no_chain(name, reason) from error
    values = list(graph.values.values())
    leaves, rows = extract_leaves(
        [term.rows for term in terms], [*values, *(term.index for term in terms)], _LONG_DATA
    )
    data = leaf_values(graph, leaves)
    placeholders = [leaf.placeholder for leaf in leaves]
    named_data = dict(zip(placeholders, data, strict=True))
    readings = []
    for term, lifted, is_single in zip(terms, rows, single, strict=True):
        lifted_term = LocalTerm(term.name, term.size, term.index, lifted)
        found = reading_term(lifted_term, states, name=name, is_single=is_single, leaves=named_data)
        if found.selections:
            readings.append(found)
    read = [(reading.term.name, reading.elements) for reading in readings]
    try:
        layout = find_layout(name, shape, read)
    except FactorisationError:  # some of what is read may not matter
        inputs, numbers = [*values, *placeholders], [*jittered(graph), *data]
        for k, reading in enumerate(readings):
            if not reading.is_single:
                matters = elements_that_matter(reading, inputs, numbers)
                read[k] = reading.term.name, np.where(matters, reading.elements, -1)
        layout = find_layout(name, shape, read)
    sorted_terms = [
        site_term(reading, elements, layout)
        for reading, (_, elements) in zip(readings, read, strict=True)
        if (elements >= 0).any()
    ]
    return FoundChain(name, graph, states, layout, sorted_terms, leaves, data)


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
    return SiteTerm(reading, _by_site(own, layout.n_sites), roles, links)


def _by_site(own: Index, n_sites: int) -> Index:
    """Numbers of the rows of each site, side by side; rows without any (-1) are left out."""
    rows = np.flatnonzero(own >= 0)
    order = rows[np.argsort(own[rows], kind="stable")]
    counts = np.bincount(own[rows], minlength=n_sites)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    table = np.full((n_sites, max(1, int(counts.max(initial=1)))), -1)
    table[own[order], np.arange(len(order)) - starts[own[order]]] = order
    return table


def _rows_of(graph: LogDensityGraph, states: Variable) -> tuple[list[LocalTerm], list[bool]]:
    """The rows of all tables that contain the states, lifted; those of a single row are as they are."""
    values = list(graph.values.values())
    lifter = Lifter(graph.terms.values(), values, [states], _SHORTEST, graph.evaluate)
    terms, single = [], []
    for name, term in graph.terms.items():
        for table in tables(term):
            if states not in ancestors([table]):
                continue
            axes = tuple(a for a, k in enumerate(table.type.shape) if k >= _SHORTEST)
            single.append(not axes)
            if axes:
                terms.append(lift_piece(lifter, Piece(name, table, axes, kept=True))[1])
            else:
                index = pt.vector("index", dtype="int64")
                terms.append(LocalTerm(name, 1, index, table.sum()))
    rows = select_early(lifter, [term.rows for term in terms])
    return [LocalTerm(t.name, t.size, t.index, own) for t, own in zip(terms, rows, strict=True)], single
