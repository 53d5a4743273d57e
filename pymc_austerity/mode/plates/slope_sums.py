"""Sums over the rows of a plate with random slopes: a_g, b_g, and x_i regressed on Z_i within each group."""

from __future__ import annotations

import numpy as np

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.mode.plates.sorted_rows import SortedRows
from pymc_austerity.target import Matrix, Vector

# A group whose weights nearly cancel is not expanded, and neither is one whose matrix b_g is not positive.
_LEAST_SHARE, _NEGATIVE = 0.25, 1e-9
# What is left of a covariate by the others in a group, squared and relative, below which it is nothing.
_NOTHING = 1e-12


@entry
def add_groups_with_slopes(
    rows: SortedRows,
    slopes: Vector,
    curvatures: Vector,
    of_groups: tuple[Vector, Vector, Matrix],
    of_all: tuple[Vector, Matrix, Vector],
) -> None:
    """Sums of groups, and of columns less their regression on Z_i (lower triangle).

    Parameters
    ----------
    rows : SortedRows
    slopes, curvatures : ndarray (N,)
        f_i' and f_i''; the latter are put to zero in groups that are not expanded.
    of_groups : tuple of ndarray (G q,), (G q q,), (G q, D)
        a_g, b_g and xbar_g are written.
    of_all : tuple of ndarray (D,), (D, D), (D,)
        Sums of f_i' z_i and w_i z_i z_i', and the largest |z_i|, are added to.
    """
    (a, b, means), (gradient, square, spread) = of_groups, of_all
    x, starts, n_columns, q = rows.x, rows.starts, rows.x.shape[1], rows.covariates.shape[1] + 1
    own, root = np.ones(q), np.zeros((q, q))
    gram, right, z = np.zeros((q, q)), np.zeros((q, n_columns)), np.zeros(n_columns)
    for g in range(starts.shape[0] - 1):
        size = 0.0
        gram[:] = 0.0
        for i in range(starts[g], starts[g + 1]):
            own[1:] = rows.covariates[i]
            size += abs(curvatures[i])
            for j in range(q):
                a[g * q + j] += slopes[i] * own[j]
                for k in range(q):
                    gram[j, k] -= curvatures[i] * own[j] * own[k]
        expanded = size > 0.0 and gram[0, 0] > _LEAST_SHARE * size
        expanded = expanded and factorise_singular(gram, root)
        if expanded:
            b[g * q * q : (g + 1) * q * q] = gram.ravel()
        else:
            gram[:] = 0.0
            for i in range(starts[g], starts[g + 1]):
                curvatures[i] = 0.0
                own[1:] = rows.covariates[i]
                for j in range(q):
                    for k in range(q):
                        gram[j, k] += own[j] * own[k]
            factorise_singular(gram, root)
        for _ in range(2):  # what is left is regressed once more, as rounding is not small
            right[:] = 0.0
            for i in range(starts[g], starts[g + 1]):
                own[1:] = rows.covariates[i]
                weight = -curvatures[i] if expanded else 1.0
                for c in range(n_columns):
                    left = x[i, c]
                    for j in range(q):
                        left -= means[g * q + j, c] * own[j]
                    for j in range(q):
                        right[j, c] += weight * own[j] * left
            solve_singular(root, right)
            means[g * q : (g + 1) * q] += right
        for i in range(starts[g], starts[g + 1]):
            own[1:] = rows.covariates[i]
            for c in range(n_columns):
                z[c] = x[i, c]
                for j in range(q):
                    z[c] -= means[g * q + j, c] * own[j]
                spread[c] = max(spread[c], abs(z[c]))
                gradient[c] += slopes[i] * z[c]
            for c in range(n_columns):
                weighted = -curvatures[i] * z[c]
                for k in range(c + 1):
                    square[c, k] += weighted * z[k]


@entry
def factorise_singular(matrix: Matrix, root: Matrix) -> bool:
    """Write the Cholesky factor, with zeros for columns that depend on others; False if it has none."""
    root[:] = 0.0
    for j in range(matrix.shape[0]):
        for k in range(j + 1):
            total = matrix[j, k]
            for i in range(k):
                total -= root[j, i] * root[k, i]
            if j > k:
                root[j, k] = total / root[k, k] if root[k, k] > 0.0 else 0.0
            elif total > _NOTHING * matrix[j, j]:
                root[j, j] = np.sqrt(total)
            elif total < -_NEGATIVE * matrix[j, j] or matrix[j, j] < 0.0:
                return False
    return True


@entry
def solve_singular(root: Matrix, right: Matrix) -> None:
    """Write a solution of R R' x = right over `right`, for a root of `factorise_singular`."""
    q = root.shape[0]
    for c in range(right.shape[1]):
        for j in range(q):
            for i in range(j):
                right[j, c] -= root[j, i] * right[i, c]
            right[j, c] = right[j, c] / root[j, j] if root[j, j] > 0.0 else 0.0
        for back in range(q):
            j = q - 1 - back
            for i in range(j + 1, q):
                right[j, c] -= root[i, j] * right[i, c]
            right[j, c] = right[j, c] / root[j, j] if root[j, j] > 0.0 else 0.0
