"""The rows of a piece of the log density, as a graph of an index."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt

from pymc_austerity.model.factorisation import LocalTerm
from pymc_austerity.model.graph.terms import Piece
from pymc_austerity.model.lift.lifter import Lifter
from pymc_austerity.model.lift.reshape import coordinates
from pymc_austerity.model.refusal import Coupled, named


def lift_piece(lifter: Lifter, piece: Piece) -> tuple[Piece, LocalTerm]:
    """Compute only the rows in an index.

    The cells of a table that is long both ways are local terms if each can be had for itself; else its
    rows are, along the longest axis.

    Returns
    -------
    piece : Piece
        With the axes that were chosen.
    term : LocalTerm

    Raises
    ------
    FactorisationError
        If rows cannot be computed one by one.
    """
    with named(piece.name, piece.size):
        try:
            return piece, lift_cells(lifter, piece)
        except Coupled:
            if len(piece.axes) == 1:
                raise
        piece = piece.by_longest_axis()
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
