"""Rebuild graphs so that they are easy to take apart.

Three things are in the way in the graphs that PyMC makes: unknown shapes, operations that hide others
(`OpFromGraph`, labelled tensors, a `Scan` that is only a loop over rows), and parameter checks, which couple
all rows of a term although they only say "minus infinity here". `rebuild` removes all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import batched
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import toposort
from pytensor.scalar.math import Log1mexp, Softplus
from pytensor.scan.op import Scan
from pytensor.tensor.basic import Split
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType
from pytensor.xtensor.basic import TensorFromXTensor, XTensorFromTensor
from pytensor.xtensor.type import XTensorConstant

from pymc_austerity.model.graph.checks import check_in_full, is_elemwise
from pymc_austerity.model.graph.columns import parts_of_join, single_column
from pymc_austerity.model.graph.loops import is_map, written_out
from pymc_austerity.model.graph.partial_sums import difference_of_sums
from pymc_austerity.model.refusal import Coupled

# Symbolic operations that `lift` understands as a whole.
_KEPT_WHOLE = (Softmax, LogSoftmax)
# NumPy takes fewer than 32 arrays at once.
_OPERANDS = 16
# Integer subgraphs of constants up to this size are evaluated (shapes, slice bounds, split sizes).
_FOLD_LIMIT = 1000

# Graphs that are evaluated once, over all rows, run operation by operation: nothing is compiled.
# Sums stay as they are: see `narrowed`.
INTERPRETED = pytensor.compile.mode.FAST_COMPILE.including("local_check_parameter_to_ninf_switch").excluding(
    "local_add_canonizer", "local_mul_canonizer"
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


# The same after PyTensor's rewrites for numerical stability: slower, and finite wherever PyMC is.
INTERPRETED_STABLE = INTERPRETED.including("stabilize", "specialize").register((dfs_rewriter(_in_numpy), 100))


class Compiled:
    """Functions that are compiled when first used, and not pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {
            k: v
            for k, v in self.__dict__.items()
            if not isinstance(getattr(type(self), k, None), cached_property)
        }


def rebuild(
    outputs: Iterable[Variable],
    memo: dict[Variable, Variable],
    measure: ShapeMeasure | None = None,
    *,
    drop_checks: bool = False,
) -> list[Variable]:
    """Rebuild graphs bottom-up after replacing variables, so that static shapes spread upwards.

    Parameters
    ----------
    outputs : iterable of Variable
    memo : dict of Variable to Variable
        Replacements. Everything rebuilt is added to it, so that later calls can share it.
    measure : ShapeMeasure, optional
        Finds a shape that an operation does not tell.
    drop_checks : bool, default False
        Leave parameter checks out, as ``pm.Model(check_bounds=False)`` asks for.
    """
    outputs = list(outputs)
    for node in toposort(outputs, blockers=list(memo)):
        new = _rebuild_node(node, [memo.get(i, i) for i in node.inputs], measure, drop_checks)
        for old, out in zip(node.outputs, new, strict=True):
            if out.name is None and old.name is not None:
                out.name = old.name
            memo.setdefault(old, out)  # one result of a node may have been replaced already
    return [memo.get(o, o) for o in outputs]


class ShapeMeasure:
    """Finds unknown shapes by evaluating a graph once.

    Parameters
    ----------
    example : dict of Variable to ndarray
        A value for every input of the graphs.
    parameters : list of Variable
        Inputs that change while sampling: a shape must not depend on their values.
    """

    def __init__(self, example: Mapping[Variable, np.ndarray], parameters: Sequence[Variable]) -> None:
        self._example = example
        self._parameters = set(parameters)

    def with_shape(self, out: Variable) -> Variable:
        """`out` with its shape fixed to the measured one."""
        function = pytensor.function(
            list(self._example), out.shape, mode=INTERPRETED, on_unused_input="ignore"
        )
        graph = function.maker.fgraph
        for var, own in zip(self._example, graph.inputs, strict=False):
            if var in self._parameters and graph.clients[own]:
                raise Coupled(out, "its length may depend on the sampled variables")
        return pt.specify_shape(out, [int(k) for k in function(*self._example.values())])


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
    if isinstance(op, Scan) and is_map(node) and (rows := written_out(node, new_inputs)):
        return rebuild(rows, {}, measure, drop_checks=drop_checks)
    if isinstance(op, Shape) and None not in shape:
        return [pt.constant(np.array(shape, dtype="int64"))]
    if isinstance(op, Shape_i) and shape[op.i] is not None:
        return [pt.constant(np.array(shape[op.i], dtype="int64"))]
    if isinstance(op, Subtensor) and (column := single_column(node, new_inputs)) is not None:
        return [column]
    if isinstance(op, Split) and (parts := parts_of_join(op, new_inputs)) is not None:
        return parts
    if isinstance(op, Elemwise) and (sums := difference_of_sums(node, new_inputs)) is not None:
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


def parts_of(q: Variable, values: Sequence[Variable]) -> dict[Variable, Variable]:
    """The variables `values`, each as a part of one vector."""
    parts, start = {}, 0
    for value in values:
        size = int(np.prod(value.type.shape))
        part = q[start : start + size].reshape(value.type.shape)
        parts[value] = part if part.type.dtype == value.type.dtype else part.astype(value.type.dtype)
        start += size
    return parts


def stable(rows: Variable) -> Variable:
    """Rows after rewrites that keep log(1 - sigmoid(eta)) from becoming log(0).

    Some patterns are only found before the graph is brought to a canonical form, some only after.
    """
    rows = rewrite_graph(rows, include=("stabilize",), clone=True)
    return rewrite_graph(rows, include=("canonicalize", "stabilize"), clone=True)


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
