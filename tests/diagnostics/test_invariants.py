"""Clusters are counted whatever their labels; the Amari distance, by hand and by what it must not see."""

import numpy as np
import pytest
from arviz import from_dict

from pymc_austerity.diagnostics import amari_distance, n_clusters

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


@pytest.mark.parametrize(
    ("W", "W0", "message"),
    [
        (np.eye(2), np.eye(3), r"W must have the shape \(..., 3, 3\) of W0, got \(2, 2\)"),
        (np.eye(1), np.eye(1), "at least two rows"),
        (np.ones(4), np.ones(4), r"got shape \(4,\)"),
        (np.eye(2), np.ones((2, 2)), "linearly dependent"),
    ],
)
def test_bad_input(W, W0, message):
    with pytest.raises(ValueError, match=message):
        amari_distance(W, W0)


def test_occupied_clusters_of_each_draw():
    rng = np.random.default_rng(1)
    z = rng.integers(0, 9, size=(2, 30, 12))
    found = n_clusters(from_dict({"posterior": {"z": z, "mu": rng.normal(size=(2, 30))}}), "z")
    expected = [[len(set(row)) for row in chain] for chain in z.tolist()]
    np.testing.assert_array_equal(found, expected)
    assert found.dims == ("chain", "draw")


def test_axes_in_another_order():
    z = np.random.default_rng(2).integers(0, 4, size=(2, 5, 6))
    idata = from_dict({"posterior": {"z": z}})
    turned = from_dict({"posterior": {"z": z}})
    turned["posterior"] = turned["posterior"].dataset.transpose()
    assert n_clusters(turned, "z").equals(n_clusters(idata, "z"))


def test_tables_and_single_rows():
    idata = from_dict({"posterior": {"z": np.array([[[[0, 1], [1, 2]]]]), "one": np.array([[[4]]])}})
    assert n_clusters(idata, "z").item() == 3
    assert n_clusters(idata, "one").item() == 1


def test_what_are_no_categories():
    idata = from_dict({"posterior": {"mu": np.zeros((1, 2, 3))}})
    with pytest.raises(ValueError, match="'mu' holds numbers of type float64; categories are whole"):
        n_clusters(idata, "mu")
    with pytest.raises(ValueError, match="'nu' is not in the posterior.*mu"):
        n_clusters(idata, "nu")
