"""Verify that a row costs the same however many rows there are.

The rules of `lift` know operations, not intentions: a matrix product may take one row of the left factor and
all of a long vector on the right. What every row needs in full shows as a long axis in the finished graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_austerity.model.factorisation import LocalTerm
from pymc_austerity.model.graph.rewrite import ShapeMeasure, depends_on, rebuild
from pymc_austerity.model.lift.sparse import RowsTimes
from pymc_austerity.model.refusal import Coupled, named

# Length of the index with which the cost of a row is judged.
_ROWS = 2


def check_cost_of_rows(
    term: LocalTerm,
    example: Mapping[Variable, np.ndarray],
    parameters: Sequence[Variable],
    block: Sequence[Variable],
    threshold: int,
) -> None:
    """Refuse a term whose rows cost O(N) each although every operation in it has a rule."""
    n_rows = min(_ROWS, threshold - 1)
    short = pt.vector("index", dtype="int64", shape=(n_rows,))
    measure = ShapeMeasure({**example, short: np.arange(n_rows)}, parameters)
    with named(term.name, term.size):
        (rows,) = rebuild([term.rows], {term.index: short}, measure)
        _check_cost([rows], [*block, short], threshold)


def check_cost_of_global(
    name: str,
    term: Variable,
    example: Mapping[Variable, np.ndarray],
    parameters: Sequence[Variable],
    block: Sequence[Variable],
    threshold: int,
) -> None:
    """Refuse a term of few numbers that takes a long vector of parameters to compute."""
    with named(name):
        (term,) = rebuild([term], {}, ShapeMeasure(example, parameters))
        _check_cost([term], block, threshold)


def _check_cost(outputs: Sequence[Variable], moving: Sequence[Variable], threshold: int) -> None:
    """Raise `Coupled` if a graph touches a long axis other than by selecting from a leaf.

    `outputs` must have static shapes, with the index replaced by one of a short static length. What does not
    depend on `moving` (the block and the index) is computed once for each draw, and may be long.
    This is what turns operations that mix rows in ways no rule knows of into an error.
    """
    nodes = list(toposort(outputs))
    moves = depends_on(outputs, moving)
    measured = {
        node.inputs[0]: node.outputs[0].type.shape for node in nodes if isinstance(node.op, SpecifyShape)
    }

    used = {i for node in nodes for i in node.inputs} | set(outputs)

    def length(var: Variable) -> int:
        """The longest axis, if it is long, else 0."""
        shape = measured.get(var, getattr(var.type, "shape", ()))
        sizes = [threshold if k is None else k for k in shape]  # an unknown size is not waved through
        return max((k for k in sizes if k >= threshold), default=0)

    found = None
    for node in nodes:
        if isinstance(node.op, Shape | Shape_i) or not moves[node.outputs[0]]:
            continue
        looked_up = [i for i in node.inputs[: _n_looked_up(node)] if i.owner is None or not moves[i]]
        taken = max((length(i) for i in node.inputs if i not in looked_up), default=0)
        made = max(length(o) for o in node.outputs if o in used)
        if taken or (made and found is None):
            found = node.outputs[0], max(taken, made)
        if taken and not made:  # this is where rows are mixed
            break
    if found is not None:
        var, k = found
        raise Coupled(
            var,
            f"it couples them: it takes a vector of {k:,} numbers in full (if these are not observations, a "
            f"threshold above {k:,} allows that)",
        )


def _n_looked_up(node: Apply) -> int:
    """Number of first inputs that an operation only selects from."""
    if isinstance(node.op, AdvancedSubtensor | Subtensor):
        return 1
    return 4 if isinstance(node.op, RowsTimes) else 0
