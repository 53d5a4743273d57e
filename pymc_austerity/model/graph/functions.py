"""Functions of graphs, rewritten by PyTensor once for all graphs that are the same.

PyTensor takes long to rewrite a graph, and chains, steps and other data of one model ask for the same graphs
again. Two graphs are the same if their operations are, in order, each of the same inputs; so PyTensor itself
merges nodes. Data within a graph become inputs of it, so that other data make no other graph. What is kept is
the rewritten graph, with constants of its own: every function has its own storage. Data are not copied: who
writes to them afterwards changes the functions that read them.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from threading import RLock
from typing import Any

import numpy as np
import pytensor
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs, toposort
from pytensor.tensor.variable import TensorConstant

from pymc_austerity.model.graph.rewrite import INTERPRETED, stable

# Rewritten graphs that are kept, of one or two megabytes at most; those not used for longest are forgotten.
_MOST = 100
# A constant of more numbers is data.
_SHORT = 1_000
# Numbers in all constants of such a graph that are compared, and kept.
_MOST_NUMBERS = 5_000


class Kept:
    """Objects made for some keys; those not used for longest are forgotten. Threads wait for each other."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = RLock()  # what is made may ask for something else

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The object kept for a key, made now if there is none."""
        with self._lock:
            made = self._made.pop(key) if key in self._made else make()
            self._made[key] = made  # now the last to be forgotten
            if len(self._made) > _MOST:
                self._made.popitem(last=False)
            return made


_makers = Kept()


def function_of(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable] | Variable,
    mode: Any = INTERPRETED,
    *,
    stabilised: bool = False,
    data_inside: bool = False,
    **options: Any,
) -> Any:
    """``pytensor.function(inputs, outputs, mode=mode, **options)``, in which not all inputs need be used.

    By default nothing is compiled; mode None is PyTensor's own default. With `stabilised`, the outputs are
    rewritten by `rewrite.stable` first. With `data_inside` data are a part of what is kept.
    """
    listed = [outputs] if isinstance(outputs, Variable) else list(outputs)
    ends = [] if data_inside else graph_inputs(listed, blockers=inputs)
    data = [one for one in ends if isinstance(one, TensorConstant) and one.data.size > _SHORT]
    own = {(id(one.data), one.type): one for one in data}  # those of one array are one input
    if own:
        placeholders = {key: one.type(name=f"data{k}") for k, (key, one) in enumerate(own.items())}
        listed = clone_replace(listed, {one: placeholders[id(one.data), one.type] for one in data})
        inputs = [*placeholders.values(), *inputs]
    structure = structure_of(inputs, listed)
    made = []

    def make() -> Any:
        parts = listed if structure is None else with_own_constants(inputs, listed)
        rewritten: Any = [stable(one) for one in parts] if stabilised else parts
        if isinstance(outputs, Variable):
            (rewritten,) = rewritten
        function = pytensor.function(list(inputs), rewritten, mode=mode, on_unused_input="ignore", **options)
        made.append(function)
        return function.maker

    if structure is None:
        make()
    else:
        key = (structure, isinstance(outputs, Variable), stabilised, get_mode(mode), *sorted(options.items()))
        maker = _makers.get(key, make)
    function = made[0] if made else maker.create()
    return partial(function, *(one.data for one in own.values())) if own else function


def structure_of(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Hashable | None:
    """Key that two graphs have in common if they are the same function of their inputs.

    None if a graph has shared variables, constants of more than some thousand numbers, or arrays in a graph
    within an operation. Constants are the same if their bits are: -0.0 is not 0.0, and an array that was
    written to is another one.
    """
    names: dict[Variable, Hashable] = {variable: k for k, variable in enumerate(inputs)}
    numbers = 0

    def known(variable: Variable) -> bool:
        nonlocal numbers
        if variable not in names and isinstance(variable, Constant):
            numbers += getattr(variable.data, "size", 1)
            if numbers <= _MOST_NUMBERS:
                names[variable] = _bits_of(variable)
        return variable in names

    operations = []
    for node in toposort(outputs, blockers=list(inputs)):
        if not all(map(known, node.inputs)) or _has_arrays(node.op):
            return None
        operations.append((node.op, tuple(names[one] for one in node.inputs)))
        for k, one in enumerate(node.outputs):
            names.setdefault(one, (len(operations), k))
    if not all(map(known, outputs)):
        return None
    types = tuple(one.type for one in inputs)
    return types, tuple(operations), tuple(names[one] for one in outputs)


def with_own_constants(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> list[Variable]:
    """The same graphs, whose constants have no memory in common with anything else."""
    ends = graph_inputs(outputs, blockers=inputs)
    arrays = {one for one in ends if isinstance(one, TensorConstant)} - set(inputs)
    own = {one: type(one)(one.type, one.data.copy(), name=one.name) for one in arrays}
    return clone_replace(list(outputs), own)


def _bits_of(constant: Constant) -> Hashable:
    data = constant.data
    if isinstance(data, np.ndarray | np.generic) and not data.dtype.hasobject:
        return constant.type, data.tobytes()
    signature: Hashable = constant.signature()
    return signature


def _has_arrays(op: Op) -> bool:
    """Whether an operation has a graph of its own with constants of several numbers, which are not copied."""
    if not isinstance(op, HasInnerGraph):
        return False
    nodes = op.fgraph.apply_nodes
    constants = (one for node in nodes for one in node.inputs if isinstance(one, Constant))
    return any(np.size(one.data) > 1 for one in constants) or any(_has_arrays(node.op) for node in nodes)
