"""The example on the RAND data, in its fast mode."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.datasets import randhie

pytestmark = pytest.mark.slow("samples a reference by NUTS")

SCRIPT = Path(__file__).parents[2] / "examples" / "randhie_doctor_visits.py"

# What epsilon = 0.01 may do to a posterior mean, in posterior sds: a single chain of 20,000 transitions was
# at most 0.2 away, with a Monte Carlo error of 0.05.
BIAS = 0.3
# What the priors may do: mode and mean of the posterior are this close to the maximum of the likelihood.
PRIOR = 0.1


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    figure = tmp_path_factory.mktemp("randhie") / "figures" / "randhie.png"
    example = runpy.run_path(str(SCRIPT))
    return {**example["main"](fast=True, figure=figure), "figure": figure, "names": example["COVARIATES"]}


def test_all_rows_are_local(result):
    assert result["factorisation"].local_terms == [("visits", 20190)]
    assert result["factorisation"].global_terms == ["beta", "alpha"]


def test_means_agree_within_monte_carlo_error(result):
    table = result["table"]
    assert np.all(table["shift"].abs() < BIAS + 4 * table["error"]), table


def test_exact_chain_agrees_with_maximum_likelihood(result):
    data = randhie.load_pandas().data
    columns = data[list(result["names"])]
    X = sm.add_constant((columns - columns.mean()) / columns.std(ddof=0))
    fit = sm.NegativeBinomial(data["mdvis"], X).fit(disp=False)
    *beta, overdispersion = fit.params
    table, ess = result["table"], result["exact"]["ess"]
    distance = (table["exact mean"] - [*beta, 1 / overdispersion]) / table["exact sd"]
    assert np.all(np.abs(distance) < PRIOR + 4 / np.sqrt(ess)), distance


def test_costs(result):
    exact, subsampled = result["exact"], result["subsampled"]
    assert np.all(exact["stats"]["n_used"] == 20190)
    assert 0.3 < subsampled["cost"]["share of data"] < 0.9


def test_figure_is_saved(result):
    assert result["figure"].stat().st_size > 10_000
