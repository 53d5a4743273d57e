"""A factorised log density with its derivatives, as a function of one vector q, the values of its block."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_austerity import work
from pymc_austerity.model.factorisation import block_of
from pymc_austerity.model.graph.elements import OF_SHORT_ELEMENT, elements
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE, parts_of, rebuild
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.model.structure.derivatives import Derivatives, not_smooth, symmetric, with_derivatives
from pymc_austerity.model.structure.feature_map import CompiledFeatures, FeatureMap, Identity
from pymc_austerity.model.structure.log_likelihood import Elsewhere, LogLikelihood
from pymc_austerity.model.structure.term_derivatives import term_derivatives
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import Index, Vector


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

    def likelihood(self, positions: Index | None = None, elsewhere: Elsewhere | None = None) -> LogLikelihood:
        """Sum of the local terms at `positions` of the population, in increasing order; by default of all."""
        stores_slopes = not self.structure.factorisation.rows_on_disk
        return LogLikelihood(
            self._terms, self.features, positions, stores_slopes=stores_slopes, elsewhere=elsewhere
        )

    def prior(self, q: Vector) -> Derivatives:
        """Sum of the global terms."""
        work.spend(self.prior_operations, "The search for the mode")
        with np.errstate(all="ignore"):
            return symmetric(*self._global(*self._point, q, *self.structure.factorisation.leaf_values))

    @cached_property
    def prior_operations(self) -> float:
        """Operations of a call of `prior`."""
        fact = self.structure.factorisation
        return OF_SHORT_ELEMENT * self.n_dim * elements([fact.global_graph], block_of(fact)).fixed

    @cached_property
    def _global(self) -> Any:
        fact = self.structure.factorisation
        q = pt.vector("q", shape=(self.n_dim,))
        (graph,) = rebuild([fact.global_graph], parts_of(q, [fact.graph.values[n] for n in fact.var_names]))
        try:
            outputs = with_derivatives(graph, q)
        except NO_GRADIENT as error:
            names = ", ".join(repr(name) for name, _ in fact.globals)
            raise not_smooth(f"The prior, or one of the short terms ({names}),", error) from None
        return fact.compile(outputs, [q], mode=INTERPRETED_STABLE)
