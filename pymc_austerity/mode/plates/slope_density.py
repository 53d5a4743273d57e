"""The groups' part of the Laplace marginal of theta with random slopes, and its derivatives.

It is log of the integral of exp(l(nu + C z)) N(z; 0, I) dz with l(e) = a . e - e' b e / 2. Under that
integrand z is N(zbar, V), and derivatives are moments: the gradient is the mean of that of l, the Hessian the
mean of that of l, and the covariance of its gradient. With z = zbar + x every derivative of l is
alpha + beta . x + x' Gamma x, of mean alpha + tr(Gamma V) and of covariances
beta' V beta + 2 tr(Gamma V Gamma V).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.mode.plates.group_means import locations
from pymc_austerity.target import Matrix, Vector


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
    value += _add_groups(sums, locations(sums, d), factor, precision, gradient, hessian)
    return value, gradient, 0.5 * (hessian + hessian.T)


@entry
def _add_groups(
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
