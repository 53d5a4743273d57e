"""Sums over rows of derivatives by phi, the numbers that all rows of a plate share beside their predictor.

Rows are f_i(eta_i + t_i, phi* + psi), with psi = F d. Let A_g be the sum over a group of the derivatives of
f_i' by phi, and tilt_g = -A_g / b_g. Where xbar_g . d has tilt_g . psi besides, e_g is again the level that
the rows of its group see: the polynomial has no product of e_g and psi. A column of F is zero in the design,
and has the mean tilt_g: z_i . d is then all by which a predictor moves, but for e_g.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.plates.records import DispersionRows
from pymc_austerity.mode.plates.sorted_rows import SortedRows
from pymc_austerity.target import Matrix, Vector


class DispersionSums(NamedTuple):
    """Sums over rows by n numbers phi, which a plate has besides."""

    tilts: Matrix  # (G, n)
    slopes: Vector  # (n,): sum of the derivatives by phi
    hessian: Matrix  # (n, n): sum of second derivatives
    squares: Matrix  # (n, n): sum of products of first derivatives
    mixed: Matrix  # (n, P): sum of the derivatives of f_i' by phi times x_i - xbar_g


def no_dispersions(n: int, n_rows: int) -> DispersionRows:
    """Room for derivatives of rows."""
    return DispersionRows(np.empty((n, n_rows)), np.empty((n, n_rows)), np.empty((n * (n + 1) // 2, n_rows)))


def dispersion_sums(
    of_rows: DispersionRows, rows: SortedRows, weights: Vector, means: Matrix, shares: Vector, n_columns: int
) -> DispersionSums:
    """Sums over rows of derivatives by the dispersions phi.

    Parameters
    ----------
    of_rows : DispersionRows
        Derivatives of f_i' by phi are put to zero in groups that are not expanded.
    rows : SortedRows
    weights : ndarray (G,)
        b_g.
    means : ndarray (G, D)
        Of dense columns.
    shares : ndarray (C,)
        Means of the columns of cells.
    n_columns : int
        P.
    """
    n, n_groups = len(of_rows.slopes), len(weights)
    tilts, dense, mixed = np.zeros((n_groups, n)), np.zeros((n, means.shape[1])), np.zeros((n, n_columns))
    _add_mixed(of_rows, rows, (weights, means, shares), tilts, (dense, mixed))
    mixed[:, rows.dense] += dense
    hessian, place = np.zeros((n, n)), 0
    for j in range(n):
        for k in range(j, n):
            total = of_rows.seconds[place].sum()
            hessian[j, k] = hessian[k, j] = 2.0 * total if j == k else total
            place += 1
    return DispersionSums(
        tilts, of_rows.slopes.sum(axis=1), hessian, of_rows.slopes @ of_rows.slopes.T, mixed
    )


@entry
def _add_mixed(
    of_rows: DispersionRows,
    rows: SortedRows,
    of_groups: tuple[Vector, Matrix, Vector],
    tilts: Matrix,
    result: tuple[Matrix, Matrix],
) -> None:
    """Tilts, and sums of mixed derivatives times columns about the means of their groups."""
    (weights, means, shares), (dense, levels) = of_groups, result
    mixed, n_factors = of_rows.mixed, rows.cells.n_factors
    for j in range(mixed.shape[0]):
        for g in range(weights.shape[0]):
            total = 0.0
            for i in range(rows.starts[g], rows.starts[g + 1]):
                if weights[g] == 0.0:
                    mixed[j, i] = 0.0
                total += mixed[j, i]
                for k in range(means.shape[1]):
                    dense[j, k] += mixed[j, i] * (rows.x[i, k] - means[g, k])
                for f in range(n_factors):
                    levels[j, rows.levels[f, i]] += mixed[j, i]
            for c in range(rows.cells.starts[g * n_factors], rows.cells.starts[(g + 1) * n_factors]):
                levels[j, rows.cells.columns[c]] -= shares[c] * total
            if weights[g] > 0.0:
                tilts[g, j] = -total / weights[g]


def with_dispersions(
    sums: DispersionSums, slopes: Matrix, of_groups: tuple[Vector, Vector], polynomial: tuple[Vector, Matrix]
) -> tuple[Vector, Matrix, Matrix]:
    """The gradient c and the information W with phi, and what W lacks of being positive definite.

    Parameters
    ----------
    sums : DispersionSums
    slopes : ndarray (n, P)
        F.
    of_groups : tuple of ndarray (G,)
        a_g and b_g.
    polynomial : tuple
        c and W without phi.

    Returns
    -------
    gradient : ndarray (P,)
    information, missing : ndarray (P, P)
        Far from the mode second derivatives by phi may have either sign. With `missing` added those of each
        number are at least sums of squares of first derivatives, which is what they are near at the mode.
    """
    (a, b), (gradient, information) = of_groups, polynomial
    curved = sums.hessian + (sums.tilts * b[:, None]).T @ sums.tilts
    cross = sums.mixed.T @ slopes
    gradient = gradient + (sums.slopes - a @ sums.tilts) @ slopes
    information = information - cross - cross.T - slopes.T @ curved @ slopes
    missing = np.maximum(np.diag(sums.squares + curved), 0.0)
    return gradient, information, (slopes.T * missing) @ slopes
