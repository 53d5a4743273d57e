"""Derivatives of a log density whose local terms are functions of features of the block.

With g = l o phi, by the chain rule,

    gradient of g = J' l',    Hessian of g = J' l'' J + sum over k of l'_k (Hessian of phi_k),

where l' and l'' are sums over rows in closed form (`derivatives`), and J and the Hessians of phi are of short
functions. No pass over the data differentiates along coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.replace import vectorize_graph

from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE, rebuild
from pymc_austerity.model.structure.derivatives import Derivatives, Differentiable, with_derivatives
from pymc_austerity.model.structure.features import Features, features_of
from pymc_austerity.target import Index, Predictor, Vector


def differentiable(factorisation: Factorisation, point: Mapping[str, Any]) -> Differentiable:
    """The log density as a function of q: through features, where linear predictors are linear in these."""
    features = features_of(factorisation)
    if features is None:
        return Differentiable(factorisation, point)
    return Composed(factorisation, point, features)


class Composed(Differentiable):
    """A factorised log density as a function of q, whose local terms are functions of phi(q).

    Parameters
    ----------
    factorisation, point
        As of `Differentiable`.
    found : Features
    """

    def __init__(self, factorisation: Factorisation, point: Mapping[str, Any], found: Features) -> None:
        super().__init__(factorisation, point)
        self.found = found
        inner = found.factorisation
        fixed = {name: point[name] for name in inner.graph.values if name not in inner.var_names}
        self.inner = Differentiable(inner, {**inner.graph.point, **fixed})

    def features(self, q: Vector) -> Vector:
        """phi(q), of shape (p,)."""
        phi: Vector = self._phi(*self._point, q, *self._fact.leaf_values)
        return phi

    def jacobian(self, q: Vector) -> np.ndarray:
        """Derivatives of phi by q, of shape (p, D)."""
        return self._curved(q, np.zeros(self.inner.n_dim))[0]

    def likelihood(self, q: Vector, positions: Index | None = None) -> Derivatives:
        """Sum of the local terms at `positions` of the population, by default of all."""
        value, gradient, hessian = self.inner.likelihood(self.features(q), positions)
        jacobian, curved = self._curved(q, gradient)
        result = jacobian.T @ hessian @ jacobian + curved
        return Derivatives(value, gradient @ jacobian, (result + result.T) / 2.0)

    def of_features(self, q: Vector) -> Derivatives:
        """The sum of all local terms as a function of phi, at phi(q)."""
        return self.inner.likelihood(self.features(q))

    def predictors(self) -> tuple[Predictor, ...]:
        """The linear predictors of all local terms in phi, one or two each."""
        return self.inner.predictors()

    def forget(self) -> None:
        """Keep nothing of the size of the data."""
        self.inner.forget()

    def _curved(self, q: Vector, weights: Vector) -> tuple[np.ndarray, np.ndarray]:
        """The Jacobian of phi, and the sum of its Hessians with some weights."""
        with np.errstate(all="ignore"):
            jacobian, hessian = self._bend(*self._point, q, weights, *self._fact.leaf_values)
        return jacobian, hessian

    @cached_property
    def _phi(self) -> Any:
        (phi,) = rebuild([self.found.vector], self._parts)
        return self._fact.compile(phi, [self._q], mode=INTERPRETED_STABLE)

    @cached_property
    def _bend(self) -> Any:
        (phi,) = rebuild([self.found.vector], self._parts)
        weights = pt.vector("weights", shape=(self.inner.n_dim,))
        total = (phi * weights).sum()
        gradient = grad(total, self._q)
        each = pt.constant(np.eye(self.inner.n_dim))
        try:
            jacobian = vectorize_graph(gradient, {weights: each})
        except NotImplementedError:  # an operation that knows no batches
            jacobian = pt.stack([rebuild([gradient], {weights: row})[0] for row in each])
        _, _, hessian = with_derivatives(total, self._q)
        return self._fact.compile([jacobian, hessian], [self._q, weights], mode=INTERPRETED_STABLE)
