"""Functions of graphs, rewritten by PyTensor once for all graphs that are the same.

PyTensor takes long to rewrite a graph, and chains, steps and other data of one model ask for the same graphs
again. Two graphs are the same if their operations are, in order, each of the same inputs; so PyTensor itself
merges nodes. Data within a graph become inputs of it, so that other data make no other graph. What is kept is
the rewritten graph: every function has storage of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytensor
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Constant, Variable
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
    """What was made for some keys; those not used for longest are forgotten."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self._made)

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What is kept for a key, made now if it is not."""
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
    **options: Any,
) -> Any:
    """``pytensor.function(inputs, outputs, mode=mode)``, in which not all inputs need be used.

    Parameters
    ----------
    inputs : sequence of Variable
    outputs : Variable or sequence of Variable
    mode : Mode or str, optional
        By default nothing is compiled; None is PyTensor's own default.
    stabilised : bool
        Rewrite the outputs by `rewrite.stable` first.
    **options
        Further arguments of `pytensor.function`.

    Returns
    -------
    callable
        Takes values of the inputs.
    """
    listed = [outputs] if isinstance(outputs, Variable) else list(outputs)
    data = _data_of(inputs, listed)
    if not data:
        return kept_function(inputs, outputs, mode, stabilised=stabilised, **options)
    own = {(id(one.data), one.type): one for one in data}  # those of one array are one input
    placeholders = {key: one.type(name=f"data{k}") for k, (key, one) in enumerate(own.items())}
    listed = clone_replace(listed, {one: placeholders[id(one.data), one.type] for one in data})
    function = kept_function(
        [*inputs, *placeholders.values()],
        listed[0] if isinstance(outputs, Variable) else listed,
        mode,
        stabilised=stabilised,
        **options,
    )
    return _WithData(function, [one.data for one in own.values()])


class _WithData:
    """A function with data as its last arguments."""

    def __init__(self, function: Any, data: Sequence[Any]) -> None:
        self._function, self._data = function, data

    def __call__(self, *values: Any) -> Any:
        return self._function(*values, *self._data)


def _data_of(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> list[TensorConstant]:
    ends = graph_inputs(outputs, blockers=inputs)
    return [one for one in ends if isinstance(one, TensorConstant) and one.data.size > _SHORT]


def kept_function(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable] | Variable,
    mode: Any,
    *,
    stabilised: bool = False,
    **options: Any,
) -> Any:
    """As `function_of`, but a PyTensor function, of which data are a part."""
    listed = [outputs] if isinstance(outputs, Variable) else list(outputs)
    made = []

    def make() -> Any:
        rewritten: Any = [stable(one) for one in listed] if stabilised else listed
        if isinstance(outputs, Variable):
            (rewritten,) = rewritten
        function = pytensor.function(list(inputs), rewritten, mode=mode, on_unused_input="ignore", **options)
        made.append(function)
        return function.maker

    structure = structure_of(inputs, listed)
    if structure is None:
        make()
    else:
        key = (structure, isinstance(outputs, Variable), stabilised, get_mode(mode), *sorted(options.items()))
        maker = _makers.get(key, make)
    return made[0] if made else maker.create()


def structure_of(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Hashable | None:
    """What two graphs have in common if they are the same function of their inputs.

    None if a graph has shared variables, or constants of more than some thousand numbers.
    """
    names: dict[Variable, Hashable] = {variable: k for k, variable in enumerate(inputs)}
    numbers = 0

    def known(variable: Variable) -> bool:
        nonlocal numbers
        if variable not in names and isinstance(variable, Constant):
            numbers += getattr(variable.data, "size", 1)
            names[variable] = variable.signature()
        return variable in names and numbers <= _MOST_NUMBERS

    operations = []
    for node in toposort(outputs, blockers=list(inputs)):
        if not all(map(known, node.inputs)):
            return None
        operations.append((node.op, tuple(names[one] for one in node.inputs)))
        for k, one in enumerate(node.outputs):
            names.setdefault(one, (len(operations), k))
    if not all(map(known, outputs)):
        return None
    types = tuple(one.type for one in inputs)
    return types, tuple(operations), tuple(names[one] for one in outputs)
