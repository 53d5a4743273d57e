"""Normal proposals of states: which terms are part of them, and which are weights.

A state is proposed from the product of all terms that are quadratic in it: of the transition, which must be,
and of whatever else is, as a normal observation. So much less is left to the weights. What that product
integrates to depends on the state before, and is a weight of that state.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.chains.found import FoundChain
from pymc_austerity.model.chains.site_terms import SiteGraphs, SiteTerm
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.self_check import jittered

_SEED = 24
# Differences that are rounding errors, beside the numbers that they are differences of.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class ChainParts:
    """Terms by what they are to a particle filter."""

    normal: list[SiteTerm]  # Quadratic in the present state
    weights: list[SiteTerm]  # All others; they do not contain the state before

    def weighted(self, n_sites: int) -> np.ndarray:
        """The sites where there are weights."""
        result = np.zeros(n_sites, dtype=bool)
        for term in self.weights:
            result |= (term.rows >= 0).any(axis=1)
        return result


def divide(found: FoundChain) -> ChainParts:
    """Tell normal terms from weights; `FactorisationError` if a transition is not normal."""
    normal, weights = [], []
    for term in found.terms:
        if _is_normal(found, term):
            normal.append(term)
        elif term.links:
            raise FactorisationError(
                f"The transitions of {found.name!r} in the term {term.name!r} cannot be drawn: the log "
                "density of a state given the one before is no quadratic function of it, as that of a normal "
                "distribution is. Write them with pm.Normal, pm.AR or pm.GaussianRandomWalk, or use pm.NUTS."
            )
        else:
            weights.append(term)
    return ChainParts(normal, weights)


def _is_normal(found: FoundChain, term: SiteTerm) -> bool:
    """Is a term a quadratic function of the present state, with a maximum?

    A transition has one. Of others, the diagonal of the Hessian says so, near the initial point.
    """
    n = found.layout.n_components
    mine = (term.rows >= 0).any(axis=1)
    states = [pt.vector(f"state{k}") for k in range(2 * n)]
    sites = pt.vector("sites", dtype="int64")
    graphs = SiteGraphs(sites, mine, states)
    if not graphs.is_quadratic(term, n):
        return False
    if term.links:
        return True
    _, _, hessian = graphs.expansion([term], n)
    placeholders = [leaf.placeholder for leaf in (*found.leaves, *graphs.tables)]
    inputs = [sites, *states, *found.graph.values.values(), *placeholders]
    function = function_of(inputs, hessian[:: n + 1])
    where = np.flatnonzero(mine)
    at = np.random.default_rng(_SEED).normal(size=(len(states), len(where)))
    data = [*found.leaf_values, *(np.asarray(leaf.source.data) for leaf in graphs.tables)]
    curvature = np.stack(
        [np.broadcast_to(c, len(where)) for c in function(where, *at, *jittered(found.graph), *data)]
    )
    return bool((curvature <= 0.0).all() and (curvature < 0.0).any())


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
    """Distributions of first states; `FactorisationError` if a series has none.

    `values` are gradients at zero and Hessians of the log density, entry by entry, for all series each.
    """
    layout = found.layout
    gradient, hessian = as_tables(values, len(layout.starts) - 1, layout.n_components)
    root = _roots(found, layout.starts[:-1], -hessian)
    mean = np.linalg.solve(-hessian, gradient[..., None])[..., 0]
    return FirstMoves(np.ascontiguousarray(mean), np.ascontiguousarray(root))


def linear_table(found: FoundChain, values: np.ndarray) -> tuple[LinearTable, bool]:
    """Transitions to all sites but the first of each series, and whether they come with weights.

    `values` are those of `first_moves`, of the log density in a state and the one before, for all sites each.
    `FactorisationError` is raised if a state has no normal distribution given the one before.
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
        raise _no_proposal(found, int(sites[np.flatnonzero(~is_fine)[0]]))
    try:
        root = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        root = np.full(1, np.nan)
    if np.isfinite(root).all():
        return root
    for site, matrix in zip(sites, precision, strict=True):
        if not (np.isfinite(matrix).all() and np.linalg.eigvalsh(matrix)[0] > 0.0):
            raise _no_proposal(found, int(site))
    raise _no_proposal(found, int(sites[0]))


def _no_proposal(found: FoundChain, site: int) -> FactorisationError:
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
