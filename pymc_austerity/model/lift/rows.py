"""The rows of a piece of the log density, as a graph of an index, at a cost that does not grow with N.

The rules of `lift` know operations, not intentions: a matrix product may take one row of the left factor and
all of a long vector on the right. What every row needs in full shows as a long axis in the finished graph,
where the cost is checked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_austerity.model.factorisation import LocalTerm
from pymc_austerity.model.graph.rewrite import ShapeMeasure, depends_on, rebuild
from pymc_austerity.model.graph.terms import Piece
from pymc_austerity.model.lift.arithmetic import coordinates
from pymc_austerity.model.lift.lifter import Lifter, refuse
from pymc_austerity.model.lift.sparse import RowsTimes
from pymc_austerity.model.refusal import Coupled, named

# Length of the index with which the cost of a row is judged.
_ROWS = 2


def lift_piece(lifter: Lifter, piece: Piece) -> tuple[Piece, LocalTerm]:
    """Compute only the rows in an index; also returns the piece, with the axes that were chosen.

    The cells of a table that is long both ways are local terms if each can be had for itself; else its
    rows are, along the longest axis. `FactorisationError` is raised if these cannot be computed one by one.
    """
    with named(piece.name, piece.size):
        try:
            return piece, lift_cells(lifter, piece)
        except Coupled:
            if len(piece.axes) == 1:
                raise
        shape = piece.graph.type.shape
        piece = replace(piece, axes=(max(piece.axes, key=lambda a: shape[a]),))
        return piece, lift_cells(lifter, piece)


def lift_cells(lifter: Lifter, piece: Piece) -> LocalTerm:
    """Compute only the cells in an index; `Coupled` if they cannot be had one by one."""
    graph, axes = piece.graph, piece.axes
    index = pt.vector("index", dtype="int64")
    lifter.conditions = []
    if len(axes) == 1:
        rows = pt.moveaxis(lifter.take(graph, axes[0], index), axes[0], 0)
    else:
        rows = lifter.take_points(graph, axes, coordinates(index, piece.lengths))
    if rows.type.ndim > 1:
        rows = rows.sum(axis=list(range(1, rows.type.ndim)))
    for valid in lifter.conditions:
        rows = pt.switch(valid, rows, -np.inf)
    if rows.type.shape[0] == 1:  # the same value in every row
        rows = pt.alloc(rows[0], index.shape[0])
    return LocalTerm(piece.name, piece.size, index, rows.astype("float64"))


def as_row(name: str, graph: Variable) -> LocalTerm:
    """A term of few numbers as one row."""
    index = pt.vector("index", dtype="int64")
    return LocalTerm(name, 1, index, pt.alloc(graph.sum().astype("float64"), index.shape[0]))


def check_cost(
    name: str,
    graph: Variable,
    example: Mapping[Variable, np.ndarray],
    parameters: Sequence[Variable],
    block: Sequence[Variable],
    threshold: int,
    *,
    size: int | None = None,
    index: Variable | None = None,
) -> None:
    """Refuse rows that cost O(N) each although every operation in them has a rule.

    They are functions of `index`. Without one, refuse a term of few numbers that takes a long vector of
    parameters to compute. A graph must touch a long axis only by selecting from a leaf. What does not depend
    on the block or the index is computed once for each draw, and may be long. This is what turns operations
    that mix rows in ways no rule knows of into an error.
    """
    n_rows = min(_ROWS, threshold - 1)
    short = {} if index is None else {index: pt.vector("index", dtype="int64", shape=(n_rows,))}
    measure = ShapeMeasure({**example, **dict.fromkeys(short.values(), np.arange(n_rows))}, parameters)
    with named(name, size):
        (graph,) = rebuild([graph], dict(short), measure)
        moving = [*block, *short.values()]
        nodes, moves = list(toposort([graph])), depends_on([graph], moving)
        shapes = {n.inputs[0]: n.outputs[0].type.shape for n in nodes if isinstance(n.op, SpecifyShape)}
        used = {i for node in nodes for i in node.inputs} | {graph}

        def length(var: Variable) -> int:
            """The longest axis, if it is long, else 0."""
            shape = shapes.get(var, getattr(var.type, "shape", ()))
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
            refuse(
                var,
                f"it couples them: it takes a vector of {k:,} numbers in full (if these are not "
                f"observations, a threshold above {k:,} allows that)",
            )


def _n_looked_up(node: Apply) -> int:
    """Number of first inputs that an operation only selects from."""
    if isinstance(node.op, AdvancedSubtensor | Subtensor):
        return 1
    return 4 if isinstance(node.op, RowsTimes) else 0
