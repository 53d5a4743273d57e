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

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.guards import without_guards
from pymc_austerity.bounds.expressions.node import Expression, predictor
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.structure import selection_rules  # noqa: F401 - registers rules
from pymc_austerity.model.structure.affine import kinds
from pymc_austerity.model.structure.affine_expressions import leaves
from pymc_austerity.model.structure.affine_sources import affine_sources, read_by
from pymc_austerity.model.structure.domains import Domain, domains_of, within
from pymc_austerity.model.structure.predictors import block_and_others
from pymc_austerity.model.structure.prepared_rows import prepared_rows
from pymc_austerity.model.structure.row_data import MOST_NUMBERS, RowData, TooMany
from pymc_austerity.model.structure.scalar_rules import NoForm
from pymc_austerity.model.structure.tensor_rules import abstract_shape, tensor_rule

# Numbers that enter from the affine part of a graph, at most; and those among which they may be.
MOST_SCALARS = 64
_MOST_CANDIDATES = 2000
# Numbers a row in any other value, at most: an expression for each is made.
_MOST_NUMBERS = 256


class Obstacle(Exception):  # noqa: N818 - it is caught, and said
    """Why the rows of a term are not a function of few predictors, in the words of the model."""


class AffineScalar(NamedTuple):
    """One number of each row that is affine in the block."""

    variable: Variable
    element: tuple[int | None, ...]  # Its place there; None on the row axis


class ScalarGraph(NamedTuple):
    """The rows of a term as an expression."""

    rows: Variable  # The graph that was taken apart
    expression: Expression  # Predictor k is the k-th of `scalars`; data are the columns of `data`
    # Affine in the predictors. The rows are minus infinity where one of them is below zero.
    guards: tuple[Expression, ...]
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
    sources = affine_sources(rows, kind)
    nodes = _moving_nodes(rows, sources)
    moved = depends_on([rows], others.values())
    made = {*sources, *(out for node in nodes for out in node.outputs)}
    fixed = list(dict.fromkeys(var for node in nodes for var in read_by(node) if var not in made))
    if rows not in made:
        fixed.append(rows)
    try:
        data = RowData(fact, term, fixed, [var for var in fixed if moved.get(var, False)])
    except TooMany:
        raise Obstacle(f"a row of the term {term.name!r} reads more than {MOST_NUMBERS} numbers") from None
    scalars: list[AffineScalar] = []
    found = {var: _predictors(var, scalars, names) for var in sources}
    found.update((var, data.elements(var)) for var in fixed)
    domains = _execute(nodes, found, names)
    bare, guards = without_guards(within(found[rows].item(), domains))
    used = [scalars[k] for k in leaves(bare, "predictor")]
    if len(used) > MOST_SCALARS:
        raise names.too_many(one.variable for one in used)
    return ScalarGraph(rows, forms.finished(bare), guards, tuple(scalars), data)


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

    def too_many(self, variables: Iterable[Variable]) -> Obstacle:
        """A table in each row."""
        return Obstacle(f"{self.of(variables)} through more than {MOST_SCALARS} numbers a row")

    def no_form(self, node: Apply, operation: str) -> Obstacle:
        """An operation without derivatives that can be bounded."""
        return Obstacle(f"{self.of(node.inputs)} through {operation}, whose derivatives have no known bounds")


def _moving_nodes(rows: Variable, sources: Iterable[Variable]) -> list[Apply]:
    """Nodes that depend on the sources, in order."""
    sources = set(sources)
    moving = depends_on([rows], sources)
    return [
        node
        for node in toposort([rows], blockers=sources)
        if any(moving.get(out, False) for out in node.outputs)
    ]


def _predictors(var: Variable, scalars: list[AffineScalar], names: _Names) -> np.ndarray:
    """A predictor for every number of a row in `var`."""
    try:
        shape = abstract_shape(var)
    except NoForm:
        raise Obstacle(f"{names.of([var])} in a table whose shape is unknown") from None
    if len(scalars) + int(np.prod(shape)) > _MOST_CANDIDATES:
        raise names.too_many([var])
    result = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        result[place] = predictor(len(scalars))
        element = [None if k is None else p for k, p in zip(var.type.shape, place, strict=True)]
        scalars.append(AffineScalar(var, tuple(element)))
    return result


def _execute(nodes: list[Apply], found: dict[Variable, np.ndarray], names: _Names) -> list[Domain]:
    """Compute all nodes, adding their results to `found`; and what they ask of their arguments."""
    domains = []
    for node in nodes:
        args = [found.get(var, np.empty(0, dtype=object)) for var in node.inputs]
        try:
            result = tensor_rule(node.op, node, args)
        except NoForm as operation:
            raise names.no_form(node, str(operation)) from None
        results = result if isinstance(result, list) else [result]
        if any(one.size > _MOST_NUMBERS for one in results):
            raise names.too_many(node.inputs)
        found.update(zip(node.outputs, results, strict=True))
        domains += domains_of(node, args, results[0])
    return domains
