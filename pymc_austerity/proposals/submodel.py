"""The coordinates of a sub-model, proposed from the expansion of the log likelihood at the full model's mode.

The log likelihood, with the priors of all but the coefficients, is close to b . x - x . H x / 2. A
coefficient that is not in the model enters it as zero. So the log posterior of a sub-model with coordinates S
is close to

    (b_S + s m) . x_S - x_S . (H_SS + diag(s)) x_S / 2,

with the precisions s of the slabs of its coefficients, and their locations m: a normal distribution that
takes O(k^3) to find, and no data. Proposed is a multivariate t distribution, which is wider than it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.proposals.slab import slab_precision
from pymc_austerity.target import Index, Vector

# Degrees of freedom of what is proposed: slabs may have heavier tails than a normal distribution.
DEGREES = 8.0
# Its scale over that of the normal distribution.
INFLATION = 1.1


class Submodel(NamedTuple):
    """The normal distribution of the coordinates of a sub-model.

    Attributes
    ----------
    coordinates : ndarray of int, shape (k,)
        Which they are: coefficients that are in the model, and all other continuous variables.
    mean : ndarray of shape (k,)
    lower : ndarray of shape (k, k)
        L with L L' the precision.
    """

    coordinates: Index
    mean: Vector
    lower: npt.NDArray[np.float64]


@jitable
def coordinates_of(gamma: Vector, n_dim: int) -> Index:
    """Coordinates of the sub-model: coefficients j with gamma_j = 1, and what follows the coefficients."""
    p, k = len(gamma), 0
    result = np.empty(n_dim, dtype=np.int64)
    for j in range(n_dim):
        if j >= p or gamma[j] != 0.0:
            result[k] = j
            k += 1
    return result[:k].copy()


@jitable
def submodel(
    linear: Vector, precision: npt.NDArray[np.float64], family: int, slab: Vector, coordinates: Index
) -> Submodel:
    """The distribution of some coordinates where all coefficients that are not among them are zero.

    Parameters
    ----------
    linear, precision : ndarray of shape (d,) and (d, d)
        b and H.
    family : int
    slab : ndarray of shape (3 p,)
    coordinates : ndarray of int, shape (k,)
    """
    k, p = len(coordinates), len(slab) // 3
    own, right = np.empty((k, k)), np.empty(k)
    for a in range(k):
        i = coordinates[a]
        right[a] = linear[i]
        for b in range(k):
            own[a, b] = precision[i, coordinates[b]]
        if i < p:
            s = slab_precision(family, slab, i)
            own[a, a] += s
            right[a] += s * slab[i]
    lower = cholesky(own)
    return Submodel(coordinates, solve_transposed(lower, solve(lower, right)), lower)


@jitable
def drawn(own: Submodel, rng: np.random.Generator) -> Vector:
    """A draw of the wider t distribution."""
    z = rng.standard_normal(len(own.mean))
    # A number with the distribution of chi squared, over its degrees of freedom.
    spread = INFLATION / math.sqrt(2.0 * rng.standard_gamma(0.5 * DEGREES) / DEGREES)
    return own.mean + spread * solve_transposed(own.lower, z)


@jitable
def log_density(own: Submodel, x: Vector) -> float:
    """Log density of the wider t distribution."""
    k = len(x)
    log_det = square = 0.0
    for a in range(k):
        log_det += math.log(own.lower[a, a])
        total = 0.0
        for b in range(a, k):
            total += own.lower[b, a] * (x[b] - own.mean[b])
        square += total * total
    return log_t(square / (INFLATION * INFLATION), k) + log_det - k * math.log(INFLATION)


@jitable
def log_t(square: float, k: int) -> float:
    """Log density of the standard t distribution in k dimensions, at a squared distance from its centre."""
    constant = math.lgamma(0.5 * (DEGREES + k)) - math.lgamma(0.5 * DEGREES)
    return (
        constant - 0.5 * k * math.log(DEGREES * math.pi) - 0.5 * (DEGREES + k) * math.log1p(square / DEGREES)
    )


@jitable
def given_the_others(
    linear: Vector,
    precision: npt.NDArray[np.float64],
    family: int,
    slab: Vector,
    coordinates: Index,
    i: int,
    x: Vector,
) -> Submodel:
    """The distribution of coordinate i of a sub-model, given its others, whose values are in x (d,).

    With i = -1 that of no coordinate at all.
    """
    if i < 0:
        return Submodel(np.empty(0, dtype=np.int64), np.empty(0), np.empty((0, 0)))
    p = len(slab) // 3
    own, right = precision[i, i], linear[i]
    if i < p:
        s = slab_precision(family, slab, i)
        own += s
        right += s * slab[i]
    for j in coordinates:
        if j != i:
            right -= precision[i, j] * x[j]
    return Submodel(np.full(1, i), np.full(1, right / own), np.full((1, 1), math.sqrt(own)))


@jitable
def cholesky(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """L with L L' a positive definite matrix; written out, so that all backends round alike."""
    n = len(matrix)
    lower = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            lower[i, j] = math.sqrt(total) if i == j else total / lower[j, j]
    return lower


@jitable
def solve(lower: npt.NDArray[np.float64], right: Vector) -> Vector:
    """L^-1 times a vector."""
    result = right.copy()
    for i in range(len(right)):
        for k in range(i):
            result[i] -= lower[i, k] * result[k]
        result[i] /= lower[i, i]
    return result


@jitable
def solve_transposed(lower: npt.NDArray[np.float64], right: Vector) -> Vector:
    """L'^-1 times a vector."""
    n = len(right)
    result = right.copy()
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            result[i] -= lower[k, i] * result[k]
        result[i] /= lower[i, i]
    return result
