"""The example on the digits 7 and 9, in its fast mode, which has synthetic data of the same kind."""

import sys

import numpy as np
import pytest

# The rows are a constant of more than a megabyte in the functions that pm.NUTS compiles, too large for the
# cache on disk. PyTensor ignores what numba says of it, but the filters of pytest come after its own.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Cannot cache compiled function"),
    pytest.mark.slow("samples the example's chains beside NUTS"),
]
FAST = {"reference": (400, 400, 2, 1), "budget": 2e6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logistic")


@pytest.fixture(scope="module")
def result(example, folder):
    return example["main"](output=folder, start="posterior")


def test_reference_has_converged_and_is_saved(example, folder, result):
    truth = result["truth"]
    assert truth["rhat"] < 1.05
    assert truth["ess"] > 400
    X, y, X_test, _ = example["synthetic"]()
    (path,) = folder.glob("*.npz")
    saved = path.stat().st_mtime_ns
    again = example["reference"](None, X, y, X_test, example["FAST"]["reference"], folder)
    assert path.stat().st_mtime_ns == saved
    assert np.all(again["mean"] == truth["mean"])


def test_larger_epsilon_reads_less(result):
    table = result["table"]
    assert table["share"].iloc[0] == 1
    assert np.all(np.diff(table["share"]) < 0)
    assert table["share"].iloc[-1] > 500 / 3000
    assert table["acceptance"].between(0.4, 0.65).all()


def test_every_chain_reads_about_the_same(example, result):
    budget = example["FAST"]["budget"]
    for run in result["results"]:
        assert 0.8 * budget < run["terms"][-1] < 1.2 * budget


def test_risk_falls_from_the_posterior_variance(result):
    variance = result["truth"]["variance"]
    for run in result["results"]:
        # The first draw is near a draw from the posterior.
        assert 0.4 < run["risk"][0] / variance < 2.5
        assert run["risk"][-1] < 0.6 * run["risk"][0]


def test_weights_of_zero_are_far_off(example, folder, result):
    start = example["main"](output=folder, budget=3e5)
    variance = result["truth"]["variance"]
    for run in start["results"]:
        assert run["risk"][0] > 5 * variance
        assert run["risk"][-1] < run["risk"][0]
    assert start["figure"] != result["figure"]


def test_figure_is_saved(result):
    assert result["figure"].stat().st_size > 10_000


def test_running_means(example):
    rng = np.random.default_rng(1)
    beta, X = rng.normal(size=(7, 3)), rng.normal(size=(5, 3))
    p = 1 / (1 + np.exp(-beta @ X.T))
    mean, variance = example["predictive"](beta, X, block=3)
    assert mean == pytest.approx(p.mean(axis=0))
    assert variance == pytest.approx(p.var(axis=0))
    errors = example["squared_errors"](beta, X, mean, np.array([1, 4, 7]))
    expected = [np.mean((p[:n].mean(axis=0) - mean) ** 2) for n in (1, 4, 7)]
    assert errors == pytest.approx(expected, abs=1e-15)


def test_components_of_a_file_of_pixels(example, pixels):
    file = pixels("mnist79.npz", [7, 9])
    X, y, X_test, y_test = example["mnist"]()
    assert X.shape == (200, 50)
    assert X_test.shape == (20, 50)
    assert np.all(y == (file["digit_train"] == 9))
    assert np.all(y_test == (file["digit_test"] == 9))
    assert X.mean(axis=0) == pytest.approx(0, abs=1e-12)
    covariance = np.cov(X.T)
    assert np.all(np.diff(np.diag(covariance)) < 0)
    assert covariance - np.diag(np.diag(covariance)) == pytest.approx(0, abs=1e-12)


def test_without_file_and_without_scikit_learn(example, monkeypatch):
    monkeypatch.delenv("PYMC_AUSTERITY_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="PYMC_AUSTERITY_DATA"):
        example["mnist"]()
