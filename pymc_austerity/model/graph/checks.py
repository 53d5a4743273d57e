"""Parameter checks, in full and row by row.

PyMC checks the parameters of a vector of observations at once, and makes all of its log densities minus
infinity if one is invalid: ``switch(all(valid), logp, -inf)``. Read literally, every row needs the
parameters of all. A row is therefore minus infinity here if its own parameters are invalid.

The sum is the same wherever log densities are only added up. Where something else is done with them it may
not be: a mixture drops a component with an invalid parameter for all rows and goes on with a finite density,
as does ``pt.maximum(logp, -5)``; here the sum is minus infinity. No valid parameters are affected.
"""

from collections.abc import Sequence

import numpy as np
import pytensor.scalar as ps
import pytensor.scalar.math as psm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors, walk
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import All


def check_in_full(value: Variable, conditions: Sequence[Variable]) -> Variable:
    """Write a parameter check as a switch, as PyMC does before it compiles."""
    for condition in _conjunction(conditions):
        valid = _without_sigmoid(condition).all()
        value = pt.switch(valid, value, -np.inf).astype(value.type.dtype)
    return value


def checked_rows(var: Variable) -> tuple[Variable, Variable] | None:
    """Parts of ``switch(all(valid), value, -inf)``: `valid` in a shape that fits `value`, and `value`.

    None if `var` is something else, or the shapes do not fit.
    """
    if not is_elemwise(var, ps.Switch) or not is_minus_infinity(var.owner.inputs[2]):
        return None
    condition, value, _ = var.owner.inputs
    condition = behind(condition, DimShuffle)
    node = condition.owner
    if node is None or not isinstance(node.op, All) or condition.type.ndim:
        return None
    valid = _align(node.inputs[0], var.type.shape)
    return None if valid is None else (valid, value)


def _conjunction(conditions: Sequence[Variable]) -> list[Variable]:
    """Flatten All(MakeVector(All(a), All(b), ...)) into [a, b, ...]."""
    flat = []
    for condition in conditions:
        node = condition.owner
        op = node.op if node else None
        full_all = isinstance(op, All) and (op.axis is None or len(op.axis) == node.inputs[0].type.ndim)
        if isinstance(op, ScalarFromTensor | TensorFromScalar | MakeVector) or full_all:
            flat += _conjunction(node.inputs)
        else:
            flat.append(pt.as_tensor(condition))
    return flat


def _without_sigmoid(condition: Variable) -> Variable:
    """A sigmoid is between 0 and 1 unless it is NaN: there is no need to compute it for a check."""
    node = condition.owner
    if not is_elemwise(condition, ps.GE, ps.LE):
        return condition
    low, high = node.inputs if is_elemwise(condition, ps.LE) else node.inputs[::-1]
    for sigmoid, bound, far in ((low, high, 1.0), (high, low, 0.0)):
        if is_elemwise(sigmoid, psm.Sigmoid) and _single_constant(bound) == far:
            return pt.invert(pt.isnan(sigmoid.owner.inputs[0]))
    return condition


def _single_constant(var: Variable) -> float | None:
    """Value of a constant of one element, under any number of broadcast axes."""
    var = behind(var, DimShuffle)
    return float(var.data.item()) if isinstance(var, Constant) and var.data.size == 1 else None


def _align(condition: Variable, shape: tuple[int | None, ...]) -> Variable | None:
    """Bring a condition into a shape that broadcasts to `shape`, or return None."""
    own = condition.type.shape
    if None in own or None in shape:
        return None
    extra = condition.type.ndim - len(shape)
    if extra > 0:  # batch axes lead, the core axes of a multivariate row trail
        rows = condition.all(axis=tuple(range(len(shape), condition.type.ndim)))
        return rows if _broadcasts(own[: len(shape)], shape) else None
    right = pt.shape_padleft(condition, -extra) if extra else condition
    if _broadcasts(right.type.shape, shape):
        return right
    left = pt.shape_padright(condition, -extra) if extra else condition
    return left if _broadcasts(left.type.shape, shape) else None


def _broadcasts(own: tuple[int | None, ...], shape: tuple[int | None, ...]) -> bool:
    return all(a in (1, b) for a, b in zip(own, shape, strict=True))


def is_minus_infinity(var: Variable) -> bool:
    """Is this the constant -inf, whatever its shape?"""
    return _single_constant(var) == -np.inf


def is_infinite(var: Variable) -> bool:
    """Is this a constant that is infinite, whatever its shape?"""
    return _single_constant(var) in (-np.inf, np.inf)


def behind(var: Variable, *ops: type[Op]) -> Variable:
    """The variable that `var` is made from by operations of these kinds, each of the first input alone."""
    while var.owner is not None and isinstance(var.owner.op, ops):
        var = var.owner.inputs[0]
    return var


def array_of(var: Variable) -> np.ndarray | None:
    """A vector or more of data in memory; None for all else."""
    value = var.get_value(borrow=True) if isinstance(var, SharedVariable) else getattr(var, "data", None)
    # pm.set_data makes masked arrays of those with NaN.
    return np.asarray(value) if isinstance(value, np.ndarray) and value.ndim else None


def uncast(var: Variable) -> Variable:
    """Numbers before they were given another type, as PyMC gives observations that of their distribution."""
    while is_elemwise(var, ps.Cast):
        var = var.owner.inputs[0]
    return var


def only_compared(graphs: Sequence[Variable]) -> set[Variable]:
    """What graphs have in comparisons alone, as the place where a level changes: they have no slope by it."""

    def followed(var: Variable) -> list[Variable]:
        if var.owner is None or is_elemwise(var, ps.basic.LogicalComparison):
            return []
        return var.owner.inputs[1:] if is_elemwise(var, ps.Switch) else var.owner.inputs

    return set(ancestors(graphs)) - set(walk(graphs, followed))


def is_elemwise(var: Variable, *scalar_ops: type[ps.ScalarOp]) -> bool:
    """Is `var` the result of an element-wise operation of one of these kinds?"""
    op = None if var.owner is None else var.owner.op
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, scalar_ops)
