"""Features of a block as numbers: phi(q), its derivatives, and the chain rule.

With g = l o phi,

    gradient of g = J' l',    Hessian of g = J' l'' J + sum over k of l'_k (Hessian of phi_k),

where l' and l'' are sums over rows in closed form (`log_likelihood`), and J and the Hessians of phi are of
short functions. No pass over the data differentiates along coordinates.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad

from pymc_austerity.model.factorisation import Factorisation, block_of
from pymc_austerity.model.graph.elements import OF_SHORT_ELEMENT, elements
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE, Compiled, parts_of, rebuild
from pymc_austerity.model.structure.derivatives import Derivatives, vectorised, with_derivatives
from pymc_austerity.model.structure.features import Features
from pymc_austerity.target import Vector
from pymc_austerity.work import OF_FLOP


class Identity:
    """The identity as feature map, phi(q) = q.

    Parameters
    ----------
    n_features : int
    """

    operations = 0.0  # Of a call of `in_block`

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features

    def __call__(self, q: Vector) -> Vector:
        """The vector q itself."""
        return q

    def jacobian(self, q: Vector) -> np.ndarray:
        """The identity matrix, (D, D)."""
        return np.eye(self.n_features)

    def in_block(self, q: Vector, of_features: Derivatives) -> Derivatives:
        """The function as it is: phi(q) is q."""
        return of_features


class CompiledFeatures(Compiled):
    """phi(q) and its derivatives, from the graphs of features.

    Parameters
    ----------
    fact : Factorisation
        In whose block the features are functions.
    found : Features
    point : dict of str to ndarray
        Values of all variables; those outside the block stay there.
    """

    def __init__(self, fact: Factorisation, found: Features, point: Mapping[str, Any]) -> None:
        self._fact, self._vector = fact, found.vector
        self._point = fact.point_values(point)
        self.n_features = int(found.vector.type.shape[0])
        self._block = block_of(fact)
        self._q = pt.vector("q", shape=(sum(int(np.prod(var.type.shape)) for var in self._block),))
        self._parts = parts_of(self._q, self._block)

    @cached_property
    def operations(self) -> float:
        """Operations of a call of `in_block`: derivatives of phi, and products of matrices."""
        n, n_dim = self.n_features, int(self._q.type.shape[0])
        of_graph = elements([self._vector], self._block).fixed * (n + n_dim)
        return OF_SHORT_ELEMENT * of_graph + OF_FLOP * n * n_dim * (n + n_dim)

    def __call__(self, q: Vector) -> Vector:
        """phi(q), of shape (p,)."""
        phi: Vector = self._value(*self._point, q, *self._fact.leaf_values)
        return phi

    def jacobian(self, q: Vector) -> np.ndarray:
        """Derivatives of phi by q, of shape (p, D)."""
        return self._bent(q, np.zeros(self.n_features))[0]

    def in_block(self, q: Vector, of_features: Derivatives) -> Derivatives:
        """A function with derivatives `of_features` at phi(q), as a function of q."""
        value, gradient, hessian = of_features
        jacobian, curved = self._bent(q, gradient)
        result = jacobian.T @ hessian @ jacobian + curved
        return Derivatives(value, gradient @ jacobian, (result + result.T) / 2.0)

    def _bent(self, q: Vector, weights: Vector) -> tuple[np.ndarray, np.ndarray]:
        """The Jacobian of phi, and the sum of its Hessians with some weights."""
        with np.errstate(all="ignore"):
            jacobian, hessian = self._derivatives(*self._point, q, weights, *self._fact.leaf_values)
        return jacobian, hessian

    @cached_property
    def _value(self) -> Any:
        (phi,) = rebuild([self._vector], self._parts)
        return self._fact.compile(phi, [self._q], mode=INTERPRETED_STABLE)

    @cached_property
    def _derivatives(self) -> Any:
        (phi,) = rebuild([self._vector], self._parts)
        weights = pt.vector("weights", shape=(self.n_features,))
        total = (phi * weights).sum()
        jacobian = vectorised(grad(total, self._q), weights, self.n_features)
        _, _, hessian = with_derivatives(total, self._q)
        return self._fact.compile([jacobian, hessian], [self._q, weights], mode=INTERPRETED_STABLE)


FeatureMap = Identity | CompiledFeatures
