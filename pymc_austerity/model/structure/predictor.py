"""The linear predictor of a local term, found on its graph.

Local terms of generalised linear models, and of much else, are l_i(q) = f_i(eta_i) with
eta_i = x_i . q + o_i. Bounds on all l_i at once (`pymc_austerity.bounds`) need the x_i and the slopes of f_i.

The graph of a term is affine in q near its inputs (`predictor_affine`) and nonlinear near its output. Its
linear predictor is a value in the affine part that holds one number for each row and through which
everything passes: with it replaced by an input, nothing depends on q any more. Of several such
values (``X @ b``, and ``y - X @ b``) the one nearest to the output is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad, pushforward
from pytensor.graph.basic import Apply, Constant, Variable, clone
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import MergeOptimizer, dfs_rewriter, node_rewriter
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.scalar.basic import mul
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Sum

from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.model.factorisation import CHUNK, Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import (
    INTERPRETED,
    INTERPRETED_STABLE,
    Compiled,
    depends_on,
    parts_of,
    rebuild,
    stable,
)
from pymc_austerity.model.structure.affine import Kind, core_of, kinds
from pymc_austerity.model.structure.identical_rows import AlikeRows
from pymc_austerity.target import Index, LinearPredictor, Vector

# Numbers in an intermediate result when rows are computed for several directions at once.
_BUDGET = 500_000


def linear_predictors(factorisation: Factorisation) -> tuple[LinearPredictor, ...]:
    """The linear predictors of all local terms, in their order.

    Raises
    ------
    UnboundedError
        If a term has none; the message names the term and the operation in the way.
    """
    found = []
    for term in factorisation.locals:
        predictor = linear_predictor(factorisation, term)
        if isinstance(predictor, str):
            raise UnboundedError(predictor)
        found.append(predictor)
    return tuple(found)


def linear_predictor(factorisation: Factorisation, term: LocalTerm) -> LinearPredictor | str:
    """The linear predictor of one local term, or the reason why there is none, as a phrase."""
    found = predictor_graph(factorisation, term)
    if isinstance(found, str):
        return found
    rows, eta = found
    _, others = block_and_others(factorisation)
    of_eta = _Slopes(factorisation, term, rows, eta, others)
    of_q = DesignRows(factorisation, term, eta)
    return LinearPredictor(
        name=term.name,
        n_rows=term.size,
        n_dim=of_q.n_dim,
        rows=of_q,
        slopes=of_eta,
        alike=of_eta.alike,
        offset_fixed=not depends_on([eta], others.values()).get(eta, False),
        others=of_eta.names,
        is_affine=eta is rows,
    )


def predictor_graph(factorisation: Factorisation, term: LocalTerm) -> tuple[Variable, Variable] | str:
    """A graph of the rows of a term and their linear predictor in it, or the reason why there is none."""
    block, others = block_and_others(factorisation)
    for name, var in block.items():
        if var.type.dtype != "float64":
            return f"{name!r}, which enters the term {term.name!r}, is discrete"
    (rows,) = merged([term.rows])
    kind = kinds([rows], block.values(), others.values())
    cuts = _cuts(rows, block.values(), kind)
    eta = next((var for var in cuts if is_one_per_row(var)), None)
    return _reason(term.name, rows, block, kind) if eta is None else (rows, eta)


def block_and_others(factorisation: Factorisation) -> tuple[dict[str, Variable], dict[str, Variable]]:
    """Value variables of the step, and those of other steps."""
    values = factorisation.graph.values
    block = {name: values[name] for name in factorisation.var_names}
    return block, {name: var for name, var in values.items() if name not in block}


def one_per_row(eta: Variable, index: Variable) -> Variable:
    """The linear predictor as a vector with one number for each row."""
    return eta.flatten() if None in eta.type.shape else pt.alloc(eta.flatten()[0], index.shape[0])


def merged(outputs: list[Variable]) -> list[Variable]:
    """A copy of the graphs in which equal computations are one; inputs are the same variables."""
    inputs = [var for var in graph_inputs(outputs) if not isinstance(var, Constant)]
    inputs, outputs = clone(inputs, outputs, copy_inputs=False)
    graph = FunctionGraph(inputs, outputs, clone=False)
    MergeOptimizer().rewrite(graph)
    return list(graph.outputs)


def _cuts(rows: Variable, block: Iterable[Variable], kind: dict[Variable, Kind]) -> list[Variable]:
    """Affine values through which all paths from the block to `rows` pass, nearest to `rows` first."""
    nodes, block = list(toposort([rows])), set(block)
    candidates = [out for node in nodes for out in node.outputs if kind.get(out) is Kind.AFFINE]
    candidates = [var for var in block if var in kind] + candidates
    return [var for var in reversed(candidates) if separate(nodes, block, rows, (var,))]


def separate(nodes: list[Apply], block: set[Variable], rows: Variable, cuts: tuple[Variable, ...]) -> bool:
    """Do all paths from the block to `rows`, by sorted nodes, pass through `cuts`?"""
    found = block.difference(cuts)
    for node in nodes:
        if not found.isdisjoint(node.inputs):
            found.update(out for out in node.outputs if out not in cuts)
    return rows not in found


def is_one_per_row(var: Variable) -> bool:
    """Does `var` hold one number for each row, or one for all? Only the number of rows is unknown."""
    return sum(k is None for k in var.type.shape) <= 1 and all(k in (None, 1) for k in var.type.shape)


def _reason(term: str, rows: Variable, block: Mapping[str, Variable], kind: dict[Variable, Kind]) -> str:
    """Name a variable and the first nonlinear operation that it meets, if others are predictors."""
    first: dict[Variable, Apply] = {}  # values at the border, and where they cross it
    for node in toposort([rows]):
        if any(kind.get(out) is Kind.NONLINEAR for out in node.outputs):
            for var in node.inputs:
                if kind.get(var) is Kind.AFFINE:
                    first.setdefault(var, node)
    wide = [var for var in first if not is_one_per_row(var)]
    # Where a predictor per row and something else enter, the something else is in the way.
    odd = wide or [var for var in first if None not in var.type.shape] or list(first)
    names = {var: [name for name, value in block.items() if value in set(ancestors([var]))] for var in odd}
    var = min(odd, key=lambda v: len(names[v]))
    operation = _operation(first[var])
    quoted = " and ".join(map(repr, names[var]))
    verb = "enters" if len(names[var]) == 1 else "enter"
    return f"{quoted} {verb} the term {term!r} through {operation}, beside or instead of a linear predictor"


def _operation(node: Apply) -> str:
    op = core_of(node.op)
    return type(op.scalar_op if isinstance(op, Elemwise) else op).__name__


@node_rewriter([Sum])
def _product(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Write the sum over k of d_ik x_jk, for all i and j, as the product of two matrices."""
    (summed,) = node.inputs
    if node.op.axis != (2,) or summed.owner is None or getattr(summed.owner.op, "scalar_op", None) != mul:
        return None
    factors = sorted(summed.owner.inputs, key=lambda var: var.type.broadcastable, reverse=True)
    if [var.type.broadcastable for var in factors] != [(True, False, False), (False, True, False)]:
        return None
    rows, directions = factors
    return [pt.dot(directions[:, 0], rows[0].T)]


_PRODUCTS = INTERPRETED.register((dfs_rewriter(_product), 100))


class DesignRows(Compiled):
    """x_i and o_i: what eta is at q = 0, and how it changes along each coordinate.

    The second is computed by differentiation and not by differences, which lose digits to a large offset.
    """

    def __init__(self, fact: Factorisation, term: LocalTerm, eta: Variable) -> None:
        self._fact, self._term = fact, term
        block, _ = block_and_others(fact)
        self._block = block
        self._eta = one_per_row(eta, term.index)
        self.n_dim = sum(int(np.prod(var.type.shape)) for var in block.values())
        self._point = fact.graph.point

    def __call__(self, positions: Index) -> np.ndarray:
        """Rows (x_i, o_i) of the augmented design."""
        values, leaves = self._fact.point_values(self._point), self._fact.leaf_values
        result = np.empty((len(positions), self.n_dim + 1))
        result[:, -1] = self._offset(*values, positions, *leaves)
        width = int(np.clip(_BUDGET // max(1, len(positions) * self.n_dim), 1, self.n_dim))
        for start in range(0, self.n_dim, width):
            stop = min(start + width, self.n_dim)
            directions = np.eye(stop - start, self.n_dim, start)
            result[:, start:stop] = self._columns(values, directions, positions, leaves)
        return result

    def _columns(self, values: list, directions: np.ndarray, positions: Index, leaves: list) -> np.ndarray:
        several = self._several
        if several is not None:
            return several(*values, directions, positions, *leaves).T
        return np.stack([self._one(*values, row, positions, *leaves) for row in directions], axis=1)

    @cached_property
    def _tangents(self) -> tuple[Variable, Variable]:
        """Change of eta in a direction, and the direction."""
        direction = pt.vector("direction", shape=(self.n_dim,))
        parts = parts_of(direction, list(self._block.values()))
        change = pushforward([self._eta], list(parts), list(parts.values()), disconnected_outputs="ignore")[0]
        return change, direction

    @cached_property
    def _one(self) -> Any:
        change, direction = self._tangents
        return self._fact.compile(change, [direction, self._term.index], mode=INTERPRETED)

    @cached_property
    def _several(self) -> Any:
        """The same for many directions at once, so that data are gathered once; None if impossible."""
        change, direction = self._tangents
        directions = pt.matrix("directions", shape=(None, self.n_dim))
        try:
            changes = vectorize_graph(change, {direction: directions})
        except NotImplementedError:  # an operation that knows no batches
            return None
        if changes.type.ndim != 2:
            return None
        return self._fact.compile(changes, [directions, self._term.index], mode=_PRODUCTS)

    @cached_property
    def _offset(self) -> Any:
        zeros = {var: pt.zeros(var.type.shape) for var in self._block.values()}
        (offset,) = rebuild([self._eta], zeros)
        return self._fact.compile(offset, [self._term.index], mode=INTERPRETED)


class _Slopes(Compiled):
    """f_i': the term differentiated by its predictor."""

    def __init__(
        self,
        fact: Factorisation,
        term: LocalTerm,
        rows: Variable,
        eta: Variable,
        others: Mapping[str, Variable],
    ) -> None:
        self._fact, self._term = fact, term
        self._input = eta.type("eta")
        (self._rows,) = rebuild([rows], {eta: self._input})
        self.alike = AlikeRows(fact, term, self._rows, self._input)
        used = set(ancestors([self._rows]))
        self.names = tuple(name for name, var in others.items() if var in used)

    def __call__(self, eta: Vector, positions: Index, point: Mapping[str, Any]) -> np.ndarray:
        """f_i'(eta_k), of shape (K, m)."""
        values = self._fact.point_values({**self._fact.graph.point, **{n: point[n] for n in self.names}})
        leaves, shape = self._fact.leaf_values, self._input.type.shape
        function, m = self._function, len(positions)
        with np.errstate(all="ignore"):
            if None not in shape:
                one = [function(*values, np.full(shape, e), positions, *leaves) for e in eta]
                return np.stack([np.broadcast_to(x, m) for x in one])
            per_call = max(1, CHUNK // max(m, 1))
            parts = []
            for start in range(0, len(eta), per_call):
                some = eta[start : start + per_call]
                wide = np.repeat(some, m).reshape([-1 if k is None else 1 for k in shape])
                slopes = function(*values, wide, np.tile(positions, len(some)), *leaves)
                parts.append(np.reshape(slopes, (len(some), m)))
            return np.concatenate(parts)

    @cached_property
    def _function(self) -> Any:
        rows = stable(self._rows)
        if None in self._input.type.shape:
            slopes = grad(rows.sum(), self._input, disconnected_inputs="ignore")
        else:  # one number for all rows, which have each a slope of their own
            slopes = pushforward(
                [rows], [self._input], [pt.ones(self._input.type.shape)], disconnected_outputs="ignore"
            )[0]
        return self._fact.compile(slopes, [self._input, self._term.index], mode=INTERPRETED_STABLE)
