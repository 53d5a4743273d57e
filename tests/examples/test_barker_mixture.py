"""The example of a tempered mixture, in its fast mode."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow("samples the example's chains")
FAST = {"long": (2000, 10)}


def test_minibatch_barker_reads_a_few_hundred_points(result):
    sizes = result["sizes"]
    assert 180 < sizes.loc["MinibatchBarker", "mean"] < 220
    assert sizes.loc["MinibatchBarker", "99.9 %"] < 2500
    assert sizes.loc["MinibatchBarker", "mean"] < 0.25 * sizes.loc["AusterityMH", "mean"]
    assert sizes.loc["AusterityMH", "mean"] < 0.5 * sizes.loc["MHSubLhd", "mean"]
    assert sizes.loc["MetropolisHastings", "mean"] == 20_000


def test_moments_are_those_of_quadrature(result):
    table = result["moments"]
    assert np.all(table[["z", "z "]].abs() < 4), table
    assert np.all(table["ESS"] > 60), table
