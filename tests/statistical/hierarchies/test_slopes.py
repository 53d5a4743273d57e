"""Draws of models with random slopes against an independent reference."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH
from tests.sampling import sampled
from tests.statistical.hierarchies.chains import agreement_of, reweighted
from tests.statistical.hierarchies.factors_reference import ETA, SD, sample

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


def of_two_vectors(X, groups):
    """Independent intercepts and slopes, not centered."""
    scales = pm.HalfNormal("tau", 1.0), pm.HalfNormal("tau_b", 1.0)
    effects = [tau * pm.Normal(name, shape=G) for name, tau in zip("ab", scales, strict=True)]
    pm.Deterministic("u", pm.math.stack(effects))
    return effects[0][groups] + effects[1][groups] * X[:, 1]


def of_a_matrix(X, groups):
    """Correlated intercepts and slopes, centered."""
    chol, corr, scales = pm.LKJCholeskyCov(
        "chol", n=2, eta=ETA, sd_dist=pm.HalfNormal.dist(1.0, shape=2), compute_corr=True
    )
    effects = pm.MvNormal("effects", np.zeros(2), chol=chol, shape=(G, 2))
    pm.Deterministic("tau", scales[0])
    pm.Deterministic("tau_b", scales[1])
    pm.Deterministic("rho", pm.math.arctanh(corr[0, 1]))
    pm.Deterministic("u", effects.T)
    return effects[groups, 0] + effects[groups, 1] * X[:, 1]


def draws_of(data, define, n, seed=3):
    """(1, n, d), in the order of the reference."""
    X, y, groups = data
    with pm.Model():
        beta = pm.Normal("beta", 0.0, SD, shape=P)
        eta = X @ beta + define(X, groups)
        pm.Bernoulli("y", logit_p=eta, observed=y)
        idata = sampled(n, TunaMH(switch_above=np.inf), tune=200, chains=1, random_seed=seed)
    found = {name: np.asarray(idata["posterior"][name])[0] for name in idata["posterior"].data_vars}
    of_scales = [np.log(found["tau"]), np.log(found["tau_b"]), *([found["rho"]] if "rho" in found else [])]
    parts = [found["beta"], np.stack(of_scales, axis=1), found["u"].reshape(n, -1)]
    return np.concatenate(parts, axis=1)[None]


def reference_of(data, seed, **options):
    """Draws of the reference: intercepts and slopes are two factors with the same levels."""
    X, y, groups = data
    return sample(X, y, groups, groups, (G, G), 8000, seed, columns=(0, 1), thin=3, **options)[None]


@pytest.fixture(scope="module")
def independent(data):
    """The reference of independent effects."""
    return reference_of(data, 1)


@pytest.mark.slow("24,000 sweeps of the reference, and 8,000 draws")
@pytest.mark.filterwarnings("ignore:Tuning ended")
def test_independent_slopes(data, independent):
    ours = draws_of(data, of_two_vectors, 8000)
    found = agreement_of(ours, independent, P + 2)
    assert found, found
    # The planted fault: the Jacobian of the scale of slopes counts twice.
    assert not agreement_of(reweighted(ours, ours[0, :, P + 1]), independent, P + 2)


@pytest.mark.slow("24,000 sweeps of the reference, and 8,000 draws")
@pytest.mark.filterwarnings("ignore:Tuning ended")
def test_correlated_slopes(data, independent):
    theirs = reference_of(data, 2, correlated=True)
    ours = draws_of(data, of_a_matrix, 8000)
    found = agreement_of(ours, theirs, P + 3)
    assert found, found
    # The planted fault: effects of the reference are independent.
    wrong = np.insert(independent, P + 2, theirs[:, :, P + 2], axis=2)
    assert not agreement_of(ours, wrong, P + 3)
