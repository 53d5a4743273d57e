"""Push an observation index down to the leaves of a graph.

`Lifter.take(var, axis, index)` gives a graph equal to ``pt.take(var, index, axis)`` that costs
O(len(index)): instead of computing all rows and selecting some, it selects rows of the leaves (data
and value variables) and computes only these. One rule for each kind of operation; they are in
`lift_rules` and `lift_indexing`. An operation for which row i needs other rows has no rule, and is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import singledispatch
from typing import Any, NoReturn

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import Cast
from pytensor.tensor.basic import ARange, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from pymc_austerity.model.graph import depends_on
from pymc_austerity.model.refusal import Coupled


class Lifter:
    """Take rows of graphs of one model.

    Parameters
    ----------
    outputs : iterable of TensorVariable
        The graphs that will be taken apart.
    values : iterable of TensorVariable
        Value variables: whatever does not depend on them is data.
    threshold : int
        Axes at least this long must not be computed in full.
    """

    def __init__(self, outputs: Iterable[Variable], values: Iterable[Variable], threshold: int) -> None:
        self.threshold = threshold
        self._values = list(values)
        self._depends = depends_on(outputs, self._values)
        self._memo: dict[tuple[Variable, int, Variable], Variable] = {}
        self._selecting = 0
        self.conditions: list[Variable] = []

    def depends(self, var: Variable) -> bool:
        """Does `var` change while sampling?"""
        if var not in self._depends:
            self._depends.update(depends_on([var], self._values))
        return self._depends[var]

    def is_short(self, var: Variable) -> bool:
        """Are all axes of `var` below the threshold?"""
        return all(k is not None and k < self.threshold for k in var.type.shape)

    def take(self, var: Variable, axis: int, index: Variable) -> Variable:
        """Graph equal to ``pt.take(var, index, axis)``; `var` itself if it is constant along `axis`.

        An axis of static length one has no rows: PyTensor forbids broadcasting that is only known
        at run time, so nothing else can be broadcast.
        """
        if var.type.shape[axis] == 1:
            return var
        if index.type.dtype != "int64":  # arithmetic with narrow integers would wrap around
            index = index.astype("int64")
        key = (var, axis, index)
        if key not in self._memo:
            self._memo[key] = self._take(var, axis, index)
        return self._memo[key]

    def take_selection(self, var: Variable, axis: int, index: Variable) -> Variable:
        """`take` of an expression of which not all rows are used."""
        self._selecting += 1
        try:
            return self.take(var, axis, index)
        finally:
            self._selecting -= 1

    def add_condition(self, valid: Variable, axis: int, index: Variable) -> None:
        """Note a condition on rows: where it fails, the row of the finished term is minus infinity."""
        if self._selecting:
            refuse(valid, "a parameter check covers rows that are not used")
        rows = self.take(valid, axis, index)
        others = [a for a in range(rows.type.ndim) if a != axis]
        self.conditions.append(rows.all(axis=others) if others else rows)

    def _take(self, var: Variable, axis: int, index: Variable) -> Variable:
        node = var.owner
        if node is None:
            return gather(var, axis, index)
        if is_constant_arange(node):
            start, _, step = (int(i.data) for i in node.inputs)
            return (start + step * index).astype(var.type.dtype)
        if not self.depends(var) and not _is_free_view(node):
            return gather(var, axis, index)
        try:
            return rule(node.op, self, node, var, axis, index)
        except Coupled:
            if self.is_short(var):
                return gather(var, axis, index)
            raise


def is_constant_arange(node: Apply) -> bool:
    """Is this ``arange`` of constant integers?"""
    return isinstance(node.op, ARange) and all(
        isinstance(i, Constant) and np.asarray(i.data).dtype.kind in "iu" for i in node.inputs
    )


def gather(var: Variable, axis: int, index: Variable) -> Variable:
    """Select rows of a leaf."""
    return var[(slice(None),) * axis + (index,)]


def _is_free_view(node: Apply) -> bool:
    """Data behind such an operation is not stored twice: rows are taken of the original."""
    return isinstance(node.op, DimShuffle) or (
        isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Cast)
    )


@singledispatch
def rule(op: Op, lifter: Lifter, node: Apply, var: Variable, axis: int, index: Variable) -> Variable:
    """Rows of `var`, a result of `node`. Dispatches on the operation."""
    refuse(var, "no rule computes single rows of this operation")


Rule = Callable[[Any, Lifter, Apply, Variable, int, Variable], Variable]


def refuse(var: Variable, reason: str) -> NoReturn:
    """Say why rows of `var` cannot be had one by one."""
    raise Coupled(var, reason)


def along(vector: Variable, axis: int, ndim: int) -> Variable:
    """Shape a vector so that it broadcasts along `axis` of an `ndim`-dimensional tensor."""
    return vector.dimshuffle(*["x"] * axis, 0, *["x"] * (ndim - axis - 1))


def constant_int(var: Any) -> int | None:
    """Value of a constant integer, None for None; `LookupError` if it is not constant."""
    if var is None or isinstance(var, int | np.integer):
        return None if var is None else int(var)
    while var.owner is not None and isinstance(var.owner.op, ScalarFromTensor | TensorFromScalar):
        var = var.owner.inputs[0]
    if not isinstance(var, Constant) or np.asarray(var.data).dtype.kind not in "iub":
        raise LookupError
    return int(np.asarray(var.data))


def positive(index: Variable, length: int) -> Variable:
    """Turn Python's negative positions into ordinary ones."""
    index = index.astype("int64")
    return pt.switch(index < 0, index + length, index)
