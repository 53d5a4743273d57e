"""How many numbers a graph computes: what it costs, but for what an operation needs for each."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.type import TensorType

from pymc_austerity.model.graph.rewrite import depends_on

# Operations for a number of a graph of rows in a gradient, or along one coordinate in a Hessian.
OF_ELEMENT = 7.0
# Operations for a number of a short graph that is differentiated twice, along each coordinate: most of its
# second derivatives are zero.
OF_SHORT_ELEMENT = 2.0


class ElementCounts(NamedTuple):
    """Numbers that a graph computes."""

    of_row: int  # For each row of data, whose number is not known
    fixed: int  # Once


def elements(graphs: Iterable[Variable], roots: Iterable[Variable]) -> ElementCounts:
    """Count the numbers of all operations that depend on `roots`: of each its largest input or output."""
    graphs = list(graphs)
    moving = depends_on(graphs, roots)
    of_row = fixed = 0
    for node in toposort(graphs):
        if not any(moving[out] for out in node.outputs):
            continue
        parts = [*(one for one in node.inputs if moving.get(one, False)), *node.outputs]
        shapes = [one.type.shape for one in parts if isinstance(one.type, TensorType)]
        of_row += max((_size(shape) for shape in shapes if None in shape), default=0)
        if not any(None in shape for shape in shapes):
            fixed += max(map(_size, shapes), default=0)
    return ElementCounts(of_row, fixed)


def _size(shape: tuple[int | None, ...]) -> int:
    return math.prod(n for n in shape if n is not None)
