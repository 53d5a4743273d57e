"""The rows of a local term as a function of few predictors that are affine in the block.

The graph of the rows is taken apart into scalar expressions (`scalar_graph`). Of all parts of the expression
that are affine in the block, the smallest cut separates the rest from the block: these are the predictors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.row_function import RowFunction, evenly_spaced
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.factorisation import Factorisation, LocalTerm, some_rows
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE, Compiled
from pymc_austerity.model.structure.affine_expressions import AffineParts, affine_nodes, leaves, renumbered
from pymc_austerity.model.structure.case_predictors import CasePredictors, case_predictors
from pymc_austerity.model.structure.parts import Part
from pymc_austerity.model.structure.predictor_values import Design
from pymc_austerity.model.structure.predictors import block_and_others, one_per_row, others_in
from pymc_austerity.model.structure.row_data import Columns
from pymc_austerity.model.structure.scalar_graph import AffineScalar, Obstacle, ScalarGraph, scalar_graph
from pymc_austerity.target import Index, Vector

# Predictors, at most.
MOST_PREDICTORS = 9
# Rows at which a row function is compared with the graph.
_CHECKED = 200
_TOLERANCE = 1e-6

# Values of all variables, in the order of `Factorisation.compile`.
Point = list[np.ndarray]


def row_function(fact: Factorisation, term: LocalTerm) -> RowFunction:
    """One local term as a function of few linear predictors.

    Raises
    ------
    Obstacle
        If it has none.
    """
    graph = scalar_graph(fact, term)
    cases = case_predictors(graph.expression, graph.data.moved_columns)
    if len(cases.values) > MOST_PREDICTORS:
        raise Obstacle(
            f"the term {term.name!r} is a function of {len(cases.values)} linear predictors, and bounds are "
            f"known for {MOST_PREDICTORS} at most"
        )
    return _made(fact, term, graph, cases)


def _made(fact: Factorisation, term: LocalTerm, graph: ScalarGraph, cases: CasePredictors) -> RowFunction:
    columns = leaves(cases.expression, "data")
    rows, guards = (
        PredictorRows(fact, term, graph, [_affine_parts(one) for one in values])
        for values in (cases.values, graph.guards)
    )
    return RowFunction(
        name=term.name,
        n_rows=term.size,
        n_dim=rows.n_dim,
        n_predictors=len(cases.values),
        rows=rows,
        data=graph.data.chosen(columns),
        form=renumbered(cases.expression, columns),
        others=others_in(fact, [graph.rows]),
        offset_fixed=not (rows.is_moved or guards.is_moved),
        guards=Guards(guards, graph.are_strict) if graph.guards else None,
    )


@dataclass(frozen=True)
class Guards:
    """Guards of rows. One that is zero whatever the block is allows the row: no state could be elsewhere."""

    rows: PredictorRows
    are_strict: bool  # Whether a row is minus infinity where any of them is not above zero, or may only be

    def __call__(self, positions: Index) -> np.ndarray:
        """The guards of some rows (m, G, D + 1)."""
        found = self.rows(positions)
        found[..., -1] += ~found.any(axis=-1)
        return found


def _affine_parts(one: Expression) -> AffineParts:
    return affine_nodes(one).get(one, AffineParts(one, {}))


class PredictorRows(Compiled):
    """x_ik and o_ik of the predictors of a term.

    Parameters
    ----------
    fact : Factorisation
    term : LocalTerm
    graph : ScalarGraph
        Its rows, taken apart.
    parts : list of AffineParts
        Each predictor as an affine function of the scalars of the graph.

    Attributes
    ----------
    n_dim : int
        Length of the block.
    is_moved : bool
        Whether variables of other steps change them.
    """

    def __init__(
        self, fact: Factorisation, term: LocalTerm, graph: ScalarGraph, parts: list[AffineParts]
    ) -> None:
        block, _ = block_and_others(fact)
        self._fact, self._term, self._parts = fact, term, parts
        self.n_dim = sum(int(np.prod(var.type.shape)) for var in block.values())
        used = dict.fromkeys(k for part in parts for k in part.coefficients)
        self._scalars = {k: graph.scalars[k] for k in used}
        coefficients = [one for part in parts for one in (part.offset, *part.coefficients.values())]
        self._numbers = sorted({k for one in coefficients for k in leaves(one, "data")})
        self._columns: Columns = graph.data.chosen(self._numbers)
        self.is_moved = bool(others_in(fact, [one.variable for one in self._scalars.values()])) or not all(
            graph.data.moved_columns.isdisjoint(leaves(part.offset, "data")) for part in parts
        )

    def __call__(self, positions: Index) -> np.ndarray:
        """Rows of the augmented designs, of shape (m, p, D + 1)."""
        data = dict(zip(self._numbers, self._columns(positions), strict=True))
        result = np.zeros((len(positions), len(self._parts), self.n_dim + 1))
        for j, part in enumerate(self._parts):
            for k, coefficient in part.coefficients.items():
                self._designs[k].add_to(result[:, j], evaluate(coefficient, [], data), positions)
            result[:, j, -1] += evaluate(part.offset, [], data)
        return result

    def summands(self) -> list[tuple[Expression, list[tuple[Expression, tuple[Part, ...] | None]]]]:
        """Each predictor: its offset, and coefficients times sums of parts; None where these are computed."""
        return [
            (part.offset, [(factor, self._designs[k].parts) for k, factor in part.coefficients.items()])
            for part in self._parts
        ]

    @property
    def numbers(self) -> tuple[list[int], Columns]:
        """Numbers of the columns of data in offsets and coefficients, and these columns."""
        return self._numbers, self._columns

    def as_graphs(self, leaf: Callable[[str, Vector], Variable]) -> list[Variable]:
        """The predictors without their offsets, of shape (m,) each.

        Parameters
        ----------
        leaf : callable
            ``(name, values) -> TensorVariable``: stores a number of each row of the term.
        """
        result = []
        for j, part in enumerate(self._parts):
            total = pt.zeros_like(self._term.index, dtype="float64")
            for k, coefficient in part.coefficients.items():
                one = one_per_row(_selected(self._scalars[k]), self._term.index)
                if coefficient.op == "constant":
                    total = total + coefficient.value * one
                else:
                    factor = leaf(f"predictor{j}_{k}", self._of_all_rows(coefficient))
                    total = total + factor[self._term.index] * one
            result.append(total)
        return result

    def _of_all_rows(self, coefficient: Expression) -> Vector:
        """A coefficient in each row."""
        result = np.empty(self._term.size)
        for some in some_rows(len(result)):
            columns = dict(zip(self._numbers, self._columns(some), strict=True))
            result[some] = evaluate(coefficient, [], columns)
        return result

    @cached_property
    def _designs(self) -> dict[int, Design]:
        return {k: Design(self._fact, self._term, _selected(one)) for k, one in self._scalars.items()}


def _selected(one: AffineScalar) -> Any:
    return one.variable if all(k == slice(None) for k in one.element) else one.variable[one.element]


def check_against_graph(
    fact: Factorisation, functions: Sequence[tuple[LocalTerm, RowFunction]], points: Sequence[Point]
) -> None:
    """Compare some rows of the functions of terms with those of the graph.

    Raises
    ------
    SelfCheckError
        If a finite row differs.
    """
    if not functions:
        return
    block, _ = block_and_others(fact)
    names = list(fact.graph.values)
    chosen = [evenly_spaced(term.size, _CHECKED) for term, _ in functions]
    graphs, inputs = [term.rows for term, _ in functions], [term.index for term, _ in functions]
    compiled = fact.compile(graphs, inputs, mode=INTERPRETED_STABLE, stabilised=True)
    for point in points:
        q = np.concatenate([np.ravel(point[names.index(name)]) for name in block] or [np.empty(0)])
        with np.errstate(all="ignore"):
            theirs = compiled(*point, *chosen, *fact.leaf_values)
        for (_, function), positions, rows in zip(functions, chosen, theirs, strict=True):
            _compare(function, q, positions, np.array(rows))


def _compare(function: RowFunction, q: Vector, positions: Index, theirs: Vector) -> None:
    """Compare rows of a function with those of the graph, which are minus infinity where a guard says so."""
    rows = function.rows(positions)
    predictors = rows[..., :-1] @ q + rows[..., -1]
    found = evaluate(function.expression, predictors.T, function.data(positions))
    ours = np.broadcast_to(found, len(positions))
    if function.guards is not None:
        guards = function.guards(positions)
        theirs[np.any(guards[..., :-1] @ q + guards[..., -1] <= 0.0, axis=1)] = -np.inf
    finite = np.isfinite(theirs)
    with np.errstate(invalid="ignore"):
        same = np.abs(ours - theirs) <= _TOLERANCE * np.maximum(1.0, np.abs(theirs))
    if not np.all(same[finite]):
        worst = np.flatnonzero(finite & ~same)[0]
        raise SelfCheckError(
            f"Self-check failed for the term {function.name!r}: row {positions[worst]} as a function of "
            f"{function.n_predictors} predictors is {ours[worst]!r}, the graph gives {theirs[worst]!r}. "
            "This is a defect of pymc_austerity: please report the model."
        )
