"""The second-order expansion of the log likelihood of a plate: sums over rows, in a pass over all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pymc_austerity import work
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for, run_at_points
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.kernels.plates.cells import Cells
from pymc_austerity.kernels.plates.records import DispersionRows
from pymc_austerity.mode.plates.dispersion_sums import dispersion_sums, no_dispersions, with_dispersions
from pymc_austerity.mode.plates.group_means import of_cells
from pymc_austerity.mode.plates.level_sums import add_levels
from pymc_austerity.mode.plates.row_tables import fixed
from pymc_austerity.mode.plates.slope_sums import add_groups_with_slopes
from pymc_austerity.mode.plates.sorted_rows import SortedRows
from pymc_austerity.target import Index, Matrix, Vector

# A group whose weights nearly cancel has no level that its rows see: it is not expanded.
_LEAST_SHARE = 0.25
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
    added: Vector | None = None,
) -> tuple[Vector, Vector]:
    """Slopes of the sum of all remainders: by the level of each group, and by d at fixed levels.

    `added` (N,) is what effects of a crossed factor add to the predictors.
    """
    work.spend(len(at.slopes) * (_OF_ROW + _OF_NUMBER * len(rows.dense)), "The fit of a plate")
    program = tape_of(expression, 1 + len(phi[0]), 1)
    of_levels, of_dense, of_shared = np.zeros(len(levels)), np.zeros(len(rows.dense)), np.zeros(len(d))
    psi, of_phi = phi[1] @ d, np.zeros(len(phi[0]))
    shifts = at.means @ d[rows.dense] + of_cells(at.cells, at.shares, d, len(levels))
    base = at.predictors if added is None else at.predictors + added
    shifted = predictors_at(rows._replace(offsets=fixed(base)), d, levels - shifts)
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
