"""Rules of `lift` for slicing and fancy indexing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Split
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedSubtensor,
    Subtensor,
    _non_consecutive_adv_indexing,
    indices_from_subtensor,
)

from pymc_austerity.model.graph.rewrite import rebuild
from pymc_austerity.model.lift.lifter import Lifter, NotData, along, point_rule, positive, refuse, rule
from pymc_austerity.model.refusal import Coupled

type Entry = Any  # a slice or an index variable
type Axes = tuple[int, ...]
type Indices = tuple[Variable, ...]
EVERYTHING = slice(None)


def entries_of(lifter: Lifter, node: Apply, x: Variable, first_index: int) -> list[Entry]:
    """The slice or index of each axis of x; masks become the positions they select."""
    result: list[Entry] = []
    for entry in indices_from_subtensor(node.inputs[first_index:], node.op.idx_list):
        if isinstance(entry, slice) or entry.type.dtype != "bool":
            result.append(entry)
            continue
        try:
            mask = lifter.data_value(entry)
        except NotData:
            refuse(node.outputs[0], "a boolean mask that depends on the sampled variables")
        result += [pt.constant(position) for position in np.nonzero(mask)]
    return result + [EVERYTHING] * (x.type.ndim - len(result))


def positions(lifter: Lifter, entry: slice, length: int) -> range:
    """Positions that a slice selects; `NotData` if its bounds depend on the sampled variables."""
    bounds = (
        b if b is None or isinstance(b, int) else int(lifter.data_value(b))
        for b in (entry.start, entry.stop, entry.step)
    )
    return range(length)[slice(*bounds)]


def output_layout(entries: list[Entry]) -> list[tuple[str, int]]:
    """The axis of the broadcast indices, or of x, that each axis of x[entries] comes from."""
    fancy = [i for i, e in enumerate(entries) if not isinstance(e, slice)]
    broadcast = [("index", k) for k in range(max((entries[i].type.ndim for i in fancy), default=0))]
    front = _non_consecutive_adv_indexing(tuple(entries))
    layout = broadcast if front else []
    for i, entry in enumerate(entries):
        if isinstance(entry, slice):
            layout = [*layout, ("slice", i)]
        elif i == fancy[0] and not front:
            layout = layout + broadcast
    return layout


def _through_slice(
    lifter: Lifter, x: Variable, p: int, entry: slice, index: Variable, var: Variable
) -> Variable:
    """Positions in x of the positions `index` in a slice of it."""
    if entry == EVERYTHING:
        return index
    try:
        selected = positions(lifter, entry, x.type.shape[p])
    except NotData:
        refuse(var, "slice with bounds that depend on the sampled variables")
    return lifter.moved(index, selected.step, selected.start)


@rule.register(Subtensor)
def _rows_of_slices(
    op: Subtensor, lifter: Lifter, node: Apply, var: Variable, axis: int, index: Variable
) -> Variable:
    x = node.inputs[0]
    entries = entries_of(lifter, node, x, 1)
    p = [i for i, e in enumerate(entries) if isinstance(e, slice)][axis]
    return _rows_of_slice(lifter, x, p, entries, index, var)


def _rows_of_slice(
    lifter: Lifter, x: Variable, p: int, entries: list[Entry], index: Variable, var: Variable
) -> Variable:
    moved = _through_slice(lifter, x, p, entries[p], index, var)
    take = lifter.take if all(e == EVERYTHING for e in entries) else lifter.take_selection
    entries[p] = EVERYTHING
    return take(x, p, moved)[tuple(entries)]


@point_rule.register(Subtensor)
def _cells_of_slices(
    op: Subtensor, lifter: Lifter, node: Apply, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    x = node.inputs[0]
    entries = entries_of(lifter, node, x, 1)
    kept = [i for i, e in enumerate(entries) if isinstance(e, slice)]
    own = [kept[a] for a in axes]
    moved = [_through_slice(lifter, x, p, entries[p], i, var) for p, i in zip(own, indices, strict=True)]
    with lifter.selection():
        cells = lifter.take_points(x, own, moved)
    return cells[(EVERYTHING, *(e for i, e in enumerate(entries) if i not in own))]


@rule.register(AdvancedSubtensor)
def _rows_of_lookup(
    op: AdvancedSubtensor, lifter: Lifter, node: Apply, var: Variable, axis: int, index: Variable
) -> Variable:
    x = node.inputs[0]
    entries = entries_of(lifter, node, x, 1)
    layout = output_layout(entries)
    kind, k = layout[axis]
    if kind == "slice":
        return _rows_of_slice(lifter, x, k, entries, index, var)

    # The row axis is axis k of the broadcast indices: take rows of every index that has it.
    n_broadcast = sum(kind == "index" for kind, _ in layout)
    vectors = {}
    for i, entry in enumerate(entries):
        own = -1 if isinstance(entry, slice) else k - (n_broadcast - entry.type.ndim)
        if own < 0 or entry.type.shape[own] == 1:
            continue
        entries[i] = rows = lifter.take(entry, own, index)
        is_vector = all(n == 1 for a, n in enumerate(entry.type.shape) if a != own)
        if is_vector and x.type.shape[i] != 1:
            vectors[i] = positive(rows.dimshuffle(own), x.type.shape[i])
    if not vectors or x.owner is None or not lifter.depends(x) or _is_small(lifter, x):
        return x[tuple(entries)]

    # x has to be computed: compute only what is selected of it.
    try:
        with lifter.selection():
            cells = lifter.take_points(x, list(vectors), list(vectors.values()))
    except Coupled:
        if lifter.is_short(x):
            return x[tuple(entries)]
        raise
    rest = [e for i, e in enumerate(entries) if i not in vectors]
    # Bring the axes of the broadcast indices to the front ...
    if all(isinstance(e, slice) or e.type.ndim == 0 for e in rest):
        cells = cells[(EVERYTHING, *rest)]
        block: list[int | str] = [0 if a == k else "x" for a in range(n_broadcast)]
    else:
        cells = cells[(along(pt.arange(index.shape[0]), k, n_broadcast), *rest)]
        block = list(range(n_broadcast))
    # ... and from there to where they belong.
    slices = list(range(sum(a != "x" for a in block), cells.type.ndim))
    start = layout.index(("index", 0))
    return cells.dimshuffle([*slices[:start], *block, *slices[start:]])


@point_rule.register(AdvancedSubtensor)
def _cells_of_lookup(
    op: AdvancedSubtensor, lifter: Lifter, node: Apply, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    """Cell (i, j) of x[a, :] is x[a[i], j]."""
    x = node.inputs[0]
    entries = entries_of(lifter, node, x, 1)
    layout = output_layout(entries)
    wanted = {layout[a]: i for a, i in zip(axes, indices, strict=True)}
    n_broadcast = sum(kind == "index" for kind, _ in layout)
    chosen = {}
    for i, entry in enumerate(entries):
        if not isinstance(entry, slice):
            offset = n_broadcast - entry.type.ndim
            real = [a for a, n in enumerate(entry.type.shape) if n != 1]
            if not real or any(("index", offset + a) not in wanted for a in real):
                break  # not a cell but a part of x
            cells = lifter.take_points(entry, real, [wanted["index", offset + a] for a in real])
            chosen[i] = positive(cells.flatten(), x.type.shape[i])
        elif ("slice", i) in wanted:
            chosen[i] = _through_slice(lifter, x, i, entry, wanted["slice", i], var)
            entries[i] = EVERYTHING
    else:
        with lifter.selection():
            cells = lifter.take_points(x, list(chosen), list(chosen.values()))
        cells = cells[(EVERYTHING, *(e for i, e in enumerate(entries) if i not in chosen))]
        # What is left of the indices are axes of length one.
        rest = [kind for a, (kind, _) in enumerate(layout) if a not in axes]
        slices = iter(range(1, cells.type.ndim))
        return cells.dimshuffle(0, *(next(slices) if kind == "slice" else "x" for kind in rest))
    return point_rule.dispatch(object)(op, lifter, node, var, axes, indices)


def _is_small(lifter: Lifter, x: Variable) -> bool:
    return bool(math.prod(x.type.shape) < lifter.threshold)


def select_early(lifter: Lifter, outputs: list[Variable]) -> list[Variable]:
    """Where a short selection is made from a long computation, compute only what is selected.

    The start of a random walk, ``walk[0]`` of an expression, is such a selection, and so are the few censored
    rows of a predictor, ``eta[censored]``: without this all of it would be computed for them.
    """
    nodes = list(toposort(outputs))
    # How many rows a mask selects is not known from the graph but was measured.
    measured = {node.inputs[0]: node.outputs[0] for node in nodes if isinstance(node.op, SpecifyShape)}
    replace = {}
    for node in nodes:
        if not isinstance(node.op, Subtensor | AdvancedSubtensor | Split):
            continue
        x = node.inputs[0]
        if x.owner is None or None in x.type.shape or lifter.is_short(x) or not lifter.depends(x):
            continue
        for var in node.outputs:
            if not lifter.is_short(measured.get(var, var)):
                continue
            try:
                new = _selected(lifter, node, var)
            except Coupled:  # left as it is; the cost check will say so
                new = None
            if new is not None:
                (replace[var],) = rebuild([new], {})  # lengths that are known become constants
    return rebuild(outputs, replace) if replace else outputs


def _selected(lifter: Lifter, node: Apply, var: Variable) -> Variable | None:
    """One of the results of `node`, from a table whose rows are only computed where they are selected."""
    x = node.inputs[0]
    long_axes = [a for a, k in enumerate(x.type.shape) if k >= lifter.threshold]
    if isinstance(node.op, Split):
        return _split_off(lifter, node, var) if long_axes == [node.op.axis] else None
    entries = entries_of(lifter, node, x, 1)
    fancy = [a for a, e in enumerate(entries) if not isinstance(e, slice)]
    if fancy and all(entries[a].type.ndim == 1 for a in fancy) and set(long_axes) <= set(fancy):
        return _selected_cells(lifter, x, entries, fancy)
    if len(long_axes) != 1:
        return None
    (axis,) = long_axes
    entry = entries[axis]
    if isinstance(entry, slice):
        try:
            index = pt.constant(np.array(positions(lifter, entry, x.type.shape[axis]), dtype="int64"))
        except NotData:
            return None
        entries[axis] = EVERYTHING
    elif entry.type.ndim == 0:
        index = positive(pt.as_tensor(entry).dimshuffle("x"), x.type.shape[axis])
        entries[axis] = 0
    else:
        return None
    return lifter.take_selection(x, axis, index)[tuple(entries)]


def _split_off(lifter: Lifter, node: Apply, var: Variable) -> Variable | None:
    k = node.outputs.index(var)
    try:
        sizes = lifter.data_value(node.inputs[-1])
    except NotData:
        return None
    start = int(np.sum(sizes[:k]))
    return lifter.take_selection(node.inputs[0], node.op.axis, pt.arange(start, start + int(sizes[k])))


def _selected_cells(lifter: Lifter, x: Variable, entries: list[Entry], fancy: list[int]) -> Variable:
    """``x[entries]`` with an index vector on each of the axes `fancy`, and slices on the others."""
    vectors = pt.broadcast_arrays(*(positive(entries[a], x.type.shape[a]) for a in fancy))
    with lifter.selection():
        cells = lifter.take_points(x, fancy, vectors)
    rest = [e for a, e in enumerate(entries) if a not in fancy]
    return pt.moveaxis(cells[(EVERYTHING, *rest)], 0, output_layout(entries).index(("index", 0)))
