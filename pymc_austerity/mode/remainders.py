"""How far the posterior is from the normal distribution at its mode, and how large Taylor remainders are.

There is a bound on all remainders, and their sums at draws of the fitted normal. Rows with the largest
bounds, or else with the largest remainders at the draws, are those to be read always. `Departures` says along
which parameters the log posterior departs from that of the normal distribution.
"""

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.bounds.remainder import certify_remainders
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.mode.mode_fit import FittedTerms, ModeFit
from pymc_austerity.model.factorisation import point_of, row_operations
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.target import Vector

# Draws of the fitted normal distribution on which remainders are measured.
_DRAWS = 8
# Rows that tell their sums, and how much of them is rounding.
_ENOUGH_ROWS = 10_000
_SEED = 2017
# Remainders this near to the center, in standard deviations, are all rounding; the largest that may be met is
# taken to be some times as large.
_TINY, _SAFETY = 1e-8, 16.0
# Draws with a variable at its mode, and rows that tell sums.
_FIXED_DRAWS, _ROWS = 8, 30_000
# Operations for all of it, and how often the rows are evaluated at most; rows that are long are fewer.
_OPERATIONS, _PASSES, _FEWEST_ROWS = 2e10, 300, 1_000
# Standard deviations at which coordinates are compared, and dimensions up to which they are.
_FAR, _MOST_DIMENSIONS = 2.0, 100
_DEPARTURE_SEED = 2022


def certified(found: FittedTerms, n_exact: int) -> FittedTerms:
    """Fitted terms with a certificate of remainders and the rows of largest constants, or why without."""
    mode_fit = found.mode_fit
    assert mode_fit.expansion is not None
    whiten, unwhiten = mode_fit.bound_factors()
    try:
        certificate, exact = certify_remainders(
            found.structure.row_functions,
            ExpansionCoordinates(mode_fit.expansion.order, mode_fit.expansion.center, unwhiten, whiten),
            n_exact,
        )
    except UnboundedError as error:
        return found._replace(mode_fit=mode_fit._replace(no_certificate=str(error)))
    return found._replace(mode_fit=mode_fit._replace(certificate=certificate, exact=exact))


def measured(found: FittedTerms, point: PointType, n_exact: int) -> FittedTerms:
    """Fitted terms with remainders at draws of the fitted normal, which may choose the exact rows, too."""
    mode_fit, expanded = found.mode_fit, found.expanded
    n_local = expanded.n_local
    terms = LocalTerms(expanded)
    prior = expanded.compile(expanded.global_graph, [], mode=INTERPRETED_STABLE)
    rng = np.random.default_rng(_SEED)
    z = rng.standard_normal((_DRAWS, len(mode_fit.unwhiten)))
    states = [point_of(expanded, _moved(mode_fit, mode_fit.proxy.mode, each), point) for each in z]
    center = point_of(expanded, mode_fit.at, point)
    exact = mode_fit.exact
    if n_exact > 0 and mode_fit.certificate is None:
        at_center = terms(center)
        own = np.array([terms(there) - at_center for there in states], dtype=np.float32)
        largest = np.nan_to_num(np.abs(own), nan=np.inf).max(axis=0)
        exact = np.sort(np.argsort(-largest, kind="stable")[:n_exact])
        rows = n_local
    else:
        rows = min(n_local, _ENOUGH_ROWS)
    some = np.sort(rng.choice(n_local, rows, replace=False, shuffle=False))
    # Sums over the others are known well enough from some of the rows.
    some = np.setdiff1d(some, exact, assume_unique=True)
    weight = (n_local - len(exact)) / len(some)
    sums, log_weights = np.empty(_DRAWS), np.empty(_DRAWS)
    of_some, of_exact = terms(center, some), terms(center, exact)
    for k, there in enumerate(states):
        sums[k] = weight * (terms(there, some) - of_some).sum()
        log_density = float(prior(*expanded.point_values(there), *expanded.leaf_values)) + sums[k]
        log_weights[k] = log_density + (terms(there, exact) - of_exact).sum() + 0.5 * z[k] @ z[k]
    near = point_of(expanded, _moved(mode_fit, mode_fit.at, z[-1], _TINY), point)
    rounding = _SAFETY * float(np.abs(terms(near, some) - of_some).max())
    certificate = mode_fit.certificate
    if certificate is not None:
        certificate = certificate._replace(rounding=rounding)
    report = mode_fit.report._replace(
        acceptance=acceptance_of(log_weights), remainder_sd=float(sums.std(ddof=1))
    )
    mode_fit = mode_fit._replace(exact=exact, certificate=certificate, rounding=rounding, report=report)
    return found._replace(mode_fit=mode_fit)


def _moved(mode_fit: ModeFit, q: Vector, z: Vector, share: float = 1.0) -> Vector:
    """The state q moved by a share of a draw of the fitted normal about its mode, which z tells."""
    result = q.copy()
    result[mode_fit.free] += share * mode_fit.unwhiten @ z
    return result


def acceptance_of(log_weights: Vector) -> float:
    """Acceptance rate of an independence sampler at equilibrium, from draws of its proposal.

    A chain is at draw i with probability w_i / sum(w), and moves to j with min(1, w_j / w_i).
    """
    n = len(log_weights)
    largest = np.nanmax(log_weights) if np.any(np.isfinite(log_weights)) else 0.0
    with np.errstate(all="ignore"):
        weights = np.nan_to_num(np.exp(log_weights - largest))
    smaller = np.minimum(weights[:, None], weights[None, :]).sum() - weights.sum()
    return float(smaller / ((n - 1) * weights.sum())) if weights.sum() > 0.0 else 0.0


class Departures:
    """The log posterior near the mode, against that of the normal distribution there.

    The fitted terms have an expansion; variables outside the block stay at `point`.
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
        self._rows = np.sort(
            np.random.default_rng(_DEPARTURE_SEED).choice(n, rows, replace=False, shuffle=False)
        )
        self._at_mode = self._terms(self._state(np.zeros(len(self._free))), self._rows)

    def _state(self, step: Vector) -> PointType:
        q = self._found.mode_fit.proxy.mode.copy()
        q[self._free] += step
        return point_of(self._fact, q, self._point)

    def _at(self, step: Vector) -> tuple[float, float]:
        """The sum of remainders, and the log posterior, less that of the normal distribution."""
        there, weight = self._state(step), self._fact.n_local / len(self._rows)
        total = weight * float((self._terms(there, self._rows) - self._at_mode).sum())
        prior = float(self._prior(*self._fact.point_values(there), *self._fact.leaf_values))
        return total, prior + total + 0.5 * float(step @ self._precision @ step)

    def with_fixed(self, name: str) -> tuple[float, float]:
        """Acceptance rate and spread of remainders if a variable had its value at the mode as a number."""
        moved = np.array([self._fact.coordinate(int(d))[0] != name for d in self._free])
        if not moved.any():
            return 1.0, 0.0
        lower = np.linalg.cholesky(self._precision[np.ix_(moved, moved)])
        z = np.random.default_rng(_DEPARTURE_SEED).standard_normal((_FIXED_DRAWS, int(moved.sum())))
        steps = np.zeros((_FIXED_DRAWS, len(self._free)))
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
