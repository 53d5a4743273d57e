"""The log density of a PyMC model as a graph in which every shape is known.

`pymc.Model.logp(sum=False)` gives one graph per model term. Before these can be taken apart, three
things have to go: unknown shapes (value variables and `pm.Data` carry none), operations that hide
others (`OpFromGraph`), and parameter checks, which couple all rows of a term although they only say
"minus infinity here". `typed_log_density` removes all three in one pass over each term.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.type import TensorType

from pymc_austerity.model.checks import check_in_full
from pymc_austerity.model.refusal import Coupled, refusal

# Symbolic operations that `lift` understands as a whole.
_KEPT_WHOLE = (Softmax, LogSoftmax)
# Integer subgraphs of constants up to this size are evaluated (shapes, slice bounds, split sizes).
_FOLD_LIMIT = 1000

# Graphs that are evaluated once, over all rows, run operation by operation: nothing is compiled.
INTERPRETED = pytensor.compile.mode.FAST_COMPILE.including("local_check_parameter_to_ninf_switch")
# The same after PyTensor's rewrites for numerical stability: slower, and finite wherever PyMC is.
INTERPRETED_STABLE = INTERPRETED.including("stabilize", "specialize")


@dataclass(frozen=True, eq=False)
class LogDensityGraph:
    """The terms of a model's log density, with static shapes throughout.

    Attributes
    ----------
    values : dict of str to TensorVariable
        Value variables, by name, in the order of ``model.value_vars``.
    data : dict of TensorVariable to SharedVariable
        Typed stand-ins of the model's shared data, and where their values live.
    shared : list of SharedVariable
        All shared data, with those (lengths, integers) that became constants of the graph.
    shared_values : list of ndarray
        Their values when the graph was built, not copied.
    point : dict of str to ndarray
        The point at which unknown shapes were measured.
    terms : dict of str to TensorVariable
        One graph per model term, by name, in the order of PyMC (free, observed, potentials).
    raw : dict of str to TensorVariable
        The same terms as PyMC built them, in the model's own variables.
    """

    values: dict[str, Variable]
    data: dict[Variable, SharedVariable]
    shared: list[SharedVariable]
    shared_values: list[np.ndarray]
    point: dict[str, np.ndarray]
    terms: dict[str, Variable]
    raw: dict[str, Variable]

    def data_values(self) -> list[np.ndarray]:
        """Return the current values of the shared data, not copied."""
        return [shared.get_value(borrow=True) for shared in self.data.values()]

    def require_same_data(self) -> None:
        """Raise `ValueError` naming shared data that were replaced since the graph was built."""
        name = self.replaced_data()
        if name is not None:
            raise ValueError(
                f"The data {name!r} were replaced (pm.set_data) after the model was factorised; "
                "call factorise again."
            )

    def adopt_data(self) -> None:
        """Take the present arrays of the shared data for those of the build: their contents are equal."""
        self.shared_values[:] = [shared.get_value(borrow=True) for shared in self.shared]

    def replaced_data(self) -> str | None:
        """Name of shared data whose array was replaced since the graph was built."""
        for shared, seen in zip(self.shared, self.shared_values, strict=True):
            if shared.get_value(borrow=True) is not seen:
                return str(shared.name)
        return None


def raw_terms(model: pm.Model, value_vars: Sequence[Variable] | None) -> dict[str, Variable]:
    """The terms of `model` that contain one of `value_vars`, or all, as PyMC builds them."""
    names = [rv.name for rv in [*model.free_RVs, *model.observed_RVs, *model.potentials]]
    every = [pt.as_tensor(term, allow_xtensor_conversion=True) for term in model.logp(sum=False)]
    contains = depends_on(every, value_vars or ())
    return {
        name: term
        for name, term in zip(names, every, strict=True)
        if value_vars is None or contains.get(term, False)
    }


def typed_log_density(model: pm.Model, raw: dict[str, Variable], point: Mapping[str, Any]) -> LogDensityGraph:
    """Give the terms `raw` of `model` static shapes, as they are at `point` and with the present data."""
    point = as_values(model.value_vars, point)
    memo: dict[Variable, Variable] = {}
    values = {}
    for v in model.value_vars:
        values[v.name] = memo[v] = v.type.clone(shape=point[v.name].shape)(name=v.name)
    data = {}
    every_shared = [
        s
        for s in graph_inputs(raw.values())
        if isinstance(s, SharedVariable) and isinstance(s.type, TensorType)
    ]
    for shared in every_shared:
        value = shared.get_value(borrow=True)
        if value.ndim == 0 and value.dtype.kind in "iub":  # lengths of dims are shared integers
            memo[shared] = pt.constant(value)
        else:
            memo[shared] = typed = shared.type.clone(shape=value.shape)(name=shared.name)
            data[typed] = shared
    inputs = {
        **dict(zip(values.values(), point.values(), strict=True)),
        **{typed: shared.get_value(borrow=True) for typed, shared in data.items()},
    }
    measure = ShapeMeasure(inputs, list(values.values()))
    terms = {}
    for name, term in raw.items():
        try:
            (terms[name],) = rebuild([term], memo, measure, drop_checks=not model.check_bounds)
        except Coupled as coupled:
            raise refusal(name, None, coupled) from None
    shared_values = [s.get_value(borrow=True) for s in every_shared]
    return LogDensityGraph(values, data, every_shared, shared_values, point, terms, raw)


def as_values(variables: Iterable[Variable], point: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Values of value variables at a point; an error names what is missing or of the wrong shape."""
    values = {}
    for var in variables:
        if var.name not in point:
            raise KeyError(
                f"the point has no value for {var.name!r}; it needs a value for every value variable, as in "
                "model.initial_point()"
            )
        values[var.name] = value = np.asarray(point[var.name], dtype=var.type.dtype)
        known = var.type.shape
        if value.ndim != len(known) or any(
            k not in (None, n) for k, n in zip(known, value.shape, strict=True)
        ):
            raise ValueError(f"the value of {var.name!r} must have shape {known}, got {value.shape}.")
    return values


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
    if isinstance(op, Shape) and None not in shape:
        return [pt.constant(np.array(shape, dtype="int64"))]
    if isinstance(op, Shape_i) and shape[op.i] is not None:
        return [pt.constant(np.array(shape[op.i], dtype="int64"))]
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
        if measure and isinstance(out.type, TensorType) and None in out.type.shape
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


def depends_on(
    outputs: Iterable[Variable], roots: Iterable[Variable], *, by_shape: bool = False
) -> dict[Variable, bool]:
    """For every variable of the graphs: does it depend on the value of `roots`, or on their shape?"""
    outputs = list(outputs)
    found: dict[Variable, bool] = dict.fromkeys(roots, True)
    for node in toposort(outputs):
        shape_only = isinstance(node.op, Shape | Shape_i) and not by_shape
        answer = not shape_only and any(found.get(i, False) for i in node.inputs)
        found.update(dict.fromkeys((o for o in node.outputs if o not in found), answer))
    return found
