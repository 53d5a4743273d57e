"""The example on the two Gaussian models of Bardenet et al. (2014), in its fast mode."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow("reads nearly all rows at every transition")
FAST = {
    "draws": {"MetropolisHastings": 100, "MHSubLhd": 250, "AusterityMH": 3000},
    "sizes": {10_000: 2000, 100_000: 1000},
}


def test_mhsublhd_is_right_and_reads_everything(result):
    table = result["sigma"].xs("MHSubLhd", level=1)
    assert np.all(table["bias %"].abs() < 5 * table["error"]), table
    assert np.all(table["share of data"] > 0.98), table


def test_small_batches_and_heavy_tails_move_the_sequential_test(result):
    table = result["sigma"].xs("AusterityMH", level=1)
    bias, error = table["bias %"].to_numpy(), table["error"].to_numpy()
    assert np.all(bias[[0, 2]] < -2), table
    assert np.all(bias[[0, 2]] < -4 * error[[0, 2]]), table
    assert abs(bias[1]) < 0.3
    assert np.all(table["share of data"] < 0.4)


def test_share_of_the_data_falls(result):
    shares = result["shares"]
    assert abs(shares.loc[100_000, "share of data"] - 0.53) < 0.05
    assert shares.loc[10_000, "share of data"] > shares.loc[100_000, "share of data"] + 0.05
    assert np.all(np.abs(shares["mean of theta [sd]"]) < 4 * shares["error "])
    assert np.all(np.abs(shares["sd of theta [sd]"] - 1) < 4 * shares["error  "])


def test_figures_are_saved(result):
    for figure in result["figures"]:
        assert figure.stat().st_size > 10_000
