"""Rules of `lift` for arithmetic, reductions, linear algebra, joining, reshaping: of rows, and of cells."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.conditional.op import IfElse
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scan.op import Scan
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.basic import Alloc, ExtractDiag, Join, MakeVector, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat, SearchsortedOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, Softmax

from pymc_austerity.model.graph.checks import checked_rows
from pymc_austerity.model.graph.rewrite import is_map
from pymc_austerity.model.lift.lifter import (
    Axes,
    Indices,
    Lifter,
    NotData,
    along,
    full_rows,
    gather,
    point_rule,
    refuse,
    rule,
)

type Take = Callable[[Variable], Variable]

_FEW_COLUMNS = 64


def _of_inputs(lifter: Lifter, var: Variable, axes: Sequence[int], take: Take, place: int) -> Variable:
    """Rows or cells of an element-wise operation, from those that `take` makes of its inputs."""
    checked = checked_rows(var)
    if checked is not None:
        valid, value = checked
        if lifter.depends(valid) and any(valid.type.shape[a] != 1 for a in axes):
            lifter.add_condition(take(valid), place)
            return take(value)
    taken = var.owner.op.make_node(*map(take, var.owner.inputs))
    return taken.outputs[var.owner.outputs.index(var)]


@rule.register(Elemwise)
def _rows_of_elemwise(op: Elemwise, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    return _of_inputs(lifter, var, [axis], lambda x: lifter.take(x, axis, index), axis)


@rule.register(DimShuffle)
def _rows_of_new_axes(op: DimShuffle, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    return lifter.take(var.owner.inputs[0], op.new_order[axis], index).dimshuffle(op.new_order)


@rule.register(SpecifyShape)
def _rows_of_shaped(op: SpecifyShape, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    return lifter.take(lifter.of_known_shape(var), axis, index)


@rule.register(CheckAndRaise)
def _rows_of_check(op: CheckAndRaise, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    return op(lifter.take(var.owner.inputs[0], axis, index), *var.owner.inputs[1:])


@rule.register(CAReduce)
@rule.register(Argmax)
@rule.register(ExtractDiag)
def _rows_of_reduction(op: Op, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    """Reductions over other axes: find the input axis that became output axis `axis`."""
    x = var.owner.inputs[0]
    is_diagonal = isinstance(op, ExtractDiag)
    gone = (op.axis1, op.axis2) if is_diagonal else range(x.type.ndim) if op.axis is None else op.axis
    kept = [a for a in range(x.type.ndim) if a not in gone]
    if axis >= len(kept):
        refuse(var, "a diagonal along the rows")
    return op(lifter.take(x, kept[axis], index))


@rule.register(Softmax)
@rule.register(LogSoftmax)
@rule.register(CumOp)
@rule.register(SortOp)
@rule.register(ArgSortOp)
def _rows_of_axiswise(op: Op, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    """An operation along an axis takes each row by itself, unless the rows lie along that axis."""
    if op.axis is not None and axis not in np.atleast_1d(op.axis):
        return op(lifter.take(var.owner.inputs[0], axis, index))
    if isinstance(op, CumOp):
        refuse(var, f"cum{op.mode}(...) accumulates over the rows")
    if isinstance(op, SortOp | ArgSortOp):
        refuse(var, "sort orders the rows by values that depend on the sampled variables")
    refuse(var, "softmax normalises over the rows")


@rule.register(SearchsortedOp)
def _rows_of_bins(op: SearchsortedOp, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    """Each value is looked up by itself, among all the edges."""
    edges, values, *order = var.owner.inputs
    return op(edges, lifter.take(values, axis, index), *order)


@rule.register(IfElse)
def _rows_of_ifelse(op: IfElse, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    """One condition for all rows."""
    condition, *branches = var.owner.inputs
    k = var.owner.outputs.index(var)
    then, otherwise = (lifter.take(b, axis, index) for b in (branches[k], branches[op.n_outs + k]))
    return pt.switch(condition, then, otherwise).astype(var.type.dtype)


@rule.register(Scan)
def _rows_of_scan(op: Scan, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    if is_map(var.owner):
        refuse(var, "a loop over the rows that cannot be written as operations on all rows")
    refuse(var, "scan computes each row from the rows before")


@rule.register(Dot)
def _rows_of_dot(op: Dot, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    x, y = var.owner.inputs
    return _times(op, lifter.take(x, 0, index), y) if axis == 0 else op(x, lifter.take(y, 1, index))


def _times(op: Dot | Blockwise, rows: Variable, y: Variable) -> Variable:
    """Rows of a product. Few columns times a vector is written out: numba compiles that much faster."""
    if rows.type.ndim == 2 and y.type.shape[1] == 1 and y.type.shape[0] <= _FEW_COLUMNS:
        return (rows * y.T).sum(axis=1, keepdims=True)
    return op(rows, y)


@rule.register(Blockwise)
def _rows_of_batch(op: Blockwise, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    batch = op.batch_ndim(var.owner)
    if axis < batch:
        rows = op.make_node(*[lifter.take(i, axis, index) for i in var.owner.inputs])
        return rows.outputs[var.owner.outputs.index(var)]
    x, *rest = var.owner.inputs
    core = type(op.core_op).__name__
    if isinstance(x.type, SparseTensorType):  # it has no `@` that can be evaluated
        refuse(var, "@ of a sparse matrix; use pytensor.sparse.dot(X, b)")
    if isinstance(op.core_op, Dot):
        if axis == batch:
            return _times(op, lifter.take(x, axis, index), rest[0])
        return op(x, lifter.take(rest[0], axis, index))
    # (m,m),(m,k)->(m,k): the columns of the right-hand side are solved independently
    if core in ("Solve", "SolveTriangular", "CholeskySolve"):
        right = rest[0]
        if axis == batch + 1 and right.type.ndim == batch + 2:
            return op(x, lifter.take(right, axis, index))
    refuse(var, f"{core} mixes the rows")


@rule.register(Alloc)
def _rows_of_alloc(op: Alloc, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    value = var.owner.inputs[0]
    own_axis = axis - (var.type.ndim - value.type.ndim)
    if own_axis >= 0:
        value = lifter.take(value, own_axis, index)
    shape = [index.shape[0] if a == axis else k for a, k in enumerate(var.type.shape)]
    if any(k is None for a, k in enumerate(var.type.shape) if a != axis):
        refuse(var, "a length that depends on the sampled variables")
    others = [k for a, k in enumerate(value.type.shape) if a != axis]
    fits = value.type.ndim == var.type.ndim and value.type.shape[axis] != 1
    if fits and others == [k for a, k in enumerate(var.type.shape) if a != axis]:
        return value
    return pt.alloc(value, *shape)


@rule.register(MakeVector)
def _rows_of_vector(op: MakeVector, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    """A long vector of few different numbers, as ``pt.stack([a, b, c])[codes]`` becomes."""
    different = list(dict.fromkeys(var.owner.inputs))
    if len(different) >= lifter.threshold:
        refuse(var, "a long vector of different expressions")
    which = pt.constant(np.array([different.index(i) for i in var.owner.inputs], dtype="int64"))
    return op(*different)[gather(which, 0, index)]


@rule.register(Join)
def _rows_of_join(op: Join, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    if op.axis != axis:
        rows = [full_rows(lifter.take(piece, axis, index), axis, index) for piece in var.owner.inputs]
        return op(*rows)
    result, offset = None, 0
    for piece in var.owner.inputs:
        length = piece.type.shape[axis]
        if length == 0:
            continue
        own = piece if length == 1 else lifter.take(piece, axis, pt.clip(index - offset, 0, length - 1))
        start = along(index >= offset, axis, var.type.ndim)
        result = own if result is None else pt.switch(start, own, result)
        offset += length
    return full_rows(result, axis, index).astype(var.type.dtype)


@rule.register(Split)
def _rows_of_split(op: Split, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    x, sizes = var.owner.inputs[0], var.owner.inputs[-1]
    k = var.owner.outputs.index(var)
    if op.axis != axis:
        return op(lifter.take_selection(x, axis, index), sizes, return_list=True)[k]
    try:
        offset = int(np.sum(lifter.data_value(sizes)[:k]))
    except NotData:
        refuse(var, "split into pieces of variable size")
    return lifter.take_selection(x, axis, lifter.moved(index, 1, offset))


@rule.register(OpFromGraph)
def _rows_of_graph(op: OpFromGraph, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    refuse(var, f"no rule computes single rows of {op}")


# Single cells of a table: ``x[rows, columns]`` without computing rows or columns ------------------------


@point_rule.register(Elemwise)
def _cells_of_elemwise(op: Elemwise, lifter: Lifter, var: Variable, axes: Axes, indices: Indices) -> Variable:
    return _of_inputs(lifter, var, axes, lambda x: lifter.take_points(x, axes, indices), 0)


@point_rule.register(DimShuffle)
def _cells_of_new_axes(
    op: DimShuffle, lifter: Lifter, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    x = var.owner.inputs[0]
    own = [op.new_order[a] for a in axes]
    cells = lifter.take_points(x, own, indices)
    place = {a: 1 + k for k, a in enumerate(_others(x, own))}
    rest = [op.new_order[a] for a in _others(var, axes)]
    return cells.dimshuffle([0, *("x" if a == "x" else place[a] for a in rest)])


@point_rule.register(SpecifyShape)
def _cells_of_shaped(
    op: SpecifyShape, lifter: Lifter, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    return lifter.take_points(lifter.of_known_shape(var), axes, indices)


@point_rule.register(CAReduce)
def _cells_of_sums(op: CAReduce, lifter: Lifter, var: Variable, axes: Axes, indices: Indices) -> Variable:
    x = var.owner.inputs[0]
    reduced = list(range(x.type.ndim)) if op.axis is None else op.axis
    kept = [a for a in range(x.type.ndim) if a not in reduced]
    own = [kept[a] for a in axes]
    place = {a: 1 + k for k, a in enumerate(_others(x, own))}
    cells = lifter.take_points(x, own, indices)
    return op.clone(axis=tuple(place[a] for a in reduced))(cells)


@point_rule.register(Dot)
@point_rule.register(Blockwise)
def _cells_of_product(
    op: Dot | Blockwise, lifter: Lifter, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    """Cell (i, j) of a product is the sum over k of x[i, k] y[k, j]."""
    row, column = var.type.ndim - 2, var.type.ndim - 1
    if not isinstance(getattr(op, "core_op", op), Dot) or not {row, column} & set(axes):
        return point_rule.dispatch(object)(op, lifter, var, axes, indices)
    x, y = (pt.expand_dims(i, tuple(range(var.type.ndim - i.type.ndim))) for i in var.owner.inputs)
    chosen = dict(zip(axes, indices, strict=True))

    def cells(factor: Variable, other: int) -> Variable:
        own = [a for a in axes if a != other]
        return lifter.take_points(factor, own, [chosen[a] for a in own])

    left, right = cells(x, column), cells(y, row)  # (cells, ..., [rows,] k) and (cells, ..., k, [columns])
    if row not in chosen:
        right = pt.expand_dims(right, -2)
    if column not in chosen:
        left, right = pt.expand_dims(left, -2), right.mT
    return (left * right).sum(axis=-1)


@point_rule.register(Alloc)
def _cells_of_alloc(op: Alloc, lifter: Lifter, var: Variable, axes: Axes, indices: Indices) -> Variable:
    value = pt.shape_padleft(var.owner.inputs[0], var.type.ndim - var.owner.inputs[0].type.ndim)
    cells = lifter.take_points(value, axes, indices)
    return pt.alloc(cells, indices[0].shape[0], *(var.type.shape[a] for a in _others(var, axes)))


def _others(var: Variable, axes: Sequence[int]) -> list[int]:
    return [a for a in range(var.type.ndim) if a not in axes]


# Reshaping --------------------------------------------------------------------------------------------------
#
# A reshape keeps the order of the elements. Row i of its result is therefore a set of positions in the same
# elements, which are looked up in the shape before.


def _group(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> tuple[range, range]:
    """The fewest neighbouring axes, before and after, that hold the same elements and include `axis`."""
    start_in = start_out = 0
    while True:
        stop_in, stop_out = start_in, start_out + 1
        while math.prod(before[start_in:stop_in]) != math.prod(after[start_out:stop_out]):
            if math.prod(before[start_in:stop_in]) < math.prod(after[start_out:stop_out]):
                stop_in += 1
            else:
                stop_out += 1
        if axis < stop_out:
            return range(start_in, stop_in), range(start_out, stop_out)
        start_in, start_out = stop_in, stop_out


def coordinates(position: Variable, shape: list[int]) -> list[Variable]:
    """Turn positions among the elements of a table into an index for each of its axes."""
    result = []
    for k, length in enumerate(shape):
        later = math.prod(shape[k + 1 :])
        index = position // later if later > 1 else position
        result.append(index % length if k else index)
    return result


@rule.register(Reshape)
@rule.register(JoinDims)
@rule.register(SplitDims)
def _rows_of_reshape(op: Reshape, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    x = var.owner.inputs[0]
    before, after = x.type.shape, var.type.shape
    if 0 in before:
        refuse(var, "an empty vector is reshaped")
    inside, outside = _group(before, after, axis)
    length = index.shape[0]
    shape = [length if a == axis else pt.constant(k) for a, k in enumerate(after)]
    own = [a for a in inside if before[a] != 1]
    if len(own) == 1 and before[own[0]] == after[axis]:
        return lifter.take(x, own[0], index).reshape(shape, ndim=var.type.ndim)

    first = math.prod(after[a] for a in outside if a < axis)
    last = math.prod(after[a] for a in outside if a > axis)
    position = index
    if first > 1:
        position = pt.arange(first)[:, None] * after[axis] + position
    if last > 1:
        position = position[..., None] * last + pt.arange(last)

    def into_rows(valid: Variable) -> Variable:
        return valid.reshape((first, length, last)).all(axis=(0, 2))

    with lifter.rearranged(into_rows):
        cells = lifter.take_points(x, own, coordinates(position.flatten(), [before[a] for a in own]))
    # (cells, axes before the group, axes after it) -> the cells between the others
    left, right = math.prod(after[: outside[0]]), math.prod(after[outside[-1] + 1 :])
    if left > 1:
        cells = cells.reshape((first * length * last, left, right)).transpose(1, 0, 2)
    return cells.reshape(shape, ndim=var.type.ndim)


@point_rule.register(Reshape)
@point_rule.register(JoinDims)
@point_rule.register(SplitDims)
def _cells_of_reshape(op: Reshape, lifter: Lifter, var: Variable, axes: Axes, indices: Indices) -> Variable:
    x = var.owner.inputs[0]
    before, after = x.type.shape, var.type.shape
    inside, outside = _group(before, after, axes[0])
    if 0 in before or [a for a in outside if after[a] != 1] != list(axes):
        return point_rule.dispatch(object)(op, lifter, var, axes, indices)
    position = pt.constant(0)
    for a, i in zip(axes, indices, strict=True):
        position = position * after[a] + i
    own = [a for a in inside if before[a] != 1]
    cells = lifter.take_points(x, own, coordinates(position, [before[a] for a in own]))
    others = [pt.constant(k) for a, k in enumerate(after) if a not in axes]
    return cells.reshape([indices[0].shape[0], *others], ndim=1 + len(others))


@rule.register(Repeat)
def _rows_of_repeat(op: Repeat, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    x, repeats = var.owner.inputs
    own_axis = op.axis % x.type.ndim
    if own_axis != axis:
        return op(lifter.take(x, axis, index), repeats)
    try:
        times = lifter.data_value(repeats)
    except NotData:
        refuse(var, "rows are repeated as often as the sampled variables say")
    source = np.repeat(np.arange(x.type.shape[axis]), times)
    return lifter.take_selection(x, axis, gather(pt.constant(source), 0, index))
