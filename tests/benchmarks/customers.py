"""Models of customer bases: rows a draw, and seconds.

python -m tests.benchmarks.customers [N [MODEL ...]]

For each model a line: rows that are read for a draw, core-seconds of the search for a step and of 4 x 1,000
draws after as many of tuning, and the smallest effective sample size. The default N is a million.
Densities are those of pymc-marketing, with its priors.
"""

import sys
import time

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_austerity as pma
from tests.models import as_model

_SEED = 12


def purchases(rng, T, r, alpha, a, b):
    """Weeks until the last purchase, and repeat purchases."""
    arrivals = rng.poisson(rng.gamma(r, size=len(T)) / alpha * T)
    x = np.minimum(arrivals, rng.geometric(np.maximum(rng.beta(a, b, size=len(T)), 1e-12)))
    return np.where(x > 0, np.ceil(T * rng.beta(np.maximum(x, 1), arrivals - x + 1)), 0.0), x


def bg_nbd_logp(x, t_x, T, r, alpha, a, b):
    """BG/NBD as pymc-marketing computes it."""
    both = pt.gammaln(r + x) - pt.gammaln(r) + pt.gammaln(a + b) + pt.gammaln(b + x)
    both += -pt.gammaln(b) - pt.gammaln(a + b + x) + r * pt.log(alpha) - (r + x) * pt.log(alpha + t_x)
    stays = ((alpha + t_x) / (alpha + T)) ** (r + x)
    return both + pt.log(stays + pt.switch(x > 0, a / (b + x - 1), 0))


def _dropout():
    phi, kappa = pm.Uniform("phi_dropout"), pm.Pareto("kappa_dropout", 1, 1)
    return phi * kappa, (1 - phi) * kappa


@as_model
def bg_nbd(n):
    """When customers buy again, until they leave unseen."""
    rng = np.random.default_rng(_SEED)
    T = rng.integers(27, 78, size=n).astype(float)
    t_x, x = purchases(rng, T, 0.9, 9.0, 0.8, 2.5)
    alpha, r = pm.Weibull("alpha", 2, 10), pm.Weibull("r", 2, 1)
    pm.Potential("buys", bg_nbd_logp(x, t_x, T, r, alpha, *_dropout()))


@as_model
def bg_nbd_covariates(n):
    """The same with two covariates of the purchases and one of leaving."""
    rng = np.random.default_rng(_SEED)
    T = rng.integers(27, 78, size=n).astype(float)
    X, z = rng.normal(size=(n, 2)), rng.normal(size=n)
    grown = np.exp(0.2 * z)
    t_x, x = purchases(rng, T, 0.9, 9.0 * np.exp(-X @ [0.3, -0.2]), 0.8 * grown, 2.5 / grown)
    alpha = pm.Weibull("alpha_scale", 2, 10) * pm.math.exp(-(X @ pm.Normal("purchase", shape=2)))
    a, b = _dropout()
    a, b = (p * pm.math.exp(z * pm.Normal(f"dropout_{name}")) for p, name in ((a, "a"), (b, "b")))
    pm.Potential("buys", bg_nbd_logp(x, t_x, T, pm.Weibull("r", 2, 1), alpha, a, b))


@as_model
def mbg_nbd(n):
    """Customers may leave before the second purchase."""
    rng = np.random.default_rng(_SEED)
    T = rng.integers(27, 78, size=n).astype(float)
    arrivals = rng.poisson(rng.gamma(0.9, size=n) / 9.0 * T)
    x = np.minimum(arrivals, rng.geometric(rng.beta(0.8, 2.5, size=n)) - 1)
    t_x = np.where(x > 0, np.ceil(T * rng.beta(np.maximum(x, 1), arrivals - x + 1)), 0.0)
    alpha, r = pm.Weibull("alpha", 2, 10), pm.Weibull("r", 2, 1)
    a, b = _dropout()
    both = pt.gammaln(r + x) - pt.gammaln(r) + r * pt.log(alpha) - (r + x) * pt.log(alpha + T)
    both += pt.gammaln(a + b) + pt.gammaln(b + x + 1) - pt.gammaln(b) - pt.gammaln(a + b + x + 1)
    left = pt.log(a) - pt.log(b + x) + (r + x) * (pt.log(alpha + T) - pt.log(alpha + t_x))
    pm.Potential("buys", both + pt.logaddexp(left, 0))


def _contracts(rng, n, months):
    """Renewals until a customer leaves, or is seen for the last time."""
    t = rng.geometric(np.maximum(rng.beta(0.8, 2.5, size=n), 1e-12))
    return np.minimum(t, months), t < months


def sbg_logp(t, left, alpha, beta):
    """Shifted beta-geometric, censored from above."""
    leaves = pt.gammaln(alpha + 1) + pt.gammaln(beta + t - 1) - pt.gammaln(alpha + beta + t)
    stays = pt.gammaln(alpha) + pt.gammaln(beta + t - 1) - pt.gammaln(alpha + beta + t - 1)
    both = pt.gammaln(alpha + beta) - pt.gammaln(alpha) - pt.gammaln(beta)
    return both + pt.switch(left, leaves, stays)


@as_model
def sbg(n):
    """Contracts that are renewed each month, or not."""
    rng = np.random.default_rng(_SEED)
    t, left = _contracts(rng, n, rng.integers(5, 13, size=n))
    phi, kappa = pm.Uniform("phi"), pm.Pareto("kappa", 1, 1)
    pm.Potential("leaves", sbg_logp(t, left, phi * kappa, (1 - phi) * kappa))


@as_model
def sbg_cohorts(n):
    """The same with parameters of their own for eight cohorts."""
    rng = np.random.default_rng(_SEED)
    cohort = rng.integers(8, size=n)
    t, left = _contracts(rng, n, 12 - cohort)
    phi, kappa = pm.Uniform("phi", shape=8), pm.Pareto("kappa", 1, 1, shape=8)
    pm.Potential("leaves", sbg_logp(t, left, (phi * kappa)[cohort], ((1 - phi) * kappa)[cohort]))


@as_model
def weibull(n):
    """Months until customers leave, by three covariates."""
    rng = np.random.default_rng(_SEED)
    X, months = rng.normal(size=(n, 3)), rng.integers(3, 20, size=n).astype(float)
    t = np.exp(X @ [0.3, -0.2, 0.1] + 2) * rng.weibull(1.3, size=n)
    scale = pm.math.exp(pm.Normal("intercept", 2, 2) + X @ pm.Normal("beta", shape=3))
    time = pm.Weibull.dist(pm.HalfNormal("shape", 2), scale)
    pm.Censored("months", time, lower=None, upper=months, observed=np.minimum(t, months))


MODELS = (bg_nbd, bg_nbd_covariates, mbg_nbd, sbg, sbg_cohorts, weibull)


def main():
    n = int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000
    for build in MODELS:
        if sys.argv[2:] and build.__name__ not in sys.argv[2:]:
            continue
        model = build(n)
        start = time.process_time()
        step = pma.recommend(model, progressbar=False)
        found = time.process_time()
        with model:
            idata = pma.sample(1000, step=step, chains=4, random_seed=1, progressbar=False)
        rows = float(idata.sample_stats["n_used"].mean())
        least = min(float(one.min()) for one in az.ess(idata).data_vars.values())
        seconds = f"{found - start:.0f} s of search, {time.process_time() - found:.1f} s of draws"
        print(
            f"{build.__name__}: {type(step).__name__}, {rows:.2g} rows, {seconds}, ESS {least:,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
