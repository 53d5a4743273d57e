"""The second-order expansion of the log likelihood of a plate: sums over rows, in a pass over all of them.

*Sums over the rows of a plate of columns of levels of other factors, about the means of groups.* Such a
column has a one where a row has the level. Its mean over a group is the share s of its cell, and sums of
products are sums over cells. A factor that has one level in a group does not vary there, and adds nothing.

*Sums over rows of derivatives by phi, the numbers that all rows of a plate share beside their predictor.*
Rows are f_i(eta_i + t_i, phi* + psi), with psi = F d. Let A_g be the sum over a group of the derivatives of
f_i' by phi, and tilt_g = -A_g / b_g. Where xbar_g . d has tilt_g . psi besides, e_g is again the level that
the rows of its group see: the polynomial has no product of e_g and psi. A column of F is zero in the design,
and has the mean tilt_g: z_i . d is then all by which a predictor moves, but for e_g.
"""

from typing import NamedTuple

import numpy as np

from pymc_austerity import work
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for, run_at_points
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.kernels.plates.cells import Cells
from pymc_austerity.kernels.plates.records import DispersionRows
from pymc_austerity.mode.plates.group_means import of_cells
from pymc_austerity.mode.plates.sorted_rows import SortedRows
from pymc_austerity.target import Index, Matrix, Vector


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


# Sums over the rows of a plate with random slopes: a_g, b_g, and x_i regressed on Z_i within each group.

# A group whose weights nearly cancel is not expanded, and neither is one whose matrix b_g is not positive.
_LEAST_SHARE = 0.25
_NEGATIVE = 1e-9
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


@entry
def add_levels(
    rows: SortedRows,
    slopes: Vector,
    curvatures: Vector,
    of_groups: tuple[Vector, Vector, Vector],
    of_all: tuple[Vector, Matrix],
) -> None:
    """Write shares of cells that are not all of their group, and add to the gradient and the information.

    Of the information either triangle of an element is written to. Sums of groups are known already, and
    curvatures are zero in those that are not expanded.
    """
    (a, b, shares), (gradient, information) = of_groups, of_all
    cells, n_factors = rows.cells, rows.cells.n_factors
    weight, slope = np.zeros(gradient.shape[0]), np.zeros(gradient.shape[0])
    for g in range(a.shape[0]):
        first, last = rows.starts[g], rows.starts[g + 1]
        total = b[g] if b[g] > 0.0 else float(last - first)
        for f in range(n_factors):
            begin, end = cells.starts[g * n_factors + f], cells.starts[g * n_factors + f + 1]
            if end - begin < 2:
                continue
            for i in range(first, last):
                weight[rows.levels[f, i]] -= curvatures[i] if b[g] > 0.0 else -1.0
                slope[rows.levels[f, i]] += slopes[i]
            for c in range(begin, end):
                k = cells.columns[c]
                shares[c] = weight[k] / total
                gradient[k] += slope[k] - a[g] * shares[c]
                information[k, k] += b[g] * shares[c]
                weight[k] = slope[k] = 0.0
                for other in range(begin, c + 1):
                    information[k, cells.columns[other]] -= b[g] * shares[c] * shares[other]
            for e in range(f):
                before, after = cells.starts[g * n_factors + e], cells.starts[g * n_factors + e + 1]
                if after - before < 2:
                    continue
                for i in range(first, last):
                    information[rows.levels[f, i], rows.levels[e, i]] -= curvatures[i]
                for c in range(begin, end):
                    for other in range(before, after):
                        product = shares[c] * shares[other]
                        information[cells.columns[c], cells.columns[other]] -= b[g] * product


# A column varies within groups if it does by this much, relative to its largest number; beside slopes, if
# this much is left of it by a regression.
_CONSTANT, _LEFT = 1e-12, 1e-9
# Operations of a pass for a row, for a number of it, and for a product of two.
_OF_ROW, _OF_NUMBER, _OF_PRODUCT = 100.0, 5.0, 0.25


class Expanded(NamedTuple):
    """Rows at a center, and sums over them. It has size N."""

    # predictors, slopes, curvatures (N,): eta_i, f_i' and f_i''; the last is zero in groups that are not
    # expanded
    predictors: Vector
    slopes: Vector
    curvatures: Vector
    dispersions: DispersionRows
    # group_slopes, group_weights (G,): a_g and b_g
    group_slopes: Vector
    group_weights: Vector
    means: Matrix  # (G, D): xbar_g, of dense columns
    cells: Cells  # Of levels of other factors
    shares: Vector  # (C,): xbar_g of the cells' columns
    gradient: Vector  # (P,): c
    information: Matrix  # (P, P): W
    missing: Matrix  # (P, P): what W lacks of being positive definite, far from the mode (`with_dispersions`)
    varying: Index  # (V,): dense columns that vary within groups
    # value, largest: the sum of f_i, and the largest |f_i|
    value: float
    largest: float
    squares: float  # Sum of (f_i')^2


def expand(
    expression: Expression, rows: SortedRows, beta: Vector, effects: Vector, phi: tuple[Vector, Matrix]
) -> Expanded:
    """Expand about beta and the effects, two passes over the rows.

    Parameters
    ----------
    expression : Expression
        f, of one predictor and of phi.
    rows : SortedRows
    beta : ndarray (P,)
    effects : ndarray (G,)
        u_g.
    phi : tuple of ndarray (n,), (n, P)
        Numbers that rows share beside their predictor, and their slopes by beta.
    """
    n, n_dense, n_levels, n_columns = len(rows.offsets), len(rows.dense), len(effects), len(beta)
    q = rows.covariates.shape[1] + 1
    n_phi = len(phi[0])
    work.spend(n * (_OF_ROW + _OF_NUMBER * n_dense + _OF_PRODUCT * (n_dense + q) ** 2), "The fit of a plate")
    program = tape_of(expression, 1 + n_phi, 2)
    predictors = predictors_at(rows, beta, effects)
    slopes, curvatures, dispersions = np.empty(n), np.empty(n), no_dispersions(n_phi, n)
    derivatives = slopes, curvatures, dispersions
    inputs = with_phi(predictors, phi[0])
    value, largest = _evaluate(program, points_for(program), inputs, rows.data, derivatives)
    a, b, means = np.zeros(n_levels), np.zeros(n_levels * q), np.zeros((n_levels, n_dense))
    own, square = np.zeros(n_dense), np.zeros((n_dense, n_dense))
    spread, cross = np.zeros(n_dense), np.zeros((n_columns, n_dense))
    if q == 1:
        _add_groups(rows, slopes, curvatures, (a, b, means), (own, square, cross, spread))
    else:
        add_groups_with_slopes(rows, slopes, curvatures, (a, b, means), (own, square, spread))
    shares = np.ones(len(rows.cells.columns))
    gradient, information = np.zeros(n_columns), np.zeros((n_columns, n_columns))
    if q == 1:
        add_levels(rows, slopes, curvatures, (a, b, shares), (gradient, information))
    varying = np.flatnonzero(spread > (_CONSTANT if q == 1 else _LEFT) * rows.largest)
    for part in (own, square, square.T, cross.T):  # of what is constant within groups rounding is left
        part[np.setdiff1d(np.arange(n_dense), varying)] = 0.0
    gradient[rows.dense] = own
    information[np.ix_(rows.dense, rows.dense)] = square
    information[:, rows.dense] += cross
    information += information.T
    information[np.diag_indices(n_columns)] *= 0.5
    missing = np.zeros_like(information)
    if n_phi:
        of_phi = dispersion_sums(dispersions, rows, b, means, shares, n_columns)
        gradient, information, missing = with_dispersions(of_phi, phi[1], (a, b), (gradient, information))
        means += (of_phi.tilts @ phi[1])[:, rows.dense]
    varying = np.union1d(varying, np.flatnonzero(phi[1][:, rows.dense].any(axis=0)))
    return Expanded(
        predictors, slopes, curvatures, dispersions, a, b, means, rows.cells, shares, gradient, information,
        missing, varying, value, largest, float(slopes @ slopes),
    )  # fmt: skip


def with_phi(predictors: Vector, phi: Vector) -> Matrix:
    """Arguments of f for each row: predictor and numbers phi, (1 + n, N)."""
    if not len(phi):  # without a copy
        return predictors[None]
    return np.vstack([predictors, np.broadcast_to(phi[:, None], (len(phi), len(predictors)))])


def predictors_at(rows: SortedRows, beta: Vector, effects: Vector) -> Vector:
    """Linear predictors eta_i of all rows."""
    predictors = np.empty(len(rows.offsets))
    _set_predictors(rows, beta[rows.dense], beta, effects, predictors)
    return predictors


@entry
def _set_predictors(rows: SortedRows, dense: Vector, beta: Vector, effects: Vector, result: Vector) -> None:
    q = rows.covariates.shape[1] + 1
    for g in range(rows.starts.shape[0] - 1):
        for i in range(rows.starts[g], rows.starts[g + 1]):
            total = rows.offsets[i] + effects[g * q]
            for k in range(q - 1):
                total += rows.covariates[i, k] * effects[g * q + 1 + k]
            for k in range(dense.shape[0]):
                total += rows.x[i, k] * dense[k]
            for f in range(rows.levels.shape[0]):
                total += beta[rows.levels[f, i]]
            result[i] = total


@entry
def _evaluate(
    program: Tape,
    points: Points,
    predictors: Matrix,
    data: Matrix,
    derivatives: tuple[Vector, Vector, DispersionRows],
) -> tuple[float, float]:
    """All derivatives are written; the sum of f_i, and the largest |f_i|."""
    slopes, curvatures, (by_phi, mixed, seconds) = derivatives
    value, largest, n = 0.0, 0.0, by_phi.shape[0]
    for first in range(0, predictors.shape[1], BLOCK):
        m = run_at_points(program, predictors, data, first, points)
        found = points.coefficients[program.root]
        for lane in range(m):
            value += found[0, lane]
            largest = max(largest, abs(found[0, lane]))
            slopes[first + lane] = found[1, lane]
            curvatures[first + lane] = 2.0 * found[2 + n, lane]
        for j in range(n):
            for lane in range(m):
                by_phi[j, first + lane] = found[2 + j, lane]
                mixed[j, first + lane] = found[3 + n + j, lane]
        for j in range(seconds.shape[0]):
            for lane in range(m):
                seconds[j, first + lane] = found[3 + 2 * n + j, lane]
    return value, largest


@entry
def _add_groups(
    rows: SortedRows,
    slopes: Vector,
    curvatures: Vector,
    of_groups: tuple[Vector, Vector, Matrix],
    of_all: tuple[Vector, Matrix, Matrix, Vector],
) -> None:
    """Sums of groups, and of dense columns about the means of their groups (lower triangle).

    `cross` is that of levels with dense columns: as w_i z_i adds up to zero, that of any level has it all.
    """
    (a, b, means), (gradient, square, cross, spread) = of_groups, of_all
    x, starts, levels, n_dense, cell_starts = (
        rows.x,
        rows.starts,
        rows.levels,
        rows.x.shape[1],
        rows.cells.starts,
    )
    n_factors = rows.cells.n_factors
    z = np.empty(n_dense)
    for g in range(a.shape[0]):
        size = 0.0
        for i in range(starts[g], starts[g + 1]):
            a[g] += slopes[i]
            b[g] -= curvatures[i]
            size += abs(curvatures[i])
        expanded = size > 0.0 and b[g] > _LEAST_SHARE * size
        total = b[g] if expanded else max(1.0, float(starts[g + 1] - starts[g]))
        if not expanded:
            b[g] = 0.0
        for i in range(starts[g], starts[g + 1]):
            if not expanded:
                curvatures[i] = 0.0
            share = (-curvatures[i] if expanded else 1.0) / total
            for k in range(n_dense):
                means[g, k] += share * x[i, k]
        for i in range(starts[g], starts[g + 1]):
            for k in range(n_dense):
                z[k] = x[i, k] - means[g, k]
                spread[k] = max(spread[k], abs(z[k]))
                gradient[k] += slopes[i] * z[k]
            for k in range(n_dense):
                weighted = -curvatures[i] * z[k]
                for j in range(k + 1):
                    square[k, j] += weighted * z[j]
                for f in range(n_factors):
                    if cell_starts[g * n_factors + f + 1] - cell_starts[g * n_factors + f] > 1:
                        cross[levels[f, i], k] += weighted


def drift_of(
    expression: Expression,
    rows: SortedRows,
    at: Expanded,
    levels: Vector,
    d: Vector,
    phi: tuple[Vector, Matrix],
) -> tuple[Vector, Vector]:
    """Slopes of the sum of all remainders: by the level of each group, and by d at fixed levels."""
    work.spend(len(at.slopes) * (_OF_ROW + _OF_NUMBER * len(rows.dense)), "The fit of a plate")
    program = tape_of(expression, 1 + len(phi[0]), 1)
    of_levels, of_dense, of_shared = np.zeros(len(levels)), np.zeros(len(rows.dense)), np.zeros(len(d))
    psi, of_phi = phi[1] @ d, np.zeros(len(phi[0]))
    shifts = at.means @ d[rows.dense] + of_cells(at.cells, at.shares, d, len(levels))
    shifted = predictors_at(rows._replace(offsets=at.predictors), d, levels - shifts)
    result = of_levels, of_dense, of_shared, of_phi
    _add_drift(program, points_for(program), with_phi(shifted, phi[0] + psi), psi, rows, at, result)
    of_shared[rows.dense] = of_dense
    return of_levels, of_shared + of_phi @ phi[1]


@entry
def _add_drift(
    program: Tape,
    points: Points,
    shifted: Matrix,
    psi: Vector,
    rows: SortedRows,
    at: Expanded,
    result: tuple[Vector, Vector, Vector, Vector],
) -> None:
    of_levels, of_dense, of_shared, of_phi = result
    g, n_factors, q = 0, at.cells.n_factors, rows.covariates.shape[1] + 1
    for first in range(0, shifted.shape[1], BLOCK):
        m = run_at_points(program, shifted, rows.data, first, points)
        found = points.coefficients[program.root]
        for i in range(first, first + m):
            while i >= rows.starts[g + 1]:
                g += 1
            t = shifted[0, i] - at.predictors[i]
            slope = found[1, i - first] - at.slopes[i] - at.curvatures[i] * t
            place = 0
            for j in range(psi.shape[0]):
                slope -= at.dispersions.mixed[j, i] * psi[j]
                of_phi[j] += found[2 + j, i - first] - at.dispersions.slopes[j, i]
                of_phi[j] -= at.dispersions.mixed[j, i] * t
                for k in range(j, psi.shape[0]):
                    second = at.dispersions.seconds[place, i]
                    of_phi[j] -= second * psi[k]
                    of_phi[k] -= second * psi[j]
                    place += 1
            of_levels[g * q] += slope
            for k in range(of_dense.shape[0]):
                of_dense[k] += slope * (rows.x[i, k] - at.means[g * q, k])
            for j in range(1, q):
                weighted = slope * rows.covariates[i, j - 1]
                of_levels[g * q + j] += weighted
                for k in range(of_dense.shape[0]):
                    of_dense[k] -= weighted * at.means[g * q + j, k]
            for f in range(n_factors):
                of_shared[rows.levels[f, i]] += slope
    for g in range(rows.starts.shape[0] - 1):
        for c in range(at.cells.starts[g * n_factors], at.cells.starts[(g + 1) * n_factors]):
            of_shared[at.cells.columns[c]] -= at.shares[c] * of_levels[g]
