"""The example on the design of tests, in its fast mode, on synthetic data."""

import numpy as np
import pytest

from pymc_austerity.acceptance import TTest

pytestmark = pytest.mark.slow("simulates a thousand decisions for each design")


def test_tests_err_and_read_as_predicted(result):
    table = result["table"]
    both = table[["mean above", "mean below"]].mean(axis=1)
    # Far from the threshold 200 tests may not err at all.
    spread = np.maximum(table["mc error"], 0.005)
    assert np.all(np.abs(both - table["error"]) < 4 * spread)
    away = (table["simulated usage"] - table["data usage"]) / table["usage mc error"]
    assert np.all(np.abs(away) < 4.5)


def test_errors_of_acceptance_are_as_predicted(example, result):
    delta, spread, _ = result["acceptance"]
    moves = result["other"]
    predicted = example["acceptance_error"](
        moves.mu, moves.sigma_l, moves.N, batch_size=result["batch"], epsilon=example["SHOWN"]
    )
    assert np.corrcoef(delta, predicted)[0, 1] > 0.8
    assert abs(np.mean(delta - predicted)) < 4 * np.sqrt(np.mean(spread**2) / len(delta)) + 0.005


def test_designs_keep_what_they_promise(result):
    designs = result["designs"].set_index(["design", "target"])
    for target in (0.02, 0.05, 0.1):
        average, worst = (designs.loc[kind, target] for kind in ("average", "worst case"))
        assert average["promised"] <= target
        assert average["error"] == pytest.approx(average["promised"], rel=0.25)
        # By the real rule, in 50 decisions about each of 60 moves: four standard errors at most.
        assert average["simulated"] == pytest.approx(average["error"], abs=4 * np.sqrt(0.1 / 3000))
        assert worst["error"] < 0.3 * target
        assert average["data usage"] < worst["data usage"] - 0.1
        assert average["simulated usage"] == pytest.approx(average["data usage"], abs=0.03)


def test_decisions_are_those_of_the_rule(example):
    """With epsilon = 1/2 the first batch decides; a tiny epsilon reads everything, and is right."""
    rng = np.random.default_rng(1)
    terms = rng.normal(size=1000)
    psi = terms.mean() + rng.normal(size=300) * 0.01
    above, used = example["decisions"](terms, psi, TTest(0.5, 100), rng)
    assert np.all(used == 0.1)
    assert 0.4 < np.mean(above == (terms.mean() > psi)) < 0.75
    above, used = example["decisions"](terms, psi, TTest(1e-9, 100), rng)
    assert np.mean(used == 1) > 0.9
    assert np.mean(above == (terms.mean() > psi)) > 0.99


def test_figure_is_saved(result):
    assert result["figure"].name == "test_design.png"
    assert result["figure"].stat().st_size > 50_000
