"""Find latent chains in a model: which elements of a variable are states of which chain, and rows by site.

The log density of a model is a sum of tables, each with one number for each row, cell by cell where possible
(`graph.terms.tables`). Their rows are lifted, as those of local terms are. What is left of the variable h in
the graph of a row are selections ``h[position]``, in one step or several. The same selections of
a table of numbers 0, 1, 2, ... say which elements are read.

A *site* is a time of a series. A row reads one site, or a site and the one before. A state is one element,
or a few that stand along an axis of the variable. Rows of single elements are tried first: their pairs are
the links of the chains, in whatever order the elements are stored.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.factorisation import LocalTerm
from pymc_austerity.model.factorise import terms_of_all_rows
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.leaves import extract_leaves, leaf_values
from pymc_austerity.model.graph.log_density import LogDensityGraph, typed_log_density
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on, rebuild
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
# Components of a state.
_MOST_COMPONENTS = 4
# Values of elements at which it is tried out whether a row depends on them.
_SCALES = (0.3, 1.0, 3.0, 30.0)
_SEED = 24
# Operations of which each element of the result is one of the input.
_MOVES_ELEMENTS = (AdvancedSubtensor, Subtensor, DimShuffle, SpecifyShape, Reshape, JoinDims, SplitDims)


# What rows read ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SelectedElements:
    """One selection of elements of h in the graph of the rows of a term."""

    var: Variable  # ``h[position]``
    row_axis: int | None  # The axis of `var` along which the rows are; None in a term of a single row
    # (n_rows, k): for each row, the numbers of the k elements that are selected for it, in the order of the
    # other axes
    elements: Index


@dataclass(frozen=True, eq=False)
class ReadingTerm:
    """A vector of terms of the log density that contain h, and what each of its rows reads."""

    # If there is one row alone it is not lifted: `rows` is then one number, and `index` unused
    term: LocalTerm
    selections: list[SelectedElements]
    # (n_rows, k): the elements that each row reads, those of all selections side by side; -1 for those that
    # do not matter
    elements: Index

    @property
    def name(self) -> str:
        """Name of the term in the model."""
        return self.term.name


def reading_term(
    term: LocalTerm, h: Variable, name: str, data: dict[Variable, np.ndarray]
) -> ReadingTerm | None:
    """Find the selections of h, a variable of a known shape, in the rows of a term; None if it has none.

    `name` is that of h, for errors. Positions may depend on `data`, inputs with their values.
    `FactorisationError` is raised if h is used otherwise than element by element, or which elements are read
    depends on parameters.
    """
    (simple,) = rewrite_graph([term.rows], include=("canonicalize", "specialize"), clone=True)
    if not depends_on([simple], [h]).get(simple, False):  # as of pm.Flat
        return None
    moved, found = {h}, []
    for node in toposort([term.rows]):
        if isinstance(node.op, _MOVES_ELEMENTS) and node.inputs[0] in moved:
            moved.add(node.outputs[0])
            continue
        found += [given for given in node.inputs if given in moved]
    found += [term.rows] if term.rows in moved else []
    if h in found:
        raise no_chain(name, f"the term {term.name!r} takes all of them in one row")
    selections = [_selection(term, var, h, name, data) for var in dict.fromkeys(found)]
    if term.size > 1 and any(each.row_axis is None for each in selections):
        raise no_chain(name, f"all rows of the term {term.name!r} read the same state")
    return ReadingTerm(term, selections, np.concatenate([each.elements for each in selections], axis=1))


def _selection(
    term: LocalTerm, var: Variable, h: Variable, name: str, data: dict[Variable, np.ndarray]
) -> SelectedElements:
    numbers = pt.constant(np.arange(np.prod(h.type.shape)).reshape(h.type.shape))
    (positions,) = rebuild([var], {h: numbers})
    inputs = [term.index, *data]
    unknown = [v for v in ancestors([positions]) if v.owner is None and not hasattr(v, "data")]
    if not set(unknown) <= set(inputs):
        others = ", ".join(sorted(str(v.name) for v in unknown if v not in inputs))
        raise FactorisationError(
            f"The states {name!r} are not a chain: which of them a row of the term {term.name!r} reads "
            f"depends on {others}."
        )
    function = function_of(inputs, positions)
    rows = np.arange(term.size)
    found, longer = (np.asarray(function(index, *data.values())) for index in (rows, np.append(rows, 0)))
    axes = [axis for axis, (a, b) in enumerate(zip(found.shape, longer.shape, strict=True)) if a != b]
    if not axes:
        return SelectedElements(var, None, np.broadcast_to(found.ravel(), (term.size, found.size)))
    return SelectedElements(var, axes[0], np.moveaxis(found, axes[0], 0).reshape(term.size, -1))


def replaced(reading: ReadingTerm, values: Sequence[Variable]) -> Variable:
    """The rows of a term with values of their own in place of the elements that they read.

    These are one vector for each column of `reading.elements`, with one number for each row; of a single row,
    with any number of them: the result has as many.
    """
    left = iter(values)
    replace = {}
    for selection in reading.selections:
        own = list(itertools.islice(left, selection.elements.shape[1]))
        replace[selection.var] = _shaped_as(selection, own)
    if reading.term.size > 1:
        return rebuild([reading.term.rows], replace)[0]
    rows = vectorize_graph(reading.term.rows, replace)
    return rows.sum(axis=list(range(1, rows.type.ndim))) if rows.type.ndim > 1 else rows


def _shaped_as(selection: SelectedElements, columns: list[Variable]) -> Variable:
    """Columns of numbers in the shape of a selection."""
    axis = selection.row_axis
    shape = [k for a, k in enumerate(selection.var.type.shape) if a != axis]
    if not shape:
        return columns[0]
    table = pt.stack(columns, axis=1).reshape((columns[0].shape[0], *shape), ndim=1 + len(shape))
    return pt.moveaxis(table, 0, axis or 0)


@np.errstate(all="ignore")
def of_what_matters(
    reading: ReadingTerm, inputs: Sequence[Variable], values: Sequence[np.ndarray]
) -> ReadingTerm:
    """A term that reads only elements on which its rows depend: some are multiplied by zero.

    `inputs` and `values` are what else the rows depend on, and the values of these. A single row is left as
    it is.
    """
    n_rows = reading.term.size
    if n_rows == 1:
        return reading
    columns = [pt.vector(f"column{k}") for k in range(reading.elements.shape[1])]
    rows = replaced(reading, columns)
    function = function_of([*columns, reading.term.index, *inputs], rows, mode=INTERPRETED)
    rng = np.random.default_rng(_SEED)
    matters = np.zeros(reading.elements.shape, dtype=bool)
    for scale in _SCALES:
        at = rng.normal(scale=scale, size=(len(columns), n_rows))
        old = function(*at, np.arange(n_rows), *values)
        for k in range(len(columns)):
            moved = at.copy()
            moved[k] = rng.normal(scale=scale, size=n_rows)
            new = function(*moved, np.arange(n_rows), *values)
            matters[:, k] |= ~((new == old) | (np.isnan(new) & np.isnan(old)))
    return replace(reading, elements=np.where(matters, reading.elements, -1))


# The layout of the states -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ChainLayout:
    """The sites of all series, one series after the other, each in the order of time."""

    shape: tuple[int, ...]  # Of the variable
    starts: Index  # (n_series + 1,): the first site of each series, and the number of sites
    elements: Index  # (n_sites, D): the elements that are the state of each site

    @property
    def n_sites(self) -> int:
        """Number of states."""
        return len(self.elements)

    @property
    def n_components(self) -> int:
        """D, the components of a state."""
        return int(self.elements.shape[1])

    def places(self) -> tuple[Index, Index]:
        """Site and component of each element."""
        site = np.empty(self.elements.size, dtype=np.int64)
        component = np.empty_like(site)
        site[self.elements] = np.arange(self.n_sites)[:, None]
        component[self.elements] = np.arange(self.n_components)
        return site, component

    def is_first(self) -> np.ndarray:
        """Whether each site is the first of its series."""
        first = np.zeros(self.n_sites, dtype=bool)
        first[self.starts[:-1]] = True
        return first

    def label(self, name: str, site: int) -> str:
        """A state as the user writes it."""
        return _element(name, self.shape, self.elements[site])


def no_chain(name: str, reason: object) -> FactorisationError:
    """The error that says why a latent variable is no chain."""
    return FactorisationError(
        f"The states {name!r} are not a chain: {reason}. ParticleGibbs needs terms whose rows contain one "
        "state, or a state and the next."
    )


def _element(name: str, shape: Sequence[int], elements: Sequence[int] | Index) -> str:
    """Elements as the user writes them: ``h[3, 5]``."""
    places = [np.unravel_index(int(one), tuple(shape)) for one in elements]
    return ", ".join(f"{name}[{', '.join(str(int(i)) for i in place)}]" for place in places)


def find_layout(name: str, shape: tuple[int, ...], readings: Sequence[ReadingTerm]) -> ChainLayout:
    """The chains that all rows fit into; else an error says which row of which term is in the way."""
    try:
        found = _of_single_elements(name, shape, readings)
    except FactorisationError:
        vectors = next((layout for layout in _along_axes(shape) if _fits(layout, readings)), None)
        if vectors is None:
            raise
        found = vectors
    if found.n_components > _MOST_COMPONENTS:
        raise FactorisationError(
            f"The states {name!r} have {found.n_components} components each. ParticleGibbs draws states of "
            f"at most {_MOST_COMPONENTS}: with more, particles are too far apart."
        )
    if np.diff(found.starts).max() < 2:
        raise FactorisationError(
            f"The variable {name!r} of shape {shape} is not a chain: no row of a term contains two of its "
            "elements, so there are no two times. Use pm.NUTS for it."
        )
    return found


def _of_single_elements(name: str, shape: tuple[int, ...], readings: Sequence[ReadingTerm]) -> ChainLayout:
    """Chains of single elements: the later of two that a row reads follows upon the earlier."""
    size = math.prod(shape)
    found = [np.empty((4, 0), dtype=np.int64)]  # numbers of the term and row, earlier and later element
    for number, reading in enumerate(readings):
        elements = reading.elements
        # The first and last element of each row; (size, -1) if there is none.
        low, high = np.where(elements < 0, size, elements).min(axis=1), elements.max(axis=1)
        between = (elements >= 0) & (elements != low[:, None]) & (elements != high[:, None])
        bad = np.flatnonzero(between.any(axis=1))
        if len(bad):
            row = elements[bad[0]]
            read = _element(name, shape, np.unique(row[row >= 0]))
            raise no_chain(name, f"row {bad[0]} of the term {reading.name!r} contains {read}")
        own = np.flatnonzero((low != high) & (high >= 0))
        found.append(np.stack([np.full(len(own), number), own, low[own], high[own]]))
    links = np.concatenate(found, axis=1)
    *_, low, high = links
    after, before = np.full(size, -1), np.full(size, -1)
    after[low], before[high] = high, low
    # One that was overwritten does not fit.
    bad = np.flatnonzero((after[low] != high) | (before[high] != low))
    if len(bad):
        first, last = low[bad[0]], high[bad[0]]
        pair = (first, after[first]) if after[first] != last else (before[last], last)
        other = np.flatnonzero((low == pair[0]) & (high == pair[1]))[0]
        read_by = [
            f"row {row} of the term {readings[number].name!r} contains {_element(name, shape, both)}"
            for number, row, *both in links[:, [bad[0], other]].T
        ]
        raise no_chain(name, ", and ".join(read_by))
    first = np.where(before < 0, np.arange(size), before)
    while (first[first] != first).any():
        first = first[first]  # twice as many links towards the beginning of the series
    # Within a series numbers of elements grow, as they do along each link.
    order = np.argsort(first, kind="stable")
    starts = np.flatnonzero(np.diff(first[order], prepend=-1))
    return ChainLayout(shape, np.append(starts, size), order[:, None])


def _along_axes(shape: tuple[int, ...]) -> Iterator[ChainLayout]:
    """Time along one axis, components of states along others, series along the rest; few components first."""
    axes = range(len(shape))
    choices = [
        (time, state)
        for time in axes
        for n in range(1, len(shape))
        for state in itertools.combinations([a for a in axes if a != time], n)
    ]
    for time, state in sorted(choices, key=lambda c: math.prod(shape[a] for a in c[1])):
        series = [a for a in axes if a != time and a not in state]
        numbers = np.arange(math.prod(shape)).reshape(shape).transpose([*series, time, *state])
        n_series, n_times = math.prod(shape[a] for a in series), shape[time]
        starts = np.arange(n_series + 1) * n_times
        yield ChainLayout(shape, starts, numbers.reshape(n_series * n_times, -1))


def _fits(layout: ChainLayout, readings: Sequence[ReadingTerm]) -> bool:
    """Does each row read one site, or a site and the one before?"""
    site, _ = layout.places()
    first = layout.is_first()
    for reading in readings:
        sites = np.where(reading.elements < 0, -1, site[reading.elements])
        last = sites.max(axis=1)
        earlier = np.where(sites < 0, last[:, None], sites).min(axis=1)
        if ((last - earlier > 1) | ((last != earlier) & first[last])).any():
            return False
    return True


# The chain, and the rows of its terms by site ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SiteTerm:
    """The rows of a term by the site that they belong to: the later of those that they read."""

    reading: ReadingTerm
    rows: Index  # (n_sites, K): the rows of each site; -1 where a site has fewer than K
    # (n_rows, k): for each element that a row reads, its column among the D components of the site's state,
    # and the D of the state before
    roles: Index
    links: bool  # Whether a row reads the state before


@dataclass(frozen=True, eq=False)
class FoundChain:
    """A latent chain of a model."""

    name: str  # Of the random variable
    graph: LogDensityGraph  # Of the terms that contain it
    states: Variable  # The variable, in that graph
    layout: ChainLayout
    terms: list[SiteTerm]
    data: dict[Variable, np.ndarray]  # Inputs of rows besides variables, with their values

    @property
    def n_rows(self) -> int:
        """Rows of all terms that contain states."""
        return sum(int((term.rows >= 0).sum()) for term in self.terms)

    def names_at(self, site: int) -> str:
        """Names of the terms that have rows at a site."""
        there = (term.reading.name for term in self.terms if (term.rows[site] >= 0).any())
        return ", ".join(dict.fromkeys(there))


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
        terms = _rows_of(graph, states)
    except FactorisationError as error:
        reason = str(error).split(" Use another step method")[0].rstrip(".")
        raise no_chain(name, reason) from error
    values = list(graph.values.values())
    leaves, rows = extract_leaves(
        [term.rows for term in terms], [*values, *(term.index for term in terms)], _LONG_DATA
    )
    data = dict(zip([leaf.placeholder for leaf in leaves], leaf_values(graph, leaves), strict=True))
    lifted = (replace(term, rows=own) for term, own in zip(terms, rows, strict=True))
    found = [reading_term(term, states, name, data) for term in lifted]
    readings = [reading for reading in found if reading is not None]
    try:
        layout = find_layout(name, shape, readings)
    except FactorisationError:  # some of what is read may not matter
        inputs, numbers = [*values, *data], [*jittered(graph), *data.values()]
        readings = [of_what_matters(reading, inputs, numbers) for reading in readings]
        layout = find_layout(name, shape, readings)
    sorted_terms = [site_term(reading, layout) for reading in readings if (reading.elements >= 0).any()]
    return FoundChain(name, graph, states, layout, sorted_terms, data)


def site_term(reading: ReadingTerm, layout: ChainLayout) -> SiteTerm:
    """Sort the rows of a term by sites."""
    elements, (site, component) = reading.elements, layout.places()
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


def _rows_of(graph: LogDensityGraph, states: Variable) -> list[LocalTerm]:
    """The rows of all tables that contain the states, lifted; those of a single row are as they are."""
    values = list(graph.values.values())
    lifter = Lifter(graph.terms.values(), values, [states], _SHORTEST, graph.evaluate)
    terms = []
    for name, term in graph.terms.items():
        for table in tables(term):
            if states not in ancestors([table]):
                continue
            axes = tuple(a for a, k in enumerate(table.type.shape) if k >= _SHORTEST)
            if axes:
                terms.append(lift_piece(lifter, Piece(name, table, axes, kept=True))[1])
            else:
                index = pt.vector("index", dtype="int64")
                terms.append(LocalTerm(name, 1, index, table.sum()))
    rows = select_early(lifter, [term.rows for term in terms])
    return [replace(term, rows=own) for term, own in zip(terms, rows, strict=True)]
