"""Verify that a row costs the same however many rows there are.

The rules of `lift` know operations, not intentions: a matrix product may take one row of the left factor and
all of a long vector on the right. What every row needs in full shows as a long axis in the finished graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_austerity.model.factorisation import LocalTerm
from pymc_austerity.model.graph import ShapeMeasure, rebuild
from pymc_austerity.model.refusal import Coupled, refusal

# Length of the index with which the cost of a row is judged.
_ROWS = 7


def check_cost_of_rows(
    term: LocalTerm,
    example: Mapping[Variable, np.ndarray],
    parameters: Sequence[Variable],
    threshold: int,
) -> None:
    """Refuse a term whose rows cost O(N) each although every operation in it has a rule."""
    n_rows = min(_ROWS, threshold - 1)
    short = pt.vector("index", dtype="int64", shape=(n_rows,))
    measure = ShapeMeasure({**example, short: np.arange(n_rows)}, parameters)
    try:
        (rows,) = rebuild([term.rows], {term.index: short}, measure)
        _check_cost([rows], threshold)
    except Coupled as coupled:
        raise refusal(term.name, term.size, coupled) from None


def check_cost_of_global(name: str, term: Variable, threshold: int) -> None:
    """Refuse a term of few numbers that takes a long vector of parameters to compute."""
    try:
        _check_cost([term], threshold)
    except Coupled as coupled:
        raise refusal(name, None, coupled) from None


def _check_cost(outputs: Iterable[Variable], threshold: int) -> None:
    """Raise `Coupled` if a graph touches a long axis other than by selecting from a leaf.

    `outputs` must have static shapes, with the index replaced by one of a short static length.
    This is what turns operations that mix rows in ways no rule knows of into an error.
    """
    nodes = list(toposort(outputs))
    measured = {
        node.inputs[0]: node.outputs[0].type.shape for node in nodes if isinstance(node.op, SpecifyShape)
    }

    def is_long(var: Variable) -> bool:
        shape = measured.get(var, getattr(var.type, "shape", ()))
        return any(k is None or k >= threshold for k in shape)

    longest = None
    for node in nodes:
        if isinstance(node.op, Shape | Shape_i):
            continue
        selects = isinstance(node.op, AdvancedSubtensor | Subtensor) and node.inputs[0].owner is None
        if any(is_long(i) for i in node.inputs[int(selects) :]):
            longest = node.outputs[0]
            if not any(is_long(o) for o in node.outputs):  # this is where rows are mixed
                break
        elif longest is None and any(is_long(o) for o in node.outputs):
            longest = node.outputs[0]
    if longest is not None:
        raise Coupled(longest, "an operation needs a vector as long as the data in full")
