"""The global terms of a log density, taken apart into rows: each element of a prior is a row of its own."""

import math
from dataclasses import replace

from pytensor.graph.basic import Variable
from pytensor.tensor.math import Sum

from pymc_austerity.model.factorisation import POLYNOMIAL, Factorisation, LocalTerm
from pymc_austerity.model.graph.terms import Piece
from pymc_austerity.model.lift.lifter import Lifter
from pymc_austerity.model.lift.rows import as_row, lift_cells
from pymc_austerity.model.refusal import Coupled

# Every vector is taken apart: the smallest threshold that there is.
_ALL = 2


def of_globals(fact: Factorisation) -> Factorisation:
    """A factorisation whose local terms are the global ones of another, but for a Taylor polynomial."""
    terms = tuple(_rows(fact, name, graph) for name, graph in fact.globals if name != POLYNOMIAL)
    return replace(fact, locals=terms, globals=(), features=None, polynomial=None, global_rows=None)


def _rows(fact: Factorisation, name: str, graph: Variable) -> LocalTerm:
    """The elements of a term as rows; one row if they cannot be had one by one."""
    while graph.owner is not None and isinstance(graph.owner.op, Sum) and not graph.type.ndim:
        (graph,) = graph.owner.inputs
    shape = graph.type.shape
    if None in shape or math.prod(shape) < _ALL:
        return as_row(name, graph)
    values = fact.graph.values
    lifter = Lifter([graph], values.values(), [values[own] for own in fact.var_names], _ALL)
    try:
        return lift_cells(lifter, Piece(name, graph, tuple(range(len(shape))), kept=True))
    except Coupled:
        return as_row(name, graph)
