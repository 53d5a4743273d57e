"""Global terms of a log density, and features, taken apart into rows: each element of a prior is one."""

import math
from collections.abc import Iterable
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
# Elements that cannot be had one by one, at most: each is a graph of its own.
_MOST_ALONE = 16


def of_globals(fact: Factorisation) -> Factorisation:
    """A factorisation whose local terms are the global ones of another, but for a Taylor polynomial."""
    terms = []
    for name, graph in fact.globals:
        if name != POLYNOMIAL:
            while graph.owner is not None and isinstance(graph.owner.op, Sum) and not graph.type.ndim:
                (graph,) = graph.owner.inputs
            terms.append(_elements(fact, name, graph) or as_row(name, graph))
    return _of(fact, terms)


def of_features(fact: Factorisation, sources: Iterable[Variable]) -> Factorisation | None:
    """A factorisation whose local terms are the numbers of some graphs; None if these are many graphs."""
    terms: list[LocalTerm] = []
    for number, graph in enumerate(sources):
        name = f"feature {number}"
        if (found := _elements(fact, name, graph)) is not None:
            terms.append(found)
        else:
            terms += [as_row(name, graph.flatten()[k]) for k in range(math.prod(graph.type.shape))]
        if sum(term.size == 1 for term in terms) > _MOST_ALONE:
            return None
    return _of(fact, terms)


def _of(fact: Factorisation, terms: Iterable[LocalTerm]) -> Factorisation:
    return replace(
        fact,
        locals=tuple(terms),
        globals=(),
        features=None,
        polynomial=None,
        global_rows=None,
        feature_rows=None,
    )


def _elements(fact: Factorisation, name: str, graph: Variable) -> LocalTerm | None:
    """The elements of a graph as rows; None if they cannot be had one by one."""
    shape = graph.type.shape
    if None in shape or math.prod(shape) < _ALL:
        return None
    values = fact.graph.values
    lifter = Lifter([graph], values.values(), [values[own] for own in fact.var_names], _ALL)
    try:
        return lift_cells(lifter, Piece(name, graph, tuple(range(len(shape))), kept=True))
    except Coupled:
        return None
