"""Normal distributions of states, from gradients and Hessians of log densities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.chains.found import FoundChain

# Differences that are rounding errors, beside the numbers that they are differences of.
_ROUNDING = 1e-12


class FirstMoves(NamedTuple):
    """Distributions of first states, for each series: means, and Cholesky factors of precisions."""

    mean: np.ndarray
    root: np.ndarray


class LinearTable(NamedTuple):
    """Transitions to all sites, as `kernels.particle_gibbs.LinearMoves`; ones and zeros for first states."""

    mean: np.ndarray
    slope: np.ndarray
    root: np.ndarray
    weight: np.ndarray
    curvature: np.ndarray


def first_moves(found: FoundChain, values: np.ndarray) -> FirstMoves:
    """Distributions of first states.

    Parameters
    ----------
    found : FoundChain
    values : ndarray
        Gradients at zero and Hessians of the log density, entry by entry, for all series each.

    Raises
    ------
    FactorisationError
        If a series has none.
    """
    layout = found.layout
    gradient, hessian = as_tables(values, len(layout.starts) - 1, layout.n_components)
    root = _roots(found, layout.starts[:-1], -hessian)
    mean = np.linalg.solve(-hessian, gradient[..., None])[..., 0]
    return FirstMoves(np.ascontiguousarray(mean), np.ascontiguousarray(root))


def linear_table(found: FoundChain, values: np.ndarray) -> tuple[LinearTable, bool]:
    """Transitions to all sites but the first of each series, and whether they come with weights.

    Parameters
    ----------
    found : FoundChain
    values : ndarray
        As of `first_moves`, of the log density in a state and the one before, for all sites each.

    Raises
    ------
    FactorisationError
        If a state has no normal distribution given the one before.
    """
    layout = found.layout
    n, later = layout.n_components, np.flatnonzero(~layout.is_first())
    gradient, hessian = as_tables(values, len(later), 2 * n)
    precision, cross = -hessian[:, :n, :n], hessian[:, :n, n:]
    root = _roots(found, later, precision)
    if n == 1:
        solved = np.concatenate([gradient[:, :1, None], cross], axis=2) / precision
    else:
        solved = np.linalg.solve(precision, np.concatenate([gradient[:, :n, None], cross], axis=2))
    mean, slope = solved[..., 0], solved[..., 1:]
    from_mean = np.einsum("mba,mb->ma", cross, mean)
    from_slope = np.einsum("mba,mbc->mac", cross, slope)
    weight, curvature = gradient[:, n:] + from_mean, hessian[:, n:, n:] + from_slope
    has_weights = not (_is_rounding(weight, from_mean) and _is_rounding(curvature, from_slope))
    table = LinearTable(
        np.zeros((layout.n_sites, n)),
        np.zeros((layout.n_sites, n, n)),
        np.broadcast_to(np.eye(n), (layout.n_sites, n, n)).copy(),
        np.zeros((layout.n_sites, n)),
        np.zeros((layout.n_sites, n, n)),
    )
    for whole, part in zip(table, (mean, slope, root, weight, 0.5 * curvature), strict=True):
        whole[later] = part
    return table, has_weights


def _is_rounding(difference: np.ndarray, part: np.ndarray) -> bool:
    return bool((np.abs(difference) <= _ROUNDING * np.abs(part)).all())


def as_tables(values: np.ndarray, m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Gradients (m, n) and Hessians (m, n, n), of entries that are m numbers each."""
    return values[: m * n].reshape(n, m).T, values[m * n :].reshape(n, n, m).transpose(2, 0, 1)


def _roots(found: FoundChain, sites: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Cholesky factors; a site that has none is named."""
    if precision.shape[1] == 1:
        is_fine = (precision > 0.0) & (precision < np.inf)
        if is_fine.all():
            return np.sqrt(precision)
        raise no_proposal(found, int(sites[np.flatnonzero(~is_fine)[0]]))
    try:
        root = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        root = np.full(1, np.nan)
    if np.isfinite(root).all():
        return root
    for site, matrix in zip(sites, precision, strict=True):
        if not (np.isfinite(matrix).all() and np.linalg.eigvalsh(matrix)[0] > 0.0):
            raise no_proposal(found, int(site))
    raise no_proposal(found, int(sites[0]))


def no_proposal(found: FoundChain, site: int) -> FactorisationError:
    """The error that names a state which has no normal distribution."""
    state, terms = found.layout.label(found.name, site), found.names_at(site)
    if found.layout.is_first()[site]:
        return FactorisationError(
            f"The first state {state} cannot be drawn: the terms that contain it ({terms}) give it no normal "
            "distribution. Give the chain a normal start, as in init_dist=pm.Normal.dist(0, 1), or use "
            "pm.NUTS."
        )
    return FactorisationError(
        f"The state {state} cannot be drawn given the one before: the terms that contain it ({terms}) give "
        "it no normal distribution with a finite, positive variance. Check the parameters of the "
        "transitions, or use pm.NUTS."
    )
