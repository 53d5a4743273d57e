"""Where a graph uses a vector, and whether it is multiplied there by another, element by element."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import SpecifyShape

# Along which axis the elements of a vector lie, counted from the last.
Axis = int


def uses(terms: Iterable[Variable], vector: Variable, gate: Variable) -> tuple[list[Apply], list[Apply]]:
    """The operations that take a vector, or products of it and other numbers.

    Parameters
    ----------
    terms : iterable of TensorVariable
    vector, gate : TensorVariable
        Of one axis.

    Returns
    -------
    gated, others : list of Apply
        Products of `vector` and `gate`, element by element; and operations that `vector` reaches on another
        way than through such products.
    """
    clients: dict[Variable, list[Apply]] = defaultdict(list)
    for node in toposort(list(terms)):
        for given in dict.fromkeys(node.inputs):
            clients[given].append(node)
    gated, others = [], []
    waiting: list[tuple[Variable, Axis]] = [(vector, 0)]
    while waiting:
        var, axis = waiting.pop()
        for node in clients[var]:
            moved = _moved(node, axis)
            if moved is not None:
                waiting.append((node.outputs[0], moved))
            elif not _is_elemwise(node, ps.Mul):
                others.append(node)
            elif any(_has_factor(given, gate, axis) for given in node.inputs if given is not var):
                gated.append(node)
            else:
                waiting.append((node.outputs[0], axis))
    return gated, others


def _moved(node: Apply, axis: Axis) -> Axis | None:
    """Where the elements of the first input lie in the result, if it has the same elements."""
    if isinstance(node.op, SpecifyShape) or _is_elemwise(node, ps.Cast):
        return axis
    if isinstance(node.op, DimShuffle):
        place = node.inputs[0].type.ndim - 1 - axis
        order = node.op.new_order
        return len(order) - 1 - order.index(place) if place in order else None
    return None


def _has_factor(var: Variable, gate: Variable, axis: Axis) -> bool:
    """Is `var` a product of numbers, of which one is `gate` along this axis?"""
    node = var.owner
    if node is None:
        return var is gate and axis == 0
    if isinstance(node.op, DimShuffle):
        place = node.op.new_order[len(node.op.new_order) - 1 - axis]
        if place == "x":
            return False
        return _has_factor(node.inputs[0], gate, node.inputs[0].type.ndim - 1 - place)
    if isinstance(node.op, SpecifyShape) or _is_elemwise(node, ps.Cast):
        return _has_factor(node.inputs[0], gate, axis)
    return _is_elemwise(node, ps.Mul) and any(_has_factor(given, gate, axis) for given in node.inputs)


def _is_elemwise(node: Apply, kind: type) -> bool:
    return isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, kind)
