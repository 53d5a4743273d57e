"""Draws of models with two crossed factors: drawn rows against all, and against an independent sampler."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import MetropolisHastings, Taylor, TunaMH
from pymc_austerity.mode.fields import order
from tests.sampling import sampled
from tests.statistical.hierarchies.chains import agreement_of, reweighted
from tests.statistical.hierarchies.factors_reference import SD, sample

N, G, H, P = 1200, 60, 40, 3


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    """Factors of 40 levels are large, and are moved in turns."""
    monkeypatch.setattr(order, "WIDE", 20)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(6)
    weights = rng.gamma(2.0, size=G)
    groups, levels = rng.choice(G, N, p=weights / weights.sum()), rng.integers(H - 1, size=N)  # one is empty
    X = np.c_[np.ones(N), rng.normal(size=N), rng.normal(size=N) + 0.5 * rng.normal(size=H)[levels]]
    eta = X @ [-0.3, 0.5, -0.4] + rng.normal(0.0, 0.6, G)[groups] + rng.normal(0.0, 0.8, H)[levels]
    return X, (rng.random(N) < 1.0 / (1.0 + np.exp(-eta))).astype(int), groups, levels


def draws_of(data, spelling, n, seed=3, step=lambda: TunaMH(switch_above=np.inf), tune=50):
    """(1, n, d), in the order of the reference; and the step."""
    X, y, groups, levels = data
    with pm.Model():
        beta = pm.Normal("beta", 0.0, SD, shape=P)
        tau, tau_v = pm.HalfNormal("tau", 1.0), pm.HalfNormal("tau_v", 1.0)
        first = 0
        if spelling == "located":  # the intercept is the location of u
            u, v, first = pm.Normal("u", beta[0], tau, shape=G), pm.Normal("v", 0.0, tau_v, shape=H), 1
        elif spelling == "centered":
            u, v = pm.Normal("u", 0.0, tau, shape=G), pm.Normal("v", 0.0, tau_v, shape=H)
        else:
            u = pm.Deterministic("u", tau * pm.Normal("uz", shape=G))
            v = pm.Deterministic("v", tau_v * pm.Normal("vz", shape=H))
        pm.Bernoulli("y", logit_p=X[:, first:] @ beta[first:] + u[groups] + v[levels], observed=y)
        step = step()
        idata = sampled(n, step, tune=tune, chains=1, random_seed=seed)
    found = {name: np.asarray(idata["posterior"][name])[0] for name in idata["posterior"].data_vars}
    if spelling == "located":
        found["u"] = found["u"] - found["beta"][:, :1]
    shared = np.c_[found["beta"], np.log(found["tau"]), np.log(found["tau_v"])]
    return np.concatenate([shared, found["u"], found["v"]], axis=1)[None], step, idata["sample_stats"]


@pytest.mark.filterwarnings("ignore:Tuning ended", "ignore:TunaMH would draw")
def test_drawn_rows_against_all_rows(data):
    drawn, step, stats = draws_of(data, "centered", 2500)
    assert len(step.engine.turns) == 2
    assert float(stats["n_used"].mean()) < N  # of two turns with several moves each
    whole, other, stats = draws_of(
        data, "centered", 1500, 4, lambda: MetropolisHastings(control_variate=Taylor())
    )
    assert other.recipe.reads_all
    assert float(stats["n_used"].mean()) == other.n_moves * N
    assert float(stats["fraction_used"].mean()) == other.n_moves
    assert float(stats["exhausted"].mean()) == 1.0
    found = agreement_of(drawn, whole, P + 2)
    assert found, found
    # The planted fault: effects of the second factor in units of their scale.
    planted = drawn.copy()
    planted[0, :, P + 2 + G :] /= np.exp(drawn[0, :, P + 1 : P + 2])
    assert not agreement_of(planted, whole, P + 2)


@pytest.mark.slow("72,000 sweeps of the reference, 6,000 draws, 300 of each of two others")
@pytest.mark.filterwarnings("ignore:Tuning ended")
def test_crossed_factors(data):
    theirs = sample(*data, (G, H), 6000, 1, thin=12)[None]
    ours, _, _ = draws_of(data, "centered", 6000)
    found = agreement_of(ours, theirs, P + 2)
    assert found, found
    # Other spellings are read into the same coordinates: with one seed only rounding tells draws apart.
    for spelling in ("non-centered", "located"):
        other, _, _ = draws_of(data, spelling, 300)
        np.testing.assert_allclose(other, ours[:, :300], rtol=1e-6, atol=1e-6, err_msg=spelling)
    # The planted fault: the Jacobian of the scale of the second factor counts three times.
    assert not agreement_of(reweighted(ours, 2.0 * ours[0, :, P + 1]), theirs, P + 2)
