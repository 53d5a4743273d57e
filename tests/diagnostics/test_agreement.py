"""Are differences of two samples measured in their Monte Carlo error?"""

import math

import numpy as np
import pytest
from scipy import stats

from pymc_austerity import SubsamplingWarning
from pymc_austerity.diagnostics import agreement
from tests.diagnostics.results import result, walk


def compared(a, b, **options):
    return agreement(result({"x": a}), result({"x": b}), **options)


def test_two_normal_samples():
    rng = np.random.default_rng(1)
    a, b = rng.normal(1.0, 2.0, (4, 2000)), rng.normal(0.0, 1.0, (4, 2000))
    row = compared(a, b).loc["x"]
    assert row["shift"] == pytest.approx((a.mean() - b.mean()) / b.std(), rel=1e-3)
    assert row["sd_ratio"] == pytest.approx(a.std() / b.std(), rel=1e-3)
    assert row["shift_error"] == pytest.approx(np.sqrt(5 / 8000), rel=0.1)
    assert row["sd_ratio_error"] == pytest.approx(2 * np.sqrt(2 / 2 / 8000), rel=0.15)
    assert row["ks"] == pytest.approx(stats.ks_2samp(a.ravel(), b.ravel()).statistic)
    assert row["ks_pvalue"] < 1e-10
    assert row["wasserstein"] == pytest.approx(1.2, abs=0.15)


@pytest.fixture(scope="module")
def pairs():
    """150 pairs of autocorrelated samples of one law, with other correlations."""
    rng = np.random.default_rng(3)
    shape = (4, 500, 150)
    return walk(rng, 0.9, shape), walk(rng, 0.5, shape)


@pytest.mark.slow("a planted fault, in steps of its own")
def test_differences_of_one_law_are_standard_normal(pairs):
    table = compared(*pairs)
    n = len(table)
    for z in (table["shift"] / table["shift_error"], (table["sd_ratio"] - 1) / table["sd_ratio_error"]):
        assert abs(z.mean()) < 4 / np.sqrt(n)
        assert abs(z.std() - 1) < 4 / np.sqrt(2 * n)
    rejected = (table["ks_pvalue"] < 0.05).sum()
    assert stats.binomtest(int(rejected), n, 0.05, alternative="greater").pvalue > 0.001
    assert stats.binomtest(int(rejected), n, 0.05, alternative="less").pvalue > 0.001


@pytest.mark.parametrize("kind", ["alternating", "slow scale"])
@pytest.mark.covering(1)
def test_distributions_of_draws_whose_mean_mixes_fast(kind):
    """Alternating draws, as of NUTS, and draws whose scale changes slowly, have many effective draws."""
    rng = np.random.default_rng(9)

    def draws():
        if kind == "alternating":
            return walk(rng, -0.5, (4, 1000, 200))
        return rng.normal(size=(4, 1000, 200)) * np.exp(0.5 * walk(rng, 0.95, (4, 1000, 200)))

    a, b = draws(), draws()
    table = compared(a, b)
    rejected = int((table["ks_pvalue"] < 0.05).sum())
    assert stats.binomtest(rejected, 200, 0.05, alternative="greater").pvalue > 0.001
    # Thinned by the effective draws of the mean alone, too many are rejected.
    every = [
        math.ceil(1.5 * a[..., 0].size / size)
        for size in np.minimum(table[["ess_a", "ess_b"]].min(axis=1), 4000)
    ]
    naive = [
        stats.ks_2samp(a[:, ::n, k].ravel(), b[:, ::n, k].ravel()).pvalue < 0.05 for k, n in enumerate(every)
    ]
    assert stats.binomtest(int(np.sum(naive)), 200, 0.05, alternative="greater").pvalue < 0.001


@pytest.mark.slow("a planted fault, in steps of its own")
def test_an_error_that_forgets_autocorrelation_would_be_noticed(pairs):
    """Planted fault: errors of independent draws."""
    table = compared(*pairs)
    independent = np.sqrt(2 / pairs[0][..., 0].size)
    z = table["shift"] / independent
    assert abs(z.std() - 1) > 4 / np.sqrt(2 * len(table))
    pvalues = [
        stats.ks_2samp(a.ravel(), b.ravel()).pvalue for a, b in zip(*np.moveaxis(pairs, -1, 1), strict=True)
    ]
    rejected = int(np.sum(np.array(pvalues) < 0.05))
    assert stats.binomtest(rejected, len(table), 0.05, alternative="greater").pvalue < 0.001


@pytest.mark.slow("a planted fault, in steps of its own")
def test_a_shift_and_a_wider_law_are_noticed(pairs):
    """Planted fault: a shift; a wider law."""
    a, b = (chains[..., :100] for chains in pairs)
    shifted, wide = compared(a + 0.5, b), compared(1.5 * a, b)
    z = (shifted["shift"] / shifted["shift_error"]).to_numpy()
    assert np.mean(z > 3) > 0.9
    assert np.abs(shifted["shift"].mean() - 0.5) < 0.05
    assert np.mean(((wide["sd_ratio"] - 1) / wide["sd_ratio_error"]) > 3) > 0.9
    assert np.mean(shifted["ks_pvalue"] < 0.01) > 0.7


def test_indices_and_variables():
    rng = np.random.default_rng(5)
    a = result(
        {"x": rng.normal(size=(2, 100, 2)), "y": rng.normal(size=(2, 100)), "only_a": np.zeros((2, 100))}
    )
    b = result({"y": rng.normal(size=(2, 100)), "x": rng.normal(size=(2, 100, 2))})
    assert list(agreement(a, b).index) == ["y", "x[0]", "x[1]"]
    assert list(agreement(a, b, var_names="x").index) == ["x[0]", "x[1]"]
    assert list(agreement(a, b, var_names=["y"]).index) == ["y"]


def test_constants():
    rng = np.random.default_rng(6)
    x, one = rng.normal(size=(2, 100)), np.ones((2, 100))
    same = compared(one, one).loc["x"]
    assert same[["shift", "sd_ratio", "ks", "ks_pvalue", "wasserstein"]].tolist() == [0, 1, 0, 1, 0]
    for a, b in ((one, 2 * one), (x, one), (one, x)):
        row = compared(a, b).loc["x"]
        assert np.isnan(row["shift"])
        assert row["ks"] > 0.5


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_draws_that_are_not_finite(bad):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(2, 100, 2))
    y = x.copy()
    y[0, 3, 1] = bad
    with pytest.warns(SubsamplingWarning, match=r"Draws of x\[1\] are not finite"):
        table = compared(y, x)
    assert table.loc["x[1]"].isna().all()
    assert table.loc["x[0]"].notna().all()


def test_whole_numbers_and_unequal_lengths():
    rng = np.random.default_rng(8)
    row = compared(rng.poisson(3.0, (2, 500)), rng.poisson(3.0, (4, 1000))).loc["x"]
    assert abs(row["shift"]) < 4 * row["shift_error"]
    assert row["ess_a"] < 1500 < row["ess_b"]
