"""Probabilities of coefficients and of models, from draws."""

import numpy as np
import pytest

from pymc_austerity.diagnostics import inclusion
from pymc_austerity.diagnostics.result import mcse
from tests.diagnostics.results import result as of_posterior


def result(gamma, **stats):
    return of_posterior({"gamma": gamma}, **stats)


@pytest.fixture(scope="module")
def gamma():
    draws = (np.random.default_rng(1).random((2, 500, 3)) < [0.7, 0.2, 1.0]).astype(int)
    draws[:, :, 1] *= draws[:, :, 0]
    return draws


def test_coefficients(gamma):
    table = inclusion(result(gamma)).coefficients
    assert list(table.index) == ["gamma[0]", "gamma[1]", "gamma[2]"]
    np.testing.assert_array_equal(table["probability"], gamma.mean(axis=(0, 1)))
    assert table.loc["gamma[0]", "error"] == pytest.approx(mcse(gamma[..., 0].astype(float)))
    assert table.loc["gamma[0]", "changes"] == np.sum(gamma[:, 1:, 0] != gamma[:, :-1, 0])
    # What never changed has no error that the draws could tell.
    assert table.loc["gamma[2]", "changes"] == 0
    assert np.isnan(table.loc["gamma[2]", ["error", "ess", "rhat"]].astype(float)).all()


def test_models(gamma):
    table = inclusion(result(gamma), n_models=2).models
    assert list(table.index) == ["101", "001"]
    here = np.all(gamma == [1, 0, 1], axis=-1)
    assert table.loc["101", "probability"] == here.mean()
    assert table.loc["101", "error"] == pytest.approx(mcse(here.astype(float)))
    assert inclusion(result(gamma)).models["probability"].sum() == pytest.approx(1.0)


def test_jumps(gamma):
    counts = {f"{kind}_{what}": np.zeros((2, 500)) for kind in ("births", "deaths", "swaps", "others")
              for what in ("proposed", "accepted", "used")}  # fmt: skip
    counts["births_proposed"][:] = 2
    counts["births_accepted"][:, :50] = 1
    counts["births_used"][:] = 600
    table = inclusion(result(gamma, **counts)).jumps
    assert table.loc["births"].tolist() == [2000, 0.05, 300.0]
    assert table.loc["swaps", "proposed"] == 0
    assert np.isnan(table.loc["swaps", "accepted"])
    assert inclusion(result(gamma, diverging=np.zeros((2, 500)))).jumps.empty


def test_chains_that_are_stuck_in_different_models():
    draws = np.zeros((2, 100, 1), dtype=int)
    draws[1, 30:] = 1
    assert inclusion(result(draws)).coefficients["rhat"].iloc[0] > 1.5
    draws[1, :50], draws[1, 50:] = 0, 1  # each half of a chain is constant
    assert inclusion(result(draws)).coefficients["rhat"].iloc[0] == np.inf


def test_one_model_only():
    ones = np.ones((2, 10, 2), dtype=int)
    found = inclusion(of_posterior({"gamma": ones, "other": ones}), "gamma")
    assert found.models["probability"].tolist() == [1.0]
    assert np.isnan(found.models["error"]).all()
