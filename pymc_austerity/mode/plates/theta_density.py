"""The Laplace marginal of theta: its prior, and the likelihood with the effects integrated out.

log p(theta) = log prior(theta) + quadratic(d, log tau^2, log lambda), as in `kernels.plates.coordinates`. A
group's part is log of the integral of exp(a e - b e^2 / 2) N(e; nu, tau^2) de with a = lambda a_g and
b = lambda b_g, so that its derivatives are moments of N(m, s^2).

*The groups' part of the Laplace marginal of theta with random slopes, and its derivatives.* It is log of the
integral of exp(l(nu + C z)) N(z; 0, I) dz with l(e) = a . e - e' b e / 2. Under that integrand z is N(zbar,
V), and derivatives are moments: the gradient is the mean of that of l, the Hessian the mean of that of l, and
the covariance of its gradient. With z = zbar + x every derivative of l is alpha + beta . x + x' Gamma x, of
mean alpha + tr(Gamma V) and of covariances beta' V beta + 2 tr(Gamma V Gamma V).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.mode.plates.effects_excess import EffectsExcess
from pymc_austerity.mode.plates.group_means import locations
from pymc_austerity.model.factorisation import Factorisation, vector_of
from pymc_austerity.model.graph.rewrite import INTERPRETED, INTERPRETED_STABLE
from pymc_austerity.model.plates.inner_effects import first_inner
from pymc_austerity.model.plates.plate_model import in_theta
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.model.structure.derivatives import Derivatives, not_smooth, symmetric, with_derivatives
from pymc_austerity.target import Index, Matrix, Vector


def quadratic_derivatives_with_slopes(
    sums: GroupSums, d: Vector, factor: Matrix, log_precision: float
) -> tuple[float, Vector, Matrix]:
    """`kernels.plates.slopes.quadratic_with_slopes` with derivatives by (d, C row by row, log lambda)."""
    n, q, precision = len(d), len(factor), float(np.exp(log_precision))
    n_local = q + q * (q + 1) // 2 + 1
    gradient, hessian = np.zeros(n + n_local - q), np.zeros((n + n_local - q, n + n_local - q))
    change = sums.information @ d
    own = float(sums.gradient @ d - 0.5 * d @ change - 0.5 * sums.squares)
    gradient[:n] = precision * (sums.gradient - change)
    gradient[-1] = precision * own + 0.5 * sums.n_normal
    hessian[:n, :n] = -precision * sums.information
    hessian[-1, :n] = hessian[:n, -1] = gradient[:n]
    hessian[-1, -1] = precision * own
    value = precision * own + 0.5 * sums.n_normal * log_precision
    value += _add_slopes(sums, locations(sums, d), factor, precision, gradient, hessian)
    return value, gradient, 0.5 * (hessian + hessian.T)


@entry
def _add_slopes(
    sums: GroupSums, nu: Vector, factor: Matrix, precision: float, gradient: Vector, hessian: Matrix
) -> float:
    q, n, total = factor.shape[0], sums.center.shape[0], 0.0
    n_local = q + q * (q + 1) // 2 + 1
    slope = np.zeros((q, n))
    alpha, beta = np.zeros(n_local), np.zeros((n_local, q))
    gamma, second = np.zeros((n_local, q, q)), np.zeros((n_local, n_local))
    for g in range(nu.shape[0] // q):
        own = slice(g * q, (g + 1) * q)
        b = precision * sums.curvatures[g * q * q : (g + 1) * q * q].copy().reshape((q, q))
        a, location = precision * sums.slopes[own], nu[own]
        slope[:] = 0.0
        for j in range(q):
            for k in range(sums.dense.shape[0]):
                slope[j, sums.dense[k]] += sums.means[g * q + j, k]
            for k in range(sums.moved.shape[0]):
                slope[j, sums.moved[k]] += sums.located[g * q + j, k]
        weighted = b @ factor
        inverse = np.eye(q) + factor.T @ weighted
        # Far out, where the search turns back, it overflows, or the identity is lost in rounding.
        determinant = np.linalg.det(inverse) if np.isfinite(np.sum(inverse)) else np.nan
        if not 0.0 < determinant < np.inf:
            return np.nan
        v = np.linalg.inv(inverse)
        pull = factor.T @ (a - b @ location)
        z = v @ pull
        e = location + factor @ z
        score = a - b @ e
        total += float(a @ location - 0.5 * location @ (b @ location) + 0.5 * pull @ z)
        total -= 0.5 * np.log(determinant)
        _write_local(a, b, factor, (weighted, z, e, score), (alpha, beta, gamma))
        _write_second(b, z, v, second)
        means = alpha.copy()
        for p in range(n_local):
            means[p] += np.sum(gamma[p] * v)
        for p in range(n_local):
            left, spread = v @ beta[p], v @ gamma[p] @ v
            for r in range(p + 1):
                second[p, r] += beta[r] @ left + 2.0 * np.sum(spread * gamma[r])
                if p == n_local - 1:
                    second[p, r] += means[r]
                second[r, p] = second[p, r]
        gradient[:n] += means[:q] @ slope
        gradient[n:] += means[q:]
        hessian[:n, :n] += slope.T @ (np.ascontiguousarray(second[:q, :q]) @ slope)
        cross = np.ascontiguousarray(second[q:, :q]) @ slope
        hessian[n:, :n] += cross
        hessian[:n, n:] += cross.T
        hessian[n:, n:] += second[q:, q:]
    return total


@entry
def _write_local(
    a: Vector,
    b: Matrix,
    factor: Matrix,
    at: tuple[Matrix, Vector, Vector, Vector],
    result: tuple[Vector, Matrix, npt.NDArray[np.float64]],
) -> None:
    """Write alpha, beta and Gamma of derivatives by nu, by C row by row, and by log lambda, for one group."""
    (weighted, z, e, score), (alpha, beta, gamma) = at, result
    q, place = z.shape[0], z.shape[0]
    gamma[:] = 0.0
    for j in range(q):
        alpha[j] = score[j]
        beta[j] = -weighted[j]
        for k in range(j + 1):
            alpha[place] = score[j] * z[k]
            beta[place] = -z[k] * weighted[j]
            beta[place, k] += score[j]
            for i in range(q):
                gamma[place, i, k] -= 0.5 * weighted[j, i]
                gamma[place, k, i] -= 0.5 * weighted[j, i]
            place += 1
    alpha[place] = a @ e - 0.5 * e @ (b @ e)
    beta[place] = factor.T @ score
    gamma[place] = -0.5 * factor.T @ weighted


@entry
def _write_second(b: Matrix, z: Vector, v: Matrix, second: Matrix) -> None:
    """Means of second derivatives of l by nu and C, below the diagonal; zeros for those by log lambda."""
    q, place = z.shape[0], z.shape[0]
    second[:] = 0.0
    second[:q, :q] = -b
    for j in range(q):
        for k in range(j + 1):
            for i in range(q):
                second[place, i] = -b[i, j] * z[k]
            other = q
            for i in range(q):
                for m in range(i + 1):
                    second[place, other] = -b[j, i] * (z[k] * z[m] + v[k, m])
                    other += 1
            place += 1


class SharedAt(NamedTuple):
    """Terms of theta alone, with gradient and Hessian each."""

    # prior, log_square, log_precision, shape: of log prior, log tau^2, log lambda, and the shape of the
    # effects' prior
    prior: Derivatives
    log_square: Derivatives
    log_precision: Derivatives
    shape: Derivatives
    inner: tuple[Derivatives, ...]  # Of the logarithms of squared scales of inner effects
    # With random slopes: of the Cholesky factor of the covariance of effects, row by row; tau is its first
    # element. Else empty.
    factor: tuple[Derivatives, ...]


class SharedTerms:
    """The terms of theta alone, and features of theta, with derivatives by theta.

    Parameters
    ----------
    shared : Factorisation
        See `PlateModel.shared`.
    point : dict of str to ndarray
        Values of all variables; those outside of theta stay there.
    n_effects : int
        Effects of a group, q.
    """

    def __init__(self, shared: Factorisation, point: Mapping[str, Any], n_effects: int = 1) -> None:
        self._fact = shared
        self._n_effects, self._first_inner = n_effects, first_inner(n_effects)
        self._n = len(vector_of(shared, point))
        self._point = shared.point_values(point)

    def __call__(self, theta: Vector) -> SharedAt:
        """All terms that depend on theta alone, with their gradients and Hessians."""
        with np.errstate(all="ignore"):
            found = self._derivatives(*self._point, theta, *self._fact.leaf_values)
        prior, log_square, log_precision, shape, *others = (
            symmetric(*found[k : k + 3]) for k in range(0, len(found), 3)
        )
        inner, factor = others[: self.n_inner], others[self.n_inner :]
        return SharedAt(prior, log_square, log_precision, shape, tuple(inner), tuple(factor))

    def given(self, point: Mapping[str, Any]) -> SharedTerms:
        """Terms with other values of the variables outside of theta; what is compiled is shared."""
        result = copy(self)
        result._point = self._fact.point_values(point)
        return result

    def name_of(self, k: int) -> str:
        """The variable that a coordinate of theta belongs to."""
        return self._fact.coordinate(k)[0]

    def tau_and_precision(self, theta: Vector) -> tuple[float, float]:
        """The scale tau and log lambda at theta."""
        found = self.features(theta)
        return float(found[0]), float(found[1])

    def factor_and_precision(self, theta: Vector) -> tuple[Matrix, float]:
        """The Cholesky factor of the covariance of effects, and log lambda."""
        features, q = self.features(theta), self._n_effects
        factor = np.zeros((q, q))
        factor[np.tril_indices(q)] = features[: self._first_inner - 2]
        return factor, float(features[self._first_inner - 2])

    def inner_scales(self, theta: Vector) -> Vector:
        """Scales of inner effects at theta."""
        return self.features(theta)[self._first_inner :]

    def features(self, theta: Vector) -> Vector:
        """Values of all features at theta: tau, log lambda, and scales of inner effects."""
        return np.asarray(self._values(*self._point, theta, *self._fact.leaf_values))

    @cached_property
    def _values(self) -> Any:
        theta = pt.vector("theta", shape=(self._n,))
        (features,) = in_theta(self._fact, [self._features], theta)
        return self._fact.compile(features, [theta], mode=INTERPRETED)

    @property
    def n_inner(self) -> int:
        """Number of inner effects."""
        return int(self._features.type.shape[0]) - self._first_inner

    @property
    def _features(self) -> Variable:
        assert self._fact.features is not None
        return self._fact.features

    @cached_property
    def _derivatives(self) -> Any:
        fact, theta = self._fact, pt.vector("theta", shape=(self._n,))
        features = [self._features[k] for k in range(self._first_inner + self.n_inner)]
        log_precision, shape, *inner = features[self._first_inner - 2 :]
        log_square, *squares = [2.0 * pt.log(pt.abs(one)) for one in (features[0], *inner)]
        factor = features[: self._first_inner - 2] if self._n_effects > 1 else []
        terms = [fact.global_graph, log_square, log_precision, shape, *squares, *factor]
        graphs = in_theta(fact, terms, theta)
        try:
            outputs = [one for graph in graphs for one in with_derivatives(graph, theta)]
        except NO_GRADIENT as error:
            raise not_smooth("The prior of the shared variables", error) from None
        return fact.compile(outputs, [theta], mode=INTERPRETED_STABLE)


@np.errstate(all="ignore")
def marginal(at: SharedAt, sums: GroupSums, theta: Vector, excess: EffectsExcess) -> Derivatives:
    """The log of the Laplace marginal, up to a constant."""
    prior, log_square, log_precision, shape = at[:4]
    d = theta[sums.linear] - sums.center
    if at.factor:
        value, gradient, hessian = likelihood_with_slopes(at, sums, d)
        return prior.plus(_by_theta(value, gradient, hessian, sums, (*at.factor, log_precision)))
    with np.errstate(all="ignore"):  # far out scales overflow, and the search turns back
        value, gradient, hessian = quadratic_derivatives(sums, d, log_square.value, log_precision.value)
        more = excess(sums, d, log_square.value, log_precision.value, float(shape.value))
    gradient = np.append(gradient, 0.0) + more.gradient
    hessian = np.pad(hessian, (0, 1)) + more.hessian
    features = (log_square, log_precision, shape)
    return prior.plus(_by_theta(value + more.value, gradient, hessian, sums, features))


def likelihood_with_slopes(at: SharedAt, sums: GroupSums, d: Vector) -> tuple[float, Vector, Matrix]:
    """The log likelihood with the effects integrated out, by d, the factor of effects and log lambda."""
    factor = np.zeros((sums.n_effects, sums.n_effects))
    factor[np.tril_indices(sums.n_effects)] = [one.value for one in at.factor]
    return quadratic_derivatives_with_slopes(sums, d, factor, at.log_precision.value)


def _by_theta(
    value: float, gradient: Vector, hessian: Matrix, sums: GroupSums, features: tuple[Derivatives, ...]
) -> Derivatives:
    """A function of d and features, as one of theta."""
    n_columns = len(sums.linear)
    jacobian = np.zeros((n_columns + len(features), len(features[0].gradient)))
    jacobian[np.arange(n_columns), sums.linear] = 1.0
    for row, feature in zip(jacobian[n_columns:], features, strict=True):
        row[:] = feature.gradient
    curved = sum(g * one.hessian for g, one in zip(gradient[n_columns:], features, strict=True))
    return Derivatives(value, gradient @ jacobian, jacobian.T @ hessian @ jacobian + curved)


def quadratic_derivatives(
    sums: GroupSums, d: Vector, log_square: float, log_precision: float
) -> tuple[float, Vector, Matrix]:
    """`kernels.plates.coordinates.quadratic` with derivatives by (d, log tau^2, log lambda)."""
    n_columns, precision = len(d), np.exp(log_precision)
    gradient, hessian = np.zeros(n_columns + 2), np.zeros((n_columns + 2, n_columns + 2))
    change = sums.information @ d
    own = float(sums.gradient @ d - 0.5 * d @ change - 0.5 * sums.squares)
    gradient[:n_columns] = precision * (sums.gradient - change)
    gradient[-1] = precision * own + 0.5 * sums.n_normal
    hessian[:n_columns, :n_columns] = -precision * np.tril(sums.information)
    hessian[-1, :n_columns] = gradient[:n_columns]
    hessian[-1, -1] = precision * own
    value = precision * own + 0.5 * sums.n_normal * log_precision
    value += _add_groups(sums, d, float(np.exp(log_square)), float(precision), gradient, hessian)
    return value, gradient, hessian + hessian.T - np.diag(np.diag(hessian))


@entry
def _add_groups(
    sums: GroupSums, d: Vector, t2: float, precision: float, gradient: Vector, hessian: Matrix
) -> float:
    """Add the groups' part; its value. Of the Hessian either triangle of an element is written to."""
    n_columns, total = d.shape[0], 0.0
    slope, own = np.zeros(n_columns), np.empty(n_columns, np.int64)
    seen = np.full(n_columns, -1)
    for g in range(sums.slopes.shape[0]):
        n = _slopes_of_location(sums, g, slope, own, seen)
        nu = sums.offsets[g]
        for k in own[:n]:
            nu += slope[k] * d[k]
        a, b = precision * sums.slopes[g], precision * sums.curvatures[g]
        r = 1.0 / (1.0 + b * t2)
        k_g, m, s2 = a - b * nu, (a * t2 + nu) * r, t2 * r
        total += 0.5 * r * (a * (a * t2 + 2.0 * nu) - b * nu * nu) + 0.5 * np.log(r)
        by_scale = 0.5 * t2 * (r * r * k_g * k_g - b * r)
        by_precision = a * m - 0.5 * b * (m * m + s2)
        for i in range(n):
            k = own[i]
            gradient[k] += r * k_g * slope[k]
            hessian[n_columns, k] -= t2 * r * r * b * k_g * slope[k]
            hessian[n_columns + 1, k] += r * r * k_g * slope[k]
            weighted = b * r * slope[k]
            if weighted != 0.0:
                for j in range(i + 1):
                    hessian[k, own[j]] -= weighted * slope[own[j]]
        gradient[n_columns] += by_scale
        gradient[n_columns + 1] += by_precision
        hessian[n_columns, n_columns] += by_scale + 0.5 * t2 * t2 * b * r * r * (b - 2.0 * r * k_g * k_g)
        hessian[n_columns + 1, n_columns] += 0.5 * t2 * r * r * (2.0 * r * k_g * k_g - b)
        hessian[n_columns + 1, n_columns + 1] += by_precision + s2 * (a - b * m) ** 2 + 0.5 * (b * s2) ** 2
    return total


@entry
def _slopes_of_location(sums: GroupSums, g: int, slope: Vector, own: Index, seen: Index) -> int:
    """Write the slopes of nu_g by d, and of which columns they are; the number of these."""
    n, n_factors = 0, sums.cells.n_factors
    first, last = sums.cells.starts[g * n_factors], sums.cells.starts[(g + 1) * n_factors]
    n_dense, n_moved = sums.dense.shape[0], sums.moved.shape[0]
    n_parents = 1 if sums.parents.shape[0] > 0 and sums.parents[g] >= 0 else 0
    for j in range(n_dense + n_moved + last - first + n_parents):
        if j < n_dense:
            k, value = sums.dense[j], sums.means[g, j]
        elif j < n_dense + n_moved:
            k, value = sums.moved[j - n_dense], sums.located[g, j - n_dense]
        elif j == n_dense + n_moved + last - first:
            k, value = sums.parents[g], 1.0
        else:
            c = first + j - n_dense - n_moved
            k, value = np.int64(sums.cells.columns[c]), sums.shares[c]
        if seen[k] != g:
            seen[k], slope[k], own[n] = g, 0.0, k
            n += 1
        slope[k] += value
    return n
