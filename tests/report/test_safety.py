"""What is said of chains that are too wide: never that they are safe, nor that they are cheap."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH, MetropolisHastings, RandomWalk, compare

pytestmark = pytest.mark.slow("steps on 20,000 rows are compared, over many draws")

N, BETA = 20_000, 2
# Of the paper: a random walk of a twentieth of the prior sd would be rejected; this is one posterior sd.
WALK = RandomWalk(scale=0.015)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, BETA))
    y = (rng.random(N) < 1.0 / (1.0 + np.exp(-x @ np.array([0.5, -0.5])))).astype(float)
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.math.dot(x, pm.Normal("beta", 0, 2, shape=BETA)), observed=y)
    return model


@pytest.fixture(scope="module")
def comparison(model):
    """The exact step beside itself, and the test with two tolerances that make the posterior too wide."""
    steps = {
        "exact step": MetropolisHastings(proposal=WALK, model=model),
        "0.05": AusterityMH(epsilon=0.05, batch_size=500, proposal=WALK, model=model),
        "0.2": AusterityMH(epsilon=0.2, batch_size=500, proposal=WALK, model=model),
    }
    return compare(
        model,
        steps,
        budget={"draws": 2500},
        reference_budget={"draws": 1200},
        tune=500,
        chains=2,
        n_pairs=5,
        random_seed=4,
    )


@pytest.mark.parametrize("name", ["0.05", "0.2"])
def test_normal_batch_means_are_not_called_safe(comparison, name):
    table = comparison.to_dataframe()
    assert table.loc[name, "normality"] == "normal enough"
    assert table.loc[name, "sd_ratio"] > 1.15
    assert not table.loc[name, "safe"]
    assert table.loc[name, "too_wide"]
    _, judgement, probe = next(each for each in comparison.results if each[0].name == name)
    assert judgement.largest_ratio > table.loc[name, "sd_ratio"]
    assert "safe" not in probe.reason
    assert "By a heuristic of the design theory" in probe.reason


def test_no_safe_beside_such_ratios(comparison):
    for text in (comparison.to_markdown(), comparison.to_html(), comparison._repr_html_(), repr(comparison)):
        assert "safe here" not in text
    assert comparison.to_markdown().count("effective draws are not those of the posterior") == 2


def test_the_exact_step_is_not_called_wide(comparison):
    table = comparison.to_dataframe()
    assert not table.loc["exact step", "too_wide"]
    assert table.loc["exact step", "verdict"] != "differs"
