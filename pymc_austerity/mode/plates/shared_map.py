"""Coordinates zeta in which theta is nearly normal though scales of its inner effects are sampled.

Let inner effects have the prior N(c, t2 I), and let V diag(b) V' be what the likelihood says of them, with
all else integrated out. Then y = V' v has independent coordinates for any scale, and

    y = (a t2 + V' c) r + sqrt(t2 r) zeta,    r = 1 / (1 + b t2),

takes the place of v: centred where the data say much, and not centred where they say little. Other
coefficients x, which are correlated with v through the likelihood, become zeta = x + S v: given the scale
their distribution is then the same for all v. The map is for proposals alone: with any of its constants the
chain has the same stationary distribution.
"""

from typing import NamedTuple

import numpy as np

from pymc_austerity.mode.plates.theta_density import SharedAt
from pymc_austerity.model.structure.derivatives import Derivatives
from pymc_austerity.target import Index, Matrix, Vector


class SharedMap(NamedTuple):
    """The map theta(zeta) from round coordinates zeta to theta."""

    coordinates: Index  # (K,): of theta, that belong to inner effects
    which: Index  # (K,): whose scale it is
    # slopes, weights, locations (K,): a, b and V' c
    slopes: Vector
    weights: Vector
    locations: Vector
    basis: Matrix  # (K, K): V, one block for each of the inner effects
    others: Index  # (R,): coordinates of theta that are sheared
    shear: Matrix  # (R, K): S

    def moments(self, squares: Vector) -> tuple[Vector, Vector, Vector]:
        """r, mean and scale of each y, from squared scales t2 of the inner effects."""
        t2 = squares[self.which]
        r = 1.0 / (1.0 + self.weights * t2)
        return r, (self.slopes * t2 + self.locations) * r, np.sqrt(t2 * r)

    def to_theta(self, zeta: Vector, squares: Vector) -> Vector:
        """theta, for squared scales at zeta, which has the same scales as theta."""
        _, means, scales = self.moments(squares)
        theta = zeta.copy()
        theta[self.coordinates] = v = self.basis @ (means + scales * zeta[self.coordinates])
        theta[self.others] -= self.shear @ v
        return theta

    def to_zeta(self, theta: Vector, squares: Vector) -> Vector:
        """The vector zeta at theta: the inverse of `to_theta`."""
        _, means, scales = self.moments(squares)
        zeta, v = theta.copy(), theta[self.coordinates]
        zeta[self.coordinates] = (self.basis.T @ v - means) / scales
        zeta[self.others] += self.shear @ v
        return zeta

    def slopes_at(self, zeta: Vector, at: SharedAt) -> Matrix:
        """Matrix of d theta / d zeta."""
        squares = squares_of(at)
        _, _, scales = self.moments(squares)
        of_y = np.zeros((len(self.coordinates), len(zeta)))
        of_y[np.arange(len(scales)), self.coordinates] = scales
        first, _ = self._by_log_square(zeta, squares)
        for k, f in enumerate(self.which):
            of_y[k] += first[k] * at.inner[f].gradient
        result = np.eye(len(zeta))
        result[self.coordinates] = self.basis @ of_y
        result[self.others] -= self.shear @ result[self.coordinates]
        return result

    def _by_log_square(self, zeta: Vector, squares: Vector) -> tuple[Vector, Vector]:
        """First and second derivative of y by the logarithm of its squared scale."""
        r, means, scales = self.moments(squares)
        t2, b, xi = squares[self.which], self.weights, zeta[self.coordinates]
        k = self.slopes - b * self.locations
        first = t2 * r * (self.slopes - b * means) + 0.5 * scales * r * xi
        second = t2 * r**2 * k * (1.0 - 2.0 * b * t2 * r) + 0.5 * scales * r**2 * (0.5 - b * t2) * xi
        return first, second

    def density(self, of_theta: Derivatives, zeta: Vector, at: SharedAt) -> Derivatives:
        """A log density of theta as one of zeta, with the Jacobian."""
        if not len(self.coordinates):
            return of_theta
        squares = squares_of(at)
        r, _, scales = self.moments(squares)
        t2, b = squares[self.which], self.weights
        first, second = self._by_log_square(zeta, squares)
        jacobian = self.slopes_at(zeta, at)
        own = of_theta.gradient[self.coordinates] - self.shear.T @ of_theta.gradient[self.others]
        own = self.basis.T @ own  # by y
        gradient, hessian = of_theta.gradient @ jacobian, jacobian.T @ of_theta.hessian @ jacobian
        for j, (place, f) in enumerate(zip(self.coordinates, self.which, strict=True)):
            mixed = own[j] * 0.5 * scales[j] * r[j] * at.inner[f].gradient
            hessian[place] += mixed
            hessian[:, place] += mixed
        for f, scale in enumerate(at.inner):
            of_f = self.which == f
            direct = 0.5 * r[of_f].sum()  # the log determinant is the sum of log(t2 r) / 2
            slope = (own * first)[of_f].sum() + direct
            square = (own * second)[of_f].sum() - 0.5 * (b * t2 * r**2)[of_f].sum()
            gradient = gradient + direct * scale.gradient
            hessian += square * np.outer(scale.gradient, scale.gradient) + slope * scale.hessian
        value = of_theta.value + float(np.log(scales).sum())
        return Derivatives(value, gradient, 0.5 * (hessian + hessian.T))


def squares_of(at: SharedAt) -> Vector:
    """Squared scales of the inner effects."""
    return np.exp(np.array([one.value for one in at.inner]))


def no_map() -> SharedMap:
    """The identity, where theta is its own coordinates."""
    nothing, places = np.zeros(0), np.zeros(0, np.int64)
    return SharedMap(places, places, nothing, nothing, nothing, np.zeros((0, 0)), places, np.zeros((0, 0)))


def shared_map(
    at: SharedAt, inner: list[Index], locations: list[Vector], information: Matrix, theta: Vector
) -> SharedMap:
    """The map whose means are theta at the scales there.

    Parameters
    ----------
    at : SharedAt
        At theta.
    inner : list of ndarray of int
        Coordinates of the inner effects.
    locations : list of ndarray
        Of their priors, at theta.
    information : ndarray (q, q)
        What the likelihood says of theta, and the priors of all but the inner effects. Zero for
        coordinates that enter neither.
    theta : ndarray (q,)
    """
    if not inner:
        return no_map()
    coordinates = np.concatenate(inner)
    which = np.repeat(np.arange(len(inner)), [len(one) for one in inner]).astype(np.int64)
    others = np.setdiff1d(np.flatnonzero(np.diag(information) > 0.0), coordinates)
    cross = information[np.ix_(others, coordinates)]
    shear = np.linalg.solve(information[np.ix_(others, others)], cross) if len(others) else cross
    left = information[np.ix_(coordinates, coordinates)] - cross.T @ shear
    basis, b = np.zeros_like(left), np.zeros(len(coordinates))
    for f in range(len(inner)):
        own = np.flatnonzero(which == f)
        values, vectors = np.linalg.eigh(left[np.ix_(own, own)])
        basis[np.ix_(own, own)], b[own] = vectors, np.maximum(values, 0.0)
    c, t2 = basis.T @ np.concatenate(locations), squares_of(at)[which]
    # Of what the likelihood does not say anything, the mean is that of the prior.
    a = np.where(b > 0.0, (basis.T @ theta[coordinates] * (1.0 + b * t2) - c) / t2, 0.0)
    return SharedMap(coordinates, which, a, b, c, basis, others, np.ascontiguousarray(shear))
