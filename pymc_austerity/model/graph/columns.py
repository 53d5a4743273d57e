"""A column of a table that was put together from columns is that column.

In a model of several equations the means are often stacked to a table, and each response takes a column of
it: ``pt.stack([m0, m1], axis=1)[:, 0]``. Without this each response would compute all equations.
"""

from __future__ import annotations

from itertools import accumulate

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Join, Split
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import indices_from_subtensor

# Columns that were looked for: of which variable, along which axis, and which; None if there was no join.
type FittedTerms = dict[tuple[Variable, int, int], Variable | None]


def parts_of_join(op: Split, inputs: list[Variable]) -> list[Variable] | None:
    """Parts that a join is split into again, as increments of a walk are; None for other splits."""
    joined, lengths = inputs[0], inputs[-1]
    is_join = joined.owner is not None and isinstance(joined.owner.op, Join)
    if not is_join or joined.owner.op.axis != op.axis or not isinstance(lengths, Constant):
        return None
    parts = list(joined.owner.inputs)
    own = [part.type.shape[op.axis] for part in parts]
    return parts if own == [int(k) for k in lengths.data] else None


def single_column(node: Apply, inputs: list[Variable]) -> Variable | None:
    """The part of a join that a selection of one number along one axis takes; None for others.

    Parameters
    ----------
    node : Apply
        Of a `Subtensor`.
    inputs : list of TensorVariable
        In the place of its own.
    """
    entries = indices_from_subtensor(inputs[1:], node.op.idx_list)
    chosen = [(a, e) for a, e in enumerate(entries) if e != slice(None)]
    if len(chosen) != 1 or not isinstance(chosen[0][1], Constant) or chosen[0][1].type.ndim:
        return None
    (axis, entry), x = chosen[0], inputs[0]
    length, k = x.type.shape[axis], int(entry.data)
    if length is None or not -length <= k < length:
        return None
    return _column(x, axis, k % length, {})


def _column(x: Variable, axis: int, k: int, memo: FittedTerms) -> Variable | None:
    """Column number `k` along `axis`; None if no join is found above it."""
    key = x, axis, k
    if key not in memo:
        memo[key] = _found(x, axis, k, memo)
    return memo[key]


def _found(x: Variable, axis: int, k: int, memo: FittedTerms) -> Variable | None:
    node = x.owner
    if node is None or x.type.shape[axis] is None:
        return None
    if isinstance(node.op, Join) and node.op.axis == axis:
        lengths = [part.type.shape[axis] for part in node.inputs]
        if None in lengths:
            return None
        for part, stop, length in zip(node.inputs, accumulate(lengths), lengths, strict=True):
            if k < stop:
                return _selected(part, axis, k - stop + length, memo)
    if isinstance(node.op, DimShuffle) and node.op.new_order[axis] != "x":
        inner = node.op.new_order[axis]
        column = _column(node.inputs[0], inner, k, memo)
        if column is None:
            return None
        order = [a if a == "x" else a - (a > inner) for a in node.op.new_order if a != inner]
        return column.dimshuffle(*order)
    if isinstance(node.op, Elemwise) and len(node.outputs) == 1:
        at = [0 if var.type.shape[axis] == 1 else k for var in node.inputs]
        if any(_column(var, axis, i, memo) is not None for var, i in zip(node.inputs, at, strict=True)):
            parts = [_selected(var, axis, i, memo) for var, i in zip(node.inputs, at, strict=True)]
            return node.op(*parts)
    return None


def _selected(x: Variable, axis: int, k: int, memo: FittedTerms) -> Variable:
    """The column, by a selection if nothing better is known."""
    if x.owner is not None and isinstance(x.owner.op, DimShuffle) and x.owner.op.new_order[axis] == "x":
        order = x.owner.op.new_order
        return x.owner.inputs[0].dimshuffle(*order[:axis], *order[axis + 1 :])
    column = _column(x, axis, k, memo)
    return x[(slice(None),) * axis + (k,)] if column is None else column
