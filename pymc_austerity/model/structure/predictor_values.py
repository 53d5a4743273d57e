"""Values of the linear predictors of a local term: rows of the design.

`predictors` finds the predictors on the graph of the term.
"""

from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.scalar.basic import mul
from pytensor.tensor.math import Sum

from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import INTERPRETED, Compiled
from pymc_austerity.model.structure.direct_rows import DirectRows, direct_parts
from pymc_austerity.model.structure.parts import Part, at_zero, tangent
from pymc_austerity.model.structure.predictors import TermForm, block_and_others, one_per_row, others_in
from pymc_austerity.target import Index, Vector

# Numbers in an intermediate result when rows are computed for several directions at once.
_BUDGET = 500_000


def opaque_function(form: TermForm) -> RowFunction:
    """The rows of a term as a function, of which nothing is known, of its one linear predictor."""
    eta = form.predictor
    assert eta is not None
    design = Design(form.factorisation, form.term, eta)
    return RowFunction(
        name=form.term.name,
        n_rows=form.term.size,
        n_dim=design.n_dim,
        n_predictors=1,
        rows=lambda positions: design(positions)[:, None],
        data=lambda positions: np.empty((0, len(positions))),
        form=None,
        others=others_in(form.factorisation, [form.rows]),
        offset_fixed=not others_in(form.factorisation, [eta]),
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
