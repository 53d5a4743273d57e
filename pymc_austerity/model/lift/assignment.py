"""Rules of `lift` for assignment: ``x[where].set(y)`` and ``x[where].inc(y)``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor, _non_consecutive_adv_indexing

from pymc_austerity.model.lift.indexing import EVERYTHING, Entry, entries_of, output_layout, positions
from pymc_austerity.model.lift.lifter import Lifter, NotData, gather, refuse, rule

# Cells get equally long lists of their values: so much more than there are values may be stored.
_MEMORY = 20


@rule.register(IncSubtensor)
@rule.register(AdvancedIncSubtensor)
def _rows_of_assignment(
    op: IncSubtensor, lifter: Lifter, node: Apply, var: Variable, axis: int, index: Variable
) -> Variable:
    """Rows of the result are those of y where a cell was assigned, those of x elsewhere."""
    x, y = node.inputs[:2]
    entries = entries_of(lifter, node, x, 2)
    if entries[axis] == EVERYTHING:
        return _assign_elsewhere(op, lifter, x, y, entries, axis, index)
    indexed = [a for a, e in enumerate(entries) if e != EVERYTHING]
    where = _where(lifter, x, entries, indexed, var)
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
        new = _from_sources(lifter, y, entries, indexed, targets.shape, source)
    if not op.set_instead_of_inc:
        return (old + new).astype(var.type.dtype)
    was_assigned = exists.any(axis=-1)
    was_assigned = was_assigned.dimshuffle(
        [indexed.index(a) if a in indexed else "x" for a in range(x.type.ndim)]
    )
    return pt.switch(was_assigned, new, old).astype(var.type.dtype)


def _sources(targets: np.ndarray, n_cells: int, most: int) -> np.ndarray:
    """Numbers of the values that go to each cell.

    Parameters
    ----------
    targets : ndarray of int
        The cell that each value goes to.
    n_cells : int
    most : int
        How many values of one cell to name. If fewer than it gets, the last: an assignment that names a
        cell twice leaves the last value there.

    Returns
    -------
    ndarray of int, shape (n_cells, most)
        -1 where there is no value.
    """
    order = np.argsort(targets, kind="stable")[::-1]
    rank = np.arange(len(order)) - np.searchsorted(-targets[order], -targets[order])
    named = rank < most
    sources = np.full((n_cells, most), -1)
    sources[targets[order][named], rank[named]] = order[named]
    return sources


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


def _from_sources(
    lifter: Lifter,
    y: Variable,
    entries: list[Entry],
    indexed: list[int],
    shape: tuple[int, ...],
    source: Variable,
) -> Variable:
    """Sum of the cells of y with the numbers in the last axis of `source`, in the axes of x."""
    layout = output_layout(entries)
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
    take = lifter.take_selection if op.set_instead_of_inc else lifter.take
    target = take(x, axis, index)[tuple(entries)]
    return pt.set_subtensor(target, new) if op.set_instead_of_inc else pt.inc_subtensor(target, new)
