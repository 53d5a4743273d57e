"""Passes over the rows of a field: predictors, derivatives of log densities there, and sums of these."""

import numpy as np
from scipy import sparse

from pymc_austerity.bounds.jets.compiled import inner, of_records
from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for, run_at_points
from pymc_austerity.bounds.jets.tape import Tape, multi_indices
from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.fields.records import Design, FieldArrays, FieldRows, Held, Sums
from pymc_austerity.mode.fields.layout import Layout
from pymc_austerity.mode.row_tables import parts
from pymc_austerity.target import Array, Index, Matrix, RowNumbers, Vector

# Nodes of the quadrature for averages over one predictor.
_NODES = 7
_SIGNS = [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)]


def part_of(design: Design, part: slice) -> Design:
    """The design of a part of the rows."""
    return design._replace(columns=design.columns[part], values=design.values[part], dense=design.dense[part])


def predictors_at(layout: Layout, part: slice, x: Vector, of_held: Vector) -> Matrix:
    """eta_i of a part of the rows at x, and at x of what is held (n, p)."""
    result, held = layout.columns.offsets[part].copy(), layout.held
    add_moved(result, part_of(layout.design, part), x)
    add_lookups(result, held.columns[part], held.values[part], held.of_columns, of_held)
    return result


def add_moved(result: Matrix, design: Design, x: Vector) -> None:
    """Add A_i x of all rows."""
    dense = x[len(x) - design.n_dense :][design.at_dense]
    for k in range(result.shape[1]):
        own = design.of_dense == k
        result[:, k] += design.dense[:, own] @ dense[own]
    add_lookups(result, design.columns, design.values, design.of_columns, x)


def add_lookups(result: Matrix, columns: RowNumbers, values: Matrix, of_columns: Index, x: Vector) -> None:
    """Add the elements of x that rows look up, each times its value, to predictors."""
    for f, k in enumerate(of_columns):
        result[:, k] += values[:, f] * x[columns[:, f]]


def derivatives_of(
    rows: FieldRows,
    part: slice,
    predictors: Matrix,
    order: int,
    covariances: Matrix | None = None,
    some: Index | None = None,
) -> Matrix:
    """Coefficients of Taylor's series of a part of the rows up to an order (n_coefficients, n).

    They are those of `rows.program` at predictors, or averaged over normal variables about these with
    `covariances`, of which each row has the lower triangle (n, p (p + 1) / 2); `some` are the predictors that
    have any in some row. Predictors that are numbers given theta have none.
    """
    p = predictors.shape[1]
    found = np.zeros((len(multi_indices(p, order)), len(predictors)))
    nodes, shares = np.zeros((1, p)), np.ones(1)
    if covariances is None:
        covariances = np.zeros((0, 0))
    elif some is not None and len(some):
        own, shares = nodes_of(len(some))
        nodes = np.zeros((len(own), p))
        nodes[:, some] = own
    data, points = np.ascontiguousarray(rows.data[:, part]), points_for(rows.program)
    _add_derivatives(rows.program, data, predictors, covariances, nodes, shares, points, found)
    return found


def varying(covariances: Matrix) -> Index:
    """Which predictors have a variance in some row."""
    p = int(np.sqrt(2.0 * covariances.shape[1]))
    return np.flatnonzero([np.any(covariances[:, place_of(k, k)]) for k in range(p)])


def nodes_of(p: int) -> tuple[Matrix, Vector]:
    """Nodes (n, p) and shares of a cubature for standard normal variables, of degree five or more."""
    if p == 1:
        nodes, shares = np.polynomial.hermite_e.hermegauss(_NODES)
        return nodes[:, None], shares / shares.sum()
    far, near = np.sqrt(p + 2.0) * np.eye(p), np.sqrt(0.5 * p + 1.0) * np.eye(p)
    pairs = [
        a * near[j] + b * near[k] for j, k in zip(*np.triu_indices(p, 1), strict=True) for a, b in _SIGNS
    ]
    shares = np.repeat(
        [2.0 / (p + 2), (4.0 - p) / (2.0 * (p + 2) ** 2), 1.0 / (p + 2) ** 2], [1, 2 * p, len(pairs)]
    )
    return np.concatenate([np.zeros((1, p)), far, -far, pairs]), shares


def slopes_and_weights(found: Matrix, p: int) -> tuple[Matrix, Matrix]:
    """Gradients (N, p) and minus the second derivatives (N, p (p + 1) / 2) from Taylor coefficients."""
    indices = multi_indices(p, 2)
    weights = np.empty((found.shape[1], p * (p + 1) // 2))
    for number, index in enumerate(indices[1 + p :]):
        j, k = np.flatnonzero(index)[[0, -1]]
        weights[:, k * (k + 1) // 2 + j] = -found[1 + p + number] * (2.0 if j == k else 1.0)
    return np.ascontiguousarray(found[1 : 1 + p].T), weights


def not_upwards(weights: Matrix) -> Matrix:
    """Second derivatives of rows without the directions in which these curve upwards."""
    if weights.shape[1] == 1:
        return np.maximum(weights, 0.0)
    p = int(np.sqrt(2.0 * weights.shape[1]))
    lower = np.tril_indices(p)
    whole = np.empty((len(weights), p, p))
    whole[:, lower[0], lower[1]] = whole[:, lower[1], lower[0]] = weights
    sizes, vectors = np.linalg.eigh(whole)
    return np.einsum("ijk,ik,ilk->ijl", vectors, np.maximum(sizes, 0.0), vectors)[:, lower[0], lower[1]]


def quadratic_of(rows: FieldRows, part: slice | Index, changes: Matrix) -> Vector:
    """Taylor's polynomial of some rows after changes of their predictors (n, p), less its constant."""
    weights, result, at = rows.weights[part], (rows.slopes[part] * changes).sum(axis=1), 0
    for k in range(changes.shape[1]):
        for j in range(k + 1):
            result -= (0.5 if j == k else 1.0) * weights[:, at] * changes[:, j] * changes[:, k]
            at += 1
    return result


@of_records
def _add_derivatives(
    program: Tape,
    data: Matrix,
    predictors: Matrix,
    covariances: Matrix,
    nodes: Matrix,
    shares: Vector,
    points: Points,
    result: Matrix,
) -> None:
    """Add Taylor coefficients at the predictors, or averages over normal variables about them."""
    n, p = predictors.shape
    is_averaged = covariances.shape[0] > 0
    eta, own, root = np.zeros((p, BLOCK)), np.empty((data.shape[0], BLOCK)), np.zeros((p, p, BLOCK))
    for start in range(0, n, BLOCK):
        m = min(BLOCK, n - start)
        for k in range(data.shape[0]):
            for lane in range(m):
                own[k, lane] = data[k, start + lane]
        if is_averaged:
            for lane in range(m):
                _write_root(covariances[start + lane], root, lane)
        for node in range(nodes.shape[0]):
            for k in range(p):
                for lane in range(m):
                    eta[k, lane] = predictors[start + lane, k]
                for j in range(k + 1):
                    for lane in range(m):
                        eta[k, lane] += root[k, j, lane] * nodes[node, j]
            run_at_points(program, eta, own, 0, m, points)
            found = points.coefficients[program.root]
            for order in range(result.shape[0]):
                for lane in range(m):
                    result[order, start + lane] += shares[node] * found[order, lane]


@inner
def _write_root(covariance: Vector, root: Array, lane: int) -> None:
    """Cholesky's factor of a covariance, which may have no full rank."""
    at = 0
    for k in range(root.shape[0]):
        for j in range(k + 1):
            t = covariance[at]
            at += 1
            for i in range(j):
                t -= root[k, i, lane] * root[j, i, lane]
            if j < k:
                root[k, j, lane] = t / root[j, j, lane] if root[j, j, lane] > 0.0 else 0.0
            else:
                root[k, k, lane] = np.sqrt(max(t, 0.0))


def _where(layout: Layout, part: slice) -> tuple[RowNumbers, np.ndarray, int]:
    return layout.combinations[part], layout.pairs, layout.n_lookups


@jitable
def place_of(j: int, k: int) -> int:
    """Where the lower triangle of a symmetric matrix, row by row, has an element."""
    return j * (j + 1) // 2 + k if j >= k else k * (k + 1) // 2 + j


def _dense_parts(design: Design) -> list[tuple[int, Index, Matrix]]:
    """Dense coefficients by predictor: which elements, and their columns."""
    parts = []
    for k in np.unique(design.of_dense):
        own = design.of_dense == k
        columns = design.dense if own.all() else design.dense[:, own]
        parts.append((int(k), design.at_dense[own], columns))
    return parts


def add_products(
    layout: Layout,
    part: slice,
    design: Design,
    slopes: Matrix,
    weights: Matrix,
    gradient: Vector,
    hessian: Vector,
) -> None:
    """Add sums of A_i' f_i' and of A_i' W_i A_i over a part of the rows, to which all but the sums belong."""
    n_d = design.n_dense
    _add_products(_where(layout, part), design, slopes, weights, gradient, hessian)
    both, of_predictors = np.zeros((n_d, n_d)), _dense_parts(design)
    for k, at, columns in of_predictors:
        np.add.at(gradient[layout.n_lookups :], at, columns.T @ slopes[:, k])
        for j, at_other, others in of_predictors:
            products = columns.T @ (weights[:, place_of(k, j), None] * others)
            np.add.at(both, np.ix_(at, at_other), products)
    hessian[len(hessian) - n_d * (n_d + 1) // 2 :] += both[np.tril_indices(n_d)]


@of_records
def _add_products(
    layout: tuple[RowNumbers, np.ndarray, int],
    design: Design,
    slopes: Matrix,
    weights: Matrix,
    gradient: Vector,
    hessian: Vector,
) -> None:
    """Sums of products of looked-up elements, with each other and with dense ones."""
    which, pairs, n_lookups = layout
    lookups, values, dense = design.columns, design.values, design.dense
    of_columns, of_dense, at_dense = design.of_columns, design.of_dense, design.at_dense
    n_f, n_m, n_d = lookups.shape[1], dense.shape[1], design.n_dense
    n_pairs = hessian.shape[0] - n_lookups * n_d - n_d * (n_d + 1) // 2
    for i in range(which.shape[0]):
        m, k = which[i], 0
        for a in range(n_f):
            va, p, own = values[i, a], lookups[i, a], of_columns[a]
            gradient[p] += va * slopes[i, own]
            for b in range(a + 1):
                t = weights[i, place_of(own, of_columns[b])] * va * values[i, b]
                hessian[pairs[m, k]] += 2.0 * t if b < a and lookups[i, b] == p else t
                k += 1
            o = n_pairs + p
            for j in range(n_m):
                hessian[o + at_dense[j] * n_lookups] += (
                    weights[i, place_of(own, of_dense[j])] * va * dense[i, j]
                )


def variances_of(layout: Layout, part: slice, design: Design, covariance: Vector) -> Matrix:
    """A_i S A_i' of a part of the rows, with its design, (n, p (p + 1) / 2), for S (elements of H) by x."""
    n_d, p = design.n_dense, layout.columns.n_predictors
    result, both = np.zeros((len(design.dense), p * (p + 1) // 2)), np.zeros((n_d, n_d))
    _add_variances(_where(layout, part), design, covariance, result)
    both[np.tril_indices(n_d)] = covariance[len(covariance) - n_d * (n_d + 1) // 2 :]
    both += np.tril(both, -1).T
    of_predictors = _dense_parts(design)
    for k, at, columns in of_predictors:
        for j, at_other, others in of_predictors:
            if j <= k:
                products = columns @ both[np.ix_(at, at_other)]
                result[:, place_of(k, j)] += np.einsum("ij,ij->i", products, others)
    return result


@of_records
def _add_variances(
    layout: tuple[RowNumbers, np.ndarray, int], design: Design, covariance: Vector, result: Matrix
) -> None:
    """Variances of what rows look up, and twice its covariances with what all rows have."""
    which, pairs, n_lookups = layout
    lookups, values, dense = design.columns, design.values, design.dense
    of_columns, of_dense, at_dense = design.of_columns, design.of_dense, design.at_dense
    n_f, n_m, n_d = lookups.shape[1], dense.shape[1], design.n_dense
    n_pairs = covariance.shape[0] - n_lookups * n_d - n_d * (n_d + 1) // 2
    for i in range(which.shape[0]):
        m, total, k = which[i], result[i], 0
        for a in range(n_f):
            va, p, own = values[i, a], lookups[i, a], of_columns[a]
            for b in range(a + 1):
                t = va * values[i, b] * covariance[pairs[m, k]]
                total[place_of(own, of_columns[b])] += 2.0 * t if b < a and own == of_columns[b] else t
                k += 1
            o = n_pairs + p
            for j in range(n_m):
                t = va * dense[i, j] * covariance[o + at_dense[j] * n_lookups]
                total[place_of(own, of_dense[j])] += 2.0 * t if own == of_dense[j] else t


def product(sums: Sums, hessian: Vector, x: Vector) -> Vector:
    """A symmetric matrix by elements of H times x."""
    n = len(x)
    result = np.bincount(sums.first, hessian * x[sums.second], minlength=n)
    off = sums.first != sums.second
    return result + np.bincount(sums.second[off], (hessian * x[sums.first])[off], minlength=n)


def with_elements(layout: Layout, plan: FieldArrays) -> Held:
    """What is held, with its elements of H: with those that move, and for normal rows with each other.

    Their weights are Taylor's, so that what these differ by from V has no such elements.
    """
    held, rows, n_x, n = plan.held, plan.rows, len(layout.elements), len(plan.held.center)
    if not n:
        return held
    p, gradient = layout.columns.n_predictors, np.zeros(n)
    both, own = sparse.csr_array((n_x, n)), sparse.csr_array((n, n))
    for part in parts(layout.n_rows):
        design = part_of(layout.design, part)
        dense = np.broadcast_to(layout.n_lookups + design.at_dense, design.dense.shape)
        moving = _by_predictors(
            np.concatenate([design.columns, dense], axis=1),
            np.concatenate([design.values, design.dense], axis=1),
            np.append(design.of_columns, design.of_dense), (p, n_x),
        )  # fmt: skip
        fixed = _by_predictors(held.columns[part], held.values[part], held.of_columns, (p, n))
        for j, k in np.ndindex(p, p):
            weighted = sparse.diags_array(rows.weights[part, place_of(j, k)]) @ fixed[k]
            both += moving[j].T @ weighted
            if plan.sums.precision >= 0:
                own += fixed[j].T @ weighted
        if plan.sums.precision >= 0:
            gradient += sum(one.T @ slopes for one, slopes in zip(fixed, rows.slopes[part].T, strict=True))
    first, second, hessian = _elements(both)
    one, other, own_hessian = _elements(sparse.triu(own, format="csr"))
    return held._replace(
        first=first, second=second, hessian=hessian, one=one, other=other, own_hessian=own_hessian,
        gradient=gradient,
    )  # fmt: skip


def _by_predictors(
    columns: np.ndarray, values: Matrix, of_columns: Index, shape: tuple[int, int]
) -> list[sparse.csr_array]:
    """The part of some rows in each of p predictors as a matrix; `shape` are p and the number of elements."""
    (p, n), result = shape, []
    for k in range(p):
        own = of_columns == k
        starts = np.arange(len(values) + 1) * np.count_nonzero(own)
        matrix = values[:, own].ravel(), columns[:, own].ravel(), starts
        result.append(sparse.csr_array(matrix, (len(values), n)))
    return result


def _elements(matrix: sparse.csr_array) -> tuple[Index, Index, Vector]:
    """Rows, columns and values of the elements that are not zero."""
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    found = matrix.tocoo()
    return found.row.astype(np.int64), found.col.astype(np.int64), found.data
