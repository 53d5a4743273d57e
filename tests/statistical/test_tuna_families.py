"""No remainder is ever larger than its bound: half a million transitions for likelihoods of many kinds."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

from pymc_austerity import TunaMH

# Bounds are checked of the rows that are read: of 5000, as many in half a million transitions as of 20,000
# in a million.
N, D = 5000, 4


def predictor(rng):
    # Some rows reach far, but not to where PyMC's cloglog cannot be differentiated (eta = 9).
    X = np.c_[np.ones(N), np.clip(rng.standard_t(4, (N, D - 1)), -6, 6)]
    return X, X @ np.r_[0.2, rng.normal(0, 0.3, D - 1)]


def logistic(X, eta, rng):
    pm.Bernoulli("y", logit_p=X @ coefficients(), observed=(rng.random(N) < expit(eta)).astype(int))


def binomial(X, eta, rng):
    n = rng.integers(1, 20, N)
    pm.Binomial("y", n=n, logit_p=X @ coefficients(), observed=rng.binomial(n, expit(eta)))


def probit(X, eta, rng):
    y = (rng.normal(size=N) < eta).astype(int)
    pm.Bernoulli("y", p=pm.math.invprobit(X @ coefficients()), observed=y)


def cloglog(X, eta, rng):
    y = (rng.random(N) < -np.expm1(-np.exp(eta))).astype(int)
    pm.Bernoulli("y", p=1 - pm.math.exp(-pm.math.exp(X @ coefficients())), observed=y)


def poisson(X, eta, rng):
    exposure = rng.gamma(2, 1, N)
    mu = exposure * pm.math.exp(X @ coefficients())
    pm.Poisson("y", mu=mu, observed=rng.poisson(exposure * np.exp(eta)))


def negative_binomial(X, eta, rng):
    mu, alpha = np.exp(eta), 1.5
    y = rng.negative_binomial(alpha, alpha / (alpha + mu))
    pm.NegativeBinomial("y", mu=pm.math.exp(X @ coefficients()), alpha=alpha, observed=y)


def gamma(X, eta, rng):
    mu = pm.math.exp(X @ coefficients())
    pm.Gamma("y", alpha=2.0, beta=2.0 / mu, observed=rng.gamma(2.0, np.exp(eta) / 2.0))


def student(X, eta, rng):
    pm.StudentT("y", nu=4, mu=X @ coefficients(), sigma=1.0, observed=eta + rng.standard_t(4, N))


def normal_with_scale(X, eta, rng):
    sigma = pm.HalfNormal("sigma", 2)
    pm.Normal("y", X @ coefficients(), sigma, observed=eta + rng.standard_t(4, N))


def coefficients():
    return pm.Normal("b", 0, 2, shape=D)


FAMILIES = [
    logistic,
    binomial,
    probit,
    cloglog,
    poisson,
    negative_binomial,
    gamma,
    student,
    normal_with_scale,
]


@pytest.mark.slow("compiles a checked engine for each family")
@pytest.mark.parametrize("family", FAMILIES)
def test_no_bound_is_violated(family):
    rng = np.random.default_rng(11)
    X, eta = predictor(rng)
    with pm.Model() as model:
        family(X, eta, rng)
        step = TunaMH(debug=True, steps_per_draw=1000)
        idata = pm.sample(
            500, tune=10, chains=1, cores=1, step=step, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert model is step._model
    stats = idata.sample_stats
    rows = float(stats.n_used.mean())
    print(family.__name__, f"{rows:.3g} rows (predicted {step.prediction.terms:.3g})")
    print(f"acceptance {float(stats.acceptance_rate.mean()):.3f}")
    assert float(stats.bound_violations.sum()) == 0.0
    assert 0.0 < rows < 0.25 * N
    assert not step.reads_all
