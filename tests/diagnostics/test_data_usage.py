"""How much was read: one row for each step, whatever axes PyMC gives the statistics."""

import numpy as np
import pytest

from pymc_austerity.diagnostics import data_usage_summary
from tests.diagnostics.results import result

RNG = np.random.default_rng(1)


def test_one_step():
    used = RNG.integers(1, 20, (2, 50)) * 500.0
    table = data_usage_summary(
        result(
            n_used=used,
            fraction_used=used / 10_000,
            n_stages=used / 500,
            exhausted=used == 10_000,
            psi=used,
            acceptance_rate=np.full((2, 50), 0.3),
        )
    )
    assert list(table.index) == ["step"]
    row = table.loc["step"]
    assert row["n_local"] == 10_000
    assert row["n_used"] == pytest.approx(used.mean())
    assert row["median"] == np.median(used)
    assert row["q95"] == pytest.approx(np.quantile(used, 0.95))
    assert row["max"] == used.max()
    assert row["fraction_used"] == pytest.approx(used.mean() / 10_000)
    assert row["n_stages"] == pytest.approx(used.mean() / 500)
    assert row["exhausted"] == (used == 10_000).mean()
    assert row["acceptance_rate"] == pytest.approx(0.3)


def test_two_steps_of_different_size():
    used = np.stack([np.full((2, 5), 100.0), np.full((2, 5), 600.0)], axis=-1)
    table = data_usage_summary(result(n_used=used, fraction_used=used / [1000, 2000], psi=used))
    assert list(table.index) == ["step 0", "step 1"]
    assert list(table["n_local"]) == [1000, 2000]
    assert list(table["fraction_used"]) == pytest.approx([0.1, 0.3])


def test_acceptance_of_nuts_beside_us_is_not_taken_for_ours():
    used = np.full((2, 5), 100.0)
    both = np.stack([np.full((2, 5), 0.9), np.full((2, 5), 0.3)], axis=-1)  # NUTS, then us
    table = data_usage_summary(
        result(
            n_used=used, fraction_used=used / 1000, psi=used, acceptance_rate=both, accepted=used * 0 + 0.25
        )
    )
    assert table.loc["step", "acceptance_rate"] == 0.25
    table = data_usage_summary(result(n_used=used, fraction_used=used / 1000, acceptance_rate=both[..., 0]))
    assert np.isnan(table.loc["step", "acceptance_rate"])  # SCIR records none: it is of NUTS


def test_statistics_of_one_of_two_steps_are_not_given_to_both():
    used = np.full((2, 5, 2), 100.0)  # SCIR and AusterityMH
    table = data_usage_summary(
        result(n_used=used, fraction_used=used / 1000, psi=used[..., 0], exhausted=used[..., 0])
    )
    assert table["exhausted"].isna().all()
    assert list(table["n_used"]) == [100.0, 100.0]


def test_a_step_that_has_read_nothing():
    nothing = np.zeros((1, 5))
    table = data_usage_summary(result(n_used=nothing, fraction_used=nothing))
    assert np.isnan(table.loc["step", "n_local"])
    assert table.loc["step", "n_used"] == 0.0


def test_draws_without_a_statistic_are_left_out():
    used = np.array([[np.nan, 100.0, 300.0]])
    table = data_usage_summary(result(n_used=used, fraction_used=used / 1000))
    assert table.loc["step", "n_used"] == 200.0
    assert table.loc["step", "n_local"] == 1000


@pytest.mark.parametrize("stats", [{}, {"tree_depth": np.ones((1, 2))}])
def test_without_a_subsampled_step(stats):
    with pytest.raises(ValueError, match="no subsampled step took part|no group sample_stats"):
        data_usage_summary(result(**stats))
