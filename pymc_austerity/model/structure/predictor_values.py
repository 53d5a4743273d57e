"""Values of the linear predictors of a local term: rows of the design, and slopes of the term.

`predictors` finds the predictors on the graph of the term. Here what bounds need of them is evaluated, as a
`LinearPredictor`.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad, pushforward
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.scalar.basic import mul
from pytensor.tensor.math import Sum

from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.model.factorisation import CHUNK, Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import (
    INTERPRETED,
    INTERPRETED_STABLE,
    Compiled,
    rebuild,
    stable,
)
from pymc_austerity.model.structure.direct_rows import DirectRows, direct_parts
from pymc_austerity.model.structure.parts import Part, at_zero, tangent
from pymc_austerity.model.structure.predictors import TermForm, block_and_others, one_per_row, others_in
from pymc_austerity.target import Index, LinearPredictor, Vector

# Numbers in an intermediate result when rows are computed for several directions at once.
_BUDGET = 500_000


def linear_predictor(form: TermForm) -> LinearPredictor:
    """The linear predictor of a term.

    Raises
    ------
    UnboundedError
        If the term has not exactly one; the message names it and the operation in the way.
    """
    eta = form.predictor
    if eta is None:
        raise UnboundedError(form.obstacle)
    slopes = _Slopes(form)
    design = Design(form.factorisation, form.term, eta)
    return LinearPredictor(
        name=form.term.name,
        n_rows=form.term.size,
        n_dim=design.n_dim,
        rows=design,
        slopes=slopes,
        offset_fixed=not others_in(form.factorisation, [eta]),
        others=slopes.names,
        is_affine=eta is form.rows,
    )


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


class Design(Compiled):
    """x_i and o_i: what eta is at q = 0, and how it changes along each coordinate.

    They are read from the data where the graph says where they stand (`direct_rows`). Else the second is
    computed by differentiation, and not by differences, which lose digits to a large offset.
    """

    def __init__(self, fact: Factorisation, term: LocalTerm, eta: Variable) -> None:
        self._fact, self._term = fact, term
        self._block, _ = block_and_others(self._fact)
        self._predictor, self._eta = eta, one_per_row(eta, self._term.index)
        self.n_dim = sum(int(np.prod(var.type.shape)) for var in self._block.values())
        self._point = self._fact.graph.point

    def __call__(self, positions: Index) -> np.ndarray:
        """Rows (x_i, o_i) of the augmented design."""
        result = np.zeros((len(positions), self.n_dim + 1))
        self.add_to(result, 1.0, positions)
        return result

    def add_to(self, result: np.ndarray, factor: Vector | float, positions: Index) -> None:
        """Add the rows at some positions, times a factor for each, to an array (m, D + 1)."""
        if self._direct is not None:
            self._direct.add_to(result, factor, positions)
        else:
            scale = np.reshape(factor, (-1, 1))
            # What has no rows is the same in all of them.
            result += scale * self._computed(
                positions if None in self._predictor.type.shape else positions[:1]
            )

    @cached_property
    def parts(self) -> tuple[Part, ...] | None:
        """The summands of the predictor; None where rows have to be computed."""
        return direct_parts(self._fact, self._predictor)

    @cached_property
    def _direct(self) -> DirectRows | None:
        return None if self.parts is None else DirectRows(self._fact, self._term, self.parts)

    def _computed(self, positions: Index) -> np.ndarray:
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
        return tangent(self._block.values(), self._eta, self.n_dim)

    @cached_property
    def _one(self) -> Any:
        change, direction = self._tangents
        return self._fact.compile(change, [direction, self._term.index], mode=INTERPRETED)

    @cached_property
    def _several(self) -> Any:
        """Changes of eta in many directions at once, for which data are gathered once; None if impossible."""
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
        offset = at_zero(self._block.values(), self._eta)
        return self._fact.compile(offset, [self._term.index], mode=INTERPRETED)


class _Slopes(Compiled):
    """f_i' of a term with one predictor."""

    def __init__(self, form: TermForm) -> None:
        self._fact, self._term = form.factorisation, form.term
        assert form.predictor is not None
        self._input = form.predictor.type("eta")
        (rows,) = rebuild([form.rows], {form.predictor: self._input})
        self._rows = rows
        self.names = others_in(self._fact, [rows])

    def _values_at(self, point: Mapping[str, Any]) -> list[np.ndarray]:
        """All variables, of which those that matter are looked up in `point`."""
        own = {name: point[name] for name in self.names}
        return self._fact.point_values({**self._fact.graph.point, **own})

    @cached_property
    def _stable_rows(self) -> Variable:
        return stable(self._rows)

    def __call__(self, eta: Vector, positions: Index, point: Mapping[str, Any]) -> np.ndarray:
        """f_i'(eta_k), of shape (K, m)."""
        values = self._values_at(point)
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
        if None not in self._input.type.shape:
            # One number for all rows, which have each a slope of their own.
            ones = [pt.ones_like(self._input)]
            slopes = pushforward([self._stable_rows], [self._input], ones, disconnected_outputs="ignore")[0]
        else:
            slopes = grad(self._stable_rows.sum(), self._input, disconnected_inputs="ignore")
        return self._fact.compile(slopes, [self._input, self._term.index], mode=INTERPRETED_STABLE)
