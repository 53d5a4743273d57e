"""Clusters are counted whatever their labels."""

import numpy as np
import pytest
from arviz import from_dict

from pymc_austerity.diagnostics import n_clusters


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
    with pytest.raises(ValueError, match="no variable 'nu'.*mu"):
        n_clusters(idata, "nu")
