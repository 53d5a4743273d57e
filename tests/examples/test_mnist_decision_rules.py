"""The example on the digits 1 and 7, in its fast mode, which has synthetic data."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow("a chain for each rule")

FULL_READERS = ["MHSubLhd", "MHSubLhd, exact range"]


def test_points_read_for_a_decision(result):
    sizes = result["tables"]["sizes"]
    assert 300 < sizes.loc["MinibatchBarker", "mean"] < 0.7 * sizes.loc["AusterityMH", "mean"]
    assert sizes.loc["MinibatchBarker", "largest"] < 0.6 * sizes.loc["AusterityMH", "largest"]
    assert np.all(sizes.loc[FULL_READERS, "mean"] > 0.95 * 5000)
    assert np.all(sizes["largest"] <= 5000)


def test_every_chain_reads_the_budget(example, result):
    for chains in result["results"].values():
        assert 0 <= chains["used"].sum() - 2 * example["FAST"]["budget"] <= 2 * 5000


def test_minibatch_barker_reads_less_for_the_same_accuracy(result):
    costs = result["tables"]["costs"]
    for accuracy in ("to 80%", "to 88%"):
        assert np.all(costs.loc["MinibatchBarker", accuracy] < 0.5 * costs.loc[FULL_READERS, accuracy])


def test_all_rules_come_to_the_same_classifier(result):
    accuracy = result["tables"]["accuracy"].iloc[:, -2]
    assert accuracy.name == "3e+06"
    assert np.all(accuracy > 0.87), accuracy
    assert accuracy.max() - accuracy.min() < 0.05
    likelihood = result["tables"]["log likelihood"]
    assert np.all(likelihood["3e+06"] > likelihood["1e+05"] + 0.2)


def test_smaller_steps_read_less(result):
    mean = result["tables"]["steps"].loc[(0.02, "MinibatchBarker"), "mean"]
    assert mean < result["tables"]["sizes"].loc["MinibatchBarker", "mean"]


def test_curve(example):
    values, used = np.array([1.0, 2.0, 4.0, 8.0]), np.array([100.0, 100.0, 100.0, 200.0])
    # Read after each draw: 100, 200, 300, 500.
    at = example["curve"](values, used, np.array([50.0, 100.0, 240.0, 300.0, 360.0, 500.0]))
    assert at == pytest.approx([np.nan, 1, 2, 4, 4, 8], nan_ok=True)
    assert example["first_at"](4, at[1:], np.arange(5)) == 2
    assert np.isnan(example["first_at"](9, at[1:], np.arange(5)))


def test_predictions(example):
    rng = np.random.default_rng(1)
    beta, X, y = rng.normal(size=(7, 3)), rng.normal(size=(40, 3)), rng.integers(0, 2, size=40)
    accuracy, log_likelihood = example["predictions"](beta, X, y, block=3)
    p = 1 / (1 + np.exp(-beta @ X.T))
    assert accuracy == pytest.approx(np.mean((p > 0.5) == y, axis=1))
    assert log_likelihood == pytest.approx(np.log(np.where(y == 1, p, 1 - p)).mean(axis=1))


def test_components_of_a_file_of_pixels(example, pixels):
    file = pixels("mnist17.npz", [1, 7])
    X, y, X_test, y_test = example["mnist"]()
    assert X.shape == (200, 50)
    assert X_test.shape == (20, 50)
    assert np.all(y == (file["digit_train"] == 7))
    assert np.all(y_test == (file["digit_test"] == 7))
    assert X.mean(axis=0) == pytest.approx(0, abs=1e-12)
    assert np.cov(X.T, ddof=0) == pytest.approx(np.eye(50), abs=1e-12)
