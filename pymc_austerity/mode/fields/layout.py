"""A field as a kernel has it: the tree, rows in the order of their cells, and where sums are kept."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.exceptions import RowsOnDiskError
from pymc_austerity.kernels.fields.records import Design, Elements, Held, Prior
from pymc_austerity.kernels.fields.tree import Tree
from pymc_austerity.mode.fields.maps import Entries, Given, Maps, maps_of
from pymc_austerity.mode.fields.order import Order
from pymc_austerity.mode.fields.prior import prior_of, ranks
from pymc_austerity.mode.fields.rows import Columns, columns_of
from pymc_austerity.mode.fields.sums_near_zero import left_to_an_intercept
from pymc_austerity.mode.fields.turns import find_turns
from pymc_austerity.mode.row_tables import RowTables, different, not_in_order, occurring, parts, write_taken
from pymc_austerity.model.field.find import Field
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.target import Index, Mask, Matrix, RowNumbers

# Columns of each of some factors.
_Factors = tuple[tuple[int, ...], ...]
# Elements of other factors that are bounded together, at most.
_TOGETHER = 96
# Pairs of an element that are a run of their own, at least.
_WIDE = 32
# Different codes of combinations, at most.
_LONGEST = 2**62


@dataclass(frozen=True, eq=False)
class Layout:
    """Rows, elements x and coordinates z that a turn moves, in the order of a kernel. It has size N."""

    maps: Maps
    tree: Tree
    order: Index  # (n_z,): which coordinate of the maps comes first, second, ...
    elements: Index  # (n_x,): which element of rows each is; -1 for one that is always 0
    n_lookups: int
    # (N,): which row comes first, second, ...; without those that see nothing of the turn. None for all rows
    # in the order in which they were read.
    rows: Index | None
    columns: Columns  # In this order, with the design of what the turn moves
    prior: Prior
    # Elements of H: the two of x, and in which nodes; where the pairs of each occupied combination are
    first: Index
    second: Index
    of_elements: Index  # (n_x,)
    of_pairs: Index
    combos: Index  # (M, F): combinations of looked-up elements
    combinations: RowNumbers  # (N,): which of them each row has
    pairs: np.ndarray  # (M, F (F + 1) / 2)
    # Cells for decisions: (U + 1,), their lowest nodes (U,), and columns with the same partition of the rows:
    # those of nested factors, and others, whose levels are bounded by loose blocks; and columns of other
    # factors of few levels, which are all in the root and bounded together
    cells: Index
    of_cells: Index
    factors: _Factors
    loose: _Factors
    together: tuple[int, ...]
    # What the turn does not move, at a center of zero and without sums; which elements of rows these are
    held: Held
    held_elements: Index
    # which: elements of theta that the turn moves; units: of the proposal of these, see `Law`
    which: Index
    units: Index
    # The coordinate of an intercept that shifts of effects are left to, and how much of it these are, by z
    left: tuple[int, Entries] | None = None

    @property
    def design(self) -> Design:
        """What rows have of the elements that the turn moves."""
        return self.columns.design

    @property
    def n_rows(self) -> int:
        """How many rows the turn has."""
        return len(self.columns.offsets)

    @property
    def n_read(self) -> int:
        """How many rows were read, up to the last one that the turn has."""
        return self.n_rows if self.rows is None else int(self.rows.max(initial=-1)) + 1

    def read(self, part: slice) -> Index | slice:
        """Which rows a part has, as they were read."""
        return part if self.rows is None else self.rows[part]


class _Reading(NamedTuple):
    """A field as its rows and maps have it, before any order."""

    maps: Maps
    columns: Columns
    entries: Entries  # C, by elements of rows and coordinates of the maps
    given: Given
    left: tuple[int, Entries] | None
    field: Field
    combos: Index  # Combinations of elements that rows look up,
    which: Index  # (N,): and which each row has


def layouts_of(
    found: Field, graph: LogDensityGraph, *, is_normal: bool, moves: bool = True
) -> Iterator[tuple[Layout, ...]]:
    """Read the rows of a field, normal ones or others, and put them in order, once for every turn.

    Where some turns are better than others, and those may not do, there are several orders, the best first.
    If no move is to be made there is one turn, of all effects.

    Raises
    ------
    NoField, NoOrderError
        If it is one that is not moved.
    RowsOnDiskError
        If rows on disk are in no order of groups.
    """
    columns = columns_of(found, is_normal=is_normal)
    for with_means in (True, False):  # without an intercept, or in turns, sums of zero are written out
        maps = maps_of(found, graph, with_means=with_means)
        has_means = any(one.has_mean for one in maps.coordinates)
        try:
            yield from _in_turns(columns, maps, found, moves=moves)
        except NoField:
            if not has_means:
                raise
        if not has_means:
            return


def _in_turns(columns: Columns, maps: Maps, found: Field, *, moves: bool) -> Iterator[tuple[Layout, ...]]:
    """The layouts of all turns; the better ones first."""
    left = left_to_an_intercept(columns, maps, found)
    n_x, n_z, n_lookups = len(columns.elements), maps.n_coordinates, columns.n_lookups
    place = _numbers(columns.elements, int(maps.first[-1]))
    entries = maps.elements.placed(place, np.arange(n_z)).by_rows()
    to = place[maps.given.elements]
    kept = to >= 0
    given = Given(to[kept], maps.given.numbers[kept], maps.given.constants[kept])
    combos, which = _combinations(columns.design.columns, columns.tables)
    # Which coordinates meet in rows.
    of_x = sparse.csr_array((np.ones(len(entries.rows)), (entries.rows, entries.columns)), (n_x, n_z))
    m, n_f = combos.shape
    incidence = sparse.csr_array((np.ones(m * n_f), combos.ravel(), np.arange(m + 1) * n_f), (m, n_x))
    together = sparse.csr_array(incidence @ of_x) if n_f else sparse.csr_array((0, n_z))
    dense = np.zeros(n_z, bool)
    dense[entries.columns[entries.rows >= n_lookups]] = True
    widely = np.asarray((of_x[:n_lookups] != 0).sum(axis=0)).ravel()
    dense |= widely > 0.5 * max(n_lookups, 4)  # as the start of a series, or a mean of all
    kinds = np.repeat(np.arange(len(maps.coordinates)), [one.size for one in maps.coordinates])
    together = sparse.csr_array(together @ sparse.diags_array((~dense).astype(float)))
    own = maps.precision
    coupled = sparse.csr_array((np.ones(len(own.rows)), (own.rows, own.columns)), (n_z, n_z))
    read = _Reading(maps, columns, entries, given, left, found, combos, which)
    coupled = sparse.csr_array(coupled + coupled.T)
    *better, last = find_turns(together, coupled, of_x, dense, kinds, moves=moves)
    for turns in better:
        try:
            layouts = _layouts(read, turns)
        except NoField:
            continue
        yield layouts
    yield _layouts(read, last)


def _layouts(read: _Reading, turns: list[tuple[Mask, Order]]) -> tuple[Layout, ...]:
    """The layouts of these turns."""
    maps = read.maps
    if len(turns) > 1 and any(one.matched is not None for one in maps.coordinates):
        raise NoField("gamma or beta effects are beside factors that have to be moved in turns")
    if len(turns) > 1 and maps.shifts:
        raise NoField("effects whose sum is nearly zero are beside factors that have to be moved in turns")
    return tuple(_layout(read, moves, order, is_first=k == 0) for k, (moves, order) in enumerate(turns))


def _layout(read: _Reading, moves: Mask, order: Order, *, is_first: bool) -> Layout:
    """The layout of a turn that moves some coordinates."""
    maps, columns, entries, tree = read.maps, read.columns, read.entries, order.tree
    place, design = _numbers(order.variables, len(moves)), columns.design
    is_held = np.zeros(len(columns.elements), bool)
    is_held[entries.rows[~moves[entries.columns]]] = True
    both = entries.columns[is_held[entries.rows] & moves[entries.columns]]
    if len(both):
        own = next(c.innovation for c in reversed(maps.coordinates) if c.first <= both[0])
        raise NoField(
            f"effects of {own.variable!r} share a start or a mean, and lie beside factors that have to be "
            "moved in turns"
        )
    is_dense = ~is_held[columns.n_lookups :]
    lookups, values, of_lookups, own, some = _own_lookups(read, is_held)
    n_dense = int(is_dense.sum())
    n_x, n_lookups = len(own), len(own) - n_dense
    number = _numbers(own, len(is_held))
    held, held_elements = _held(read, moves, is_held)
    entries = entries.placed(number, place).by_rows()
    root = len(tree.first) - 1
    of_elements = np.full(n_x, root)
    np.minimum.at(of_elements, entries.rows, tree.node_of[entries.columns])
    # Elements are in the order of the tree, so that what a run of nodes moves lies together.
    by_node = np.append(np.argsort(of_elements[:n_lookups], kind="stable"), np.arange(n_lookups, n_x))
    rank = np.argsort(by_node)
    combos, which = read.combos, read.which
    if lookups is not design.columns:
        combos, which = _combinations(lookups, columns.tables)
    if np.any(rank != np.arange(n_x)):
        own, of_elements, combos = own[by_node], of_elements[by_node], rank[combos]
        number = _numbers(own, len(is_held))
        entries = entries._replace(rows=rank[entries.rows]).by_rows()
    factors, others = _separate(combos, np.flatnonzero(own < 0))
    together, loose = _of_the_root(combos, others, of_elements == root)
    rows, cells, of_cells = _cells(combos, which, factors, of_elements, root, read, own if is_first else None)
    first, second, pairs = _pairs(combos, n_lookups, n_dense)
    of_pairs = np.minimum(of_elements[first], of_elements[second])
    given = read.given._replace(elements=number[read.given.elements])
    prior = prior_of(maps, entries, place, given, tree, (first, second), read.left)
    tables, n, own_x = columns.tables, len(which), np.flatnonzero(is_dense[design.at_dense])
    every_x = None if len(own_x) == len(design.at_dense) else own_x

    def ordered(table: np.ndarray, which: Index | None, own: Index | None = None) -> np.ndarray:
        """A table in the order of the turn, with some of its columns."""
        if which is None and own is None:
            return table
        result = tables.zeros(n, *(table.shape[1:] if own is None else [len(own)]), dtype=table.dtype)
        write_taken(result, table, which, own)
        return result

    kept = rows if some is None else ordered(some, rows)
    data = columns.data
    if kept is not None:
        data = tables.zeros(len(data), n)
        for result, column in zip(data, columns.data, strict=True):
            write_taken(result, column, kept, None)
    combinations, own_columns = tables.zeros(n, dtype=np.int32), tables.zeros(*lookups.shape, dtype=np.int32)
    write_taken(combinations, which, rows, None)
    write_taken(own_columns, combos, combinations, None)
    design = Design(
        own_columns, ordered(values, rows), of_lookups,
        ordered(design.dense, kept, every_x), design.of_dense[own_x],
        (np.cumsum(is_dense) - 1)[design.at_dense[own_x]], n_dense,
    )  # fmt: skip
    sorted_columns = columns._replace(design=design, offsets=ordered(columns.offsets, kept), data=data)
    none = np.zeros(0, np.int64)
    held = held._replace(columns=ordered(held.columns, kept), values=ordered(held.values, kept))
    return Layout(
        maps, tree, order.variables, own, n_lookups, kept, sorted_columns, prior,
        first, second, of_elements, of_pairs,
        combos, combinations, pairs, cells, of_cells, factors, loose, together,
        held, held_elements, none, none, read.left,
    )  # fmt: skip


def _numbers(own: Index, n: int) -> Index:
    """Which element of a turn each of n elements of rows is; -1 for none."""
    number = np.full(n, -1)
    number[own[own >= 0]] = np.flatnonzero(own >= 0)
    return number


def _own_lookups(read: _Reading, is_held: Mask) -> tuple[RowNumbers, Matrix, Index, Index, Index | None]:
    """Own elements of a turn in rows: numbers, coefficients and predictors; which they are, and which rows.

    Rows with fewer than others look up an element that is always zero. Rows that see nothing of the turn are
    left out, unless they tell a free scale of all rows.
    """
    n_lookups, design, tables = read.columns.n_lookups, read.columns.design, read.columns.tables
    own = np.flatnonzero(~is_held)
    if len(own) == len(is_held):
        return design.columns, design.values, design.of_columns, own, None
    lookups, values, of_lookups = _first_columns(read, ~is_held)
    some = None
    if is_held[n_lookups:].all() and read.columns.scale is None:
        some, n = tables.zeros(len(lookups), dtype=np.int64), 0
        for part in parts(len(lookups)):  # what is read again is behind what is written
            kept = part.start + np.flatnonzero((lookups[part] >= 0).any(axis=1))
            begun = slice(n, n + len(kept))
            some[begun] = kept
            lookups[begun], values[begun] = lookups[kept], values[kept]
            n = begun.stop
        some, lookups, values = some[:n], lookups[:n], values[:n]
    n = int(np.searchsorted(own, n_lookups))
    number = np.full(len(is_held) + 1, n, np.int32)  # the last one is for what has the number -1
    number[own[:n]] = np.arange(n)
    if lookups.min(initial=0) < 0:
        own = np.insert(own, n, -1)
    for part in parts(len(lookups)):
        lookups[part] = number[lookups[part]]
    return lookups, values, of_lookups, own, some


def _first_columns(read: _Reading, wanted: Mask) -> tuple[RowNumbers, Matrix, Index]:
    """Some elements of each row in the fewest columns of each predictor; -1 where there is none."""
    design, tables, n = read.columns.design, read.columns.tables, len(read.columns.offsets)
    which = np.unique(design.of_columns)
    of_predictors = [np.flatnonzero(design.of_columns == k) for k in which]
    widths = [
        max((int(wanted[design.columns[part][:, own]].sum(axis=1).max()) for part in parts(n)), default=0)
        for own in of_predictors
    ]
    ends = np.cumsum(widths, dtype=np.int64)
    columns, found = tables.zeros(n, sum(widths), dtype=np.int32), tables.zeros(n, sum(widths))
    for part in parts(n):
        for own, end, width in zip(of_predictors, ends, widths, strict=True):
            if not width:
                continue
            numbers = design.columns[part][:, own]
            is_wanted = wanted[numbers]
            order = np.argsort(~is_wanted, axis=1, kind="stable")[:, :width]
            for result, table, nothing in ((columns, numbers, -1), (found, design.values[part][:, own], 0.0)):
                own_values = np.take_along_axis(np.where(is_wanted, table, nothing), order, 1)
                result[part, end - width : end] = own_values
    return columns, found, np.repeat(which, widths)


def _held(read: _Reading, moves: Mask, is_held: Mask) -> tuple[Held, Index]:
    """What a turn does not move, and which elements these are."""
    design, tables, n_x, n_z = read.columns.design, read.columns.tables, len(is_held), len(moves)
    entries = read.entries.taken(np.flatnonzero(~moves[read.entries.columns]))
    pairs = entries.rows, n_x + entries.columns
    graph = sparse.csr_array((np.ones(len(entries.rows)), pairs), (n_x + n_z, n_x + n_z))
    _, block = connected_components(graph, directed=False)
    elements, coordinates = np.flatnonzero(is_held), np.unique(entries.columns)
    elements = elements[np.argsort(block[elements], kind="stable")]
    coordinates = coordinates[np.argsort(block[n_x + coordinates], kind="stable")]
    _, counts = np.unique(block[elements], return_counts=True)
    number = _numbers(elements, n_x + 1)
    number[-1] = 0  # of no element, times zero
    matrix = entries.placed(number, _numbers(coordinates, n_z)).by_rows()
    looked_up, coefficients, of_columns = _first_columns(read, is_held)
    at_dense = read.columns.n_lookups + design.at_dense
    dense = np.flatnonzero(is_held[at_dense])
    n, width = len(looked_up), looked_up.shape[1]
    columns = tables.zeros(n, width + len(dense), dtype=np.int32)
    values = tables.zeros(*columns.shape)
    columns[:, width:] = number[at_dense[dense]]
    for part in parts(n):
        columns[part, :width] = number[looked_up[part]]
        values[part] = np.concatenate([coefficients[part], design.dense[part][:, dense]], axis=1)
    nothing, none = np.zeros(0), np.zeros(0, np.int64)
    held = Held(
        coordinates, Elements(*matrix), np.zeros(len(elements)), columns, values,
        np.append(of_columns, design.of_dense[dense]), none, none, nothing, none, none, nothing, nothing,
        np.append(0, np.cumsum(counts)), False, np.zeros(len(elements)),
        np.zeros((2, len(matrix.rows))), np.zeros((2, len(coordinates))),
    )  # fmt: skip
    return held, elements


def _combinations(columns: RowNumbers, tables: RowTables) -> tuple[Index, Index]:
    """Different rows of the looked-up elements (M, F), and which each row has (N,)."""
    n, n_f = columns.shape
    code, found = tables.zeros(n, dtype=np.int64), np.zeros((1, 0), np.int64)
    own: list[Index] = []

    def ranked() -> Index:
        """Put the ranks of codes in their place; what they stand for."""
        codes = different(code[part] for part in parts(n))
        for part in parts(n):
            code[part] = np.searchsorted(codes, code[part])
        which, *places = np.unravel_index(codes, (len(found), *map(len, own)))
        return np.column_stack([found[which], *(one[at] for one, at in zip(own, places, strict=True))])

    for f in range(n_f):
        elements = occurring(columns[:, f])
        if len(found) * math.prod(map(len, (*own, elements))) > _LONGEST:
            found, own = ranked(), []
        number = np.zeros(int(elements.max(initial=-1)) + 1, np.int64)
        number[elements] = np.arange(len(elements))
        for part in parts(n):
            code[part] = code[part] * len(elements) + number[columns[part, f]]
        own.append(elements)
    return ranked(), code


def _determines(one: Index, other: Index) -> bool:
    """Does the level of one factor tell that of another?"""
    of_one = np.zeros(int(one.max(initial=0)) + 1, np.int64)
    of_one[one] = other
    return bool(np.array_equal(of_one[one], other))


def _separate(columns: np.ndarray, nothing: Index) -> tuple[_Factors, _Factors]:
    """Columns with the same partition of the rows: of factors that nest, finest first, and others.

    A vector that is looked up twice is among the others; but several columns may look up `nothing`, and
    several predictors the same elements.
    """
    every = range(columns.shape[1])
    same = [next(g for g in every if np.array_equal(columns[:, f], columns[:, g])) for f in every]
    own = [np.setdiff1d(columns[:, f], nothing) for f in every]
    shared = {
        f for f in every for g in every if same[f] != same[g] and len(np.intersect1d(own[f], own[g], True))
    }
    classes: list[list[int]] = []
    for f in sorted(set(every) - shared, key=lambda k: -len(own[k])):
        for one in classes:
            g = one[0]
            if len(own[f]) == len(own[g]) and _determines(columns[:, g], columns[:, f]):
                one.append(f)
                break
        else:
            classes.append([f])
    nested: list[list[int]] = []
    loose = [[f for f in every if same[f] == first] for first in sorted({same[f] for f in shared})]
    for one in classes:
        if all(_determines(columns[:, other[0]], columns[:, one[0]]) for other in nested):
            nested.append(one)
        else:
            loose.append(one)
    if loose and not nested:  # rows with one level of the first are a cell
        nested, loose = loose[:1], loose[1:]
    return tuple(tuple(one) for one in nested), tuple(tuple(one) for one in loose)


def _of_the_root(
    columns: np.ndarray, others: _Factors, in_root: np.ndarray
) -> tuple[tuple[int, ...], _Factors]:
    """Columns of factors whose levels are few and all in the root; and the other factors.

    The level of one is nearly that of another and of an intercept: bounded apart, these would seem to move
    far where their sums do not.
    """
    together: list[int] = []
    loose, known = [], np.zeros(0, np.int64)
    for one in sorted(others, key=lambda some: len(np.unique(columns[:, list(some)]))):
        elements = np.unique(columns[:, list(one)])
        every = np.union1d(known, elements)
        if len(every) <= _TOGETHER and in_root[elements].all():
            together, known = [*together, *one], every
        else:
            loose.append(one)
    return tuple(together), tuple(loose)


def _cells(
    combos: Index,
    which: Index,
    factors: _Factors,
    of_elements: Index,
    root: int,
    read: _Reading,
    own: Index | None,
) -> tuple[Index | None, Index, Index]:
    """Rows in the order of cells, or None if they are in that order; where cells begin, and their nodes.

    Rows of a cell see the same nodes of the tree and the same blocks of levels. Of those on disk, each cell
    has to lie together: it is read as a whole, and copied as a whole if the tree has another order. What
    turns after the first one have is copied row by row: `own` are the elements of the first one.
    """
    n, tables = len(which), read.columns.tables
    if combos.shape[1] == 0:
        return None, np.array([0, n]), np.array([root])
    lowest = of_elements[combos].min(axis=1)
    key = np.stack([lowest, *(combos[:, one[0]] for one in factors)], axis=1)
    order = np.lexsort(key.T[::-1])
    key = key[order]
    is_new = np.concatenate([[True], np.any(key[1:] != key[:-1], axis=1)])
    cell = np.empty(len(order), np.int64)
    cell[order] = np.cumsum(is_new) - 1
    ends = np.zeros(int(is_new.sum()) + 1, np.int64)
    n_runs, is_sorted = _count_rows(which, cell, ends)
    np.cumsum(ends, out=ends)
    n_likelihoods = len(read.field.likelihoods)  # these follow upon each other
    if own is not None and tables.folder is not None and n_runs > (len(ends) - 1) * n_likelihoods:
        groups = np.unique(combos[:, factors[0][0]])
        if len(groups) < len(ends) - 1 or np.any(own < 0):
            raise NoField(
                "rows on disk would have to be in an order that no column tells, as where rows look a vector "
                "up twice"
            )
        raise _not_in_order(read, own[groups])
    if is_sorted:
        return None, ends, key[is_new, 0]
    rows = tables.zeros(n, dtype=np.int64)
    _write_order(which, cell, ends[:-1].copy(), rows)
    return rows, ends, key[is_new, 0]


@entry
def _count_rows(which: Index, cell: Index, counts: Index) -> tuple[int, bool]:
    """Rows of each cell, from place 1 on; how often the cell changes, and whether it only increases."""
    n_runs, is_sorted, last = 0, True, -1
    for i in range(which.shape[0]):
        u = cell[which[i]]
        counts[u + 1] += 1
        n_runs += u != last
        is_sorted = is_sorted and u >= last
        last = u
    return n_runs, is_sorted


@entry
def _write_order(which: Index, cell: Index, free: Index, rows: Index) -> None:
    """Write which row comes first, second, ...; `free` are the first places of cells."""
    for i in range(which.shape[0]):
        u = cell[which[i]]
        rows[free[u]] = i
        free[u] += 1


def _not_in_order(read: _Reading, elements: Index) -> RowsOnDiskError:
    """The refusal of rows in which the groups of the finest factor are mixed."""
    element = read.columns.elements[elements[elements >= 0][0]]
    table = read.field.tables[int(np.searchsorted(read.maps.first, element, side="right")) - 1]
    name = table.variable if table.innovation is None else table.innovation.variable
    term = read.field.likelihoods[0].term.name
    return not_in_order(term, name)


def _pairs(combos: Index, n_lookups: int, n_dense: int) -> tuple[Index, Index, np.ndarray]:
    """Elements of H, as two elements of x; and those of the pairs of each combination."""
    n_f = combos.shape[1]
    codes = [
        np.minimum(combos[:, a], combos[:, b]) * n_lookups + np.maximum(combos[:, a], combos[:, b])
        for a in range(n_f)
        for b in range(a + 1)
    ]
    if codes:
        every, place = np.unique(np.stack(codes, 1), return_inverse=True)
        # What is alike lies together: pairs with the same second element, if there are many of it.
        is_wide = np.bincount(every % n_lookups, minlength=n_lookups)[every % n_lookups] >= _WIDE
        kind = n_lookups + every % n_lookups
        kind[~is_wide] = ranks(every[~is_wide] // n_lookups)
        order = np.lexsort((every, kind))
        every, number = every[order], np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        place = number[place].reshape(len(combos), -1)
    else:
        every, place = np.zeros(0, np.int64), np.zeros((len(combos), 0), np.int64)
    lower = np.tril_indices(n_dense)
    first = [every // max(n_lookups, 1), np.tile(np.arange(n_lookups), n_dense), n_lookups + lower[1]]
    second = [
        every % max(n_lookups, 1),
        n_lookups + np.repeat(np.arange(n_dense), n_lookups),
        n_lookups + lower[0],
    ]
    return np.concatenate(first), np.concatenate(second), place.astype(np.int32)
