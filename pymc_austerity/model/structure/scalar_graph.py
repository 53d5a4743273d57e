"""The graph of the rows of a term, taken apart into scalar expressions.

The graph is executed on expressions: a tensor that moves with the block is an array of them, in which the
row axis has length one. Where the graph is no longer affine in the block, every number that enters from the
affine part is a predictor; what does not move is data (`row_data`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.type import TensorType

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import Expression, predictor
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.structure import selection_rules  # noqa: F401 - registers rules
from pymc_austerity.model.structure.affine import Kind, kinds
from pymc_austerity.model.structure.predictors import block_and_others
from pymc_austerity.model.structure.prepared_rows import prepared_rows
from pymc_austerity.model.structure.row_data import MOST_NUMBERS, RowData, TooMany
from pymc_austerity.model.structure.scalar_rules import NoForm
from pymc_austerity.model.structure.tensor_rules import READ_FIRST, abstract_shape, tensor_rule

# Numbers that enter from the affine part of a graph, at most.
MOST_SCALARS = 64


class Obstacle(Exception):  # noqa: N818 - it is caught, and said
    """Why the rows of a term are not a function of few predictors, in the words of the model."""


class AffineScalar(NamedTuple):
    """One number of each row that is affine in the block.

    Attributes
    ----------
    variable : TensorVariable
    element : tuple of (int or None)
        Its place there; None on the row axis.
    """

    variable: Variable
    element: tuple[int | None, ...]


class ScalarGraph(NamedTuple):
    """The rows of a term as an expression.

    Attributes
    ----------
    rows : TensorVariable
        The graph that was taken apart.
    expression : Expression
        Predictor k is the k-th of `scalars`; data are the columns of `data`.
    scalars : tuple of AffineScalar
    data : RowData
    """

    rows: Variable
    expression: Expression
    scalars: tuple[AffineScalar, ...]
    data: RowData


def scalar_graph(fact: Factorisation, term: LocalTerm) -> ScalarGraph:
    """Take the rows of a term apart.

    Raises
    ------
    Obstacle
    """
    block, others = block_and_others(fact)
    rows = prepared_rows(fact, term)
    own = set(ancestors([rows]))
    for name, var in block.items():
        if var in own and var.type.dtype != "float64":
            raise Obstacle(f"{name!r}, which enters the term {term.name!r}, is discrete")
    kind = kinds([rows], block.values(), others.values())
    names = _Names(term, {var: name for name, var in block.items()})
    sources = _sources(rows, kind, names)
    nodes = _moving_nodes(rows, sources)
    moved = depends_on([rows], others.values())
    fixed = dict.fromkeys(var for node in nodes for var in _read(node) if var not in sources)
    made = {out for node in nodes for out in node.outputs}
    fixed = [var for var in fixed if var not in made] or ([] if nodes or rows in sources else [rows])
    try:
        data = RowData(fact, term, fixed, [var for var in fixed if moved.get(var, False)])
    except TooMany:
        raise Obstacle(f"a row of the term {term.name!r} reads more than {MOST_NUMBERS} numbers") from None
    scalars: list[AffineScalar] = []
    found = {var: _predictors(var, scalars, names) for var in sources}
    found.update((var, data.elements(var)) for var in fixed)
    _execute(nodes, found, names)
    return ScalarGraph(rows, forms.finished(found[rows].item()), tuple(scalars), data)


class _Names:
    """Says what is in the way, in the words of the model."""

    def __init__(self, term: LocalTerm, block: dict[Variable, str]) -> None:
        self._term, self._block = term, block

    def of(self, variables: Iterable[Variable]) -> str:
        """The variables of the block that move any of these, and the verb."""
        found = set(ancestors(list(variables)))
        names = [repr(name) for var, name in self._block.items() if var in found]
        return (
            f"{' and '.join(names)} {'enters' if len(names) == 1 else 'enter'} the term {self._term.name!r}"
        )

    def no_form(self, node: Apply, operation: str) -> Obstacle:
        """An operation without derivatives that can be bounded."""
        return Obstacle(f"{self.of(node.inputs)} through {operation}, whose derivatives have no known bounds")


def _read(node: Apply) -> list[Variable]:
    """Inputs of which an operation reads the numbers."""
    inputs = node.inputs[:1] if isinstance(node.op, READ_FIRST) else node.inputs
    return [var for var in inputs if isinstance(var.type, TensorType | ScalarType)]


def _moving_nodes(rows: Variable, sources: Iterable[Variable]) -> list[Apply]:
    """What depends on the sources, in order."""
    sources = set(sources)
    moving = depends_on([rows], sources)
    return [
        node
        for node in toposort([rows], blockers=sources)
        if any(moving.get(out, False) for out in node.outputs)
    ]


def _sources(rows: Variable, kind: dict[Variable, Kind], names: _Names) -> list[Variable]:
    """Affine values that something that is not affine is made of.

    Those that are made of parts which are needed elsewhere too are replaced by these parts.
    """
    found: dict[Variable, None] = {}
    for node in toposort([rows]):
        if any(kind.get(out) is Kind.NONLINEAR for out in node.outputs):
            found.update((var, None) for var in _read(node) if kind.get(var) is Kind.AFFINE)
    if kind.get(rows) is Kind.AFFINE:
        found[rows] = None
    sources = list(dict.fromkeys(_behind(var, kind) for var in found))
    while shared := _shared(sources, kind):
        parts = [part for var in sources for part in (_parts(var, kind) if var in shared else [var])]
        sources = list(dict.fromkeys(_behind(var, kind) for var in parts))
    return sources


def _parts(var: Variable, kind: dict[Variable, Kind]) -> list[Variable]:
    """The affine values that an element-by-element operation adds up; none where it is something else."""
    node = var.owner
    if node is None or not isinstance(node.op, Elemwise | DimShuffle):
        return []
    return [one for one in node.inputs if kind.get(one) is Kind.AFFINE]


def _behind(var: Variable, kind: dict[Variable, Kind]) -> Variable:
    """The one affine value of which `var` is a function, element by element; `var` if there are several."""
    while len(parts := _parts(var, kind)) == 1:
        (var,) = parts
    return var


def _shared(sources: list[Variable], kind: dict[Variable, Kind]) -> set[Variable]:
    """Sources that are sums of parts of which some are in other sources as well."""
    below = {var: _below(var, kind) for var in sources}
    return {
        var
        for var in sources
        if any(below[var] & (below[other] | {other}) for other in sources if other is not var)
    }


def _below(var: Variable, kind: dict[Variable, Kind]) -> set[Variable]:
    found: set[Variable] = set()
    stack = _parts(var, kind)
    while stack:
        one = stack.pop()
        if one not in found:
            found.add(one)
            stack += _parts(one, kind)
    return found


def _predictors(var: Variable, scalars: list[AffineScalar], names: _Names) -> np.ndarray:
    """A predictor for every number of a row in `var`."""
    try:
        shape = abstract_shape(var)
    except NoForm:
        raise Obstacle(f"{names.of([var])} in a table whose shape is unknown") from None
    if len(scalars) + int(np.prod(shape)) > MOST_SCALARS:
        raise Obstacle(f"{names.of([var])} through more than {MOST_SCALARS} numbers a row")
    result = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        result[place] = predictor(len(scalars))
        element = [None if k is None else p for k, p in zip(var.type.shape, place, strict=True)]
        scalars.append(AffineScalar(var, tuple(element)))
    return result


def _execute(nodes: list[Apply], found: dict[Variable, np.ndarray], names: _Names) -> None:
    """Compute all nodes, adding their results to `found`."""
    for node in nodes:
        args = [found.get(var, np.empty(0, dtype=object)) for var in node.inputs]
        try:
            result = tensor_rule(node.op, node, args)
        except NoForm as operation:
            raise names.no_form(node, str(operation)) from None
        results = result if isinstance(result, list) else [result]
        found.update(zip(node.outputs, results, strict=True))
