"""Two linear predictors of a local term, found on its graph: l_i(q) = f_i(eta_i, zeta_i).

A regression with a free scale has one for the location and one for the logarithm of the scale. As for a
single predictor (`predictor`), each is a value in the affine part of the graph that holds one number for each
row, or one for all; with both replaced by inputs, nothing depends on q any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import pushforward
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE, Compiled, depends_on, rebuild, stable
from pymc_austerity.model.structure.affine import Kind, kinds
from pymc_austerity.model.structure.predictor import (
    DesignRows,
    block_and_others,
    is_one_per_row,
    linear_predictor,
    merged,
    separate,
)
from pymc_austerity.target import Index, Predictor, PredictorPair

# Affine values among which two are looked for, those nearest to the rows: all, in most graphs.
_CANDIDATES = 50


def predictors(factorisation: Factorisation) -> tuple[Predictor, ...]:
    """The linear predictors of all local terms, one or two for each, in their order.

    Raises
    ------
    UnboundedError
        If a term has neither one nor two; the message names the term and the operation in the way.
    """
    found: list[Predictor] = []
    for term in factorisation.locals:
        predictor = linear_predictor(factorisation, term)
        if isinstance(predictor, str):
            pair = predictor_pair(factorisation, term)
            if isinstance(pair, str):
                raise UnboundedError(f"{predictor}; {pair}")
            found.append(pair)
        else:
            found.append(predictor)
    return tuple(found)


def predictor_pair(factorisation: Factorisation, term: LocalTerm) -> PredictorPair | str:
    """The two linear predictors of one local term, or the reason why there are none, as a phrase."""
    found = pair_graph(factorisation, term)
    if isinstance(found, str):
        return found
    rows, pair = found
    _, others = block_and_others(factorisation)
    slopes = _Slopes(factorisation, term, rows, pair, others)
    designs = _Designs(factorisation, term, pair)
    moved = depends_on(pair, others.values())
    return PredictorPair(
        name=term.name,
        n_rows=term.size,
        n_dim=designs.n_dim,
        rows=designs,
        slopes=slopes,
        offset_fixed=not any(moved.get(var, False) for var in pair),
        others=slopes.names,
    )


def pair_graph(factorisation: Factorisation, term: LocalTerm) -> tuple[Variable, tuple[Variable, ...]] | str:
    """A graph of the rows of a term and its two predictors in it, or the reason why there are none.

    Of several pairs, that nearest to the rows.
    """
    block, others = block_and_others(factorisation)
    for name, var in block.items():
        if var.type.dtype != "float64":
            return f"{name!r}, which enters the term {term.name!r}, is discrete"
    (rows,) = merged([_indexed_first(term.rows)])
    kind = kinds([rows], block.values(), others.values())
    nodes = list(toposort([rows]))
    used = set(ancestors([rows]))
    affine = [var for var in block.values() if var in used]
    affine += [out for node in nodes for out in node.outputs if kind.get(out) is Kind.AFFINE]
    candidates = [var for var in reversed(affine) if is_one_per_row(var)][:_CANDIDATES]
    for pair in combinations(candidates, 2):
        if separate(nodes, set(block.values()), rows, pair):
            return rows, pair
    return f"the term {term.name!r} does not depend on the variables through two linear predictors either"


def _indexed_first(rows: Variable) -> Variable:
    """exp(z)[group] as exp(z[group]), which has one number for each row of a group-wise scale."""
    memo: dict[Variable, Variable] = {}
    for node in toposort([rows]):
        inputs = [memo.get(var, var) for var in node.inputs]
        outer: list[Op] = []
        if isinstance(node.op, Subtensor | AdvancedSubtensor):
            while (owner := inputs[0].owner) and isinstance(owner.op, Elemwise) and len(owner.inputs) == 1:
                outer.append(owner.op)
                inputs[0] = owner.inputs[0]
        if inputs != node.inputs:
            outputs = node.clone_with_new_inputs(inputs, strict=False).outputs
            for op in reversed(outer):
                outputs = [op(out) for out in outputs]
            memo.update(zip(node.outputs, outputs, strict=True))
    return memo.get(rows, rows)


class _Designs:
    """x_i and o_i of both predictors."""

    def __init__(self, fact: Factorisation, term: LocalTerm, pair: tuple[Variable, ...]) -> None:
        self._designs = [DesignRows(fact, term, var) for var in pair]
        self.n_dim = self._designs[0].n_dim

    def __call__(self, positions: Index) -> np.ndarray:
        """Rows of the augmented designs, of shape (m, 2, D + 1)."""
        return np.stack([design(positions) for design in self._designs], axis=1)


class _Slopes(Compiled):
    """The term differentiated by each of its predictors."""

    def __init__(
        self,
        fact: Factorisation,
        term: LocalTerm,
        rows: Variable,
        pair: tuple[Variable, ...],
        others: Mapping[str, Variable],
    ) -> None:
        self._fact, self._term = fact, term
        self._inputs = [var.type(f"predictor{k}") for k, var in enumerate(pair)]
        (self._rows,) = rebuild([rows], dict(zip(pair, self._inputs, strict=True)))
        used = set(ancestors([self._rows]))
        self.names = tuple(name for name, var in others.items() if var in used)

    def __call__(self, values: np.ndarray, positions: Index, point: Mapping[str, Any]) -> np.ndarray:
        """Both slopes at K values of both predictors, of shape (2, K, m)."""
        fact = self._fact
        first = fact.point_values({**fact.graph.point, **{n: point[n] for n in self.names}})
        shapes = [[len(positions) if k is None else 1 for k in var.type.shape] for var in self._inputs]
        result = np.empty((2, values.shape[1], len(positions)))
        with np.errstate(all="ignore"):
            for k, both in enumerate(values.T):
                wide = [np.full(shape, value) for shape, value in zip(shapes, both, strict=True)]
                slopes = self._function(*first, *wide, positions, *fact.leaf_values)
                result[0, k], result[1, k] = slopes
        return result

    @cached_property
    def _function(self) -> Any:
        rows = stable(self._rows)
        slopes = [
            pushforward([rows], [var], [pt.ones_like(var)], disconnected_outputs="ignore")[0]
            for var in self._inputs
        ]
        return self._fact.compile(slopes, [*self._inputs, self._term.index], mode=INTERPRETED_STABLE)
