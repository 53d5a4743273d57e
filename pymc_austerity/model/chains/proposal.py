"""Which terms are part of a normal proposal, and which are weights.

A state is proposed from the product of all terms that are quadratic in it: of the transition, which must be,
and of whatever else is, as a normal observation. So much less is left to the weights. What that product
integrates to depends on the state before, and is a weight of that state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.chains.found import FoundChain
from pymc_austerity.model.chains.site_terms import SiteGraphs, SiteTerm
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.leaves import Leaf
from pymc_austerity.model.self_check import jittered

_SEED = 24


@dataclass(frozen=True, eq=False)
class ChainParts:
    """Terms by what they are to a particle filter.

    Attributes
    ----------
    normal : list of SiteTerm
        Quadratic in the present state.
    weights : list of SiteTerm
        All others; they do not contain the state before.
    """

    normal: list[SiteTerm]
    weights: list[SiteTerm]

    def weighted(self, n_sites: int) -> np.ndarray:
        """The sites where there are weights."""
        result = np.zeros(n_sites, dtype=bool)
        for term in self.weights:
            result |= (term.rows >= 0).any(axis=1)
        return result


def divide(found: FoundChain) -> ChainParts:
    """Tell normal terms from weights.

    Raises
    ------
    FactorisationError
        If a transition is not normal.
    """
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
    """Is a term a quadratic function of the present state, with a maximum?"""
    n = found.layout.n_components
    mine = (term.rows >= 0).any(axis=1)
    states = [pt.vector(f"state{k}") for k in range(2 * n)]
    sites = pt.vector("sites", dtype="int64")
    graphs = SiteGraphs(sites, mine, states)
    if not graphs.is_quadratic(term, n):
        return False
    return term.links or _is_concave(
        found, graphs.expansion([term], n)[2], [sites, *states], graphs.tables, mine
    )


def _is_concave(
    found: FoundChain, hessian: list[Variable], inputs: list[Variable], tables: list[Leaf], among: np.ndarray
) -> bool:
    """Does the diagonal of a Hessian, near the initial point, say that a term has a maximum?"""
    leaves = [*found.leaves, *tables]
    function = function_of(
        [*inputs, *found.graph.values.values(), *(leaf.placeholder for leaf in leaves)],
        hessian[:: found.layout.n_components + 1],
    )
    where = np.flatnonzero(among)
    at = np.random.default_rng(_SEED).normal(size=(len(inputs) - 1, len(where)))
    data = [*found.leaf_values, *(np.asarray(leaf.source.data) for leaf in tables)]
    curvature = np.stack(
        [np.broadcast_to(c, len(where)) for c in function(where, *at, *jittered(found.graph), *data)]
    )
    return bool((curvature <= 0.0).all() and (curvature < 0.0).any())
