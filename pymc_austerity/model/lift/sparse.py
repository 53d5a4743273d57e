"""Rows of a sparse design matrix times coefficients.

A product with a sparse matrix in compressed rows (CSR) needs, for row i, the stored elements
``indptr[i]`` to ``indptr[i + 1]`` and nothing else. PyTensor has no operation for some of the rows, so here
are two: ``X[index] @ y`` and its derivative, ``X[index].T @ g``. Neither goes through all of y.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.sparse.math import Dot as SparseDot
from pytensor.sparse.math import MultiplySparseDenseVector, SpSum, StructuredDot
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.elemwise import DimShuffle
from scipy.sparse import csr_matrix

from pymc_austerity.model.lift.lifter import Lifter, NotData, refuse, rule


@rule.register(SparseDot)
@rule.register(StructuredDot)
def _rows_of_product(op: SparseDot, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    x, y = var.owner.inputs
    if _is_sparse(y):  # y X is (X' y')'
        if _is_sparse(x) or axis != var.type.ndim - 1:
            refuse(var, "a product with a sparse matrix mixes the rows")
        return _product(lifter, y, index, x.T, transposed=True).T
    return _product(lifter, x, index, y) if axis == 0 else op(x, lifter.take(y, 1, index))


@rule.register(SpSum)
def _rows_of_row_sums(op: SpSum, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    """The sum over the columns of X * y is X @ y."""
    scaled = var.owner.inputs[0].owner
    if op.axis != 1 or scaled is None or not isinstance(scaled.op, MultiplySparseDenseVector):
        refuse(var, "a sum of a sparse matrix; use pytensor.sparse.dot(X, b)")
    x, y = scaled.inputs
    return _product(lifter, x, index, y)


def _product(
    lifter: Lifter, x: Variable, index: Variable, y: Variable, *, transposed: bool = False
) -> Variable:
    """Rows of x @ y, or of x.T @ y, for a sparse matrix x of data and dense y."""
    try:
        matrix = lifter.data_value(x).item()
    except NotData:
        refuse(x, "a sparse matrix that depends on the sampled variables")
    matrix = csr_matrix(matrix.T if transposed else matrix)
    parts = map(pt.constant, (matrix.data, matrix.indices, matrix.indptr))
    if isinstance(getattr(y.owner, "op", None), DimShuffle) and y.owner.op.new_order == (0, "x"):
        return pt.expand_dims(RowsTimes(1)(*parts, y.owner.inputs[0], index), 1)
    return RowsTimes(y.type.ndim)(*parts, y, index)


def _is_sparse(var: Variable) -> bool:
    return isinstance(var.type, SparseTensorType)


class _OfRows(Op):
    """An operation on compressed rows and dense numbers, input 3, of one or two axes."""

    __props__ = ("ndim",)

    def __init__(self, ndim: int) -> None:
        self.ndim = ndim

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[k == 3] for k in range(len(node.inputs))]


class RowsTimes(_OfRows):
    """``X[index] @ y``, for X in compressed rows and a vector or matrix y.

    Its inputs are the data, column indices and row pointers of X, y, and the index.
    """

    def make_node(self, *inputs: Any) -> Apply:
        inputs = tuple(map(pt.as_tensor, inputs))
        *_, y, index = inputs
        shape = (index.type.shape[0], *y.type.shape[1:])
        return Apply(self, list(inputs), [pt.tensor(dtype="float64", shape=shape)])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        return [(shapes[4][0], *shapes[3][1:])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        data, indices, indptr, y, index = inputs
        matrix = csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, len(y)))
        output_storage[0][0] = np.asarray(matrix[index] @ y, dtype=np.float64)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        *matrix, y, index = inputs
        slope = TransposedRowsTimes(self.ndim)(*matrix, cotangents[0], index, y.shape[0])
        return [*(disconnected_type() for _ in matrix), slope, disconnected_type()]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        return [self(*inputs[:3], tangents[3], inputs[4])]


class TransposedRowsTimes(_OfRows):
    """``X[index].T @ g``, for X in compressed rows, and a vector or matrix g.

    Its inputs are the data, column indices and row pointers of X, g, the index, and the columns of X.
    """

    def make_node(self, *inputs: Any) -> Apply:
        inputs = tuple(map(pt.as_tensor, inputs))
        shape = (None, *inputs[3].type.shape[1:])
        return Apply(self, list(inputs), [pt.tensor(dtype="float64", shape=shape)])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        return [(node.inputs[5], *shapes[3][1:])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        data, indices, indptr, g, index, n = inputs
        matrix = csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, int(n)))
        output_storage[0][0] = np.asarray(matrix[index].T @ g, dtype=np.float64)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        slope = RowsTimes(self.ndim)(*inputs[:3], cotangents[0], inputs[4])
        return [slope if k == 3 else disconnected_type() for k in range(6)]


# The loops for matrices are written out: sums of whole rows would allocate.


@register_funcify_default_op_cache_key(RowsTimes)
def _compiled_rows_times(op: RowsTimes, **kwargs: Any) -> Any:
    @numba_njit
    def vector(data, indices, indptr, y, index):  # type: ignore[no-untyped-def]
        result = np.zeros(index.shape[0])
        for m in range(index.shape[0]):
            for k in range(indptr[index[m]], indptr[index[m] + 1]):
                result[m] += data[k] * y[indices[k]]
        return result

    @numba_njit
    def matrix(data, indices, indptr, y, index):  # type: ignore[no-untyped-def]
        result = np.zeros((index.shape[0], y.shape[1]))
        for m in range(index.shape[0]):
            for k in range(indptr[index[m]], indptr[index[m] + 1]):
                for c in range(y.shape[1]):
                    result[m, c] += data[k] * y[indices[k], c]
        return result

    return vector if op.ndim == 1 else matrix


@register_funcify_default_op_cache_key(TransposedRowsTimes)
def _compiled_transposed_rows_times(op: TransposedRowsTimes, **kwargs: Any) -> Any:
    @numba_njit
    def vector(data, indices, indptr, g, index, n):  # type: ignore[no-untyped-def]
        result = np.zeros(n.item())
        for m in range(index.shape[0]):
            for k in range(indptr[index[m]], indptr[index[m] + 1]):
                result[indices[k]] += data[k] * g[m]
        return result

    @numba_njit
    def matrix(data, indices, indptr, g, index, n):  # type: ignore[no-untyped-def]
        result = np.zeros((n.item(), g.shape[1]))
        for m in range(index.shape[0]):
            for k in range(indptr[index[m]], indptr[index[m] + 1]):
                for c in range(g.shape[1]):
                    result[indices[k], c] += data[k] * g[m, c]
        return result

    return vector if op.ndim == 1 else matrix
