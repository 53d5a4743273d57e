"""How much was read, whatever axes PyMC gives the statistics; and local terms for each effective draw."""

import arviz_stats
import numpy as np
import pytest

from pymc_austerity.diagnostics import data_usage_summary, effective_cost
from pymc_austerity.exceptions import SubsamplingWarning
from tests.diagnostics.results import result, stamped, walk

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
            n_used=used,
            fraction_used=used / 1000,
            exhausted=used * 0,
            acceptance_rate=both,
            accepted=used * 0 + 0.25,
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


# Effective draws ---------------------------------------------------------------------------------------

DRAWS = walk(np.random.default_rng(2), 0.5, (2, 400))


def made(draws=DRAWS, n_local=10_000.0, used=500.0, **stats):
    used = np.full(draws.shape[:2], used) if np.ndim(used) == 0 else used
    return result({"x": draws}, n_used=used, fraction_used=used / n_local, **stats)


def test_terms_over_effective_sample_size():
    row = effective_cost(made()).loc["x"]
    assert row["ess"] == pytest.approx(float(arviz_stats.ess(DRAWS)))
    assert row["terms_per_effective_draw"] == pytest.approx(500 * 800 / row["ess"])
    assert row["passes_per_effective_draw"] == pytest.approx(0.05 * 800 / row["ess"])


def test_steps_are_added_up_each_in_its_own_passes():
    used = np.full((2, 400, 2), [500.0, 100.0])
    row = effective_cost(made(used=used, n_local=np.array([10_000.0, 1000.0]))).loc["x"]
    assert row["terms_per_effective_draw"] == pytest.approx(600 * 800 / row["ess"])
    assert row["passes_per_effective_draw"] == pytest.approx(0.15 * 800 / row["ess"])


def test_several_transitions_for_a_draw():
    once = effective_cost(made()).loc["x", "terms_per_effective_draw"]
    assert effective_cost(made(), steps_per_draw=3).loc["x", "terms_per_effective_draw"] == pytest.approx(
        3 * once
    )
    noted = stamped(
        made(),
        {"step": "NUTS", "vars": ["y"], "stats": ["tree_depth"]},
        {"stats": ["n_used"], "steps_per_draw": 4},
    )
    found = effective_cost(noted)
    assert found.loc["x", "terms_per_effective_draw"] == pytest.approx(4 * once)
    assert effective_cost(noted, steps_per_draw=4).equals(found)
    used = np.full((2, 400, 2), 500.0)
    assert effective_cost(made(used=500.5), steps_per_draw=2).loc["x", "ess"] > 0.0
    row = effective_cost(made(used=used), steps_per_draw=[1, 2]).loc["x", "terms_per_effective_draw"]
    assert row == pytest.approx(3 * once)


def test_two_steps_of_one_name():
    """Large and small moves of the same variables, each with its own number of transitions."""
    records = [{"stats": ["n_used", "fraction_used"], "steps_per_draw": n} for n in (5, 1)]
    found = effective_cost(stamped(made(used=np.full((2, 400, 2), 500.0)), *records)).loc["x"]
    once = effective_cost(made()).loc["x"]
    assert found["terms_per_effective_draw"] == pytest.approx(6 * once["terms_per_effective_draw"])
    assert found["passes_per_effective_draw"] == pytest.approx(6 * once["passes_per_effective_draw"])


def test_constants_and_infinite_draws_have_no_cost():
    draws = np.stack([DRAWS, np.ones_like(DRAWS), np.where(DRAWS > 2, np.inf, DRAWS)], axis=-1)
    table = effective_cost(made(draws))
    assert table.loc["x[0]"].notna().all()
    assert table.loc[["x[1]", "x[2]"]].isna().all(axis=None)


def test_a_thinned_result_has_cost_what_was_left_out():
    whole = made()
    with pytest.warns(SubsamplingWarning, match="Of 10 draws idata has one"):
        thin = effective_cost(whole.sel(draw=slice(None, None, 10))).loc["x"]
    terms = thin["terms_per_effective_draw"] * thin["ess"]
    assert terms == pytest.approx(500 * 800)
