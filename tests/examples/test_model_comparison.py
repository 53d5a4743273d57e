"""The example on model comparison, in its fast mode."""

import arviz as az
import numpy as np
import pytest

pytestmark = pytest.mark.slow("samples three models, with their log likelihoods")


@pytest.fixture(scope="module")
def result(example):
    return example["main"]()


def normal_draws(rng, widen=1.0, n=400, draws=2000):
    """A normal mean: draws of a posterior that is `widen` times too wide, and the log likelihood."""
    y = np.random.default_rng(5).normal(size=n)
    mu = y.mean() + widen * rng.normal(size=(2, draws)) / np.sqrt(n)
    terms = -0.5 * (y - mu[..., None]) ** 2 - 0.5 * np.log(2 * np.pi)
    return az.from_dict({"posterior": {"mu": mu}, "log_likelihood": {"y": terms}}), y


def test_loo_of_a_normal_mean(example):
    """Leaving one out is known in closed form: the mean of the others, and its variance."""
    idata, y = normal_draws(np.random.default_rng(1))
    n = len(y)
    mean, variance = (y.sum() - y) / (n - 1), 1 + 1 / (n - 1)
    exact = np.sum(-0.5 * (y - mean) ** 2 / variance - 0.5 * np.log(2 * np.pi * variance))
    assert example["loo"](idata).elpd == pytest.approx(exact, abs=4 * example["monte_carlo_error"](idata))


def test_a_wide_posterior_loses_what_the_rule_of_thumb_says(example):
    found = [
        example["loo"](normal_draws(np.random.default_rng(k), r)[0]).elpd for k, r in ((1, 1.0), (2, 1.5))
    ]
    assert found[1] - found[0] == pytest.approx(-(1.5**2 - 1), abs=0.4)


def test_monte_carlo_error_is_that_of_repeated_runs(example):
    runs = [normal_draws(np.random.default_rng(k), n=30, draws=400)[0] for k in range(30)]
    spread = np.std([example["loo"](run).elpd for run in runs], ddof=1)
    errors = [example["monte_carlo_error"](run) for run in runs]
    # The standard deviation of thirty numbers is known to 13 %.
    assert np.mean(errors) / spread == pytest.approx(1.0, abs=0.45)


def test_elpds_agree_within_monte_carlo_error(result):
    table = result["table"]
    for name in table.columns:
        assert abs(table.at["difference", name]) < 4 * table.at["its error", name], table


def test_both_fits_rank_the_models_in_the_same_way(result):
    assert list(result["ranking"].index) == list(result["exact ranking"].index)


def test_a_part_of_the_rows_is_read(result):
    assert all(100 < read < 1000 for read in result["read"].values())
