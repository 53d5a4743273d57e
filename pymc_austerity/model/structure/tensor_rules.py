"""Operations on tensors, on arrays of expressions in which the row axis has length one.

One rule for each kind of operation. What has no rule has no form.
"""

import math
from collections.abc import Callable
from functools import partial, reduce, singledispatch
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Add
from pytensor.tensor.basic import Alloc, ExtractDiag, Join, MakeVector, Split
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.model.structure.operations import RESHAPING, UNCHANGED
from pymc_austerity.model.structure.scalar_rules import NoForm, number, scalar_rule

# Arrays of expressions in the place of the inputs of a node.
Arrays = list[np.ndarray]

# Operations that read the numbers in their first input only; the others say where they go.
READ_FIRST = (*RESHAPING, SpecifyShape, Alloc, CheckAndRaise, Split)


@singledispatch
def tensor_rule(op: Op, node: Apply, args: Arrays) -> np.ndarray | list[np.ndarray]:
    """The result of `node`, or its results. Dispatches on the operation."""
    raise NoForm(type(op).__name__)


def abstract_shape(var: Variable) -> tuple[int, ...]:
    """Shape of a variable for one row.

    Raises
    ------
    NoForm
        If more than the number of rows is unknown.
    """
    if sum(k is None for k in var.type.shape) > 1:
        raise NoForm(type(var.owner.op).__name__)
    return tuple(1 if k is None else k for k in var.type.shape)


def elementwise(function: Callable[..., Expression], *args: np.ndarray) -> np.ndarray:
    """A function of the elements of arrays that are broadcast."""
    wide = np.broadcast_arrays(*args)
    result = np.empty(wide[0].shape, dtype=object)
    for place in np.ndindex(result.shape):
        result[place] = function(*(one[place] for one in wide))
    return result


@tensor_rule.register(Elemwise)
def _elements_of_elementwise(op: Elemwise, node: Apply, args: Arrays) -> np.ndarray:
    dtypes = [var.type.dtype for var in node.inputs]
    function = scalar_rule(op.scalar_op, dtypes, node.outputs[0].type.dtype)
    return elementwise(function, *args)


@tensor_rule.register(DimShuffle)
def _elements_of_dimshuffle(op: DimShuffle, node: Apply, args: Arrays) -> np.ndarray:
    (x,) = args
    kept = [axis for axis in op.new_order if axis != "x"]
    dropped = [axis for axis in range(x.ndim) if axis not in kept]
    x = np.transpose(x, kept + dropped).reshape([x.shape[axis] for axis in kept])
    return x.reshape([1 if axis == "x" else node.inputs[0].type.shape[axis] or 1 for axis in op.new_order])


@tensor_rule.register(Reshape)
@tensor_rule.register(JoinDims)
@tensor_rule.register(SplitDims)
def _elements_of_reshape(op: Op, node: Apply, args: Arrays) -> np.ndarray:
    if not keeps_rows_apart(node):
        raise NoForm(type(op).__name__)
    return args[0].reshape(abstract_shape(node.outputs[0]))


def keeps_rows_apart(node: Apply) -> bool:
    """Has the row axis the same length, and as many numbers before it, after a change of shape?"""
    old, new = node.inputs[0].type.shape, node.outputs[0].type.shape
    return _around_rows(old) == _around_rows(new)


def _around_rows(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """Numbers before the row axis and after it; how many there are, if it has none."""
    axis = shape.index(None) if None in shape else len(shape)
    parts = (shape[:axis], shape[axis + 1 :]) if None in shape else (shape,)
    return tuple(math.prod(k for k in part if k is not None) for part in parts)


def _elements_of_unchanged(op: Op, node: Apply, args: Arrays) -> np.ndarray:
    return args[0]


for _kind in UNCHANGED:
    tensor_rule.register(_kind, _elements_of_unchanged)


@tensor_rule.register(Alloc)
def _elements_of_alloc(op: Alloc, node: Apply, args: Arrays) -> np.ndarray:
    return np.broadcast_to(args[0], abstract_shape(node.outputs[0]))


@tensor_rule.register(MakeVector)
def _elements_of_vector(op: MakeVector, node: Apply, args: Arrays) -> np.ndarray:
    return np.array([arg.item() for arg in args], dtype=object)


@tensor_rule.register(Join)
def _elements_of_join(op: Join, node: Apply, args: Arrays) -> np.ndarray:
    if any(var.type.shape[op.axis] is None for var in node.inputs):
        raise NoForm("Join")
    return np.concatenate(args, axis=op.axis)


@tensor_rule.register(Split)
def _elements_of_split(op: Split, node: Apply, args: Arrays) -> list[np.ndarray]:
    sizes = [var.type.shape[op.axis] for var in node.outputs]
    if None in sizes:
        raise NoForm("Split")
    return np.split(args[0], np.cumsum(sizes)[:-1], axis=op.axis)


@tensor_rule.register(CAReduce)
def _elements_of_reduction(op: CAReduce, node: Apply, args: Arrays) -> np.ndarray:
    (x,), (var,), (out,) = args, node.inputs, node.outputs
    # PyTensor sums a single number along axis 0, too.
    axes = tuple(range(x.ndim)) if op.axis is None or not x.ndim else tuple(op.axis)
    if any(var.type.shape[axis] is None for axis in axes):
        raise NoForm(type(op).__name__)
    if out.type.dtype != "bool":  # truth values are counted
        x = elementwise(partial(number, dtype=var.type.dtype), x)
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    table = np.transpose(x, kept + list(axes)).reshape(*(x.shape[axis] for axis in kept), -1)
    if not table.shape[-1]:
        raise NoForm(type(op).__name__)
    if isinstance(op.scalar_op, Add) and out.type.dtype != "bool":
        return _added(table)
    return _folded(scalar_rule(op.scalar_op, [out.type.dtype] * 2, out.type.dtype), table)


def _added(table: np.ndarray) -> np.ndarray:
    """Sums along the last axis."""
    return elementwise(forms.add, *np.moveaxis(table, -1, 0))


def _folded(function: Callable[..., Expression], table: np.ndarray) -> np.ndarray:
    """The last axis folded by a function of two."""
    return reduce(partial(elementwise, function), (table[..., k] for k in range(table.shape[-1])))


@tensor_rule.register(CumOp)
def _elements_of_cumulation(op: CumOp, node: Apply, args: Arrays) -> np.ndarray:
    (x,) = args
    if node.inputs[0].type.shape[op.axis] is None:
        raise NoForm("CumOp")
    function = forms.add if op.mode == "add" else forms.multiply
    x = np.moveaxis(x, op.axis, 0)
    result = [x[:1]]
    for k in range(1, len(x)):
        result.append(elementwise(function, result[-1], x[k : k + 1]))
    return np.moveaxis(np.concatenate(result), 0, op.axis)


@tensor_rule.register(LogSoftmax)
@tensor_rule.register(Softmax)
def _elements_of_softmax(op: LogSoftmax | Softmax, node: Apply, args: Arrays) -> np.ndarray:
    (x,) = args
    axes = range(x.ndim) if op.axis is None else np.atleast_1d(op.axis) % x.ndim
    if any(node.inputs[0].type.shape[axis] is None for axis in axes):
        raise NoForm(type(op).__name__)
    last = np.moveaxis(x, list(axes), list(range(-len(axes), 0)))
    table = last.reshape(*last.shape[: x.ndim - len(axes)], -1)
    # Of differences, which are fewer by one: x_k - log sum_j exp x_j = -log sum_j exp(x_j - x_k).
    differences = elementwise(forms.subtract, table[..., None, :], table[..., :, None])
    total = _added(elementwise(forms.exp, differences))
    result = elementwise(forms.negative, elementwise(forms.log, total))
    if isinstance(op, Softmax):
        result = elementwise(forms.reciprocal, total)
    return np.moveaxis(result.reshape(last.shape), list(range(-len(axes), 0)), list(axes))


@tensor_rule.register(Dot)
@tensor_rule.register(BatchedDot)
def _elements_of_product(op: Op, node: Apply, args: Arrays) -> np.ndarray:
    a, b = node.inputs
    if a.type.shape[-1] is None or b.type.shape[-2 if b.type.ndim > 1 else 0] is None:
        raise NoForm(type(op).__name__)
    return _matrix_product(*args)


def _matrix_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    products = elementwise(forms.multiply, a[..., :, None, :], np.swapaxes(b, -1, -2)[..., None, :, :])
    return _added(products)


@tensor_rule.register(ExtractDiag)
def _elements_of_diagonal(op: ExtractDiag, node: Apply, args: Arrays) -> np.ndarray:
    if any(node.inputs[0].type.shape[axis] is None for axis in (op.axis1, op.axis2)):
        raise NoForm("ExtractDiag")
    return np.diagonal(args[0], op.offset, op.axis1, op.axis2)


@tensor_rule.register(SolveTriangular)
def _elements_of_solution(op: SolveTriangular, node: Apply, args: Arrays) -> np.ndarray:
    """Solutions of L y = b for a lower triangular L, one element after the other."""
    matrix, right = args
    if not op.lower or op.unit_diagonal or op.b_ndim != 1 or node.inputs[0].type.shape[-1] is None:
        raise NoForm("SolveTriangular")
    found: list[np.ndarray] = []
    for j in range(matrix.shape[-1]):
        rest = right[..., j]
        for k, one in enumerate(found):
            rest = elementwise(forms.subtract, rest, elementwise(forms.multiply, matrix[..., j, k], one))
        found.append(elementwise(forms.divide, rest, matrix[..., j, j]))
    return np.stack(found, axis=-1)


@tensor_rule.register(Blockwise)
def _elements_of_batch(op: Blockwise, node: Apply, args: Arrays) -> Any:
    """Elements for each element of a batch, where the operation has a rule."""
    if not isinstance(op.core_op, Dot | SolveTriangular):
        raise NoForm(type(op.core_op).__name__)
    return tensor_rule(op.core_op, node, args)
