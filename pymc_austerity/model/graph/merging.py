"""Write every part of some graphs once.

PyMC builds the log density of each variable on a copy of its own of all that leads there. The terms of a
panel of countries, or of the equations of one model, would be mostly copies, and everything that is done to
graphs afterwards would be done to each copy.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import toposort


def merged(outputs: Sequence[Variable]) -> list[Variable]:
    """The same graphs, with parts that are equal written once; one pass over them."""
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
