"""Which terms are part of a normal proposal, and which are weights.

A state is proposed from the product of all terms that are quadratic in it: of the transition, which must be,
and of whatever else is, as a normal observation. So much less is left to the weights. What that product
integrates to depends on the state before, and is a weight of that state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.chains.found import FoundChain
from pymc_austerity.model.chains.normal import derivatives, is_quadratic
from pymc_austerity.model.chains.site_terms import SiteGraphs, SiteTerm
from pymc_austerity.model.graph.rewrite import INTERPRETED
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
                f"The transitions of {found.name!r} in the term {term.name!r} cannot be drawn: the log density "
                "of a state given the one before is no quadratic function of it, as that of a normal "
                "distribution is. Write them with pm.Normal, pm.AR or pm.GaussianRandomWalk, or use pm.NUTS."
            )
        else:
            weights.append(term)
    return ChainParts(normal, weights)


def _is_normal(found: FoundChain, term: SiteTerm) -> bool:
    """Is a term a quadratic function of the present state, with a maximum?"""
    n = found.layout.n_components
    present = [pt.vector(f"present{k}") for k in range(n)]
    before = [pt.vector(f"before{k}") for k in range(n)]
    sites = pt.vector("sites", dtype="int64")
    graphs = SiteGraphs(sites, present, before)
    mine = (term.rows >= 0).any(axis=1)
    rows = graphs.log_density(term, mine)
    if not is_quadratic(rows, present):
        return False
    if term.links:
        return True
    second = derivatives(rows, present)
    assert second is not None
    inputs, values = inputs_of(found, graphs)
    function = pytensor.function(
        [sites, *present, *inputs],
        [second[1][a][a] for a in range(n)],
        mode=INTERPRETED,
        on_unused_input="ignore",
    )
    where = np.flatnonzero(mine)
    at = np.random.default_rng(_SEED).normal(size=(n, len(where)))
    curvature = np.broadcast_arrays(*function(where, *at, *values))
    return bool(np.all(np.stack(curvature) <= 0) and np.any(np.stack(curvature) < 0))


def inputs_of(found: FoundChain, graphs: SiteGraphs) -> tuple[list[Variable], list[np.ndarray]]:
    """What graphs of terms depend on besides states and sites, and its values near the initial point."""
    inputs = [
        *found.graph.values.values(),
        *(leaf.placeholder for leaf in found.leaves),
        *(leaf.placeholder for leaf in graphs.tables),
    ]
    tables = [np.asarray(leaf.source.data) for leaf in graphs.tables]
    return inputs, [*jittered(found.graph), *found.leaf_values, *tables]
