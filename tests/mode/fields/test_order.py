"""Trees of fields: depth and fill, and their algebra against dense matrices."""

import numpy as np
import pytest
from scipy import sparse

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.kernels.fields import tree as trees
from pymc_austerity.kernels.fields.tree import tree_of, write_positions
from pymc_austerity.mode.fields.order import NoOrderError, find_order

factorise, forward, backward = entry(trees.factorise), entry(trees.forward), entry(trees.backward)
selected_inverse = entry(trees.selected_inverse)
_DENSE = 8


def order_of(columns, n, prior=None):
    """The order of effects after some that all rows have, and what the prior couples."""
    columns = np.stack(columns, 1) + _DENSE
    m, k = columns.shape
    together = sparse.csr_array((np.ones(m * k), columns.ravel(), np.arange(m + 1) * k), (m, n + _DENSE))
    couplings = np.zeros((_DENSE, _DENSE)) if prior is None else None
    own = sparse.csr_array((n + _DENSE, n + _DENSE))
    if couplings is None:
        own = sparse.csr_array(sparse.block_diag([sparse.coo_array((_DENSE, _DENSE)), prior]))
    kinds = np.zeros(n + _DENSE, np.int64)
    return together, own, np.arange(n + _DENSE) < _DENSE, kinds


def areas(side):
    path = np.eye(side, k=1) + np.eye(side, k=-1)
    return order_of(
        [np.arange(side * side)], side * side, np.kron(np.eye(side), path) + np.kron(path, np.eye(side))
    )


def nested():
    classes = np.arange(200)
    return order_of([classes, 200 + classes // 10, 220 + classes // 100], 222)


def test_nested_groups_have_the_depth_of_their_levels():
    classes = np.arange(2000)
    schools, regions = classes // 10, classes // 100
    parts = order_of([classes, 2000 + schools, 2200 + regions], 2220)
    tree = find_order(*parts).tree
    assert tree.depth.max() == 3
    assert tree.fronts[-1] < 2220 * (_DENSE + 3) + 100


def test_a_series_is_dissected():
    n = 500
    path = sparse.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1])
    tree = find_order(*order_of([np.arange(n)], n, path)).tree
    assert tree.depth.max() <= 8


def test_areas_are_dissected():
    tree = find_order(*areas(32)).tree
    assert tree.depth.max() <= 12
    assert tree.fronts[-1] < 60_000


@pytest.mark.parametrize("parts", [nested(), areas(12)], ids=["nested", "areas"])
def test_nodes_come_directly_after_all_below_them(parts):
    # Bounds and tests of rows take what is below a node as one range.
    parent = find_order(*parts).tree.parent
    below = [{v} for v in range(len(parent))]
    for v in range(len(parent) - 1):
        assert parent[v] > v
        below[parent[v]] |= below[v]
    assert all(own == set(range(min(own), v + 1)) for v, own in enumerate(below))


def test_a_short_factor_goes_to_the_root():
    rng = np.random.default_rng(1)
    g, h = rng.integers(1000, size=20_000), rng.integers(60, size=20_000)
    together, own, dense, kinds = order_of([g, 1000 + h], 1060)
    kinds[_DENSE + 1000 :] = 1
    tree = find_order(together, own, dense, kinds).tree
    assert tree.depth.max() == 1
    assert tree.size[-1] == _DENSE + 60


def test_large_crossed_factors_are_refused():
    rng = np.random.default_rng(1)
    g, h = rng.integers(5000, size=100_000), rng.integers(1000, size=100_000)
    with pytest.raises(NoOrderError, match=r"crossed|tied"):
        find_order(*order_of([g, 5000 + h], 6000))


def any_pattern(rng):
    """A sparse matrix of any pattern, in nodes of one to three variables."""
    n = 80
    a = sparse.random_array((n, n), density=0.03, rng=rng)
    sizes = rng.integers(1, 4, size=n)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), n)]
    return a @ a.T + sparse.eye_array(n), np.append(sizes, n - sizes.sum())


def nodes_with_one_parent(rng):
    """Nodes of one to three variables that meet the same four ones, each size in runs."""
    sizes = np.append(np.repeat(rng.integers(1, 4, size=20), rng.integers(1, 4, size=20)), 4)
    n = sizes.sum()
    node = np.repeat(np.arange(len(sizes)), sizes)
    lower = np.tril(rng.normal(size=(n, n)) * ((node[:, None] == node) | (node[:, None] == node[-1])))
    return sparse.csr_array(lower @ lower.T + 0.1 * np.eye(n)), sizes


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("make", [any_pattern, nodes_with_one_parent])
def test_algebra_of_a_tree(make, seed):
    """Determinant, solution and elements of the inverse are those of the dense matrix."""
    rng = np.random.default_rng(seed)
    matrix, sizes = make(rng)
    matrix, n = sparse.csr_array(matrix), sum(sizes)
    tree = tree_of(matrix.indptr, matrix.indices, sizes)
    lower = sparse.coo_array(sparse.tril(matrix))
    places, front = np.empty(lower.nnz, np.int64), np.zeros(tree.fronts[-1])
    write_positions(tree, lower.row.astype(np.int64), lower.col.astype(np.int64), places)
    front[places] = lower.data
    dense = matrix.toarray()
    assert 2.0 * factorise(tree, front, np.full(n, -1.0)) == pytest.approx(np.linalg.slogdet(dense)[1])
    right, c, x = rng.normal(size=n), np.empty(n), np.empty(n)
    forward(tree, front, right.copy(), c)
    backward(tree, front, c, x)
    np.testing.assert_allclose(x, np.linalg.solve(dense, right), atol=1e-10)
    inverse = np.zeros_like(front)
    selected_inverse(tree, front, inverse)
    np.testing.assert_allclose(inverse[places], np.linalg.inv(dense)[lower.row, lower.col], atol=1e-10)
