"""Passes over the rows of a field: predictors, and derivatives of log densities there."""

import numpy as np

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for, run_at_points
from pymc_austerity.bounds.jets.tape import Tape
from pymc_austerity.kernels.fields.records import FieldRows
from pymc_austerity.mode.fields.layout import Layout
from pymc_austerity.target import Index, Matrix, RowNumbers, Vector

# Nodes of the quadrature for averages.
NODES = 7


def predictors_at(layout: Layout, x: Vector, of_held: Vector) -> Vector:
    """eta_i at x, and at x of what is held."""
    result = layout.columns.offsets + layout.columns.x @ x[layout.n_lookups :]
    add_lookups(result, layout.lookups, layout.columns.values, x)
    add_lookups(result, layout.held.columns, layout.held.values, of_held)
    return result


def add_lookups(result: Vector, columns: Index | RowNumbers, values: Matrix, x: Vector) -> None:
    """Add the elements of x that rows look up, each times its value."""
    for f in range(columns.shape[1]):
        result += values[:, f] * x[columns[:, f]]


def derivatives_of(
    rows: FieldRows, predictors: Vector, order: int, variances: Vector | None = None
) -> Matrix:
    """Coefficients of Taylor's series of all rows up to an order (order + 1, n), by `rows.program`.

    They are those at predictors, or averaged over normal variables about these with `variances`.
    """
    found = np.zeros((order + 1, len(predictors)))
    nodes, shares = np.zeros(1), np.ones(1)
    if variances is None:
        variances = np.zeros(0)
    else:
        nodes, shares = np.polynomial.hermite_e.hermegauss(NODES)
    _add_derivatives(
        rows.program, rows.data, predictors, variances, nodes, shares / shares.sum(),
        points_for(rows.program), found,
    )  # fmt: skip
    return found


@entry
def _add_derivatives(
    program: Tape,
    data: Matrix,
    predictors: Vector,
    variances: Vector,
    nodes: Vector,
    weights: Vector,
    points: Points,
    result: Matrix,
) -> None:
    """Add Taylor coefficients at the predictors, or averages over normal variables about them."""
    n, is_averaged = predictors.shape[0], variances.shape[0] > 0
    eta, own = np.zeros((1, BLOCK)), np.empty((data.shape[0], BLOCK))
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        own[:, :m] = data[:, start : start + m]
        for k in range(nodes.shape[0]):
            for lane in range(m):
                eta[0, lane] = predictors[start + lane]
                if is_averaged:
                    eta[0, lane] += nodes[k] * np.sqrt(variances[start + lane])
            run_at_points(program, eta[:, :m], own[:, :m], 0, points)
            found = points.coefficients[program.root]
            for order in range(result.shape[0]):
                for lane in range(m):
                    result[order, start + lane] += weights[k] * found[order, lane]
