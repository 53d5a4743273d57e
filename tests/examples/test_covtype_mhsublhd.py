"""The example on the Covertype data of Bardenet et al. (2014), in its fast mode, on synthetic data."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow("reads nearly all rows at every transition")


def test_both_rules_give_the_same_posterior(result):
    table = result["posterior"]
    assert np.all(table["largest rhat"] < 1.05), table
    assert np.all(table[["ESS, exact", "ESS, MHSubLhd"]] > 200), table
    assert np.all(table[["z of mean", "z of sd"]].abs() < 4), table


def test_less_is_read_on_the_way_than_at_the_mode(result):
    table = result["transient"].loc["MHSubLhd"]
    assert np.all(table["draws to the mode"] < 400), table
    assert np.all(table["share on the way"] < table["share at the mode"] - 0.1), table
    assert np.all(table["first 100 draws"] < table["share at the mode"] - 0.05), table
    assert np.all(table["share at the mode"] > 0.95), table


def test_exact_chain_reads_everything(result):
    table = result["transient"].loc["MetropolisHastings"]
    assert np.all(table[["share on the way", "share at the mode"]] == 1), table


def test_certificate_holds_and_is_tighter_than_norms(result):
    ranges = result["ranges"]
    assert np.all(ranges["least"] >= 1), ranges
    assert np.all(ranges["certified: mean"] < ranges["norms: mean"]), ranges
