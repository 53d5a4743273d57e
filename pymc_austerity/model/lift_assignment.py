"""Rules of `lift` for assignment: ``x[where].set(y)`` and ``x[where].inc(y)``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor, _non_consecutive_adv_indexing

from pymc_austerity.model.lift import Lifter, NotData, gather, refuse, rule
from pymc_austerity.model.lift_indexing import EVERYTHING, Entry, entries_of, output_layout, positions


@rule.register(IncSubtensor)
@rule.register(AdvancedIncSubtensor)
def _(op: IncSubtensor, lifter: Lifter, node: Apply, var: Variable, axis: int, index: Variable) -> Variable:
    """Rows of the result are those of y where a cell was assigned, those of x elsewhere."""
    x, y = node.inputs[:2]
    entries = entries_of(lifter, node, x, 2)
    if entries[axis] == EVERYTHING:
        return _assign_elsewhere(op, lifter, x, y, entries, axis, index)
    indexed = [a for a, e in enumerate(entries) if e != EVERYTHING]
    where = _where(lifter, x, entries, indexed, var)
    # The number of the cell of y that went to each cell of x, or -1.
    source = np.full([x.type.shape[a] for a in indexed], -1)
    shape = source[where].shape
    source[where] = np.arange(math.prod(shape)).reshape(shape)
    if not op.set_instead_of_inc and np.sum(source >= 0) != math.prod(shape):
        refuse(var, "an increment that names a position twice")
    old = lifter.take(x, axis, index)
    if not math.prod(shape):
        return old
    cell = gather(pt.constant(source), indexed.index(axis), index)
    new = _assigned(lifter, y, entries, indexed, shape, cell)
    if not op.set_instead_of_inc:
        new = old + new
    was_assigned = pt.ge(cell, 0).dimshuffle(
        [indexed.index(a) if a in indexed else "x" for a in range(x.type.ndim)]
    )
    return pt.switch(was_assigned, new, old).astype(var.type.dtype)


def _where(
    lifter: Lifter, x: Variable, entries: list[Entry], indexed: list[int], var: Variable
) -> tuple[Any, ...]:
    """The entries as constants, without the axes that are assigned whole."""
    inside = [entries[a] for a in indexed]
    if _non_consecutive_adv_indexing(tuple(inside)) != _non_consecutive_adv_indexing(tuple(entries)):
        refuse(var, "assignment to cells along axes that are apart")
    where: list[Any] = []
    try:
        for a in indexed:
            if isinstance(entries[a], slice):
                chosen = positions(lifter, entries[a], x.type.shape[a])
                stop = chosen.stop if chosen.stop >= 0 else None
                where.append(slice(chosen.start, stop, chosen.step) if len(chosen) else slice(0, 0))
            else:
                where.append(lifter.data_value(entries[a]))
    except NotData:
        refuse(var, "assignment to positions that depend on the sampled variables")
    return tuple(where)


def _assigned(
    lifter: Lifter,
    y: Variable,
    entries: list[Entry],
    indexed: list[int],
    shape: tuple[int, ...],
    cell: Variable,
) -> Variable:
    """The cells of y with the numbers `cell`, in the axes of x."""
    layout = output_layout(entries)
    y = pt.shape_padleft(y, len(layout) - y.type.ndim)
    whole = [t for t, (kind, a) in enumerate(layout) if kind == "slice" and a not in indexed]
    y = y.transpose([t for t in range(len(layout)) if t not in whole] + whole)
    rest = y.type.shape[len(shape) :]
    if y.type.shape[: len(shape)] != shape:
        y = pt.alloc(y, *shape, *rest)
    y = y.reshape((math.prod(shape), *rest))
    chosen = lifter.take_selection(y, 0, pt.maximum(cell, 0).flatten())
    if chosen.type.shape[0] == 1:
        chosen = pt.alloc(chosen, cell.size, *rest)
    chosen = chosen.reshape((*cell.shape, *rest), ndim=cell.type.ndim + len(rest))
    axes = indexed + [layout[t][1] for t in whole]
    return chosen.transpose([axes.index(a) for a in range(len(axes))])


def _assign_elsewhere(
    op: IncSubtensor,
    lifter: Lifter,
    x: Variable,
    y: Variable,
    entries: list[Entry],
    axis: int,
    index: Variable,
) -> Variable:
    """Assignment to columns: each row is assigned for itself."""
    layout = output_layout(entries)
    own = layout.index(("slice", axis)) - (len(layout) - y.type.ndim)
    new = y if own < 0 else lifter.take(y, own, index)
    target = lifter.take(x, axis, index)[tuple(entries)]
    return pt.set_subtensor(target, new) if op.set_instead_of_inc else pt.inc_subtensor(target, new)
