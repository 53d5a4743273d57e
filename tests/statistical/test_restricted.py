"""Hyperparameters drawn by a restricted step have the posterior that NUTS on the whole model finds."""

import numpy as np
import pymc as pm
import pytest

import pymc_austerity.model.restricted as view
from pymc_austerity import AusterityMH, restricted_nuts, restricted_slice
from tests.statistical.errors import LIMIT, error_of_mean, sd_with_error

pytestmark = [
    pytest.mark.slow("two long chains, of which one is NUTS on the whole model"),
    pytest.mark.filterwarnings("ignore:Tuning ended"),
]
GROUPS, ROWS = 6, 200
GROUP = np.repeat(np.arange(GROUPS), ROWS)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(20)
    y = 0.5 + rng.normal(0, 0.8, GROUPS)[GROUP] + rng.normal(0, 4, GROUPS * ROWS)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        tau = pm.Gamma("tau", 8, 10)
        effect = pm.Normal("effect", mu, tau, shape=GROUPS)
        pm.Normal("y", effect[GROUP], 4, observed=y)
    return model


def posterior(model, step, draws):
    """Draws of mu, log tau and one effect."""
    with model:
        idata = pm.sample(
            draws, tune=1000, chains=2, cores=1, step=step, random_seed=21, progressbar=False, quiet=True,
            nuts_sampler="pymc", compute_convergence_checks=False,
        )  # fmt: skip
    found = idata["posterior"]
    return [found["mu"].values, np.log(found["tau"].values), found["effect"].values[..., 0]]


def distances(one, two):
    """Differences of means and standard deviations, in standard errors."""
    result = []
    for x, y in zip(one, two, strict=True):
        result.append((x.mean() - y.mean()) / np.hypot(error_of_mean(x), error_of_mean(y)))
        (sd_x, error_x), (sd_y, error_y) = sd_with_error(x), sd_with_error(y)
        result.append((sd_x - sd_y) / np.hypot(error_x, error_y))
    return np.abs(result)


@pytest.fixture(scope="module")
def reference(model):
    return posterior(model, pm.NUTS(model=model), 10_000)


def mixed(model, make):
    hyper = make([model["mu"], model["tau"]], model=model)
    return [AusterityMH([model["effect"]], epsilon=0, steps_per_draw=30, model=model), hyper]


@pytest.mark.parametrize("make", [restricted_nuts, restricted_slice])
def test_same_posterior(model, reference, make):
    assert distances(posterior(model, mixed(model, make), 10_000), reference).max() < LIMIT


def test_a_missing_prior_is_noticed(model, reference, monkeypatch):
    """Planted bug: the check fails if a term is left out."""
    complete = view.raw_terms
    monkeypatch.setattr(
        view, "raw_terms", lambda *args: {k: v for k, v in complete(*args).items() if k != "tau"}
    )
    assert distances(posterior(model, mixed(model, restricted_nuts), 10_000), reference).max() > 2 * LIMIT
