"""Where the posterior departs from the normal distribution at its mode: along which parameters."""

from __future__ import annotations

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.mode.mode_fit import FittedTerms
from pymc_austerity.mode.remainders import acceptance_of
from pymc_austerity.model.factorisation import point_of, row_operations
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.target import Vector

# Draws with a variable at its mode, and rows that tell sums.
_DRAWS, _ROWS = 8, 30_000
# Operations for all of it, and how often the rows are evaluated at most; rows that are long are fewer.
_OPERATIONS, _PASSES, _FEWEST_ROWS = 2e10, 300, 1_000
# Standard deviations at which coordinates are compared, and dimensions up to which they are.
_FAR, _MOST_DIMENSIONS = 2.0, 100
_SEED = 2022


class Departures:
    """The log posterior near the mode, against that of the normal distribution there.

    Parameters
    ----------
    found : FittedTerms
        With an expansion.
    point : dict
        Values of all variables.
    """

    def __init__(self, found: FittedTerms, point: PointType) -> None:
        self._found, self._point, self._fact = found, point, found.expanded
        fit = found.mode_fit
        self._free = np.flatnonzero(fit.free)
        self._precision = fit.proxy.precision[np.ix_(fit.free, fit.free)]
        self._terms = LocalTerms(self._fact)
        self._prior = self._fact.compile(self._fact.global_graph, [], mode=INTERPRETED_STABLE)
        n = self._fact.n_local
        affordable = int(_OPERATIONS / _PASSES * n / max(row_operations(self._fact), 1.0))
        rows = min(n, _ROWS, max(affordable, _FEWEST_ROWS))
        self._rows = np.sort(np.random.default_rng(_SEED).choice(n, rows, replace=False, shuffle=False))
        self._at_mode = self._terms(self._state(np.zeros(len(self._free))), self._rows)

    def _state(self, step: Vector) -> PointType:
        q = self._found.mode_fit.proxy.mode.copy()
        q[self._free] += step
        return point_of(self._fact, q, self._point)

    def _at(self, step: Vector) -> tuple[float, float]:
        """The sum of remainders, and the log posterior, less that of the normal distribution."""
        there = self._state(step)
        total = (
            self._fact.n_local
            / len(self._rows)
            * float((self._terms(there, self._rows) - self._at_mode).sum())
        )
        prior = float(self._prior(*self._fact.point_values(there), *self._fact.leaf_values))
        return total, prior + total + 0.5 * float(step @ self._precision @ step)

    def with_fixed(self, name: str) -> tuple[float, float]:
        """Acceptance rate and spread of remainders if a variable had its value at the mode as a number."""
        moved = np.array([self._fact.coordinate(int(d))[0] != name for d in self._free])
        if not moved.any():
            return 1.0, 0.0
        lower = np.linalg.cholesky(self._precision[np.ix_(moved, moved)])
        z = np.random.default_rng(_SEED).standard_normal((_DRAWS, int(moved.sum())))
        steps = np.zeros((_DRAWS, len(self._free)))
        steps[:, moved] = np.linalg.solve(lower.T, z.T).T
        sums, weights = np.array([self._at(step) for step in steps]).T
        return acceptance_of(weights), float(np.std(sums, ddof=1))

    def coordinates(self) -> dict[tuple[str, tuple[int, ...]], float]:
        """Departure of the log posterior along each coordinate, the largest first.

        The others follow, as in a regression on it.
        """
        if len(self._free) > _MOST_DIMENSIONS:
            return {}
        covariance = np.linalg.inv(self._precision)
        here = self._at(np.zeros(len(self._free)))[1]
        result = {}
        for k, d in enumerate(self._free):
            step = _FAR * covariance[k] / np.sqrt(covariance[k, k])
            apart = [abs(self._at(sign * step)[1] - here) for sign in (-1.0, 1.0)]
            result[self._fact.coordinate(int(d))] = float(np.nan_to_num(np.max(apart), nan=np.inf))
        return dict(sorted(result.items(), key=lambda item: -item[1]))
