"""Exact posterior draws from a handful of rows: TunaMH on logistic, Poisson and hierarchical models.

The first table is a logistic regression with ten coefficients, and more and more rows. What to expect: the
rows drawn for a transition *decrease* with N, as D^3 / sqrt(N), while every decision is exact. `predicted` is
what the step says before it starts. `shift` is the largest difference from the posterior means, in posterior
standard deviations, and `error` its standard error; `Laplace` is that difference for the normal distribution
at the mode, which the proposals come from. The posterior is by importance sampling from a Student t_5 at the
mode, with the whole likelihood.

The second table has other models: a rare outcome, counts, and a hierarchical prior, whose scale moves in the
same block (`Surrogate` moves).

Run `python examples/exact_subsampling.py` (up to 1e5 rows, half a minute), or with `--full` (up to 1e6, a few
minutes).
"""

import argparse
import time

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import expit

from pymc_austerity import Laplace, TunaMH

SEED = 2020
D = 10
FAST = {"sizes": [10_000, 100_000], "draws": 4000, "importance": 1000, "rows": 10_000}
FULL = {"sizes": [1000, 10_000, 100_000, 1_000_000], "draws": 100_000, "importance": 20_000, "rows": 100_000}


def design(n):
    rng = np.random.default_rng(SEED)
    return np.c_[np.ones(n), rng.normal(size=(n, D - 1))], rng.normal(0, 0.4, D), rng


def logistic(n, intercept=0.3):
    X, beta, rng = design(n)
    beta[0] = intercept
    y = (rng.random(n) < expit(X @ beta)).astype(int)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=D)
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
    return model, X, y


def poisson(n):
    X, beta, rng = design(n)
    y = rng.poisson(np.exp(0.3 * X @ beta))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=D)
        pm.Poisson("y", mu=pm.math.exp(X @ b), observed=y)
    return model


def hierarchical(n, n_groups=20):
    _, _, rng = design(0)
    group, x = rng.integers(0, n_groups, n), rng.normal(size=n)
    effect = rng.normal(0, 0.7, n_groups)
    y = (rng.random(n) < expit(effect[group] + 0.5 * x)).astype(int)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        a = pm.Normal("a", 0, tau, shape=n_groups)
        slope = pm.Normal("slope", 0, 1)
        pm.Bernoulli("y", logit_p=a[group] + slope * x, observed=y)
    return model


def sampled(model, draws, **options):
    """Draws of one chain, and a row of the table."""
    started = time.process_time()
    with model:
        step = TunaMH(**options)
    set_up = time.process_time() - started
    with model:
        started = time.process_time()
        idata = pm.sample(
            draws, tune=500, chains=1, cores=1, step=step, random_seed=SEED, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
        seconds = time.process_time() - started
    stats = idata.sample_stats
    ess = az.ess(idata, method="bulk")
    smallest = min(float(ess[name].min()) for name in ess.data_vars)
    row = {
        "predicted": step.prediction.terms,
        "rows drawn": float(stats.n_used.mean()),
        "acceptance": float(stats.acceptance_rate.mean()),
        "ESS per draw": smallest / draws,
        "set-up, s": set_up,
        "us for an effective draw": 1e6 * seconds / smallest,
    }
    return idata, step, row


def importance_moments(X, y, mode, precision, n):
    """Posterior means, and their standard errors, by importance sampling from t_5 at the mode."""
    rng = np.random.default_rng(SEED + 1)
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    z = rng.normal(size=(n, D)) / np.sqrt(rng.chisquare(5, size=(n, 1)) / 5)
    draws = mode + z @ factor.T
    log_weight = 0.5 * (5 + D) * np.log1p((z**2).sum(axis=1) / 5) - (draws**2).sum(axis=1) / 8
    sign = 1 - 2 * y
    for rows in np.array_split(np.arange(len(y)), max(1, len(y) // 2000)):
        for some in np.array_split(np.arange(n), max(1, n // 500)):
            eta = draws[some] @ (X[rows] * sign[rows, None]).T
            log_weight[some] -= np.logaddexp(0, eta).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ draws
    error = np.sqrt((weight**2) @ (draws - mean) ** 2)
    return mean, error


def growing(settings):
    """The first table."""
    rows = []
    for n in settings["sizes"]:
        model, X, y = logistic(n)
        idata, step, row = sampled(model, settings["draws"], proposal=Laplace(mix=0))
        state = step.proposal_state  # the normal distribution at the mode: whiten' whiten is its precision
        mean, error = importance_moments(
            X, y, state.mode, state.whiten.T @ state.whiten, settings["importance"]
        )
        table = az.summary(idata, kind="all", round_to="none").astype(float)
        sd = table["sd"].to_numpy()
        shift = (table["mean"].to_numpy() - mean) / sd
        shift_error = np.hypot(table["mcse_mean"].to_numpy(), error) / sd
        worst = np.argmax(np.abs(shift))
        row |= {
            "shift": abs(shift[worst]),
            "error": shift_error[worst],
            "z": np.abs(shift / shift_error).max(),
        }
        row["Laplace"] = np.abs((state.mode - mean) / sd).max()
        rows.append({"N": n, **row})
    return pd.DataFrame(rows).set_index("N")


def other_models(settings):
    """The second table."""
    n, rows = settings["rows"], []
    models = {
        "1 % positives": logistic(n, intercept=-4.8)[0],
        "Poisson": poisson(n),
        "hierarchical": hierarchical(n),
    }
    for name, model in models.items():
        _, _, row = sampled(model, settings["draws"])
        rows.append({"model": name, **row})
    return pd.DataFrame(rows).set_index("model")


def main(full=False):
    settings = FULL if full else FAST
    tables = growing(settings), other_models(settings)
    for table in tables:
        print(table.T.to_string(float_format="{:,.4g}".format), "\n")
    return tables


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="up to a million rows")
    main(parser.parse_args().full)
