"""Which rows contain each element of a variable.

A row that looks elements up, ``a[group]``, ``X[i] * X[j]``, ``h[1:] - h[:-1]``, contains these and no others.
Once the rows of a term are a graph of their index, every way in which the variable enters is seen there: as
``v[position]`` with a position that is computed from data, from the index, and perhaps from latent variables
of other steps (``B[z]``). Positions of all rows, in the order of the elements, are the map. Anything else
that is done with the variable needs all of it, and is refused.

*Rows of a term in which a part of its graph is used.* Rows of vectors that were joined, or written over, are
a choice by row number between parts, each of which is computed for all rows. A row contains what its own part
contains, and nothing of the others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor

from pymc_austerity.model.factorisation import Factorisation, LocalTerm, some_rows
from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on
from pymc_austerity.model.refusal import operation_name
from pymc_austerity.model.structure.incidence_table import NO_ELEMENT, count, fill
from pymc_austerity.target import Index, RowNumbers


def used_rows(rows: Variable, values: Iterable[Variable]) -> dict[Variable, Variable | None]:
    """The rows that use each variable of a graph.

    Parameters
    ----------
    rows : TensorVariable
    values : iterable of TensorVariable
        What changes while sampling: a choice that depends on these counts for all rows.

    Returns
    -------
    dict of Variable to TensorVariable or None
        A vector of bools, True where a row uses it; None for all rows.
    """
    moves = depends_on([rows], values)
    used: dict[Variable, Variable | None] = {rows: None}
    for node in reversed(list(toposort([rows]))):
        ways = [used[out] for out in node.outputs if out in used]
        if not ways:
            continue
        here = _either(ways)
        chosen = _by_row(node.inputs[0], moves) if is_elemwise(node.outputs[0], ps.Switch) else None
        for k, var in enumerate(node.inputs):
            way = here if chosen is None or k == 0 else _both(here, chosen if k == 1 else ~chosen)
            used[var] = _either([used[var], way]) if var in used else way
    return used


def _by_row(condition: Variable, moves: dict[Variable, bool]) -> Variable | None:
    """A condition if it is one number for each row, and always the same."""
    is_fixed = not moves.get(condition, False) and condition.type.shape == (None,)
    return condition.astype("bool") if is_fixed else None


def _either(ways: list[Variable | None]) -> Variable | None:
    result, *others = ways
    for way in others:
        result = None if result is None or way is None else result | way
    return result


def _both(first: Variable | None, second: Variable) -> Variable:
    return second if first is None else first & second


# More elements than this in every row of a term are no lookup but a sum.
_MOST_FIXED = 64
# Priors of vectors as short as this are single numbers that take all of it.
_SHORT = 2


class UsedAsAWhole(Exception):  # noqa: N818 - it is caught, and said
    """How rows use a variable, if not element by element."""


class Incidence(NamedTuple):
    """The rows that contain each of E elements, as a compressed sparse matrix."""

    starts: Index  # (E + 1,)
    # Positions of the population: those of element e are ``rows[starts[e]:starts[e + 1]]``, increasing
    rows: RowNumbers


class Place(NamedTuple):
    """One way in which a variable is looked up."""

    # first, length: the number of the first element of the variable, and how many it has
    first: int
    length: int
    # The axis of the rows among those of the positions; None where these are the same for all rows
    axis: int | None
    is_chosen: bool  # Whether some rows only make use of it


class Lookups:
    """Positions at which rows of one term look elements of variables up.

    Parameters
    ----------
    fact : Factorisation
    term : LocalTerm
    values : dict of Variable to int
        The variables, and the number of the first element of each.

    Attributes
    ----------
    followed : tuple of str
        Variables of other steps that say which elements a row contains.

    Raises
    ------
    UsedAsAWhole
        If a row uses a variable in any other way.
    """

    def __init__(self, fact: Factorisation, term: LocalTerm, values: Mapping[Variable, int]) -> None:
        self._fact, self._term = fact, term
        used = used_rows(term.rows, fact.graph.values.values())
        self._places: list[Place] = []
        graphs: list[Variable] = []
        for value, first in values.items():
            for position, looked_up in _positions(term.rows, value):
                axis = _row_axis(position, term.index)
                self._places.append(Place(first, int(value.type.shape[0]), axis, used[looked_up] is not None))
                graphs += [position] if used[looked_up] is None else [position, used[looked_up]]
        block = {fact.graph.values[name] for name in fact.var_names}
        above = set(ancestors(graphs))
        if above & block:
            raise UsedAsAWhole("which elements a row of it contains depends on what this step itself moves")
        self.followed = tuple(n for n, v in fact.graph.values.items() if v in above)
        self._function = fact.compile(graphs, [term.index], mode=INTERPRETED) if graphs else None

    def table(self, point: Mapping[str, Any]) -> npt.NDArray[np.int32]:
        """The elements of every row, shape (n_rows, n_lookups).

        Raises
        ------
        IndexError
            If a row looks up an element that the variable does not have.
        """
        if self._function is None:
            return np.empty((self._term.size, 0), dtype=np.int32)
        values = self._fact.point_values(point)
        return np.concatenate([self._some(values, rows) for rows in some_rows(self._term.size)])

    def _some(self, values: Sequence[Any], rows: Index) -> npt.NDArray[np.int32]:
        assert self._function is not None
        found = iter(self._function(*values, rows, *self._fact.leaf_values))
        columns = []
        for place in self._places:
            elements = self._by_row(next(found), place, len(rows))
            if place.is_chosen:
                elements[~np.broadcast_to(next(found), len(rows))] = NO_ELEMENT
            columns.append(elements)
        return np.concatenate(columns, axis=1)

    def _by_row(self, positions: npt.NDArray[np.int64], place: Place, m: int) -> npt.NDArray[np.int32]:
        """The elements that m rows look up in one way, shape (m, number of lookups)."""
        n = place.length
        if positions.size and (positions.min() < -n or positions.max() >= n):
            wrong = int(positions[(positions < -n) | (positions >= n)].flat[0])
            raise IndexError(f"The term {self._term.name!r} looks up element {wrong} of a variable with {n}.")
        if place.axis is None:
            table = np.broadcast_to(positions.ravel(), (m, positions.size))
        else:
            table = np.moveaxis(positions, place.axis, 0).reshape(m, -1)
        return (table % n + place.first).astype(np.int32)


def _positions(rows: Variable, value: Variable) -> Iterator[tuple[Variable, Variable]]:
    """Indices by which elements are looked up, and the result, for every lookup."""
    for node in toposort([rows]):
        if value not in node.inputs or isinstance(node.op, Shape | Shape_i):
            continue
        if isinstance(node.op, Subtensor | AdvancedSubtensor) and value not in node.inputs[1:]:
            yield _first_entry(node, value), node.outputs[0]
        elif value.type.shape[0] <= _SHORT:
            yield pt.constant(np.arange(value.type.shape[0])), node.outputs[0]
        else:
            raise UsedAsAWhole(
                f"its rows take all of {value.name!r} (operation {operation_name(node.outputs[0])})"
            )


def _first_entry(node: Apply, value: Variable) -> Variable:
    """The index along the first axis; a slice as the positions that it selects."""
    entry = indices_from_subtensor(node.inputs[1:], node.op.idx_list)[0]
    if isinstance(entry, slice):
        bounds = [getattr(b, "data", b) for b in (entry.start, entry.stop, entry.step)]
        if any(isinstance(b, Variable) for b in bounds):
            raise UsedAsAWhole(f"its rows take a slice of {value.name!r} with bounds that move")
        chosen = np.arange(value.type.shape[0])[slice(*(None if b is None else int(b) for b in bounds))]
        entry = pt.constant(chosen)
    entry = pt.as_tensor(entry)
    if entry.type.dtype == "bool":
        raise UsedAsAWhole(f"its rows take what a mask selects of {value.name!r}")
    fixed = int(np.prod([1 if k is None else k for k in entry.type.shape]))
    if fixed > _MOST_FIXED:
        raise UsedAsAWhole(f"each of its rows contains {fixed:,} elements of {value.name!r}")
    return entry


def _row_axis(positions: Variable, index: Variable) -> int | None:
    """The axis of the rows of a graph of positions; None where these are the same for all rows."""
    is_by_row = depends_on([positions], [index]).get(positions, False)
    unknown = [axis for axis, length in enumerate(positions.type.shape) if length is None]
    if len(unknown) != is_by_row:
        raise UsedAsAWhole("how many elements a row of it contains is not known beforehand")
    return unknown[0] if is_by_row else None


def incidence(tables: Sequence[tuple[int, npt.NDArray[np.int32]]], n_elements: int) -> Incidence:
    """The rows that contain each element.

    Parameters
    ----------
    tables : sequence of (int, ndarray)
        For each term the position of its first row in the population, and the elements of its rows.
    n_elements : int

    Returns
    -------
    Incidence
        A row that contains an element twice is there once.
    """
    counts, last = np.zeros(n_elements, dtype=np.int64), np.full(n_elements, -1)
    for first, table in tables:
        count(table, first, counts, last)
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows = np.empty(starts[-1], dtype=np.int32)
    ends = starts[:-1].copy()
    last[:] = -1
    for first, table in tables:
        fill(table, first, ends, last, rows)
    return Incidence(starts, rows)
