"""The second-order expansion of the log likelihood of a plate: sums over rows, in a pass over all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for, run_at_points
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.mode.plates.sorted_rows import SortedRows
from pymc_austerity.target import Index, Vector

Matrix = npt.NDArray[np.float64]

# A group whose weights nearly cancel has no level that its rows see: it is not expanded.
_LEAST_SHARE = 0.25
# A column varies within groups if it does by this much, relative to its largest number.
_CONSTANT = 1e-12


class Expanded(NamedTuple):
    """Rows at a center, and sums over them. It has size N.

    Attributes
    ----------
    predictors, slopes, curvatures : ndarray (N,)
        eta_i, f_i' and f_i''; the last is zero in groups that are not expanded.
    group_slopes, group_weights : ndarray (G,)
        a_g and b_g.
    means : ndarray (G, P)
        xbar_g.
    gradient : ndarray (P,)
        c.
    information : ndarray (P, P)
        W.
    varying : ndarray of int (V,)
        Columns that vary within groups.
    value, largest : float
        The sum of f_i, and the largest |f_i|.
    squares : float
        Sum of (f_i')^2.
    """

    predictors: Vector
    slopes: Vector
    curvatures: Vector
    group_slopes: Vector
    group_weights: Vector
    means: Matrix
    gradient: Vector
    information: Matrix
    varying: Index
    value: float
    largest: float
    squares: float


def expand(expression: Expression, rows: SortedRows, beta: Vector, effects: Vector) -> Expanded:
    """Expand about beta and the effects, two passes over the rows.

    Parameters
    ----------
    expression : Expression
        f, of one predictor.
    rows : SortedRows
    beta : ndarray (P,)
    effects : ndarray (G,)
        u_g.
    """
    n, n_columns = rows.x.shape
    n_groups = len(effects)
    program = tape_of(expression, 1, 2)
    predictors = predictors_at(rows, beta, effects)
    slopes, curvatures = np.empty(n), np.empty(n)
    value, largest = _evaluate(program, points_for(program), predictors[None], rows.data, slopes, curvatures)
    a, b, means = np.zeros(n_groups), np.zeros(n_groups), np.zeros((n_groups, n_columns))
    gradient, information = np.zeros(n_columns), np.zeros((n_columns, n_columns))
    spread = np.zeros(n_columns)
    _add_groups(rows.x, slopes, curvatures, rows.starts, (a, b, means), (gradient, information, spread))
    size = np.abs(rows.x).max(axis=0, initial=0.0)
    varying = np.flatnonzero(spread > _CONSTANT * size)
    information += np.tril(information, -1).T
    return Expanded(
        predictors, slopes, curvatures, a, b, means, gradient, information, varying, value, largest,
        float(slopes @ slopes),
    )  # fmt: skip


def predictors_at(rows: SortedRows, beta: Vector, effects: Vector) -> Vector:
    """eta_i."""
    predictors = np.empty(len(rows.offsets))
    _set_predictors(rows.x, rows.offsets, rows.starts, beta, effects, predictors)
    return predictors


@entry
def _set_predictors(
    x: Matrix, offsets: Vector, starts: Index, beta: Vector, effects: Vector, predictors: Vector
) -> None:
    for g in range(effects.shape[0]):
        for i in range(starts[g], starts[g + 1]):
            total = offsets[i] + effects[g]
            for k in range(beta.shape[0]):
                total += x[i, k] * beta[k]
            predictors[i] = total


@entry
def _evaluate(
    program: Tape, points: Points, predictors: Matrix, data: Matrix, slopes: Vector, curvatures: Vector
) -> tuple[float, float]:
    """f_i' and f_i'' are written; the sum of f_i, and the largest |f_i|."""
    value, largest = 0.0, 0.0
    for first in range(0, predictors.shape[1], BLOCK):
        m = run_at_points(program, predictors, data, first, points)
        found = points.coefficients[program.root]
        for lane in range(m):
            value += found[0, lane]
            largest = max(largest, abs(found[0, lane]))
            slopes[first + lane] = found[1, lane]
            curvatures[first + lane] = 2.0 * found[2, lane]
    return value, largest


@entry
def _add_groups(
    x: Matrix,
    slopes: Vector,
    curvatures: Vector,
    starts: Index,
    of_groups: tuple[Vector, Vector, Matrix],
    of_all: tuple[Vector, Matrix, Vector],
) -> None:
    """Sums of groups, and of all rows about the means of their groups (lower triangle)."""
    (a, b, means), (gradient, information, spread) = of_groups, of_all
    n_columns = x.shape[1]
    z = np.empty(n_columns)
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
            for k in range(n_columns):
                means[g, k] += share * x[i, k]
        for i in range(starts[g], starts[g + 1]):
            for k in range(n_columns):
                z[k] = x[i, k] - means[g, k]
                spread[k] = max(spread[k], abs(z[k]))
                gradient[k] += slopes[i] * z[k]
            for k in range(n_columns):
                weighted = -curvatures[i] * z[k]
                for j in range(k + 1):
                    information[k, j] += weighted * z[j]


def drift_of(
    expression: Expression, rows: SortedRows, at: Expanded, levels: Vector, d: Vector
) -> tuple[Vector, Vector]:
    """Slopes of the sum of all remainders: by the level of each group, and by d at fixed levels."""
    program = tape_of(expression, 1, 1)
    of_levels, of_shared = np.zeros(len(levels)), np.zeros(len(d))
    shifted = at.predictors.copy()
    within = rows.x @ d  # in the order of the rows
    _shift(rows.starts, levels - at.means @ d, within, shifted)
    _add_drift(program, points_for(program), shifted[None], rows, at, (of_levels, of_shared))
    return of_levels, of_shared


@entry
def _shift(starts: Index, levels: Vector, within: Vector, shifted: Vector) -> None:
    for g in range(levels.shape[0]):
        for i in range(starts[g], starts[g + 1]):
            shifted[i] += levels[g] + within[i]


@entry
def _add_drift(
    program: Tape,
    points: Points,
    shifted: Matrix,
    rows: SortedRows,
    at: Expanded,
    result: tuple[Vector, Vector],
) -> None:
    of_levels, of_shared = result
    g = 0
    for first in range(0, shifted.shape[1], BLOCK):
        m = run_at_points(program, shifted, rows.data, first, points)
        found = points.coefficients[program.root, 1]
        for i in range(first, first + m):
            while i >= rows.starts[g + 1]:
                g += 1
            t = shifted[0, i] - at.predictors[i]
            slope = found[i - first] - at.slopes[i] - at.curvatures[i] * t
            of_levels[g] += slope
            for k in range(of_shared.shape[0]):
                of_shared[k] += slope * (rows.x[i, k] - at.means[g, k])
