"""Rows of a predictor as sparse linear forms of tables: eta_i = o_i + sum_k c_ik x[p_ik].

The graph of a predictor is executed for some rows at a time, on linear forms in the place of numbers. Of each
table a form has K terms for each element: coefficients c and places p, both of shape (..., K). Operations
that only move numbers move the forms; a sum over an axis makes that axis part of the last one. The
coefficients are computed from data alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.basic import ExtractDiag, Join, MakeVector
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot, Sum

from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.lift.sparse import RowsTimes
from pymc_austerity.model.structure.data_of_rows import DataOfRows
from pymc_austerity.model.structure.operations import MOVING, UNCHANGED, core_of
from pymc_austerity.target import Array, Index

# By table: coefficients and places of its elements, (..., K) each.
Terms = dict[Variable, tuple[Array, Index]]


class Form:
    """An array of linear forms: an offset, and terms of tables."""

    def __init__(self, offset: Array, terms: Terms) -> None:
        self.offset, self.terms = offset, terms
        self.shape = offset.shape

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> "Form":
        """The forms at other places; `move` takes the numbers of elements to these."""
        ids = np.asarray(move(np.arange(self.offset.size).reshape(self.shape))).astype(np.int64)
        terms = {}
        for table, pair in self.terms.items():
            c, p = (_flat(one, self.shape)[ids] for one in pair)
            terms[table] = c, p
        return Form(self.offset.ravel()[ids], terms)

    def times(self, factor: np.ndarray) -> "Form":
        """The forms times data."""
        terms = {table: (c * np.asarray(factor)[..., None], p) for table, (c, p) in self.terms.items()}
        return Form(self.offset * factor, terms)

    def at(self, tables: dict[Variable, Array]) -> Array:
        """The values of the forms at values of all tables."""
        result = self.offset
        for table, (c, p) in self.terms.items():
            result = result + (c * np.ravel(tables[table])[p]).sum(axis=-1)
        return result

    def summed(self, axes: Sequence[int]) -> "Form":
        """Sums over axes."""
        axes = tuple(sorted(a % len(self.shape) for a in axes))
        kept = tuple(k for k in range(len(self.shape)) if k not in axes)
        terms = {}
        for table, pair in self.terms.items():
            whole: list[Any] = [np.broadcast_to(one, (*self.shape, one.shape[-1])) for one in pair]
            last = [one.transpose(*kept, *axes, len(self.shape)) for one in whole]
            c, p = (one.reshape(*(self.shape[k] for k in kept), -1) for one in last)
            terms[table] = c, p
        return Form(self.offset.sum(axis=axes), terms)


def _flat(one: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(one, (*shape, one.shape[-1])).reshape(-1, one.shape[-1])


def added(forms: Sequence[Form], signs: Sequence[float]) -> Form:
    """A sum of forms, with signs."""
    total = sum(sign * one.offset for sign, one in zip(signs, forms, strict=True))
    offset: Array = np.asarray(total, dtype=np.float64)
    parts: dict[Variable, list[tuple[Array, Index]]] = {}
    for sign, one in zip(signs, forms, strict=True):
        for table, (c, p) in one.terms.items():
            lead = (1,) * (offset.ndim - len(one.shape))
            pair = (sign * c).reshape(*lead, *c.shape), p.reshape(*lead, *p.shape)
            parts.setdefault(table, []).append(pair)
    terms = {}
    for table, pairs in parts.items():
        if len(pairs) == 1:
            terms[table] = pairs[0]
            continue
        whole = [[np.broadcast_to(x, (*offset.shape, x.shape[-1])) for x in pair] for pair in pairs]
        c, p = (np.concatenate(column, axis=-1) for column in zip(*whole, strict=True))
        terms[table] = c, p
    return Form(offset, terms)


class FormsOfRows:
    """Values of a graph that is linear in tables, for some rows of a term.

    Parameters
    ----------
    fact : Factorisation
        Its block are the tables.
    term : LocalTerm
    outputs : sequence of TensorVariable
    """

    def __init__(self, fact: Factorisation, term: LocalTerm, outputs: Sequence[Variable]) -> None:
        self._outputs, self._name = list(outputs), term.name
        self._tables = [fact.graph.values[name] for name in fact.var_names]
        self._moving = depends_on(outputs, self._tables)
        self._nodes = [
            node for node in toposort(outputs) if any(self._moving.get(out, False) for out in node.outputs)
        ]
        made = {*self._tables, *(out for node in self._nodes for out in node.outputs)}
        data = [v for node in self._nodes for v in node.inputs if v not in made]
        data += [v for v in outputs if v not in made]
        self._data = DataOfRows(fact, term, list(dict.fromkeys(data)))

    def __call__(self, positions: Index) -> dict[Variable, Form]:
        """The outputs for the rows at some positions."""
        found: dict[Variable, Any] = {}
        for var, value in self._data(positions).items():  # single numbers come without a shape
            found[var] = (
                np.reshape(value, (1,) * var.type.ndim) if np.ndim(value) == 0 and var.type.ndim else value
            )
        for table in self._tables:
            shape = table.type.shape
            found[table] = Form(np.zeros(shape), {table: (np.ones((*shape, 1)), places_of(shape))})
        for node in self._nodes:
            args = [found[v] for v in node.inputs]
            try:
                result = _execute(node, args)
            except NoField as error:
                raise NoField(f"{error} (in the term {self._name!r})") from None
            found[node.outputs[0]] = result
        return {v: _form(found[v]) for v in self._outputs}


def places_of(shape: tuple[int, ...]) -> Index:
    """The place of each element of a table in the vector of all its elements."""
    return np.arange(int(np.prod(shape))).reshape(*shape, 1)


def _form(value: Any) -> Form:
    return value if isinstance(value, Form) else Form(np.asarray(value, dtype=np.float64), {})


def _execute(node: Apply, args: list[Any]) -> Form:
    op = core_of(node.op)
    if isinstance(op, Elemwise):
        return _elemwise(node, op.scalar_op, args)
    if isinstance(op, UNCHANGED):
        return args[0]
    if isinstance(op, (*MOVING, ExtractDiag)):
        return args[0].moved(lambda ids: _performed(node, [ids, *args[1:]]))
    if isinstance(op, Join):
        return _joined([_form(one) for one in args], op.axis)
    if isinstance(op, MakeVector):
        return _joined([_form(one).moved(lambda ids: ids.reshape(1)) for one in args], 0)
    if isinstance(op, Sum):
        axes = range(len(args[0].shape)) if op.axis is None else op.axis
        return args[0].summed([a + len(args[0].shape) - node.inputs[0].type.ndim for a in axes])
    if isinstance(op, Dot):
        return _dot(node, args)
    if isinstance(op, RowsTimes):
        return _sparse_rows(*args)
    raise NoField(f"the operation {node.op} of linear values has no rule")


def _elemwise(node: Apply, scalar: Any, args: list[Any]) -> Form:
    if isinstance(scalar, ps.Add):
        return added([_form(one) for one in args], [1.0] * len(args))
    if isinstance(scalar, ps.Sub):
        return added([_form(one) for one in args], [1.0, -1.0])
    if isinstance(scalar, ps.Neg):
        return added([_form(args[0])], [-1.0])
    if isinstance(scalar, ps.Identity | ps.Cast):
        return args[0]
    moving = [one for one in args if isinstance(one, Form)]
    if isinstance(scalar, ps.Mul) and len(moving) == 1:
        factor: Any = 1.0
        for one in args:
            if not isinstance(one, Form):
                factor = factor * np.asarray(one, dtype=np.float64)
        return _times(moving[0], factor)
    if isinstance(scalar, ps.TrueDiv) and isinstance(args[0], Form) and not isinstance(args[1], Form):
        return _times(args[0], 1.0 / np.asarray(args[1], dtype=np.float64))
    if isinstance(scalar, ps.Switch) and not isinstance(args[0], Form):
        condition = np.asarray(args[0]) != 0
        chosen = [_times(_form(args[1]), condition.astype(float)), _times(_form(args[2]), 1.0 - condition)]
        return added(chosen, [1.0, 1.0])
    raise NoField(f"the operation {node.op} of linear values has no rule")


def _times(form: Form, factor: Any) -> Form:
    factor = np.asarray(factor, dtype=np.float64)
    lead = max(form.offset.ndim - factor.ndim, 0)
    factor = factor.reshape((1,) * lead + factor.shape)
    ahead = factor.ndim - form.offset.ndim
    if ahead:
        form = form.moved(lambda ids: ids.reshape((1,) * ahead + ids.shape))
    return form.times(factor)


def _joined(forms: list[Form], axis: int) -> Form:
    tables = dict.fromkeys(table for one in forms for table in one.terms)
    offset = np.concatenate([one.offset for one in forms], axis=axis)
    axis %= offset.ndim
    terms = {}
    for table in tables:
        k = max(one.terms[table][0].shape[-1] for one in forms if table in one.terms)
        pairs = []
        for one in forms:
            c, p = one.terms.get(table, (np.zeros(1), np.zeros(1, np.int64)))
            pad = (*one.shape, k)
            coefficient, place = np.zeros(pad), np.zeros(pad, np.int64)
            coefficient[..., : c.shape[-1]], place[..., : p.shape[-1]] = c, p
            pairs.append((coefficient, place))
        c, p = (np.concatenate(column, axis=axis) for column in zip(*pairs, strict=True))
        terms[table] = c, p
    return Form(offset, terms)


def _dot(node: Apply, args: list[Any]) -> Form:
    """A product with a matrix or a vector of data, as a sum over the axis that both have."""
    left, right = args
    if isinstance(left, Form) and isinstance(right, Form):
        raise NoField(f"the operation {node.op} of linear values has no rule")
    if len(right.shape) == 1:
        return _product(left, right).summed([-1])
    if len(left.shape) > 1:
        right = _moved(right, lambda x: x[..., None, :, :])
    return _product(_moved(left, lambda x: x[..., None]), right).summed([-2])


def _sparse_rows(data: Any, indices: Any, indptr: Any, y: Form, index: Any) -> Form:
    """Rows of a sparse matrix times linear values: as many terms for each as the longest of them has."""
    start, lengths = indptr[index], np.diff(indptr)[index]
    k = np.arange(lengths.max(initial=1))
    inside = k < lengths[:, None]
    at = np.where(inside, start[:, None] + k, 0)
    factor = np.where(inside, data[at], 0.0)
    factor = factor.reshape(factor.shape + (1,) * (len(y.shape) - 1))
    return _times(y.moved(lambda ids: ids[indices[at]]), factor).summed([1])


def _moved(value: Any, move: Callable[[np.ndarray], np.ndarray]) -> Any:
    return value.moved(move) if isinstance(value, Form) else move(np.asarray(value))


def _product(left: Any, right: Any) -> Form:
    return _times(left, right) if isinstance(left, Form) else _times(right, left)


def _performed(node: Apply, args: list[Any]) -> np.ndarray:
    """What an operation that only moves numbers does, done by NumPy."""
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    node.op.perform(node, args, storage)
    return np.asarray(storage[0][0])
