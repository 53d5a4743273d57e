"""Push an observation index down to the leaves of a graph.

`Lifter.take(var, axis, index)` gives a graph equal to ``pt.take(var, index, axis)`` that costs
O(len(index)): instead of computing all rows and selecting some, it selects rows of the leaves (data
and value variables) and computes only these. `Lifter.take_points` does the same for single cells of a
table, ``var[rows, columns]``. One rule for each kind of operation; the other modules have them. An
operation for which row i needs other rows has no rule, and is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import singledispatch
from typing import Any, NoReturn

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.scalar.basic import Cast
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.basic import ARange
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot

from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.refusal import Coupled

type Axes = tuple[int, ...]
type Indices = tuple[Variable, ...]


class NotData(Exception):  # noqa: N818 - it is caught, and becomes a refusal
    """A graph has no value of its own: it depends on the sampled variables."""


class _Dependence:
    """Whether variables depend on the value of `roots`, found once for each."""

    def __init__(self, outputs: list[Variable], roots: Iterable[Variable]) -> None:
        self._roots = list(roots)
        self._found = depends_on(outputs, self._roots)

    def __call__(self, var: Variable) -> bool:
        if var not in self._found:
            self._found.update(depends_on([var], self._roots))
        return self._found.get(var, False)


class Lifter:
    """Take rows of graphs of one model.

    `outputs` are the graphs that will be taken apart. Whatever does not depend on `values`, the value
    variables, is data. `block` has those that the step moves: what depends on others only stays as it is
    during a step, and may be computed in full where its rows cannot be had one by one. Axes of at least
    `threshold` must not be computed in full. `evaluate` gives the value of a graph of data; without it, only
    constants are known. What is computed from `on_disk`, data whose rows are on disk, is computed for single
    rows.
    """

    def __init__(
        self,
        outputs: Iterable[Variable],
        values: Iterable[Variable],
        block: Iterable[Variable],
        threshold: int,
        evaluate: Callable[[Variable], np.ndarray] | None = None,
        on_disk: Iterable[Variable] = (),
    ) -> None:
        self.threshold = threshold
        outputs = list(outputs)
        self.depends = _Dependence(outputs, values)  # does a variable change while sampling?
        self.moves = _Dependence(outputs, block)  # does it change during a step?
        self._reads_disk = _Dependence(outputs, on_disk)  # is it computed from rows on disk?
        self._memo: dict[tuple[Any, ...], Variable] = {}
        self._evaluate = evaluate
        self._data: dict[Variable, np.ndarray] = {}
        self._known: dict[Variable, Variable] = {}
        self._moved: dict[tuple[Variable, int, int], Variable] = {}
        self._origin: dict[Variable, tuple[Variable, int, int]] = {}
        self._selecting = 0
        self.conditions: list[Variable] = []

    def is_short(self, var: Variable) -> bool:
        """Are all axes of `var` below the threshold?"""
        return all(k is not None and k < self.threshold for k in var.type.shape)

    def data_value(self, var: Variable) -> np.ndarray:
        """Value of a graph of data; `NotData` if it depends on the sampled variables."""
        if isinstance(var, Constant):
            return np.asarray(var.data)
        if self._evaluate is None or self.depends(var):
            raise NotData
        if var not in self._data:
            self._data[var] = self._evaluate(var)
        return self._data[var]

    def of_known_shape(self, specified: Variable) -> Variable:
        """Input of a `SpecifyShape`, as a variable of that shape: rules ask for shapes."""
        unknown = specified.owner.inputs[0]
        if unknown.owner is None:
            return unknown
        if specified not in self._known:
            known = unknown.owner.clone().outputs[unknown.owner.outputs.index(unknown)]
            known.type = specified.type
            self._known[specified] = known
        return self._known[specified]

    def moved(self, index: Variable, step: int, start: int) -> Variable:
        """``index * step + start``, as one variable for all ways that lead there.

        Rows of lagged differences of lagged differences would else be lifted once for each way.
        """
        base, inner_step, inner_start = self._origin.get(index, (index, 1, 0))
        key = base, inner_step * step, inner_start * step + start
        if key[1:] == (1, 0):
            return base
        if key not in self._moved:
            new = base * key[1] if key[1] != 1 else base
            self._moved[key] = new + key[2] if key[2] else new
            self._origin[self._moved[key]] = key
        return self._moved[key]

    def take(self, var: Variable, axis: int, index: Variable) -> Variable:
        """Graph equal to ``pt.take(var, index, axis)``; `var` itself if it is constant along `axis`.

        An axis of static length one has no rows: PyTensor forbids broadcasting that is only known
        at run time, so nothing else can be broadcast.
        """
        if var.type.shape[axis] == 1:
            return var
        index = as_position(index)
        key = (var, axis, index)
        if key not in self._memo:
            self._memo[key] = full_rows(self._take(var, axis, index), axis, index)
        return self._memo[key]

    def take_points(self, var: Variable, axes: Sequence[int], indices: Sequence[Variable]) -> Variable:
        """Cells number ``indices`` along `axes`, as the first axis of the result; the others follow in order.

        Where `var` is constant along all of `axes`, the first axis has length one.
        """
        real = {a: as_position(i) for a, i in zip(axes, indices, strict=True) if var.type.shape[a] != 1}
        if len(real) < len(axes):
            var = var.dimshuffle([a for a in range(var.type.ndim) if a in real or a not in axes])
            gone = [a for a in axes if a not in real]
            real = {a - sum(g < a for g in gone): i for a, i in real.items()}
        if not real:
            return pt.expand_dims(var, 0)
        ordered = sorted(real)
        chosen = tuple(real[a] for a in ordered)
        if len(real) == 1:
            return pt.moveaxis(self.take(var, ordered[0], chosen[0]), ordered[0], 0)
        key = (var, tuple(ordered), chosen)
        if key not in self._memo:
            self._memo[key] = full_rows(self._take_points(var, tuple(ordered), chosen), 0, chosen[0])
        return self._memo[key]

    def take_selection(self, var: Variable, axis: int, index: Variable) -> Variable:
        """`take` of an expression of which not all rows are used."""
        with self.selection():
            return self.take(var, axis, index)

    @contextmanager
    def selection(self) -> Iterator[None]:
        """Within it, not all rows are used: a check on all cannot become one on these."""
        self._selecting += 1
        try:
            yield
        finally:
            self._selecting -= 1

    @contextmanager
    def rearranged(self, into_rows: Callable[[Variable], Variable]) -> Iterator[None]:
        """Within it, rows are in another order or number; `into_rows` brings conditions back."""
        outer, self.conditions = self.conditions, []
        try:
            yield
        finally:
            self.conditions = outer + [into_rows(valid) for valid in self.conditions]

    def add_condition(self, rows: Variable, axis: int) -> None:
        """Note a condition on rows: where it fails, the row of the finished term is minus infinity."""
        if self._selecting:
            refuse(rows, "a parameter check covers rows that are not used")
        others = [a for a in range(rows.type.ndim) if a != axis]
        self.conditions.append(rows.all(axis=others) if others else rows)

    def _take(self, var: Variable, axis: int, index: Variable) -> Variable:
        node = var.owner
        if node is None:
            return gather(var, axis, index)
        if _is_constant_arange(node):
            start, _, step = (int(i.data) for i in node.inputs)
            return (start + step * index).astype(var.type.dtype)
        if not (self.depends(var) or self._reads_disk(var) or _is_free_view(node)):
            return gather(var, axis, index)
        if not self.moves(var) and self._contracts(node):
            return gather(var, axis, index)
        try:
            return rule(node.op, self, var, axis, index)
        except Coupled:
            if self.is_short(var) or not self.moves(var):
                return gather(var, axis, index)
            raise

    def _contracts(self, node: Apply) -> bool:
        """Does each row of a product or reduction take a long vector?"""
        (x, *_), op = node.inputs, node.op
        if isinstance(op, CAReduce):
            reduced = range(x.type.ndim) if op.axis is None else op.axis
            return any(x.type.shape[a] >= self.threshold for a in reduced)
        return isinstance(op, Dot | Blockwise) and (x.type.shape[-1:] or (0,))[0] >= self.threshold

    def _take_points(self, var: Variable, axes: Axes, indices: Indices) -> Variable:
        node = var.owner
        if node is None or not (self.depends(var) or self._reads_disk(var) or _is_free_view(node)):
            return gather_points(var, axes, indices)
        try:
            return point_rule(node.op, self, var, axes, indices)
        except Coupled:
            if self.is_short(var) or not self.moves(var):
                return gather_points(var, axes, indices)
            raise


def as_position(index: Variable) -> Variable:
    """An index in 64 bits: arithmetic with narrow integers would wrap around."""
    return index if index.type.dtype == "int64" else index.astype("int64")


def _is_constant_arange(node: Apply) -> bool:
    return isinstance(node.op, ARange) and all(
        isinstance(i, Constant) and np.asarray(i.data).dtype.kind in "iu" for i in node.inputs
    )


def full_rows(rows: Variable, axis: int, index: Variable) -> Variable:
    """Repeat a row that is the same everywhere, so that there is one for each number in `index`."""
    if rows.type.shape[axis] != 1:
        return rows
    return pt.switch(along(index >= 0, axis, rows.type.ndim), rows, rows)


def gather(var: Variable, axis: int, index: Variable) -> Variable:
    """Select rows of a leaf."""
    if isinstance(var.type, SparseTensorType):
        refuse(var, "rows of a sparse matrix; of these, only products (pytensor.sparse.dot) can be had")
    return var[(slice(None),) * axis + (index,)]


def gather_points(var: Variable, axes: Axes, indices: Indices) -> Variable:
    """Select cells of a leaf."""
    entries: list[Any] = [slice(None)] * (axes[-1] + 1)
    for a, i in zip(axes, indices, strict=True):
        entries[a] = i
    # NumPy puts neighbouring indices in their own place, separated ones in front.
    neighbours = axes[-1] - axes[0] == len(axes) - 1
    return pt.moveaxis(var[tuple(entries)], axes[0] if neighbours else 0, 0)


def _is_free_view(node: Apply) -> bool:
    """Data behind such an operation is not stored twice: rows are taken of the original."""
    return isinstance(node.op, DimShuffle) or (
        isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Cast)
    )


@singledispatch
def rule(op: Op, lifter: Lifter, var: Variable, axis: int, index: Variable) -> Variable:
    """Rows of `var`, a result of the operation `op`, which decides on the rule."""
    refuse(var, "no rule computes single rows of this operation")


@singledispatch
def point_rule(op: Op, lifter: Lifter, var: Variable, axes: Axes, indices: Indices) -> Variable:
    """Cells of `var`, a result of `op`: by default, of rows along the longest of `axes`."""
    longest = max(range(len(axes)), key=lambda k: var.type.shape[axes[k]])
    with lifter.selection():
        rows = pt.moveaxis(lifter.take(var, axes[longest], indices[longest]), axes[longest], 0)
    # The row axis is the first now.
    others = [(a + (a < axes[longest]), i) for a, i in zip(axes, indices, strict=True) if a != axes[longest]]
    number = pt.arange(indices[longest].shape[0])
    return gather_points(rows, (0, *(a for a, _ in others)), (number, *(i for _, i in others)))


def refuse(var: Variable, reason: str) -> NoReturn:
    """Say why rows of `var` cannot be had one by one."""
    raise Coupled(var, reason)


def along(vector: Variable, axis: int, ndim: int) -> Variable:
    """Shape a vector so that it broadcasts along `axis` of an `ndim`-dimensional tensor."""
    return vector.dimshuffle(*["x"] * axis, 0, *["x"] * (ndim - axis - 1))


def positive(index: Variable, length: int) -> Variable:
    """Turn Python's negative positions into ordinary ones."""
    index = index.astype("int64")
    return pt.switch(index < 0, index + length, index)
