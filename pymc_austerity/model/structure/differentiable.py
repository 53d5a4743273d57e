"""A factorised log density with its derivatives, as a function of one vector q, the values of its block."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_austerity.model.structure.feature_map import CompiledFeatures, FeatureMap, Identity
from pymc_austerity.model.structure.log_likelihood import Elsewhere, LogLikelihood
from pymc_austerity.model.structure.term_derivatives import term_derivatives
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import Index


class Differentiable:
    """The global and the local terms at fixed values of all variables outside the block.

    Parameters
    ----------
    structure : TermStructure
    point : dict of str to ndarray
        Values of all variables; those outside the block stay there.

    Attributes
    ----------
    structure : TermStructure
    start : ndarray of shape (D,)
        q at `point`.
    n_dim : int
        Length D of q.
    features : FeatureMap
        phi(q), in which linear predictors of local terms are linear.
    prior : LogLikelihood
        The sum of the global terms, which are differentiated as local ones are.
    """

    def __init__(self, structure: TermStructure, point: Mapping[str, Any]) -> None:
        self.structure = structure
        fact, inner = structure.factorisation, structure.inner
        self._point = fact.point_values(point)
        self.start = np.concatenate([np.ravel(point[n]) for n in fact.var_names]).astype(np.float64)
        self.n_dim = len(self.start)
        self.features: FeatureMap = Identity(self.n_dim)
        fixed = self._point
        if structure.features is not None:
            self.features = CompiledFeatures(fact, structure.features, point)
            outside = {name: point[name] for name in inner.graph.values if name not in inner.var_names}
            fixed = inner.point_values({**inner.graph.point, **outside})
        self._terms = [term_derivatives(structure, k, fixed) for k in range(len(structure.forms))]
        own = structure.of_globals
        terms = [term_derivatives(own, k, self._point) for k in range(len(own.forms))]
        self.prior = LogLikelihood(terms, Identity(self.n_dim), stores_slopes=False)

    def likelihood(self, positions: Index | None = None, elsewhere: Elsewhere | None = None) -> LogLikelihood:
        """Sum of the local terms at `positions` of the population, in increasing order; by default of all."""
        stores_slopes = not self.structure.factorisation.rows_on_disk
        return LogLikelihood(
            self._terms, self.features, positions, stores_slopes=stores_slopes, elsewhere=elsewhere
        )
