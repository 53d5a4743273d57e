"""Rebuild graphs so that they are easy to take apart.

Three things are in the way in the graphs that PyMC makes: unknown shapes, operations that hide others
(`OpFromGraph`, labelled tensors, a `Scan` that is only a loop over rows), and parameter checks, which couple
all rows of a term although they only say "minus infinity here". `rebuild` removes all of them. Before that,
`merged` writes every part of a graph once, and `narrowed` splits long sums.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, batched
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import ViewOp
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import toposort
from pytensor.scalar.math import Log1mexp, Softplus
from pytensor.scan.op import Scan
from pytensor.tensor.basic import ARange, Join, Split
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.type import DenseTensorType
from pytensor.xtensor.basic import TensorFromXTensor, XTensorFromTensor
from pytensor.xtensor.type import XTensorConstant

from pymc_austerity.model.graph.checks import check_in_full, is_elemwise
from pymc_austerity.model.refusal import Coupled

# Symbolic operations that `lift` understands as a whole.
_KEPT_WHOLE = (Softmax, LogSoftmax)
# NumPy takes fewer than 32 arrays at once.
_OPERANDS = 16
# Integer subgraphs of constants up to this size are evaluated (shapes, slice bounds, split sizes).
_FOLD_LIMIT = 1000
# Partial sums are rows of a matrix of zeros and ones, with this many numbers at most.
_MOST = 10_000


@node_rewriter([OpFromGraph])
def _without_inner_graphs(fgraph: Any, node: Apply) -> list[Variable]:
    """Write the graph within an operation in its place: PyTensor would compile it, by a compiler of C."""
    inlined: list[Variable] = inline_ofg_node(node)
    return inlined


@node_rewriter([Elemwise])
def _broadcast(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Write `second`, which PyTensor interprets element by element, by a function of NumPy."""
    if not isinstance(node.op.scalar_op, ps.Second):
        return None
    pattern, value = node.inputs
    return [pt.switch(pt.constant(True), value, pattern).astype(node.outputs[0].type.dtype)]


# Graphs that are evaluated once, over all rows, run operation by operation: nothing is compiled.
# Sums stay as they are: see `narrowed`.
INTERPRETED = (
    pytensor.compile.mode.FAST_COMPILE.including("local_check_parameter_to_ninf_switch")
    .excluding("local_add_canonizer", "local_mul_canonizer")
    .register((dfs_rewriter(_without_inner_graphs, _broadcast), 99))
)


@node_rewriter([Elemwise])
def _in_numpy(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Write two functions, which PyTensor interprets element by element, by those of NumPy."""
    (x,) = node.inputs if len(node.inputs) == 1 else (None,)
    if isinstance(node.op.scalar_op, Softplus):
        return [pt.maximum(x, 0.0) + pt.log1p(pt.exp(-pt.abs(x)))]
    if isinstance(node.op.scalar_op, Log1mexp):
        return [pt.switch(x < -np.log(2.0), pt.log1p(-pt.exp(x)), pt.log(-pt.expm1(x)))]
    return None


@node_rewriter([Elemwise])
def _of_few(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Cut long sums and products in two: PyTensor does not interpret one of more than 31 arguments."""
    half = len(node.inputs) // 2
    if half < 15 or not isinstance(node.op.scalar_op, ps.Add | ps.Mul):
        return None
    return [node.op(node.op(*node.inputs[:half]), node.op(*node.inputs[half:]))]


# The same after PyTensor's rewrites for numerical stability: slower, and finite wherever PyMC is.
INTERPRETED_STABLE = INTERPRETED.including("stabilize", "specialize").register(
    (dfs_rewriter(_in_numpy, _of_few), 100)
)


class Compiled:
    """Functions that are compiled when first used, and not pickled."""

    def __getstate__(self) -> dict[str, Any]:
        kind, state = type(self), vars(self).items()
        return {k: v for k, v in state if not isinstance(getattr(kind, k, None), cached_property)}


def rebuild(
    outputs: Iterable[Variable],
    memo: dict[Variable, Variable],
    measure: ShapeMeasure | None = None,
    *,
    drop_checks: bool = False,
) -> list[Variable]:
    """Rebuild graphs bottom-up after replacing variables, so that static shapes spread upwards.

    `memo` has the replacements. Everything rebuilt is added to it, so that later calls can share it.
    `measure` finds a shape that an operation does not tell. With `drop_checks`, parameter checks are left
    out, as ``pm.Model(check_bounds=False)`` asks for.
    """
    outputs = list(outputs)
    for node in toposort(outputs, blockers=list(memo)):
        new = _rebuild_node(node, [memo.get(i, i) for i in node.inputs], measure, drop_checks)
        for old, out in zip(node.outputs, new, strict=True):
            if out.name is None and old.name is not None:
                out.name = old.name
            memo.setdefault(old, out)  # one result of a node may have been replaced already
    return [memo.get(o, o) for o in outputs]


class ShapeMeasure(NamedTuple):
    """Finds unknown shapes by evaluating a graph once."""

    example: Mapping[Variable, np.ndarray]  # A value for every input of the graphs
    # Inputs that change while sampling: a shape must not depend on their values
    parameters: Sequence[Variable]

    def with_shape(self, out: Variable) -> Variable:
        """`out` with its shape fixed to the measured one."""
        inputs, changing = list(self.example), set(self.parameters)
        function = pytensor.function(inputs, out.shape, mode=INTERPRETED, on_unused_input="ignore")
        graph = function.maker.fgraph
        for var, own in zip(inputs, graph.inputs, strict=False):
            if var in changing and graph.clients[own]:
                raise Coupled(out, "its length may depend on the sampled variables")
        return pt.specify_shape(out, [int(k) for k in function(*self.example.values())])


def _rebuild_node(
    node: Apply, new_inputs: list[Variable], measure: ShapeMeasure | None, drop_checks: bool
) -> list[Variable]:
    op = node.op
    first = new_inputs[0] if new_inputs else None
    shape = getattr(getattr(first, "type", None), "shape", (None,))
    if isinstance(op, ViewOp):
        return [first]
    if isinstance(op, TensorFromXTensor | XTensorFromTensor):  # labels say nothing about the numbers
        return [pt.constant(first.data) if isinstance(first, XTensorConstant) else first]
    if isinstance(op, Scan) and is_map(node) and (rows := _written_out(node, new_inputs)):
        return rebuild(rows, {}, measure, drop_checks=drop_checks)
    if isinstance(op, Shape) and None not in shape:
        return [pt.constant(np.array(shape, dtype="int64"))]
    if isinstance(op, Shape_i) and shape[op.i] is not None:
        return [pt.constant(np.array(shape[op.i], dtype="int64"))]
    if isinstance(op, Subtensor) and (column := _single_column(node, new_inputs)) is not None:
        return [column]
    if isinstance(op, Split) and (parts := _parts_of_join(op, new_inputs)) is not None:
        return parts
    if isinstance(op, Elemwise) and (sums := _difference_of_sums(node, new_inputs)) is not None:
        return [sums]
    if isinstance(op, CheckParameterValue) and drop_checks:
        return [first]
    if isinstance(op, CheckParameterValue) and op.can_be_replaced_by_ninf:
        return [check_in_full(first, new_inputs[1:])]
    if isinstance(op, OpFromGraph) and not isinstance(op, _KEPT_WHOLE):
        inner = dict(zip(op.fgraph.inputs, new_inputs, strict=True))
        return rebuild(op.fgraph.outputs, inner, measure, drop_checks=drop_checks)
    # The extra inputs of SpecifyShape, once the shape is known, say nothing more.
    if isinstance(op, SpecifyShape) and None not in shape and shape == node.outputs[0].type.shape:
        return [first]
    try:
        new = op.make_node(*new_inputs)
    except TypeError:  # a few operations take their inputs as one list
        new = node.clone_with_new_inputs(new_inputs, strict=False)
    outs = _folded(new) or new.outputs
    return [
        measure.with_shape(out)
        if measure and isinstance(out.type, DenseTensorType) and None in out.type.shape
        else out
        for out in outs
    ]


def _folded(node: Apply) -> list[Variable] | None:
    """Evaluate a small integer operation on constants."""
    if not node.inputs or not all(isinstance(i, Constant) for i in node.inputs):
        return None
    for var in (*node.inputs, *node.outputs):
        kind = np.dtype(getattr(var.type, "dtype", object)).kind
        sizes = getattr(var.type, "shape", ())
        if kind not in "iub" or None in sizes or np.prod(sizes, dtype=np.int64) > _FOLD_LIMIT:
            return None
    storage: list[list[Any]] = [[None] for _ in node.outputs]
    try:
        node.op.perform(node, [i.data for i in node.inputs], storage)
    except NotImplementedError:
        return None
    return [out.type.make_constant(cell[0]) for out, cell in zip(node.outputs, storage, strict=True)]


# Operations that can be written in another way --------------------------------------------------------------


def is_map(node: Apply) -> bool:
    """Does each step of a `Scan` depend on its own rows only?

    `pm.CustomDist(dist=...)` with a loop inside, or PyMC's density of an observed time series that is
    generated by a loop, comes as such a loop over rows.
    """
    info = node.op.info
    recurrent = (info.n_mit_mot, info.n_mit_sot, info.n_sit_sot, info.n_untraced_sit_sot)
    return not any(recurrent) and not info.as_while and info.n_nit_sot == len(node.outputs)


def _written_out(node: Apply, inputs: list[Variable]) -> list[Variable] | None:
    """The outputs of a map, computed for all rows at once; None if PyTensor cannot vectorise it."""
    op, info = node.op, node.op.info
    n_steps = inputs[0]
    sequences = inputs[1 : 1 + info.n_seqs]
    constant = op.outer_non_seqs(inputs)
    inside = op.fgraph.unfreeze()  # frozen nodes cannot be copied, which PyTensor does on the way
    rows = {
        inner: outer[:n_steps] for inner, outer in zip(op.inner_seqs(inside.inputs), sequences, strict=True)
    }
    same = dict(zip(op.inner_non_seqs(inside.inputs), constant, strict=True))
    try:
        results = vectorize_graph(inside.outputs, {**rows, **same})
    except NotImplementedError:  # an operation inside knows no batches
        return None
    if any(isinstance(getattr(one.op, "core_op", None), ARange) for one in toposort(results)):
        return None  # of another length in each row
    # What does not depend on the sequences is the same in every row.
    return [
        out if out.type.ndim > inner.type.ndim else pt.alloc(out, n_steps, *out.shape)
        for inner, out in zip(inside.outputs, results, strict=True)
    ]


# Columns that were looked for: of which variable, along which axis, and which; None if there was no join.
type Columns = dict[tuple[Variable, int, int], Variable | None]


def _parts_of_join(op: Split, inputs: list[Variable]) -> list[Variable] | None:
    """Parts that a join is split into again, as increments of a walk are; None for other splits."""
    joined, lengths = inputs[0], inputs[-1]
    is_join = joined.owner is not None and isinstance(joined.owner.op, Join)
    if not is_join or joined.owner.op.axis != op.axis or not isinstance(lengths, Constant):
        return None
    parts = list(joined.owner.inputs)
    own = [part.type.shape[op.axis] for part in parts]
    return parts if own == [int(k) for k in lengths.data] else None


def _single_column(node: Apply, inputs: list[Variable]) -> Variable | None:
    """The part of a join that a `Subtensor` of one number along one axis takes; None for others.

    In a model of several equations the means are often stacked to a table, and each response takes a column
    of it: ``pt.stack([m0, m1], axis=1)[:, 0]``. Without this each response would compute all equations.
    """
    entries = indices_from_subtensor(inputs[1:], node.op.idx_list)
    chosen = [(a, e) for a, e in enumerate(entries) if e != slice(None)]
    if len(chosen) != 1 or not isinstance(chosen[0][1], Constant) or chosen[0][1].type.ndim:
        return None
    (axis, entry), x = chosen[0], inputs[0]
    length, k = x.type.shape[axis], int(entry.data)
    if length is None or not -length <= k < length:
        return None
    return _column(x, axis, k % length, {})


def _column(x: Variable, axis: int, k: int, memo: Columns) -> Variable | None:
    """Column number `k` along `axis`; None if no join is found above it."""
    key = x, axis, k
    if key not in memo:
        memo[key] = _found(x, axis, k, memo)
    return memo[key]


def _found(x: Variable, axis: int, k: int, memo: Columns) -> Variable | None:
    node = x.owner
    if node is None or x.type.shape[axis] is None:
        return None
    if isinstance(node.op, Join) and node.op.axis == axis:
        lengths = [part.type.shape[axis] for part in node.inputs]
        if None in lengths:
            return None
        for part, stop, length in zip(node.inputs, accumulate(lengths), lengths, strict=True):
            if k < stop:
                return _selected(part, axis, k - stop + length, memo)
    if isinstance(node.op, DimShuffle) and node.op.new_order[axis] != "x":
        inner = node.op.new_order[axis]
        column = _column(node.inputs[0], inner, k, memo)
        if column is None:
            return None
        order = [a if a == "x" else a - (a > inner) for a in node.op.new_order if a != inner]
        return column.dimshuffle(*order)
    if isinstance(node.op, Elemwise) and len(node.outputs) == 1:
        at = [0 if var.type.shape[axis] == 1 else k for var in node.inputs]
        if any(_column(var, axis, i, memo) is not None for var, i in zip(node.inputs, at, strict=True)):
            parts = [_selected(var, axis, i, memo) for var, i in zip(node.inputs, at, strict=True)]
            return node.op(*parts)
    return None


def _selected(x: Variable, axis: int, k: int, memo: Columns) -> Variable:
    """The column, by a selection if nothing better is known."""
    if x.owner is not None and isinstance(x.owner.op, DimShuffle) and x.owner.op.new_order[axis] == "x":
        order = x.owner.op.new_order
        return x.owner.inputs[0].dimshuffle(*order[:axis], *order[axis + 1 :])
    column = _column(x, axis, k, memo)
    return x[(slice(None),) * axis + (k,)] if column is None else column


def _difference_of_sums(node: Apply, inputs: list[Variable]) -> Variable | None:
    """The sums that a difference of elements of one cumulative sum is; None if it is not that.

    `pm.LKJCholeskyCov` takes the squared scale of each row of its factor as the difference of two cumulative
    sums over all rows. Where a scale is less than 1e-8 of the one before, nothing is left of it, and the log
    density is plus infinity instead of a moderate number. The sum of the row's own squares loses nothing.
    """
    if len(inputs) != 2 or not is_elemwise(node.outputs[0], ps.Sub):
        return None
    of_last, of_first = (_elements(x) for x in inputs)
    if of_last is None or of_first is None:
        return None
    (last, source), (first, other) = of_last, of_first
    if source is not other or len(last) != len(first):
        return None
    (n,) = source.type.shape
    if n is None or n * len(last) > _MOST:
        return None
    if any(np.any((k < -n) | (k >= n)) for k in (last, first)) or source.type.dtype != "float64":
        return None
    last, first, places = last % n, first % n, np.arange(n)
    if np.any(last < first):
        return None
    is_summed = (places > first[:, None]) & (places <= last[:, None])
    return pt.switch(pt.constant(is_summed), source, 0.0).sum(axis=-1)


def _elements(x: Variable) -> tuple[np.ndarray, Variable] | None:
    """Numbers of elements of a cumulative sum, and its summands; None if a vector is no such selection."""
    if x.owner is None or not isinstance(x.owner.op, AdvancedSubtensor):
        return None
    summed, *index = x.owner.inputs
    op = getattr(summed.owner, "op", None)
    if not isinstance(op, CumOp) or op.mode != "add" or summed.type.ndim != 1 or len(index) != 1:
        return None
    if not isinstance(index[0], Constant) or index[0].type.ndim != 1 or index[0].type.dtype == "bool":
        return None
    return index[0].data.astype(np.int64), summed.owner.inputs[0]


# Graphs as a whole ------------------------------------------------------------------------------------------


def merged(outputs: Sequence[Variable]) -> list[Variable]:
    """Graphs rewritten, in one pass, so that parts that are equal are written once.

    PyMC builds the log density of each variable on a copy of its own of all that leads there. The terms of a
    panel of countries, or of the equations of one model, would be mostly copies.
    """
    first: dict[Hashable, Apply] = {}
    constants: dict[Hashable, Variable] = {}
    memo: dict[Variable, Variable] = {}

    def only(var: Variable) -> Variable:
        if isinstance(var, Constant):
            return constants.setdefault(var.signature(), var)
        return memo.get(var, var)

    for node in toposort(outputs):
        inputs = [only(var) for var in node.inputs]
        own = node if inputs == node.inputs else node.clone_with_new_inputs(inputs)
        same = first.setdefault((node.op, *inputs, *(out.type for out in own.outputs)), own)
        memo.update(zip(node.outputs, same.outputs, strict=True))
    return [only(out) for out in outputs]


def narrowed(outputs: Sequence[Variable]) -> list[Variable]:
    """Write sums and products of many terms as sums of sums: interpreted, 32 operands are the limit."""
    memo: dict[Variable, Variable] = {}
    for node in toposort(outputs):
        new = [memo.get(i, i) for i in node.inputs]
        if len(new) > _OPERANDS and is_elemwise(node.outputs[0], ps.Add, ps.Mul):
            while len(new) > 1:
                new = [node.op(*part) if len(part) > 1 else part[0] for part in batched(new, _OPERANDS)]
            new[0].name = node.outputs[0].name
            memo[node.outputs[0]] = new[0]
        elif new != node.inputs:
            memo.update(zip(node.outputs, node.clone_with_new_inputs(new).outputs, strict=True))
    return [memo.get(out, out) for out in outputs]


def stable(rows: Variable) -> Variable:
    """Rows after rewrites that keep log(1 - sigmoid(eta)) from becoming log(0).

    Some patterns are only found before the graph is brought to a canonical form, some only after.
    """
    rows = rewrite_graph(rows, include=("stabilize",), clone=True)
    return rewrite_graph(rows, include=("canonicalize", "stabilize"), clone=True)


def one_vector(variables: Sequence[Variable]) -> Variable:
    """The numbers of some variables of known shapes, one variable after the other."""
    flat = [var.flatten() for var in variables]
    length = sum(int(np.prod(var.type.shape)) for var in variables)
    return pt.specify_shape(pt.concatenate(flat) if len(flat) > 1 else flat[0], (length,))


def parts_of(q: Variable, values: Sequence[Variable]) -> dict[Variable, Variable]:
    """The variables `values`, each as a part of one vector."""
    parts, start = {}, 0
    for value in values:
        size = int(np.prod(value.type.shape))
        part = q[start : start + size].reshape(value.type.shape)
        parts[value] = part if part.type.dtype == value.type.dtype else part.astype(value.type.dtype)
        start += size
    return parts


def depends_on(
    outputs: Iterable[Variable], roots: Iterable[Variable], *, by_shape: bool = False
) -> dict[Variable, bool]:
    """Whether each variable of the graphs depends on the value of `roots`, or on their shape."""
    outputs = list(outputs)
    found: dict[Variable, bool] = dict.fromkeys(roots, True)
    for node in toposort(outputs):
        shape_only = isinstance(node.op, Shape | Shape_i) and not by_shape
        answer = not shape_only and any(found.get(i, False) for i in node.inputs)
        found.update(dict.fromkeys((o for o in node.outputs if o not in found), answer))
    return found
