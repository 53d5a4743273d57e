"""Rules of `lift` for slicing, fancy indexing, and assignment as ``x[where].set(y)``."""

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import Split
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    _non_consecutive_adv_indexing,
    indices_from_subtensor,
)

from pymc_austerity.model.graph.rewrite import rebuild
from pymc_austerity.model.lift.lifter import (
    Axes,
    Indices,
    Lifter,
    NotData,
    along,
    gather,
    point_rule,
    positive,
    refuse,
    rule,
)
from pymc_austerity.model.refusal import Coupled

type Entry = Any  # a slice or an index variable
_EVERYTHING = slice(None)
# Cells get equally long lists of their values: so much more than there are values may be stored.
_MEMORY = 20


def _entries_of(lifter: Lifter, var: Variable, n_operands: int = 1) -> list[Entry]:
    """The slice or index of each axis of the first operand; masks become the positions they select."""
    result: list[Entry] = []
    for entry in indices_from_subtensor(var.owner.inputs[n_operands:], var.owner.op.idx_list):
        if isinstance(entry, slice) or entry.type.dtype != "bool":
            result.append(entry)
            continue
        try:
            mask = lifter.data_value(entry)
        except NotData:
            refuse(var, "a boolean mask that depends on the sampled variables")
        result += [pt.constant(position) for position in np.nonzero(mask)]
    return result + [_EVERYTHING] * (var.owner.inputs[0].type.ndim - len(result))


def _positions(lifter: Lifter, entry: slice, length: int) -> range:
    """Positions that a slice selects; `NotData` if its bounds depend on the sampled variables."""
    bounds = (
        b if b is None or isinstance(b, int) else int(lifter.data_value(b))
        for b in (entry.start, entry.stop, entry.step)
    )
    return range(length)[slice(*bounds)]


def _output_layout(entries: list[Entry]) -> list[tuple[str, int]]:
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


def _through_slice(lifter: Lifter, var: Variable, p: int, entry: slice, index: Variable) -> Variable:
    """Positions along axis `p` of what `var` selects from, of the positions `index` in a slice of it."""
    if entry == _EVERYTHING:
        return index
    try:
        selected = _positions(lifter, entry, var.owner.inputs[0].type.shape[p])
    except NotData:
        refuse(var, "slice with bounds that depend on the sampled variables")
    return lifter.moved(index, selected.step, selected.start)


@rule.register(Subtensor)
def _rows_of_slices(op: Subtensor, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    entries = _entries_of(lifter, var)
    p = [i for i, e in enumerate(entries) if isinstance(e, slice)][axis]
    return _rows_of_slice(lifter, var, p, entries, index)


def _rows_of_slice(lifter: Lifter, var: Variable, p: int, entries: list[Entry], index: Variable) -> Variable:
    moved = _through_slice(lifter, var, p, entries[p], index)
    take = lifter.take if all(e == _EVERYTHING for e in entries) else lifter.take_selection
    entries[p] = _EVERYTHING
    return take(var.owner.inputs[0], p, moved)[tuple(entries)]


@point_rule.register(Subtensor)
def _cells_of_slices(op: Subtensor, lifter: Lifter, var: Variable, axes: Axes, indices: Indices) -> Variable:
    x = var.owner.inputs[0]
    entries = _entries_of(lifter, var)
    kept = [i for i, e in enumerate(entries) if isinstance(e, slice)]
    own = [kept[a] for a in axes]
    moved = [_through_slice(lifter, var, p, entries[p], i) for p, i in zip(own, indices, strict=True)]
    with lifter.selection():
        cells = lifter.take_points(x, own, moved)
    return cells[(_EVERYTHING, *(e for i, e in enumerate(entries) if i not in own))]


@rule.register(AdvancedSubtensor)
def _rows_of_lookup(
    op: AdvancedSubtensor, lifter: Lifter, var: Variable, axis: int, index: Variable
) -> Variable:
    x = var.owner.inputs[0]
    entries = _entries_of(lifter, var)
    layout = _output_layout(entries)
    kind, k = layout[axis]
    if kind == "slice":
        return _rows_of_slice(lifter, var, k, entries, index)

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
    if not vectors or x.owner is None or not lifter.depends(x) or math.prod(x.type.shape) < lifter.threshold:
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
        cells = cells[(_EVERYTHING, *rest)]
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
    op: AdvancedSubtensor, lifter: Lifter, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    """Cell (i, j) of x[a, :] is x[a[i], j]."""
    x = var.owner.inputs[0]
    entries = _entries_of(lifter, var)
    layout = _output_layout(entries)
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
            chosen[i] = _through_slice(lifter, var, i, entry, wanted["slice", i])
            entries[i] = _EVERYTHING
    else:
        with lifter.selection():
            cells = lifter.take_points(x, list(chosen), list(chosen.values()))
        cells = cells[(_EVERYTHING, *(e for i, e in enumerate(entries) if i not in chosen))]
        # What is left of the indices are axes of length one.
        rest = [kind for a, (kind, _) in enumerate(layout) if a not in axes]
        slices = iter(range(1, cells.type.ndim))
        return cells.dimshuffle(0, *(next(slices) if kind == "slice" else "x" for kind in rest))
    return point_rule.dispatch(object)(op, lifter, var, axes, indices)


# Assignment ------------------------------------------------------------------------------------------------


@rule.register(IncSubtensor)
@rule.register(AdvancedIncSubtensor)
def _rows_of_assignment(
    op: IncSubtensor, lifter: Lifter, var: Variable, axis: int, index: Variable
) -> Variable:
    """Rows of the result are those of y where a cell was assigned, those of x elsewhere."""
    x, y = var.owner.inputs[:2]
    entries = _entries_of(lifter, var, 2)
    if entries[axis] == _EVERYTHING:
        return _assign_elsewhere(lifter, var, entries, axis, index)
    indexed = [a for a, e in enumerate(entries) if e != _EVERYTHING]
    where = _where(lifter, var, entries, indexed)
    lengths = [x.type.shape[a] for a in indexed]
    targets = np.arange(math.prod(lengths)).reshape(lengths)[where]
    only_last = op.set_instead_of_inc or getattr(op, "ignore_duplicates", False)
    most = 1 if only_last else int(np.bincount(targets.ravel()).max(initial=1))
    if most >= min(lifter.threshold, _MEMORY * (1 + targets.size / math.prod(lengths))):
        refuse(var, f"up to {most:,} numbers are added to one cell")
    if not targets.size:
        return lifter.take(x, axis, index)
    take = lifter.take_selection if op.set_instead_of_inc else lifter.take
    old = take(x, axis, index)
    sources = _sources(targets.ravel(), math.prod(lengths), most).reshape(*lengths, most)
    source = gather(pt.constant(sources), indexed.index(axis), index)
    exists = pt.ge(source, 0)

    def into_rows(valid: Variable) -> Variable:
        """A row is valid if all that is added to it is."""
        used = valid.reshape(source.shape, ndim=source.type.ndim) | ~exists
        return used.all(axis=[a for a in range(source.type.ndim) if a != indexed.index(axis)])

    # Everything that is added counts; of what is assigned, some may be overwritten.
    with lifter.selection() if only_last else lifter.rearranged(into_rows):
        new = _from_sources(lifter, y, entries, targets.shape, source)
    if not op.set_instead_of_inc:
        return (old + new).astype(var.type.dtype)
    places = [indexed.index(a) if a in indexed else "x" for a in range(x.type.ndim)]
    was_assigned = exists.any(axis=-1).dimshuffle(places)
    return pt.switch(was_assigned, new, old).astype(var.type.dtype)


def _sources(targets: np.ndarray, n_cells: int, most: int) -> np.ndarray:
    """Numbers of the values that go to each cell, shape (n_cells, most); -1 where there is no value.

    `targets` has the cell that each value goes to. If a cell gets more than `most`, the last are named: an
    assignment that names a cell twice leaves the last value there.
    """
    order = np.argsort(targets, kind="stable")[::-1]
    rank = np.arange(len(order)) - np.searchsorted(-targets[order], -targets[order])
    named = rank < most
    sources = np.full((n_cells, most), -1)
    sources[targets[order][named], rank[named]] = order[named]
    return sources


def _where(lifter: Lifter, var: Variable, entries: list[Entry], indexed: list[int]) -> tuple[Any, ...]:
    """The entries as constants, without the axes that are assigned whole."""
    inside = [entries[a] for a in indexed]
    if _non_consecutive_adv_indexing(tuple(inside)) != _non_consecutive_adv_indexing(tuple(entries)):
        refuse(var, "assignment to cells along axes that are apart")
    where: list[Any] = []
    try:
        for a in indexed:
            if isinstance(entries[a], slice):
                chosen = _positions(lifter, entries[a], var.owner.inputs[0].type.shape[a])
                stop = chosen.stop if chosen.stop >= 0 else None
                where.append(slice(chosen.start, stop, chosen.step) if len(chosen) else slice(0, 0))
            else:
                where.append(lifter.data_value(entries[a]))
    except NotData:
        refuse(var, "assignment to positions that depend on the sampled variables")
    return tuple(where)


def _from_sources(
    lifter: Lifter, y: Variable, entries: list[Entry], shape: tuple[int, ...], source: Variable
) -> Variable:
    """Sum of the cells of y with the numbers in the last axis of `source`, in the axes of x."""
    layout, indexed = _output_layout(entries), [a for a, e in enumerate(entries) if e != _EVERYTHING]
    y = pt.shape_padleft(y, len(layout) - y.type.ndim)
    whole = [t for t, (kind, a) in enumerate(layout) if kind == "slice" and a not in indexed]
    y = y.transpose([t for t in range(len(layout)) if t not in whole] + whole)
    rest = y.type.shape[len(shape) :]
    if y.type.shape[: len(shape)] != shape:
        y = pt.alloc(y, *shape, *rest)
    y = y.reshape((math.prod(shape), *rest))
    chosen = lifter.take(y, 0, pt.maximum(source, 0).flatten())
    if chosen.type.shape[0] == 1:
        chosen = pt.alloc(chosen, source.size, *rest)
    ndim = source.type.ndim
    chosen = chosen.reshape((*source.shape, *rest), ndim=ndim + len(rest))
    exists = pt.ge(source, 0).dimshuffle(*range(ndim), *["x"] * len(rest))
    total = pt.switch(exists, chosen, 0).sum(axis=ndim - 1)
    axes = indexed + [layout[t][1] for t in whole]
    return total.transpose([axes.index(a) for a in range(len(axes))])


def _assign_elsewhere(
    lifter: Lifter, var: Variable, entries: list[Entry], axis: int, index: Variable
) -> Variable:
    """Assignment to columns: each row is assigned for itself."""
    (x, y, *_), op = var.owner.inputs, var.owner.op
    layout = _output_layout(entries)
    own = layout.index(("slice", axis)) - (len(layout) - y.type.ndim)
    new = y if own < 0 else lifter.take(y, own, index)
    take = lifter.take_selection if op.set_instead_of_inc else lifter.take
    target = take(x, axis, index)[tuple(entries)]
    return pt.set_subtensor(target, new) if op.set_instead_of_inc else pt.inc_subtensor(target, new)


# Short selections -------------------------------------------------------------------------------------------


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
                new = _selected(lifter, var)
            except Coupled:  # left as it is; the cost check will say so
                new = None
            if new is not None:
                (replace[var],) = rebuild([new], {})  # lengths that are known become constants
    return rebuild(outputs, replace) if replace else outputs


def _selected(lifter: Lifter, var: Variable) -> Variable | None:
    """A selection `var` from a table whose rows are only computed where they are selected."""
    x = var.owner.inputs[0]
    long_axes = [a for a, k in enumerate(x.type.shape) if k >= lifter.threshold]
    if isinstance(var.owner.op, Split):
        axis, k = var.owner.op.axis, var.owner.outputs.index(var)
        if long_axes != [axis]:
            return None
        try:
            sizes = lifter.data_value(var.owner.inputs[-1])
        except NotData:
            return None
        start = int(np.sum(sizes[:k]))
        return lifter.take_selection(x, axis, pt.arange(start, start + int(sizes[k])))
    entries = _entries_of(lifter, var)
    fancy = [a for a, e in enumerate(entries) if not isinstance(e, slice)]
    if fancy and all(entries[a].type.ndim == 1 for a in fancy) and set(long_axes) <= set(fancy):
        vectors = pt.broadcast_arrays(*(positive(entries[a], x.type.shape[a]) for a in fancy))
        with lifter.selection():
            cells = lifter.take_points(x, fancy, vectors)
        rest = [e for a, e in enumerate(entries) if a not in fancy]
        return pt.moveaxis(cells[(_EVERYTHING, *rest)], 0, _output_layout(entries).index(("index", 0)))
    if len(long_axes) != 1:
        return None
    (axis,) = long_axes
    entry = entries[axis]
    if isinstance(entry, slice):
        try:
            index = pt.constant(np.array(_positions(lifter, entry, x.type.shape[axis]), dtype="int64"))
        except NotData:
            return None
        entries[axis] = _EVERYTHING
    elif entry.type.ndim == 0:
        index = positive(pt.as_tensor(entry).dimshuffle("x"), x.type.shape[axis])
        entries[axis] = 0
    else:
        return None
    return lifter.take_selection(x, axis, index)[tuple(entries)]
