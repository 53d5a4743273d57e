"""The log posterior of a block, or of some of its coordinates, on all rows or on some that stand for all."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_austerity.mode.newton import OF_STEP, Density
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.log_likelihood import Elsewhere
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import Index, Vector


class BlockPosterior:
    """Value, gradient and Hessian of the log posterior by the free coordinates of a block.

    Coordinates that are not free stay at `point`, and variables outside the block. With `whole_block` all are
    free; else those of variables that a local term contains. `elsewhere` computes sums over all rows in other
    processes. The `likelihood` of all rows stores its designs from the first pass on.
    """

    def __init__(
        self,
        structure: TermStructure,
        point: Mapping[str, Any],
        *,
        whole_block: bool,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.structure = structure
        self.factorisation = fact = structure.factorisation
        self._function = Differentiable(structure, point)
        self.likelihood = self._function.likelihood(elsewhere=elsewhere)
        used = set(ancestors([term.rows for term in fact.locals]))
        values = [fact.graph.values[name] for name in fact.var_names]
        moved = [whole_block or value in used for value in values]
        self.free_names = [name for name, free in zip(fact.var_names, moved, strict=True) if free]
        self.free = np.concatenate(
            [np.full(int(np.prod(v.type.shape)), free) for v, free in zip(values, moved, strict=True)]
        )

    @property
    def start(self) -> Vector:
        """The vector q at the given point, all coordinates of it."""
        return self._function.start

    def whole(self, free: Vector) -> Vector:
        """The vector q, all coordinates of it, from those that are free."""
        q = self.start.copy()
        q[self.free] = free
        return q

    def density(self, positions: Index | None = None) -> Density:
        """The log posterior by the free coordinates, with the rows at `positions` scaled up to all."""
        fact = self.factorisation
        weight = 1.0 if positions is None else fact.n_local / len(positions)
        likelihood = self.likelihood if positions is None else self._function.likelihood(positions)
        square = np.ix_(self.free, self.free)

        def at(free: Vector) -> tuple[float, Vector, np.ndarray]:
            q = self.whole(free)
            result = self._function.prior(q).plus(likelihood(q), weight)
            return result.value, result.gradient[self.free], result.hessian[square]

        return at

    def operations(self, n_rows: int) -> float:
        """Operations of the density with two derivatives on so many rows, and of a Newton step from there."""
        own = self._function
        of_rows = n_rows / self.factorisation.n_local * self.likelihood.operations
        return (
            of_rows + own.prior_operations + own.features.operations + OF_STEP * float(self.free.sum()) ** 3
        )

    def whole_precision(self, free: Vector, precision: np.ndarray) -> np.ndarray:
        """Precision of all of q at a mode.

        What is not free has the precision of its prior, or 1 where there is none.
        """
        curvature = -np.diag(self._function.prior(self.whole(free)).hessian)
        result = np.diag(np.where(np.isfinite(curvature) & (curvature > 0.0), curvature, 1.0))
        result[np.ix_(self.free, self.free)] = precision
        return result

    def leading(self, direction: Vector) -> list[str]:
        """The coordinates that make up most of a direction of the free ones; none if it is zero."""
        if not np.any(direction):
            return []
        whole = np.zeros(len(self.free))
        whole[self.free] = np.abs(direction)
        order = np.argsort(-whole)
        leading = [d for d in order[:3] if whole[d] > 0.3 * whole[order[0]]]
        return [self.name_of(int(d)) for d in leading]

    def name_of(self, dimension: int) -> str:
        """Name of one coordinate of q."""
        name, index = self.factorisation.coordinate(dimension)
        return name + (f"[{', '.join(map(str, index))}]" if index else "")
