"""Rules of `lift` for slicing, fancy indexing and assignment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Split
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    _non_consecutive_adv_indexing,
    indices_from_subtensor,
)

from pymc_austerity.model.graph import rebuild
from pymc_austerity.model.lift import Lifter, along, constant_int, gather, positive, refuse, rule
from pymc_austerity.model.refusal import Coupled

type Entry = Any  # a slice or an index variable
EVERYTHING = slice(None)


def _entries(node: Apply, x: Variable, first_index: int) -> list[Entry]:
    """One slice or index for each axis of x."""
    entries = list(indices_from_subtensor(node.inputs[first_index:], node.op.idx_list))
    return entries + [EVERYTHING] * (x.type.ndim - len(entries))


def _positions(entry: slice, length: int) -> range:
    """Positions that a slice with constant bounds selects; `LookupError` if they are not constant."""
    bounds = (constant_int(b) for b in (entry.start, entry.stop, entry.step))
    return range(length)[slice(*bounds)]


def _through_slice(x: Variable, p: int, entry: slice, index: Variable, var: Variable) -> Variable:
    try:
        selected = _positions(entry, x.type.shape[p])
    except LookupError:
        refuse(var, "slice with bounds that are not constants")
    moved = index * selected.step if selected.step != 1 else index
    return moved + selected.start if selected.start else moved


def _keeps_all(moved: Variable, index: Variable) -> bool:
    return moved is index


@rule.register(Subtensor)
def _(op: Subtensor, lifter: Lifter, node: Apply, var: Variable, axis: int, index: Variable) -> Variable:
    x = node.inputs[0]
    entries = _entries(node, x, 1)
    p = [i for i, e in enumerate(entries) if isinstance(e, slice)][axis]
    moved = _through_slice(x, p, entries[p], index, var)
    entries[p] = EVERYTHING
    take = lifter.take if _keeps_all(moved, index) else lifter.take_selection
    return take(x, p, moved)[tuple(entries)]


@rule.register(AdvancedSubtensor)
def _(
    op: AdvancedSubtensor, lifter: Lifter, node: Apply, var: Variable, axis: int, index: Variable
) -> Variable:
    x = node.inputs[0]
    entries = _entries(node, x, 1)
    entries = _without_masks(entries, var)
    fancy = [i for i, e in enumerate(entries) if not isinstance(e, slice)]
    n_broadcast = max(entries[i].type.ndim for i in fancy)
    layout = _output_layout(entries, fancy, n_broadcast)
    kind, k = layout[axis]
    if kind == "slice":
        moved = _through_slice(x, k, entries[k], index, var)
        entries[k] = EVERYTHING
        take = lifter.take if _keeps_all(moved, index) else lifter.take_selection
        return take(x, k, moved)[tuple(entries)]

    # The row axis is axis k of the broadcast indices: take rows of every index that has it.
    selected = list(entries)
    row_axes = {}
    for i in fancy:
        own = k - (n_broadcast - entries[i].type.ndim)
        if own >= 0 and entries[i].type.shape[own] != 1:
            selected[i] = lifter.take(entries[i], own, index)
            row_axes[i] = own
    # Where x itself is long and has to be computed, compute only the rows that are selected.
    for i, own in row_axes.items():
        is_vector = all(n == 1 or a == own for a, n in enumerate(selected[i].type.shape))
        if x.owner is None or not is_vector or x.type.shape[i] < lifter.threshold:
            continue
        flat = selected[i].dimshuffle(own) if selected[i].type.ndim > 1 else selected[i]
        x = lifter.take_selection(x, i, positive(flat, x.type.shape[i]))
        if len(fancy) == 1 and selected[i].type.ndim == 1:
            selected[i] = EVERYTHING
        else:
            rows = pt.arange(flat.shape[0])
            selected[i] = along(rows, own, selected[i].type.ndim)
        break
    return x[tuple(selected)]


def _output_layout(entries: list[Entry], fancy: list[int], n_broadcast: int) -> list[tuple[str, int]]:
    """For each output axis: the axis of the broadcast indices, or of x, that it comes from."""
    broadcast = [("index", k) for k in range(n_broadcast)]
    front = _non_consecutive_adv_indexing(tuple(entries))
    layout = broadcast if front else []
    for i, entry in enumerate(entries):
        if isinstance(entry, slice):
            layout = [*layout, ("slice", i)]
        elif i == fancy[0] and not front:
            layout = layout + broadcast
    return layout


def _without_masks(entries: list[Entry], var: Variable) -> list[Entry]:
    """Replace constant boolean masks by the positions they select."""
    result: list[Entry] = []
    for entry in entries:
        if len(result) >= len(entries):
            break
        if isinstance(entry, slice) or entry.type.dtype != "bool":
            result.append(entry)
        elif isinstance(entry, Constant):
            result += [pt.constant(p) for p in np.nonzero(entry.data)]
        else:
            refuse(var, "selection by a boolean mask that is not a constant")
    # An n-dimensional mask stands for n axes; `_entries` padded the missing ones with slices.
    return result[: len(entries)]


@rule.register(IncSubtensor)
@rule.register(AdvancedIncSubtensor)
def _(op: IncSubtensor, lifter: Lifter, node: Apply, var: Variable, axis: int, index: Variable) -> Variable:
    """Rows of set_subtensor(x[where], y): y where row i was assigned, x elsewhere."""
    x, y = node.inputs[:2]
    entries = _entries(node, x, 2)
    if any(e != EVERYTHING for a, e in enumerate(entries) if a != axis):
        return _assign_elsewhere(op, lifter, node, entries, axis, index)
    length = x.type.shape[axis]
    entry = entries[axis]
    is_scalar = False
    try:
        if isinstance(entry, slice):
            where = np.array(_positions(entry, length))
        elif isinstance(entry, Constant) and entry.type.ndim <= 1:
            is_scalar = entry.type.ndim == 0
            where = np.atleast_1d(np.arange(length)[entry.data])
        elif entry.type.ndim == 0:
            is_scalar, where = True, np.arange(length)[[int(constant_int(entry) or 0)]]
        else:
            raise LookupError
    except LookupError:
        refuse(var, "assignment to positions that are not constant")
    if len(np.unique(where)) != len(where):
        refuse(var, "assignment that names a position twice")
    source = np.full(length, -1)
    source[where] = np.arange(len(where))
    j = gather(pt.constant(source), 0, index)
    old = lifter.take(x, axis, index)
    if not len(where):
        return old
    if is_scalar:
        if y.type.ndim < x.type.ndim - 1:
            y = pt.shape_padleft(y, x.type.ndim - 1 - y.type.ndim)
        new = pt.expand_dims(y, axis) if y.type.ndim == x.type.ndim - 1 else y
    else:
        own = axis - (x.type.ndim - y.type.ndim)
        new = y if own < 0 else lifter.take(y, own, pt.maximum(j, 0))
    if not op.set_instead_of_inc:
        new = old + new
    return pt.switch(along(j >= 0, axis, x.type.ndim), new, old).astype(var.type.dtype)


def _assign_elsewhere(
    op: IncSubtensor, lifter: Lifter, node: Apply, entries: list[Entry], axis: int, index: Variable
) -> Variable:
    """Assignment to columns: each row is assigned for itself."""
    x, y = node.inputs[:2]
    var = node.outputs[0]
    basic = all(isinstance(e, slice) or e.type.ndim == 0 for e in entries)
    if entries[axis] != EVERYTHING or not basic:
        refuse(var, "assignment to a selection of rows and columns at once")
    kept = [a for a, e in enumerate(entries) if isinstance(e, slice)]
    own = kept.index(axis) - (len(kept) - y.type.ndim)
    rows_y = y if own < 0 else lifter.take(y, own, index)
    rows_x = lifter.take(x, axis, index)
    target = rows_x[tuple(entries)]
    return pt.set_subtensor(target, rows_y) if op.set_instead_of_inc else pt.inc_subtensor(target, rows_y)


def select_early(lifter: Lifter, outputs: list[Variable]) -> list[Variable]:
    """Where a short selection is made from a long computation, compute only what is selected.

    The start of a random walk, ``walk[0]`` of an expression, is such a selection: without this the
    whole walk would be computed for it.
    """
    replace = {}
    for node in toposort(outputs):
        if not isinstance(node.op, Subtensor | AdvancedSubtensor | Split):
            continue
        x = node.inputs[0]
        if x.owner is None or None in x.type.shape or not lifter.depends(x):
            continue
        long_axes = [a for a, k in enumerate(x.type.shape) if k >= lifter.threshold]
        for var in node.outputs:
            if len(long_axes) != 1 or not lifter.is_short(var):
                continue
            try:
                new = _selected(lifter, node, var, long_axes[0])
            except Coupled:  # left as it is; the cost check will say so
                new = None
            if new is not None:
                replace[var] = new
    return rebuild(outputs, replace) if replace else outputs


def _selected(lifter: Lifter, node: Apply, var: Variable, axis: int) -> Variable | None:
    x = node.inputs[0]
    length = x.type.shape[axis]
    if isinstance(node.op, Split):
        k, sizes = node.outputs.index(var), node.inputs[-1]
        if node.op.axis != axis or not isinstance(sizes, Constant):
            return None
        start = int(np.sum(sizes.data[:k]))
        return lifter.take_selection(x, axis, pt.arange(start, start + int(sizes.data[k])))
    entries = _without_masks(_entries(node, x, 1), var)
    entry = entries[axis]
    if isinstance(entry, slice):
        try:
            index = pt.constant(np.array(_positions(entry, length), dtype="int64"))
        except LookupError:
            return None
        entries[axis] = EVERYTHING
    elif entry.type.ndim == 0:
        index = positive(pt.as_tensor(entry).dimshuffle("x"), length)
        entries[axis] = 0
    elif entry.type.ndim == 1 and all(isinstance(e, slice) for e in entries if e is not entry):
        index = positive(entry, length)
        entries[axis] = EVERYTHING
    else:
        return None
    return lifter.take_selection(x, axis, index)[tuple(entries)]
