"""Whitened coordinates in an order that keeps rows with many zeros short, and which coordinates a row has.

A row of a factor, or of any column that is zero in most rows, has few entries. Whitened by a triangular
factor of the precision it has more: those of its columns, and what elimination fills in. By minimum degree,
the largest factor comes first, whose rows are not filled at all, and dense columns come last.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array
from scipy.special import gammaln

from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.bounds.row_function import RowFunction, evenly_spaced, have_one_predictor
from pymc_austerity.target import Index, Matrix, Vector

# Rows that are looked at to see which columns are sparse.
_ROWS = 2000
# Columns that are zero in all but this share of the rows are sparse; a row has so many entries in them, at
# most, on average.
_SHARE, _ENTRIES = 0.2, 19.0
# Correlations below this are rounding: any precision near that of the posterior will do.
_ROUNDING = 1e-9
# Groups that coordinates which are filled in are pooled to.
_POOLS = 6
# Groups are for designs in which they promise less than this share of the rows.
_GAIN = 0.7


class CoordinateGroups(NamedTuple):
    """Groups of whitened coordinates: S of one each, and some that pool several.

    The coordinates of sparse columns come first, each a group for the rows with an entry in its column.
    Coordinates in which other rows are filled in are pooled as well, for these rows, to runs in the order of
    elimination: the later, the more is filled in. The coordinates of dense columns are the last group.
    """

    coordinates: ExpansionCoordinates  # In the order of `columns`
    columns: Index  # (d,): of q, in the order of elimination
    factor: Matrix  # (d, d): L, lower triangular: w = L' (q - m)[columns]
    inverse: Matrix  # (d, d): V = L'^-1, upper triangular: v_i = x_i[columns] V
    n_sparse: int  # S
    pools: Index  # (d,): the group that a coordinate is pooled to, if it is; otherwise -1

    @property
    def typical(self) -> Vector:
        """The cube root of the mean of |w_g|^3 for each group, w a draw of N(0, I)."""
        sizes = np.bincount(self.pools + 1, minlength=self.n_sparse + 1)[1:].astype(np.float64)
        sizes[: self.n_sparse] = 1.0
        return np.asarray(typical_length(sizes))

    def lengths(self, x: Matrix) -> tuple[Matrix, Vector]:
        """Lengths |v_ig| of the parts of m rows in all groups, (m, G), and |v_i| of the whole rows, (m,)."""
        x = x[:, self.columns]
        v, s = csr_array(x) @ self.inverse, self.n_sparse
        result = np.zeros((len(x), len(self.typical)))
        result[:, :s] = np.where(x[:, :s] != 0.0, np.abs(v[:, :s]), 0.0)
        others = v.copy()
        others[:, :s][x[:, :s] != 0.0] = 0.0
        for g in range(s, result.shape[1]):
            result[:, g] = np.linalg.norm(others[:, self.pools == g], axis=1)
        return result, np.linalg.norm(v, axis=1)


def typical_length(n: float | Vector) -> float | Vector:
    """The cube root of the mean of |w|^3, w a draw of N(0, I) in n dimensions."""
    result: float | Vector = np.sqrt(2.0) * np.exp((gammaln((n + 3.0) / 2.0) - gammaln(n / 2.0)) / 3.0)
    return result


def coordinate_groups(
    terms: Sequence[RowFunction], coordinates: ExpansionCoordinates
) -> CoordinateGroups | None:
    """Groups for the rows of some terms; None if bounds by groups are not known, or promise little.

    Their coordinates have the same lengths |w| as those that are given, up to rounding.
    """
    if coordinates.order != 2 or not have_one_predictor(terms):
        return None
    some = [term.rows(evenly_spaced(term.n_rows, _ROWS)) for term in terms]
    x = np.concatenate([rows.reshape(len(rows), -1)[:, :-1] for rows in some])
    groups = _grouped(coordinates, (x != 0.0).mean(axis=0))
    if groups is None or not np.all(np.isfinite(x)):
        return None
    lengths, whole = groups.lengths(x)
    of_all = typical_length(len(groups.columns)) * whole
    promised, plain = ((lengths @ groups.typical) ** 3).sum(), (of_all**3).sum()
    return groups if promised < _GAIN * plain else None


def _grouped(coordinates: ExpansionCoordinates, shares: Vector) -> CoordinateGroups | None:
    """The groups, if there are sparse columns; `shares` are those of rows that are not zero in each."""
    whitening = coordinates.whitening
    columns = np.flatnonzero(np.any(whitening != 0.0, axis=0))
    by_share = columns[np.argsort(shares[columns], kind="stable")]
    many = (np.cumsum(shares[by_share]) > _ENTRIES) | (shares[by_share] > _SHARE)
    n_sparse = int(np.argmax(many)) if np.any(many) else len(columns)
    if n_sparse < 2 or len(columns) != len(whitening):
        return None
    precision = whitening[:, by_share].T @ whitening[:, by_share]
    scale = np.sqrt(np.diag(precision))
    precision[np.abs(precision) < _ROUNDING * np.outer(scale, scale)] = 0.0
    order = minimum_degree(precision[:n_sparse, :n_sparse] != 0.0)
    order = np.r_[order, np.arange(n_sparse, len(columns))]
    try:
        factor = np.linalg.cholesky(precision[np.ix_(order, order)])
    except np.linalg.LinAlgError:  # nearly singular
        return None
    inverse = solve_triangular(factor, np.eye(len(factor)), lower=True).T
    columns = by_share[order]
    ordered_whitening, directions = np.zeros(whitening.shape), np.zeros(whitening.shape[::-1])
    ordered_whitening[:, columns], directions[columns] = factor.T, inverse
    pools = np.full(len(columns), -1)
    filled = np.flatnonzero(np.any(np.triu(inverse, 1)[:, :n_sparse] != 0.0, axis=0))
    for k, run in enumerate(np.array_split(filled, min(_POOLS, len(filled)) or 1)):
        pools[run] = n_sparse + k
    pools[n_sparse:] = pools.max(initial=n_sparse - 1) + 1
    ordered = coordinates._replace(directions=directions, whitening=ordered_whitening)
    factor, inverse = np.ascontiguousarray(factor), np.ascontiguousarray(inverse)
    return CoordinateGroups(ordered, columns, factor, inverse, n_sparse, pools)


def minimum_degree(pattern: npt.NDArray[np.bool_]) -> Index:
    """An order of elimination that fills in little: always the node with the fewest neighbours.

    `pattern` (n, n) says which entries of a symmetric matrix are not zero. Nodes of the same degree come in
    their own order.
    """
    edges = pattern.copy()
    np.fill_diagonal(edges, False)
    left, order = np.ones(len(edges), dtype=bool), []
    for _ in range(len(edges)):
        degree = np.where(left, edges.sum(axis=0), len(edges) + 1)
        node = int(np.argmin(degree))
        order.append(node)
        left[node] = False
        neighbours = np.flatnonzero(edges[node])
        edges[node], edges[:, node] = False, False
        edges[np.ix_(neighbours, neighbours)] = True
        edges[neighbours, neighbours] = False
    return np.array(order, dtype=np.int64)
