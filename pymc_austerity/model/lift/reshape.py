"""Rules of `lift` for reshaping: merging, splitting and repeating rows.

A reshape keeps the order of the elements. Row i of its result is therefore a set of positions in the same
elements, which are looked up in the shape before.
"""

import math

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.extra_ops import Repeat
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape

from pymc_austerity.model.lift.lifter import Axes, Indices, Lifter, NotData, gather, point_rule, refuse, rule


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
