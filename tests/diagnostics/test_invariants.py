"""Clusters are counted whatever their labels; the Amari distance, by hand and by what it must not see."""

import numpy as np
import pytest

from pymc_austerity.diagnostics import amari_distance, n_clusters
from tests.diagnostics.results import result

TRUE = np.random.default_rng(1).normal(size=(4, 4))


def by_hand(W, W0):
    p, D = np.abs(W @ np.linalg.inv(W0)), len(W0)
    total = 0.0
    for i in range(D):
        total += sum(p[i, j] for j in range(D)) / max(p[i, j] for j in range(D)) - 1
        total += sum(p[j, i] for j in range(D)) / max(p[j, i] for j in range(D)) - 1
    return total / (2 * D * (D - 1))


def test_formula():
    W = np.random.default_rng(2).normal(size=(3, 2, 4, 4))
    found = amari_distance(W, TRUE)
    assert found.shape == (3, 2)
    np.testing.assert_allclose(found[1, 0], by_hand(W[1, 0], TRUE))
    assert np.all((found > 0) & (found < 1))


def test_order_signs_and_scales_of_rows_do_not_matter():
    W = np.diag([1.0, -2.0, 0.1, 5.0])[[2, 0, 3, 1]] @ TRUE
    assert amari_distance(W, TRUE) == pytest.approx(0.0, abs=1e-13)


def test_extremes():
    assert amari_distance(np.array([[1.0, 1.0], [1.0, -1.0]]), np.eye(2)) == pytest.approx(1.0)
    angle = 0.3
    turned = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    assert amari_distance(turned, np.eye(2)) == pytest.approx(np.tan(angle))


def test_occupied_clusters_of_each_draw():
    rng = np.random.default_rng(1)
    z = rng.integers(0, 9, size=(2, 30, 12))
    found = n_clusters(result({"z": z, "mu": rng.normal(size=(2, 30))}), "z")
    expected = [[len(set(row)) for row in chain] for chain in z.tolist()]
    np.testing.assert_array_equal(found, expected)
    assert found.dims == ("chain", "draw")


def test_axes_in_another_order():
    z = np.random.default_rng(2).integers(0, 4, size=(2, 5, 6))
    idata = result({"z": z})
    turned = result({"z": z})
    turned["posterior"] = turned["posterior"].dataset.transpose()
    assert n_clusters(turned, "z").equals(n_clusters(idata, "z"))


def test_tables_and_single_rows():
    idata = result({"z": np.array([[[[0, 1], [1, 2]]]]), "one": np.array([[[4]]])})
    assert n_clusters(idata, "z").item() == 3
    assert n_clusters(idata, "one").item() == 1
