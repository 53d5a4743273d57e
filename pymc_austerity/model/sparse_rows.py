"""Rows of a sparse design matrix times coefficients.

A product with a sparse matrix in compressed rows (CSR) needs, for row i, the stored elements
``indptr[i]`` to ``indptr[i + 1]`` and nothing else. PyTensor has no operation for some of the rows, so here
are two: ``X[index] @ y`` and its derivative, ``X[index].T @ g``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key
from pytensor.sparse.math import Dot as SparseDot
from pytensor.sparse.math import StructuredDot
from pytensor.sparse.type import SparseTensorType
from scipy.sparse import csr_matrix

from pymc_austerity.model.lift import Lifter, refuse, rule


@rule.register(SparseDot)
@rule.register(StructuredDot)
def _(op: SparseDot, lifter: Lifter, node: Apply, var: Variable, axis: int, index: Variable) -> Variable:
    x, y = node.inputs
    if _is_sparse(y):  # y X is (X' y')'
        if _is_sparse(x) or axis != var.type.ndim - 1:
            refuse(var, "a product with a sparse matrix mixes the rows")
        rows = _rows(lifter, y, index, x.T, var, transposed=True)
    elif axis == 0:
        rows = _rows(lifter, x, index, y, var)
    else:
        return op(x, lifter.take(y, 1, index))
    return rows.T if axis else rows


def _rows(
    lifter: Lifter, x: Variable, index: Variable, y: Variable, var: Variable, *, transposed: bool = False
) -> Variable:
    try:
        matrix = lifter.data_value(x).item()
    except LookupError:
        refuse(var, "a sparse matrix that depends on the sampled variables")
    matrix = csr_matrix(matrix.T if transposed else matrix)
    parts = map(pt.constant, (matrix.data, matrix.indices, matrix.indptr))
    product = rows_times(*parts, index, y if y.type.ndim == 2 else y[:, None])
    return product if y.type.ndim == 2 else product[:, 0]


def _is_sparse(var: Variable) -> bool:
    return isinstance(var.type, SparseTensorType)


class RowsTimes(Op):
    """``X[index] @ y``, for X in compressed rows and y of shape (columns, k)."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        data, indices, indptr, index, y = map(pt.as_tensor, inputs)
        out = pt.tensor(dtype="float64", shape=(index.type.shape[0], y.type.shape[1]))
        return Apply(self, [data, indices, indptr, index, y], [out])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        return [(shapes[3][0], shapes[4][1])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        data, indices, indptr, index, y = inputs
        matrix = csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, len(y)))
        output_storage[0][0] = np.asarray(matrix[index] @ y, dtype=np.float64)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        *matrix, y = inputs
        slope = transposed_rows_times(*matrix, cotangents[0], y.shape[0])
        return [disconnected_type() for _ in matrix] + [slope]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        return [self(*inputs[:-1], tangents[-1])]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[False], [False], [False], [False], [True]]


class TransposedRowsTimes(Op):
    """``X[index].T @ g``, for X in compressed rows with `n` columns and g of shape (len(index), k)."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        inputs = tuple(map(pt.as_tensor, inputs))
        return Apply(self, list(inputs), [pt.tensor(dtype="float64", shape=(None, inputs[4].type.shape[1]))])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        return [(node.inputs[5], shapes[4][1])]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        data, indices, indptr, index, g, n = inputs
        matrix = csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, int(n)))
        output_storage[0][0] = np.asarray(matrix[index].T @ g, dtype=np.float64)

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        *matrix, _, _ = inputs
        slope = rows_times(*matrix, cotangents[0])
        return [*(disconnected_type() for _ in matrix), slope, disconnected_type()]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[False], [False], [False], [False], [True], [False]]


rows_times = RowsTimes()
transposed_rows_times = TransposedRowsTimes()


@register_funcify_default_op_cache_key(RowsTimes)
def _(op: RowsTimes, **kwargs: Any) -> Any:
    @numba_njit
    def rows_times(data, indices, indptr, index, y):  # type: ignore[no-untyped-def]
        result = np.zeros((index.shape[0], y.shape[1]))
        for m in range(index.shape[0]):
            for k in range(indptr[index[m]], indptr[index[m] + 1]):
                result[m] += data[k] * y[indices[k]]
        return result

    return rows_times


@register_funcify_default_op_cache_key(TransposedRowsTimes)
def _(op: TransposedRowsTimes, **kwargs: Any) -> Any:
    @numba_njit
    def transposed_rows_times(data, indices, indptr, index, g, n):  # type: ignore[no-untyped-def]
        result = np.zeros((n.item(), g.shape[1]))
        for m in range(index.shape[0]):
            for k in range(indptr[index[m]], indptr[index[m] + 1]):
                result[indices[k]] += data[k] * g[m]
        return result

    return transposed_rows_times
