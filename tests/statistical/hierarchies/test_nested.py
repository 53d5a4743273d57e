"""Draws of models of nested groups against an independent reference."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import MetropolisHastings, TunaMH
from pymc_austerity.control_variates import Taylor
from pymc_austerity.step_methods.metropolis import field_pilot
from tests.sampling import sampled
from tests.statistical.hierarchies.chains import agreement_of, reweighted
from tests.statistical.hierarchies.factors_reference import SD, sample

N, G, H, P = 2500, 120, 32, 3


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = rng.normal(0.3, 1.0, size=(N, P))
    parents = rng.integers(H - 1, size=G)  # the last outer group is empty
    weights = rng.gamma(2.0, size=G)
    groups = rng.choice(G, N, p=weights / weights.sum())
    v = rng.normal(-0.4, 0.8, H)
    u = v[parents] + rng.normal(0.0, 0.5, G)
    eta = X @ [0.5, 0.3, -0.4] + u[groups]
    return X, (rng.random(N) < 1.0 / (1.0 + np.exp(-eta))).astype(int), groups, parents


def model_of(data, spelling):
    X, y, groups, parents = data
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, SD, shape=P)
        mu, tau, outer = pm.Normal("mu", 0.0, SD), pm.HalfNormal("tau", 1.0), pm.HalfNormal("tau_v", 1.0)
        if spelling == "centered":
            v = pm.Normal("v", mu, outer, shape=H)
            u = pm.Normal("u", v[parents], tau, shape=G)
        else:
            v = pm.Deterministic("v", mu + outer * pm.Normal("vz", shape=H))
            u = pm.Deterministic("u", v[parents] + tau * pm.Normal("z", shape=G))
        pm.Bernoulli("y", logit_p=X @ beta + u[groups], observed=y)
    return model


def draws_of(data, spelling, n, seed=3):
    """(1, n, d), in the order of the reference."""
    with model_of(data, spelling):
        step = TunaMH(switch_above=np.inf)
        assert "field of 156 effects" in str(step.prediction)
        idata = sampled(n, step, tune=200, chains=1, random_seed=seed)
    found = {name: np.asarray(idata["posterior"][name])[0] for name in idata["posterior"].data_vars}
    shared = np.c_[found["beta"], found["mu"], np.log(found["tau"]), np.log(found["tau_v"])]
    return np.concatenate([shared, found["v"], found["u"]], axis=1)[None]


def reference_of(data, n):
    """Draws of the reference, with the intercept as mu and effects of either level about the one above."""
    X, y, groups, parents = data
    X = np.c_[np.ones(N), X]
    found = sample(X, y, groups, parents[groups], (G, H), n, 1, parents=parents, thin=8)
    mu, beta, scales, u, v = np.split(found, [1, P + 1, P + 3, P + 3 + G], axis=1)
    v += mu
    return np.concatenate([beta, mu, scales, v, v[:, parents] + u], axis=1)[None]


@pytest.mark.parametrize(
    "n",
    [
        pytest.param(
            8000, marks=pytest.mark.full_size("64,000 sweeps of the reference, 8,000 draws of each spelling")
        ),
        pytest.param(
            20_000, marks=pytest.mark.full_size("160,000 sweeps, and 20,000 draws of each spelling")
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Tuning ended")
def test_nested_groups(data, n):
    theirs = reference_of(data, n)
    for spelling in ("centered", "non-centered"):
        ours = draws_of(data, spelling, n)
        found = agreement_of(ours, theirs, P + 3)
        assert found, (spelling, found)
    # The planted fault: the Jacobian of the scale of outer effects counts twice.
    assert not agreement_of(reweighted(ours, ours[0, :, P + 2]), theirs, P + 3)


@pytest.mark.slow("builds a field, interpreted")
def test_all_rows_are_read_in_each_of_three_moves(data, interpreted, monkeypatch):
    """Some groups have none."""
    monkeypatch.setattr(field_pilot, "_SETTLE", 3)
    monkeypatch.setattr(field_pilot, "_COUNTED", 6)
    X, y, groups, parents = data
    model = model_of((X[:500], y[:500], groups[:500], parents), "centered")
    step = MetropolisHastings(model=model, control_variate=Taylor(), threshold=500)
    step.setup_chain(np.random.default_rng(1), 0, 0)
    _, (stats,) = step.step(model.initial_point())
    assert step.n_moves == stats["fraction_used"] == 3.0
    assert stats["n_used"] == 3.0 * 500
    assert stats["exhausted"] == 1.0
