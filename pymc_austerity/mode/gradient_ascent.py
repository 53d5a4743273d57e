"""Climbing without a Hessian: the log posterior with its gradient, and L-BFGS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pymc.initial_point import PointType
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from scipy.optimize import minimize

from pymc_austerity.model.factorisation import CHUNK, Factorisation, point_of
from pymc_austerity.model.structure.local_terms import rows_within
from pymc_austerity.target import Index, Vector


class GradientPosterior:
    """Log posterior and gradient by the vector q of a block, on all rows or on some that stand for all.

    Parameters
    ----------
    fact : Factorisation
    point : dict
        Values of all variables; those outside the block stay there.
    mode : pytensor.compile.Mode or None
    """

    def __init__(self, fact: Factorisation, point: PointType, mode: Any) -> None:
        self._fact = fact
        self._point = point
        self.start = np.concatenate([np.ravel(point[n]) for n in fact.var_names]).astype(np.float64)
        wrt = [fact.graph.values[n] for n in fact.var_names]
        self._global = fact.compile(_with_gradient(fact.global_graph, wrt), [], mode=mode)
        self._local = [
            fact.compile(_with_gradient(term.rows.sum(), wrt), [term.index], mode=mode)
            for term in fact.locals
        ]

    def density(self, positions: Index | None = None) -> Callable[[Vector], tuple[float, Vector]]:
        """The log posterior with the local terms at `positions`, in increasing order, scaled up to all."""
        fact = self._fact
        weight = 1.0 if positions is None else fact.n_local / len(positions)
        chunks, start = [], 0
        for k, term in enumerate(fact.locals):
            own = range(term.size) if positions is None else rows_within(positions, start, term.size)
            chunks += [(k, own[a : a + CHUNK]) for a in range(0, len(own), CHUNK)]
            start += term.size

        @np.errstate(all="ignore")
        def at(q: Vector) -> tuple[float, Vector]:
            values = fact.point_values(point_of(fact, q, self._point))
            total, slope = _flat(self._global(*values, *fact.leaf_values))
            for k, index in chunks:
                part, part_slope = _flat(self._local[k](*values, np.asarray(index), *fact.leaf_values))
                total, slope = total + weight * part, slope + weight * part_slope
            return total, slope

        return at


def ascend(
    density: Callable[[Vector], tuple[float, Vector]], start: Vector, max_iterations: int
) -> tuple[Vector, str]:
    """Climb by L-BFGS from `start`, never to a lower point. Returns a point, and what went wrong."""
    lowest, _ = density(start)

    def negative(q: Vector) -> tuple[float, Vector]:
        value, gradient = density(q)
        if not is_finite(value, gradient):
            return np.inf, np.zeros_like(q)
        return -value, -gradient

    options = {"maxiter": max_iterations, "maxcor": 20}
    found = minimize(negative, start, jac=True, method="L-BFGS-B", options=options)
    if -found.fun < lowest:
        return start, "no better point was found"
    return found.x, "" if found.success else str(found.message)


def is_finite(*parts: float | np.ndarray) -> bool:
    """Are all these numbers finite?"""
    return all(bool(np.all(np.isfinite(part))) for part in parts)


def _with_gradient(density: Variable, wrt: list[Variable]) -> list[Variable]:
    slopes = grad(density, wrt, disconnected_inputs="ignore")
    return [density, *slopes]


def _flat(outputs: list[Vector]) -> tuple[float, Vector]:
    return float(outputs[0]), np.concatenate([np.ravel(g) for g in outputs[1:]])
