"""Draws of models with random slopes against an independent reference."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH
from tests.statistical.plates.chains import agreement_of, reweighted
from tests.statistical.plates.factors_reference import ETA, SD, sample

N, G, P = 1500, 60, 3


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = np.c_[np.ones(N), rng.normal(0.5, 1.0, size=(N, P - 1))]
    weights = rng.gamma(2.0, size=G)
    groups = rng.choice(G, N, p=weights / weights.sum())
    a = rng.normal(0.0, 0.7, G)
    b = 0.5 * a + rng.normal(0.0, 0.4, G)
    eta = X @ [-0.4, 0.5, 0.3] + a[groups] + b[groups] * X[:, 1]
    return X, (rng.random(N) < 1.0 / (1.0 + np.exp(-eta))).astype(int), groups


def of_two_vectors(X, groups, *, is_centered):
    """Independent intercepts and slopes."""
    scales = pm.HalfNormal("tau", 1.0), pm.HalfNormal("tau_b", 1.0)
    effects = [
        pm.Normal(name, 0.0, tau, shape=G) if is_centered else tau * pm.Normal(name, shape=G)
        for name, tau in zip("ab", scales, strict=True)
    ]
    pm.Deterministic("u", pm.math.stack(effects))
    return effects[0][groups] + effects[1][groups] * X[:, 1]


def of_a_matrix(X, groups, *, is_centered):
    """Correlated intercepts and slopes."""
    chol, corr, scales = pm.LKJCholeskyCov(
        "chol", n=2, eta=ETA, sd_dist=pm.HalfNormal.dist(1.0, shape=2), compute_corr=True
    )
    if is_centered:
        effects = pm.MvNormal("effects", np.zeros(2), chol=chol, shape=(G, 2))
    else:
        effects = (chol @ pm.Normal("z", shape=(2, G))).T
    pm.Deterministic("tau", scales[0])
    pm.Deterministic("tau_b", scales[1])
    pm.Deterministic("rho", pm.math.arctanh(corr[0, 1]))
    pm.Deterministic("u", effects.T)
    return effects[groups, 0] + effects[groups, 1] * X[:, 1]


def draws_of(data, define, n, seed=3):
    """(1, n, d), in the order of the reference."""
    X, y, groups = data
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, SD, shape=P)
        eta = X @ beta + define(X, groups)
        pm.Bernoulli("y", logit_p=eta, observed=y)
        idata = pm.sample(
            n, tune=200, chains=1, step=TunaMH(switch_above=np.inf), random_seed=seed,
            progressbar=False, quiet=True, compute_convergence_checks=False,
        )  # fmt: skip
    assert model is not None
    found = {name: np.asarray(idata["posterior"][name])[0] for name in idata["posterior"].data_vars}
    of_scales = [np.log(found["tau"]), np.log(found["tau_b"]), *([found["rho"]] if "rho" in found else [])]
    parts = [found["beta"], np.stack(of_scales, axis=1), found["u"].reshape(n, -1)]
    return np.concatenate(parts, axis=1)[None]


def reference_of(data, seed, **options):
    """Draws of the reference: intercepts and slopes are two factors with the same levels."""
    X, y, groups = data
    return sample(X, y, groups, groups, (G, G), 20_000, seed, columns=(0, 1), thin=3, **options)[None]


@pytest.mark.slow("60,000 sweeps of the reference, and 20,000 draws")
@pytest.mark.filterwarnings("ignore:Tuning ended")
def test_independent_slopes(data):
    theirs = reference_of(data, 1)
    ours = draws_of(data, lambda X, g: of_two_vectors(X, g, is_centered=False), 20_000)
    found = agreement_of(ours, theirs, P + 2)
    print(found)
    assert found
    # The planted fault: the Jacobian of the scale of slopes counts twice.
    assert not agreement_of(reweighted(ours, ours[0, :, P + 1]), theirs, P + 2)


@pytest.mark.slow("120,000 sweeps of the reference, and 20,000 draws")
@pytest.mark.filterwarnings("ignore:Tuning ended")
def test_correlated_slopes(data):
    theirs = reference_of(data, 2, correlated=True)
    ours = draws_of(data, lambda X, g: of_a_matrix(X, g, is_centered=True), 20_000)
    found = agreement_of(ours, theirs, P + 3)
    print(found)
    assert found
    # The planted fault: effects of the reference are independent.
    wrong = np.insert(reference_of(data, 1), P + 2, theirs[:, :, P + 2], axis=2)
    assert not agreement_of(ours, wrong, P + 3)
