"""How large the Taylor remainders are: a bound on all of them, and their sums at draws of the fitted normal.

Rows with the largest bounds, or else with the largest remainders at the draws, are those to be read always.
"""

from __future__ import annotations

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.bounds.remainder import certify_remainders
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.mode.mode_fit import FittedTerms, ModeFit
from pymc_austerity.model.factorisation import point_of
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
