"""Rules of `lift` for single cells of a table: ``x[rows, columns]`` without computing rows or columns."""

from __future__ import annotations

from collections.abc import Sequence

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import Alloc
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import SpecifyShape

from pymc_austerity.model.graph.checks import checked_rows
from pymc_austerity.model.lift.lifter import Lifter, point_rule

type Axes = tuple[int, ...]
type Indices = tuple[Variable, ...]


@point_rule.register(Elemwise)
def _cells_of_elementwise(
    op: Elemwise, lifter: Lifter, node: Apply, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    checked = checked_rows(var)
    if checked is not None:
        valid, value = checked
        if lifter.depends(valid) and any(valid.type.shape[a] != 1 for a in axes):
            lifter.add_condition(lifter.take_points(valid, axes, indices), 0)
            return lifter.take_points(value, axes, indices)
    cells = op.make_node(*[lifter.take_points(i, axes, indices) for i in node.inputs])
    return cells.outputs[node.outputs.index(var)]


@point_rule.register(DimShuffle)
def _cells_of_dimshuffle(
    op: DimShuffle, lifter: Lifter, node: Apply, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    x = node.inputs[0]
    own = [op.new_order[a] for a in axes]
    cells = lifter.take_points(x, own, indices)
    place = {a: 1 + k for k, a in enumerate(_others(x, own))}
    rest = [op.new_order[a] for a in _others(var, axes)]
    return cells.dimshuffle([0, *("x" if a == "x" else place[a] for a in rest)])


@point_rule.register(SpecifyShape)
def _cells_of_specified_shape(
    op: SpecifyShape, lifter: Lifter, node: Apply, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    return lifter.take_points(lifter.of_known_shape(node), axes, indices)


@point_rule.register(CAReduce)
def _cells_of_reduction(
    op: CAReduce, lifter: Lifter, node: Apply, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    x = node.inputs[0]
    reduced = list(range(x.type.ndim)) if op.axis is None else op.axis
    kept = [a for a in range(x.type.ndim) if a not in reduced]
    own = [kept[a] for a in axes]
    place = {a: 1 + k for k, a in enumerate(_others(x, own))}
    cells = lifter.take_points(x, own, indices)
    return op.clone(axis=tuple(place[a] for a in reduced))(cells)


@point_rule.register(Dot)
@point_rule.register(Blockwise)
def _cells_of_product(
    op: Dot | Blockwise, lifter: Lifter, node: Apply, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    """Cell (i, j) of a product is the sum over k of x[i, k] y[k, j]."""
    row, column = var.type.ndim - 2, var.type.ndim - 1
    if not isinstance(getattr(op, "core_op", op), Dot) or not {row, column} & set(axes):
        return point_rule.dispatch(object)(op, lifter, node, var, axes, indices)
    x, y = (pt.expand_dims(i, tuple(range(var.type.ndim - i.type.ndim))) for i in node.inputs)
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
def _cells_of_alloc(
    op: Alloc, lifter: Lifter, node: Apply, var: Variable, axes: Axes, indices: Indices
) -> Variable:
    value = pt.shape_padleft(node.inputs[0], var.type.ndim - node.inputs[0].type.ndim)
    cells = lifter.take_points(value, axes, indices)
    return pt.alloc(cells, indices[0].shape[0], *(var.type.shape[a] for a in _others(var, axes)))


def _others(var: Variable, axes: Sequence[int]) -> list[int]:
    return [a for a in range(var.type.ndim) if a not in axes]
