"""Figures 1 and 2 of Baker et al. (2018): distances of SCIR and SGRLD from sparse and dense posteriors."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "sparse_simplex.py"))

# Mean distance, and its standard deviation between seeds, of a reference implementation.
REFERENCE = {
    ("sparse", 10): (0.091, 0.010),
    ("sparse", 50): (0.057, 0.008),
    ("sparse", 100): (0.055, 0.007),
    ("sparse", 500): (0.034, 0.005),
    ("dense", 10): (0.175, 0.025),
    ("dense", 50): (0.105, 0.015),
    ("dense", 100): (0.087, 0.014),
    ("dense", 500): (0.051, 0.012),
}


def distances(method, case, n, seeds):
    """Each with the best step size of the seed."""
    run, distance, sizes = EXAMPLE["run"], EXAMPLE["distance"], EXAMPLE["STEP_SIZES"][method]
    return np.array(
        [min(distance(run(method, case, n, h, seed), case) for h in sizes) for seed in range(seeds)]
    )


# The distance itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["sparse", "dense"])
def test_transform_of_independent_draws_is_uniform(case):
    shape = EXAMPLE["ALPHA"] + EXAMPLE["COUNTS"][case]
    uniform = np.concatenate(
        [EXAMPLE["rosenblatt"](EXAMPLE["independent"](case, seed), shape) for seed in range(10)]
    )
    for column in uniform.T:
        assert stats.kstest(column, stats.uniform.cdf).pvalue > 1e-3


def test_transform_notices_another_prior():
    """Planted fault: another prior."""
    shape = EXAMPLE["COUNTS"]["sparse"] + 0.12
    uniform = np.concatenate(
        [EXAMPLE["rosenblatt"](EXAMPLE["independent"]("sparse", seed), shape) for seed in range(10)]
    )
    assert stats.kstest(uniform[:, 4], stats.uniform.cdf).pvalue < 1e-6


def test_transform_with_components_below_the_smallest_number():
    """Beta(1e-3, 1) has the distribution function x^0.001."""
    log_theta = np.array([[-2000.0, 0.0], [-1e5, 0.0]])
    uniform = EXAMPLE["rosenblatt"](log_theta, np.array([1e-3, 1.0]))
    np.testing.assert_allclose(uniform[:, 0], np.exp(1e-3 * log_theta[:, 0]), rtol=1e-9)


# The samplers -------------------------------------------------------------------------------------------


@pytest.mark.slow("20 or 40 chains of each method")
@pytest.mark.parametrize(("case", "n"), REFERENCE)
def test_distance(case, n):
    """With the best step size of each seed. SGRLD is three times as far where the posterior is sparse."""
    mean, sd = REFERENCE[case, n]
    found = distances("SCIR", case, n, 20)
    # Both means have Monte Carlo errors; the reference is one of five seeds.
    assert abs(found.mean() - mean) < 4 * np.hypot(sd / np.sqrt(5), found.std(ddof=1) / np.sqrt(20))
    if case == "sparse":
        assert distances("SGRLD", case, n, 5).min() > 3 * found[:5].max()


@pytest.mark.slow("20 or 40 chains of each method")
def test_median_of_a_small_component():
    """Figure 1: the fifth of the sparse case, batches of ten."""
    assert np.log10(stats.beta(0.1, 1000.9).median()) == pytest.approx(-6.22, abs=0.01)
    run, log10_w = EXAMPLE["run"], EXAMPLE["log10_w"]
    medians = {
        method: np.array([np.median(log10_w(run(method, "sparse", 10, h, seed))) for seed in range(40)])
        for method, h in {"SCIR": 0.1, "SGRLD": 1e-4}.items()
    }
    assert abs(medians["SCIR"].mean() + 6.22) < 4 * medians["SCIR"].std(ddof=1) / np.sqrt(40)
    assert medians["SGRLD"].min() > -5
