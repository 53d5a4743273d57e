"""What a user does with grouped models: four chains, and predictions."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

from pymc_austerity import TunaMH
from tests.statistical.hierarchies.models import model_of, simulate

pytestmark = pytest.mark.filterwarnings("ignore:Tuning ended")
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
N, G = 4000, 50


def test_four_chains_in_arviz():
    model = model_of(simulate("poisson", N, G, p=3), "centred")
    options = {"draws": 1000, "tune": 200, "chains": 4, "random_seed": 6, **QUIET}
    idata = pm.sample(model=model, step=TunaMH(model=model), cores=1, **options)
    table = az.summary(idata, round_to="none")
    assert (table["r_hat"].astype(float) < 1.02).all()
    assert (table["ess_bulk"].astype(float) > 400).all()
    assert len(table) == G + 4
    assert {"n_used", "shared_n_used", "effects_n_used", "effects_acceptance"} <= set(idata["sample_stats"])


def test_predictions_for_old_groups_and_new_ones():
    """Shares of ones in old groups are those of the data; a new group's effect is drawn from its prior."""
    data = simulate("logistic", N, G, p=1, tau=0.8)
    model = model_of(data, "non_centred_at_mu")
    with model:
        idata = pm.sample(2000, tune=200, chains=1, step=TunaMH(), random_seed=7, **QUIET)
        pm.sample_posterior_predictive(idata, extend_inferencedata=True, random_seed=8, progressbar=False)
        z_new = pm.Normal("z_new", 0, 1, shape=3)
        pm.Deterministic("share_new", pm.math.invlogit(model["mu"] + model["tau"] * z_new))
        new = pm.sample_posterior_predictive(idata, var_names=["share_new"], random_seed=9, progressbar=False)
    y = np.asarray(idata["posterior_predictive"]["y"])[0]
    largest = np.argmax(np.bincount(data.g))
    shares = y[:, data.g == largest].mean(axis=1)
    seen = data.y[data.g == largest].mean()
    assert abs(shares.mean() - seen) < 2 * shares.std()
    found = np.asarray(new["posterior_predictive"]["share_new"]).reshape(-1, 3)
    posterior = idata["posterior"]
    mu, tau = (np.asarray(posterior[name])[0] for name in ("mu", "tau"))
    expected = expit(mu[:, None] + tau[:, None] * np.random.default_rng(1).normal(size=(len(mu), 50)))
    assert found.mean() == pytest.approx(expected.mean(), abs=0.03)
    assert found.std() == pytest.approx(expected.std(), rel=0.06)
