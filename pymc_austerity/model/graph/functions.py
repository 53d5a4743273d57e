"""Functions of graphs, rewritten by PyTensor once for all graphs that are the same.

PyTensor takes long to rewrite a graph, and chains, steps and other data of one model ask for the same graphs
again. Two graphs are the same if their operations are, in order, each of the same inputs; so PyTensor itself
merges nodes. What is kept is the rewritten graph: every function has storage of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import pytensor
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort

from pymc_austerity.model.graph.rewrite import INTERPRETED, stable

# Rewritten graphs that are kept, of one or two megabytes at most; those not used for longest are forgotten.
_MOST = 100
# Numbers in the constants of such a graph: data that are longer are compared nowhere, and not kept.
_MOST_NUMBERS = 5_000

_makers: OrderedDict[Hashable, Any] = OrderedDict()


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
    """
    listed = [outputs] if isinstance(outputs, Variable) else list(outputs)
    structure = structure_of(inputs, listed)
    key = (structure, isinstance(outputs, Variable), stabilised, get_mode(mode), *sorted(options.items()))
    maker = _makers.pop(key, None)
    if maker is not None:
        _makers[key] = maker  # now the last to be forgotten
        return maker.create()
    if stabilised:
        listed = [stable(one) for one in listed]
    rewritten = listed[0] if isinstance(outputs, Variable) else listed
    function = pytensor.function(list(inputs), rewritten, mode=mode, on_unused_input="ignore", **options)
    if structure is None:
        return function
    _makers[key] = function.maker
    if len(_makers) > _MOST:
        _makers.popitem(last=False)
    return function


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
