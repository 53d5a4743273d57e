"""TunaMH draws rows of factors by whitened coordinates: its posterior is that of the test on all rows."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

from pymc_austerity import Laplace, MetropolisHastings, TunaMH
from tests.sampling import sampled
from tests.statistical.errors import LIMIT, z_of_chains

N = 4000


def one_hot():
    rng = np.random.default_rng(1)
    g, h, x = rng.integers(12, size=N), rng.integers(8, size=N), rng.normal(size=N)
    eta = rng.normal(size=12)[g] + rng.normal(size=8)[h] + 0.5 * x - 1.0
    y = (rng.random(N) < expit(eta)).astype(int)
    with pm.Model() as model:
        X = np.c_[np.eye(12)[g], np.eye(8)[h], x]
        pm.Bernoulli("y", logit_p=X @ pm.Normal("b", 0, 1, shape=21), observed=y)
    return model


def chain(model, step, draws):
    """Draws of the coefficients, and sample statistics."""
    with model:
        idata = sampled(draws, step, tune=100, chains=1, random_seed=2)
    return np.asarray(idata.posterior["b"])[0], idata.sample_stats


def worst(ours, theirs):
    return np.abs(z_of_chains(ours, theirs)).max()


@pytest.mark.slow("two chains of 5,000 draws, one on all rows")
def test_posterior_is_that_of_the_exact_test():
    """Planted fault: draws that are wider by a tenth."""
    model = one_hot()
    step = TunaMH(model=model, proposal=Laplace(mix=0.2), steps_per_draw=3, switch_above=np.inf, debug=True)
    assert "rows are drawn by the whitened coordinates that they touch (20 sparse columns" in step.certificate
    ours, stats = chain(model, step, 5000)
    exact = MetropolisHastings(model=model, proposal=Laplace(mix=0.2), steps_per_draw=3)
    theirs, _ = chain(model, exact, 5000)
    used = np.asarray(stats["n_used"])[0]
    print(f"{used.mean():.1f} rows a transition, predicted {step.prediction.terms:.1f}")
    print(f"acceptance {float(stats['acceptance_rate'].mean()):.2f}; z {worst(ours, theirs):.2f}")
    assert worst(ours, theirs) < LIMIT
    assert used.mean() == pytest.approx(step.prediction.terms, rel=0.2)
    assert float(stats["bound_violations"].sum()) == 0
    assert float(stats["exhausted"].sum()) == 0
    # The same table notices draws that are wider by a tenth.
    wider = ours.mean(axis=0) + 1.1 * (ours - ours.mean(axis=0))
    assert worst(wider, theirs) > 2 * LIMIT


def dense(n=6000, n_dim=55):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, n_dim))
    y = (rng.random(n) < expit(X @ rng.normal(0, n_dim**-0.5, n_dim))).astype(int)
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=X @ pm.Normal("b", 0, 1, shape=n_dim), observed=y)
    return model


@pytest.mark.slow("two chains of 5,000 draws in 55 dimensions, one on all rows")
def test_screened_rows_have_the_posterior_of_the_exact_test():
    model, proposal = dense(), Laplace(mix=0.2)
    step = TunaMH(model=model, proposal=proposal, switch_above=np.inf, debug=True)
    assert "only if a bound of their own allows for it" in step.certificate
    ours, stats = chain(model, step, 5000)
    theirs, _ = chain(model, MetropolisHastings(model=model, proposal=proposal), 5000)
    used = np.asarray(stats["n_used"])[0]
    print(f"{used.mean():.1f} rows a transition, predicted {step.prediction.terms:.1f}")
    print(f"acceptance {float(stats['acceptance_rate'].mean()):.2f}; z {worst(ours, theirs):.2f}")
    assert worst(ours, theirs) < LIMIT
    assert used.mean() == pytest.approx(step.prediction.terms, rel=0.3)
    assert used.mean() < 0.3 * step.prediction.total * step.prediction.size
    assert float(stats["bound_violations"].sum()) == 0
