"""The sum of rows of a term, with gradient and Hessian, in one pass: eta = X phi + o, f(eta), and X' f'' X.

Rows come in chunks, and what they add is added in the order of the rows, one after the other or, where they
have one predictor, four at a time: sums are the same wherever the rows are read from.
"""

from typing import NamedTuple

import numpy as np

from pymc_austerity.bounds.jets.compiled import entry, inner, of_records
from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for, run_at_points
from pymc_austerity.bounds.jets.tape import Tape
from pymc_austerity.target import Array, Vector


class Sums(NamedTuple):
    """Sums over rows, which passes add to."""

    value: Vector  # (1,)
    gradient: Vector  # (D,)
    hessian: Array  # (D, D): its lower triangle


def no_sums(n_dim: int) -> Sums:
    """Sums over no rows."""
    return Sums(np.zeros(1), np.zeros(n_dim), np.zeros((n_dim, n_dim)))


def add_rows(program: Tape, rows: Array, data: Array, phi: Vector, sums: Sums) -> Array:
    """Add some rows of a term, as functions of phi, to sums.

    Parameters
    ----------
    program : Tape
        Of f, with two derivatives.
    rows : ndarray (m, p, D + 1)
        x_ik, and o_ik in the last column.
    data : ndarray (n_data, m)
    phi : ndarray (D,)
    sums : Sums
        Are changed. Not numbers where a row is none.

    Returns
    -------
    ndarray (p + p (p + 1) / 2, m)
        f_k, then f_jk for j <= k in the order of the rows of a matrix.
    """
    m, p, _ = rows.shape
    found = np.empty((1 + p + p * (p + 1) // 2, m))
    _derive(program, points_for(program), predictors(rows, phi), np.ascontiguousarray(data), found)
    _add_rows(rows, found, sums)
    return found[1:]


@of_records
def _derive(program: Tape, points: Points, eta: Array, data: Array, result: Array) -> None:
    """Values and derivatives of all rows, from their Taylor coefficients."""
    p = eta.shape[0]
    for first in range(0, eta.shape[1], BLOCK):
        m = min(BLOCK, eta.shape[1] - first)
        run_at_points(program, eta, data, first, m, points)
        found = points.coefficients[program.root]
        for k in range(1 + p):
            for lane in range(m):
                result[k, first + lane] = found[k, lane]
        place = 1 + p
        for j in range(p):
            for k in range(j, p):
                factor = 2.0 if j == k else 1.0
                for lane in range(m):
                    result[place, first + lane] = factor * found[place, lane]
                place += 1


def predictors(rows: Array, phi: Vector) -> Array:
    """x_ik . phi + o_ik, of shape (p, m), from rows as in `add_rows`."""
    eta = np.empty((rows.shape[1], rows.shape[0]))
    _predictors(rows, phi, eta)
    return eta


@entry
def add_slopes(rows: Array, slopes: Array, sums: Sums) -> None:
    """Add rows with one predictor, of which f' and f'' are known, to gradient and Hessian."""
    _add_straight(rows, slopes, sums)


@entry
def _predictors(rows: Array, phi: Vector, eta: Array) -> None:
    """x_ik . phi + o_ik."""
    m, p, last = rows.shape[0], rows.shape[1], rows.shape[2] - 1
    for i in range(m):
        for k in range(p):
            total = rows[i, k, last]
            for c in range(last):
                total += rows[i, k, c] * phi[c]
            eta[k, i] = total


@entry
def _add_rows(rows: Array, found: Array, sums: Sums) -> None:
    m, p = rows.shape[0], rows.shape[1]
    slopes = found[1:]
    for i in range(m):
        sums.value[0] += found[0, i]
    if p == 1:
        _add_straight(rows, slopes, sums)
        return
    weighted = np.empty(rows.shape[2] - 1)
    for i in range(m):
        for k in range(p):
            _add_multiple(slopes[k, i], rows[i, k], sums.gradient)
        _add_products(rows[i], slopes, i, weighted, sums.hessian)


@inner
def _add_straight(rows: Array, slopes: Array, sums: Sums) -> None:
    """Add x f' and the lower triangle of x f'' x' of rows with one predictor.

    Four rows are added at once, so that sums are fetched from memory and stored a quarter as often.
    """
    m, gradient, hessian = rows.shape[0], sums.gradient, sums.hessian
    n_dim = gradient.shape[0]
    fours = m - m % 4
    for i in range(0, fours, 4):
        x0, x1, x2, x3 = rows[i, 0], rows[i + 1, 0], rows[i + 2, 0], rows[i + 3, 0]
        a0, a1, a2, a3 = slopes[0, i], slopes[0, i + 1], slopes[0, i + 2], slopes[0, i + 3]
        for c in range(n_dim):
            gradient[c] += (a0 * x0[c] + a1 * x1[c]) + (a2 * x2[c] + a3 * x3[c])
        for r in range(n_dim):
            a0, a1 = slopes[1, i] * x0[r], slopes[1, i + 1] * x1[r]
            a2, a3 = slopes[1, i + 2] * x2[r], slopes[1, i + 3] * x3[r]
            if a0 != 0.0 or a1 != 0.0 or a2 != 0.0 or a3 != 0.0:
                for c in range(r + 1):
                    hessian[r, c] += (a0 * x0[c] + a1 * x1[c]) + (a2 * x2[c] + a3 * x3[c])
    for i in range(fours, m):
        _add_multiple(slopes[0, i], rows[i, 0], gradient)
        for r in range(n_dim):
            a = slopes[1, i] * rows[i, 0, r]
            for c in range(r + 1):
                hessian[r, c] += a * rows[i, 0, c]


@inner
def _add_multiple(factor: float, x: Vector, result: Vector) -> None:
    for c in range(result.shape[0]):
        result[c] += factor * x[c]


@inner
def _add_products(x: Array, slopes: Array, i: int, weighted: Vector, hessian: Array) -> None:
    """Lower triangle of the sum of x_j f_jk x_k'."""
    p, n_dim = x.shape[0], hessian.shape[0]
    for j in range(p):
        weighted[:] = 0.0
        for k in range(p):
            low, high = min(j, k), max(j, k)
            _add_multiple(slopes[p + low * p - low * (low - 1) // 2 + high - low, i], x[k], weighted)
        for r in range(n_dim):
            a = x[j, r]
            if a != 0.0:
                for c in range(r + 1):
                    hessian[r, c] += a * weighted[c]
