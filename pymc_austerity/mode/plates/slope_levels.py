"""Levels of groups given theta, N(m_g, S_g): of numbers, and of vectors where there are random slopes."""

import numpy as np

from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.target import Array, Matrix, Vector


def given_theta(sums: GroupSums, nu: Vector, factor: Matrix, precision: float) -> tuple[Vector, Array]:
    """m_g, all one after the other, and F_g (G, q, q) with S_g = F_g F_g'.

    Parameters
    ----------
    sums : GroupSums
    nu : ndarray (G q,)
        Locations of the prior.
    factor : ndarray (q, q)
        Cholesky factor of its covariance.
    precision : float
        By which all sums are multiplied.
    """
    q = sums.n_effects
    b, a, nu = precision * curvature_matrices(sums), precision * sums.slopes.reshape(-1, q), nu.reshape(-1, q)
    root = np.linalg.cholesky(np.eye(q) + factor.T @ b @ factor)
    pull = (a - np.einsum("gjk,gk->gj", b, nu)) @ factor
    y = np.linalg.solve(root, pull[:, :, None])
    scales = factor @ np.linalg.inv(root).transpose(0, 2, 1)
    return (nu + (scales @ y)[:, :, 0]).ravel(), scales


def curvature_matrices(sums: GroupSums) -> Array:
    """Curvature matrices b_g of all groups, (G, q, q)."""
    q = sums.n_effects
    return sums.curvatures.reshape(-1, q, q)


def scaled_eps(sums: GroupSums, scales: Array, eps: Array) -> Array:
    """Levels of all groups without their means: s_g eps_g, or F_g eps_g."""
    if sums.n_effects == 1:
        return scales * eps
    found: Array = np.einsum("gjk,gk->gj", scales, eps.reshape(len(scales), -1)).ravel()
    return found


def unscaled(sums: GroupSums, scales: Array, levels: Vector) -> Vector:
    """Levels before scaling: the inverse of `scaled_eps`."""
    if sums.n_effects == 1:
        return levels / scales
    found: Vector = np.linalg.solve(scales, levels.reshape(len(scales), -1, 1)).ravel()
    return found


def times_curvatures(sums: GroupSums, levels: Vector) -> Vector:
    """Products b_g e_g of curvatures and levels, of all groups."""
    if sums.n_effects == 1:
        return sums.curvatures * levels
    found: Vector = np.einsum(
        "gjk,gk->gj", curvature_matrices(sums), levels.reshape(-1, sums.n_effects)
    ).ravel()
    return found


def by_groups(effects: Vector, n_vectors: int) -> Vector:
    """Effects of each group one after the other, from so many vectors of effects."""
    return effects.reshape(n_vectors, -1).T.ravel()


def by_effects(effects: Vector, n_vectors: int) -> Vector:
    """Levels in the order of effects: the inverse of `by_groups`."""
    return effects.reshape(-1, n_vectors).T.ravel()
