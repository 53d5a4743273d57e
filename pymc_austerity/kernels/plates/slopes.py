"""Coordinates of a plate with random slopes: e_g is a vector of q levels, and rows have Z_i . e_g.

The notation is that of `coordinates`, with vectors and matrices for numbers: u_g ~ N(loc_g, C C') with C
lower triangular, b_g = sum of w_i Z_i Z_i', a_g = sum of f_i' Z_i, and xbar_g is a matrix, the regression of
x_i on Z_i weighted by w_i within the group. So z_i = x_i - xbar_g' Z_i has no product with Z_i in the sum
over the group, and neither has e with d. With k = a - b nu and I + C' b C = R R'

    m_g = nu_g + C R'^-1 R^-1 C' k,    S_g = F F',    F = C R'^-1,
    z_g = C^-1 (u_g - loc_g) = R'^-1 (R^-1 C' k + eps_g),

of which nothing is lost as C goes to 0. Groups' part of the log density of theta is

    a . nu - nu' b nu / 2 + |R^-1 C' k|^2 / 2 - log det R,

and the Jacobian of eps_g -> e_g is det F. Vectors of all groups are written one after the other.
"""

import math

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.coordinates import locations, prior_locations, quadratic_of_shared
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.target import Matrix, Vector


@jitable
def scale_factor(features: Vector, q: int) -> Matrix:
    """C, from the features of theta."""
    factor, place = np.zeros((q, q)), 0
    for j in range(q):
        for k in range(j + 1):
            factor[j, k] = features[place]
            place += 1
    return factor


@jitable
def factorise(curvatures: Vector, g: int, factor: Matrix, weighted: Matrix, root: Matrix) -> None:
    """Write b C, and R with R R' = I + C' b C; `curvatures` are those of all groups."""
    q = factor.shape[0]
    for j in range(q):
        for k in range(q):
            weighted[j, k] = 0.0
            for i in range(k, q):
                weighted[j, k] += curvatures[(g * q + j) * q + i] * factor[i, k]
    for j in range(q):
        for k in range(j + 1):
            total = 1.0 if j == k else 0.0
            for i in range(j, q):
                total += factor[i, j] * weighted[i, k]
            for i in range(k):
                total -= root[j, i] * root[k, i]
            root[j, k] = math.sqrt(total) if j == k else total / root[k, k]


@jitable
def pulled(slopes: Vector, g: int, nu: Vector, factor: Matrix, of: tuple[Matrix, Matrix], y: Vector) -> None:
    """Write y = R^-1 C' (a - b nu); `of` are b C and R."""
    weighted, root = of
    q = y.shape[0]
    for j in range(q):
        total = 0.0
        for i in range(q):
            total -= weighted[i, j] * nu[g * q + i]
        for i in range(j, q):
            total += factor[i, j] * slopes[g * q + i]
        for i in range(j):
            total -= root[j, i] * y[i]
        y[j] = total / root[j, j]


@jitable
def solve_upper(root: Matrix, y: Vector) -> None:
    """Write R'^-1 y over y."""
    q = y.shape[0]
    for back in range(q):
        j = q - 1 - back
        for i in range(j + 1, q):
            y[j] -= root[i, j] * y[i]
        y[j] /= root[j, j]


@jitable
def quadratic_with_slopes(
    sums: GroupSums,
    d: Vector,
    factor: Matrix,
    log_precision: float,
    nus: Vector,
    means: Vector,
    scales: Vector,
) -> float:
    """The part of log p(theta) that comes from the likelihood; nu_g, m_g and F_g are written."""
    q, precision = factor.shape[0], math.exp(log_precision)
    total = quadratic_of_shared(sums, d, log_precision)
    slopes, curvatures = sums.slopes, sums.curvatures
    if log_precision != 0.0:
        slopes, curvatures = precision * slopes, precision * curvatures
    weighted, root, y = np.zeros((q, q)), np.zeros((q, q)), np.zeros(q)
    locations(sums, d, nus)
    means[:] = nus
    for g in range(means.shape[0] // q):
        factorise(curvatures, g, factor, weighted, root)
        pulled(slopes, g, nus, factor, (weighted, root), y)
        determinant = 1.0
        for j in range(q):
            nu = means[g * q + j]
            total += slopes[g * q + j] * nu + 0.5 * y[j] * y[j]
            determinant *= root[j, j]
            for k in range(q):
                total -= 0.5 * nu * curvatures[(g * q + j) * q + k] * means[g * q + k]
        total -= math.log(determinant)
        solve_upper(root, y)
        for j in range(q):
            for k in range(j + 1):
                means[g * q + j] += factor[j, k] * y[k]
            for k in range(q):
                f = factor[j, k]
                for i in range(k):
                    f -= root[k, i] * scales[(g * q + j) * q + i]
                scales[(g * q + j) * q + k] = f / root[k, k]
    return total


@jitable
def standardised_with_slopes(sums: GroupSums, d: Vector, factor: Matrix, effects: Vector, z: Vector) -> None:
    """Write z_g = C^-1 (u_g - loc_g)."""
    q, base = factor.shape[0], sums.effects
    prior_locations(sums, d, z)
    for g in range(z.shape[0] // q):
        for j in range(q):
            own = effects[g * q + j] - base[g * q + j] - z[g * q + j]
            for k in range(j):
                own -= factor[j, k] * z[g * q + k]
            z[g * q + j] = own / factor[j, j]


@jitable
def effects_with_slopes(sums: GroupSums, d: Vector, factor: Matrix, z: Vector, effects: Vector) -> None:
    """Write u_g = loc_g + C z_g."""
    q, base = factor.shape[0], sums.effects
    prior_locations(sums, d, effects)
    for g in range(z.shape[0] // q):
        for j in range(q):
            own = 0.0
            for k in range(j + 1):
                own += factor[j, k] * z[g * q + k]
            effects[g * q + j] += base[g * q + j] + own


@jitable
def eps_with_slopes(
    sums: GroupSums, d: Vector, factor: Matrix, log_precision: float, z: Vector, eps: Vector
) -> None:
    """Write eps_g of the standardised effects z_g, vectors of q numbers."""
    q, precision = factor.shape[0], math.exp(log_precision)
    slopes, curvatures = precision * sums.slopes, precision * sums.curvatures
    locations(sums, d, eps)
    weighted, root, y = np.zeros((q, q)), np.zeros((q, q)), np.zeros(q)
    for g in range(eps.shape[0] // q):
        factorise(curvatures, g, factor, weighted, root)
        pulled(slopes, g, eps, factor, (weighted, root), y)
        for j in range(q):
            eps[g * q + j] = -y[j]
            for k in range(j, q):
                eps[g * q + j] += root[k, j] * z[g * q + k]


@jitable
def standardised_from_eps_with_slopes(
    sums: GroupSums, factor: Matrix, log_precision: float, nu: Vector, eps: Vector, z: Vector
) -> None:
    """Write standardised effects z_g of eps_g, vectors of q numbers."""
    q, precision = factor.shape[0], math.exp(log_precision)
    slopes, curvatures = precision * sums.slopes, precision * sums.curvatures
    weighted, root, y = np.zeros((q, q)), np.zeros((q, q)), np.zeros(q)
    for g in range(eps.shape[0] // q):
        factorise(curvatures, g, factor, weighted, root)
        pulled(slopes, g, nu, factor, (weighted, root), y)
        for j in range(q):
            y[j] += eps[g * q + j]
        solve_upper(root, y)
        for j in range(q):
            z[g * q + j] = y[j]


@jitable
def levels_of(q: int, means: Vector, scales: Vector, eps: Vector, levels: Vector) -> None:
    """Write e_g = m_g + F_g eps_g."""
    if q == 1:  # numbers, for which loops of one step take as long again
        for g in range(eps.shape[0]):
            levels[g] = means[g] + scales[g] * eps[g]
        return
    for g in range(eps.shape[0] // q):
        for j in range(g * q, (g + 1) * q):
            levels[j] = means[j]
            for k in range(q):
                levels[j] += scales[j * q + k] * eps[g * q + k]


@jitable
def lengths_of_pair(norms: Matrix, g: int, levels: Vector, new_levels: Vector) -> tuple[float, float, float]:
    """Lengths of A_g e in two states: the farther, the root of the mean square, and the change's."""
    q = norms.shape[1]
    old, new, both, change = 0.0, 0.0, 0.0, 0.0
    for j in range(g * q, (g + 1) * q):
        e, e_new = 0.0, 0.0
        for k in range(q):
            e += norms[j, k] * levels[g * q + k]
            e_new += norms[j, k] * new_levels[g * q + k]
        old += e * e
        new += e_new * e_new
        both += e * e_new
        change += (e_new - e) * (e_new - e)
    mean_square = max(old + new + both, 0.0) / 3.0
    return math.sqrt(max(old, new)), math.sqrt(mean_square), math.sqrt(change)
