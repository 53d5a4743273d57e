"""What is kept of the log ratios of a move, against hand formulas."""

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.diagnostics import from_log_ratios
from pymc_austerity.diagnostics.normality import log_ratios_of
from tests.diagnostics.results import result

N = 5000


@pytest.fixture(scope="module")
def values():
    return np.random.default_rng(1).gamma(2.0, size=(3, N)) - 1.0


@pytest.fixture(scope="module")
def group(values):
    tree = from_log_ratios(values, [0.1, 0.2, 0.3], batch_size=100, epsilon=0.05, random_seed=2)
    return tree["log_ratios"].to_dataset()


def test_moments(values, group):
    np.testing.assert_allclose(group["mean"], values.mean(axis=1))
    np.testing.assert_allclose(group["sd"], values.std(axis=1))
    np.testing.assert_allclose(group["skewness"], stats.skew(values, axis=1))
    np.testing.assert_allclose(group["global"], [0.1, 0.2, 0.3])
    np.testing.assert_allclose(group["mu"], values.mean(axis=1) + np.array([0.1, 0.2, 0.3]) / N)
    assert group.attrs == {"n_local": N, "batch_size": 100, "epsilon": 0.05}


def test_the_largest_terms(values, group):
    distance = np.sort(np.abs(values - values.mean(axis=1, keepdims=True)), axis=1)[:, ::-1]
    np.testing.assert_allclose(group["top_terms"], distance[:, :101])
    for k in (1, 10, 100):
        share = (distance[:, :k] ** 2).sum(axis=1) / (distance**2).sum(axis=1)
        np.testing.assert_allclose(group["top_share"].sel(k=k), share)


def test_batches(values, group):
    """Means have the variance of draws without replacement, and studentised the law of Student's t."""
    mean, t = group["batch_means"].values, group["batch_t"].values
    error = values.std(axis=1) / 10 * np.sqrt(1 - 100 / N)
    z = (mean.mean(axis=1) - values.mean(axis=1)) / (error / np.sqrt(500))
    assert np.abs(z).max() < 4
    ratio = mean.std(axis=1, ddof=1) / error
    assert np.abs(ratio - 1).max() < 4 / np.sqrt(2 * 500)
    assert np.abs(np.std(t) / np.sqrt(99 / 97) - 1) < 4 / np.sqrt(2 * 1500)


def test_a_batch_of_most_of_the_terms_knows_the_mean():
    values = np.random.default_rng(3).normal(size=(1, 1000))
    group = from_log_ratios(values, batch_size=950, random_seed=1)["log_ratios"]
    assert group["batch_means"].std() < 0.3 / np.sqrt(950)
    assert abs(group["batch_t"].std().item() - 1) < 4 / np.sqrt(2 * 500)


def test_one_seed_gives_one_result(values):
    one, two = (from_log_ratios(values, random_seed=5)["log_ratios"].to_dataset() for _ in range(2))
    assert one.equals(two)


def test_equal_terms():
    group = from_log_ratios(np.full((2, N), 0.1))["log_ratios"]
    assert group["sd"].values.tolist() == [0.0, 0.0]
    assert group["skewness"].values.tolist() == [0.0, 0.0]
    assert np.isnan(group["batch_t"]).all()
    assert np.isnan(group["top_share"]).all()


def test_the_group_can_be_added_to_a_result(values, tmp_path):
    idata = result()
    idata.update(from_log_ratios(values))
    assert log_ratios_of(idata).attrs["n_local"] == N
    idata.to_netcdf(tmp_path / "idata.nc", engine="h5netcdf")
