"""How many rows a decision reads on Taylor remainders, and what rare or skewed rows do to a posterior.

Three tables, with `AusterityMH` at epsilon = 0.01 and batches of 50:

* *Rows read* by a transition of a logistic regression with five coefficients, without control variate and
  with Taylor polynomials of order 1 and 2. Proposals are independent draws from the normal distribution at
  the mode, and no row is always read. For pairs of draws of this distribution, besides: the standard
  deviation of the sum of all differences, and the standard error of its estimate from 50 rows.
* *Rare rows*: the coefficient of a covariate that is 1 in ten of 100,000 rows, without and with rows that are
  always read. The reference is quadrature.
* *Overdispersion* (only with `--full`, as it compiles for a minute): by how much the posterior mean of log
  alpha is off in a negative binomial regression on 5,000 rows of few distinct designs, with batches of 50
  and 500. The reference is the exact test on all rows.

Run `python examples/remainder_sizes.py` (few rows and short chains, half a minute), or with `--full` (a
quarter of an hour).
"""

import argparse
import time

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import expit, log_expit

from pymc_austerity import AusterityMH, Laplace, MetropolisHastings, Taylor

SEED = 1
BATCH = 50
ORDERS = {"none": None, "1": Taylor(order=1, exact_rows=0), "2": Taylor(order=2, exact_rows=0)}

# Draws: without control variate, and with it.
FAST = {"sizes": (1000, 10_000), "draws": (500, 2000), "pairs": 200}
FULL = {"sizes": (1000, 100_000), "draws": (5000, 40_000), "pairs": 2000}
FAST_RARE = {"n": 20_000, "draws": 3000}
FULL_RARE = {"n": 100_000, "draws": 10_000}
BIAS = {"batch_sizes": (50, 500), "draws": 300_000}


def logistic(X, y, sd):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, sd, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model


def fitted(X, y, sd):
    """Mode and covariance of the normal distribution that is fitted to a logistic regression."""
    mode = np.zeros(X.shape[1])
    for _ in range(30):
        p = expit(X @ mode)
        cov = np.linalg.inv(X.T @ (X * (p * (1 - p))[:, None]) + np.eye(len(mode)) / sd**2)
        mode = mode + cov @ (X.T @ (y - p) - mode / sd**2)
    return mode, cov


def sampled(step, model, draws, chains=1):
    return pm.sample(
        draws, tune=200, chains=chains, cores=1, step=step, model=model, random_seed=SEED, progressbar=False,
        compute_convergence_checks=False, quiet=True,
    )  # fmt: skip


# Rows read --------------------------------------------------------------------------------------------


def regression(n, n_dim=5):
    rng = np.random.default_rng(SEED)
    X = np.c_[np.ones(n), rng.standard_normal((n, n_dim - 1))]
    y = rng.random(n) < expit(X @ np.linspace(-0.6, 0.6, n_dim))
    return X, y.astype(float)


def remainders(X, y, n_pairs):
    """For each order the sd of sums of differences, and the root mean square of their standard errors."""
    n = len(y)
    mode, cov = fitted(X, y, sd=1.0)
    p = expit(X @ mode)
    rng = np.random.default_rng(SEED)
    draws = rng.multivariate_normal(np.zeros(len(mode)), cov, size=(n_pairs, 2))
    sums, errors = np.empty((2, n_pairs, len(ORDERS)))
    for pair, (d, d_new) in enumerate(draws):
        t, t_new = X @ d, X @ d_new
        none = y * (t_new - t) - np.logaddexp(0, X @ (mode + d_new)) + np.logaddexp(0, X @ (mode + d))
        first = none - (y - p) * (t_new - t)
        second = first + 0.5 * p * (1 - p) * (t_new**2 - t**2)
        for k, change in enumerate((none, first, second)):
            sums[pair, k] = change.sum()
            errors[pair, k] = n * change.std() / np.sqrt(BATCH) * np.sqrt(1 - BATCH / n)
    noise = np.sqrt((errors**2).mean(axis=0))
    return dict(zip(ORDERS, zip(sums.std(axis=0), noise, strict=True), strict=True))


def rows_read(sizes, draws, pairs):
    rows = []
    for n in sizes:
        X, y = regression(n)
        model = logistic(X, y, sd=1.0)
        found = remainders(X, y, pairs)
        for order, control_variate in ORDERS.items():
            step = AusterityMH(
                epsilon=0.01,
                batch_size=BATCH,
                control_variate=control_variate,
                proposal=Laplace(mix=0),
                model=model,
            )
            idata = sampled(step, model, draws[control_variate is not None])
            used = idata.sample_stats["n_used"].values
            rows.append(
                {
                    "N": n,
                    "order": order,
                    "sd of the sum": found[order][0],
                    "noise of 50 rows": found[order][1],
                    "rows read": used.mean(),
                    "error": float(az.mcse(used)),
                    "median": np.median(used),
                    "acceptance": float(idata.sample_stats["acceptance_rate"].mean()),
                }
            )
    return pd.DataFrame(rows).set_index(["N", "order"])


# Rare rows --------------------------------------------------------------------------------------------

RARE = 10  # rows, nine of them with y = 1


def rare_rows(n, draws):
    rng = np.random.default_rng(0)
    rare, z = np.zeros(n), rng.normal(size=n)
    rare[:RARE] = 1.0
    y = (rng.random(n) < expit(z)).astype(int)
    y[:RARE], z[:RARE] = [1] * 9 + [0], 0.0
    model = logistic(np.c_[np.ones(n), rare, z], y, sd=1.5)
    mean, sd = rare_reference(np.c_[np.ones(n), z][RARE:], y[RARE:])
    rows = [{"exact_rows": "all (quadrature)", "mean": mean, "sd": sd, "shift": 0.0, "error": 0.0}]
    for exact_rows in (0, 100):
        step = AusterityMH(control_variate=Taylor(exact_rows=exact_rows), model=model)
        idata = sampled(step, model, draws, chains=2)
        values = idata.posterior["beta"].values[..., 1]
        rows.append(
            {
                "exact_rows": str(exact_rows),
                "mean": values.mean(),
                "mean error": float(az.mcse(values)),
                "sd": values.std(),
                "sd error": float(az.mcse(values, method="sd")),
                "shift": (values.mean() - mean) / sd,
                "error": float(az.mcse(values)) / sd,
                "rows read": float(idata.sample_stats["n_used"].mean()),
            }
        )
    return pd.DataFrame(rows).set_index("exact_rows")


def rare_reference(X, y):
    """Moments of the rare coefficient b: the other rows leave a normal distribution of the intercept a."""
    mode, cov = fitted(X, y, sd=1.5)
    a = mode[0] + np.sqrt(cov[0, 0]) * np.linspace(-6, 6, 61)[:, None]
    b = np.linspace(-5, 9, 2801)
    log_density = -0.5 * (a - mode[0]) ** 2 / cov[0, 0] - 0.5 * b**2 / 1.5**2
    log_density = log_density + 9 * log_expit(a + b) + log_expit(-a - b)
    weight = np.exp(log_density - log_density.max()).sum(axis=0)
    mean = weight @ b / weight.sum()
    return mean, np.sqrt(weight @ (b - mean) ** 2 / weight.sum())


# Overdispersion ---------------------------------------------------------------------------------------


def negative_binomial(n=5000):
    """Covariates of two levels, few counts, alpha = 0.5."""
    rng = np.random.default_rng(4)
    X = np.c_[np.ones(n), 0.3 * rng.choice([-1.0, 1.0], size=(n, 4))]
    mu = np.exp(X @ np.r_[-2.5, np.linspace(-0.3, 0.3, 4)])
    y = rng.poisson(mu * rng.gamma(0.5, 1 / 0.5, n)).astype(float)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=X.shape[1])
        alpha = pm.Gamma("alpha", 2, 1)
        pm.NegativeBinomial("y", mu=pm.math.exp(X @ beta), alpha=alpha, observed=y)
    return model


def overdispersion(batch_sizes, draws):
    """Shifts of log alpha from the exact chain, in posterior standard deviations."""
    model = negative_binomial()
    steps = {"exact": MetropolisHastings(proposal=Laplace(), model=model)}
    for batch_size in batch_sizes:
        steps[str(batch_size)] = AusterityMH(batch_size=batch_size, control_variate=Taylor(), model=model)
    rows = []
    for name, step in steps.items():
        idata = sampled(step, model, draws, chains=2)
        values = np.log(idata.posterior["alpha"].values)
        rows.append(
            {
                "batch_size": name,
                "mean": values.mean(),
                "mean error": float(az.mcse(values)),
                "sd": values.std(),
                "sd error": float(az.mcse(values, method="sd")),
                "ESS": float(az.ess(values)),
                "rows read": float(idata.sample_stats["n_used"].mean()),
            }
        )
    table = pd.DataFrame(rows).set_index("batch_size")
    exact = table.loc["exact"]
    return table.assign(
        shift=(table["mean"] - exact["mean"]) / exact["sd"],
        error=np.hypot(table["mean error"], exact["mean error"]) / exact["sd"],
    )


def four_digits(x):
    return f"{float(f'{x:.4g}'):,g}"


def main(full=False):
    tables = {}

    def show(name, title, make, settings):
        started = time.perf_counter()
        tables[name] = make(**settings)
        print(f"\n{title} ({time.perf_counter() - started:.0f} s)\n")
        print(tables[name].to_string(float_format=four_digits, na_rep=""), flush=True)

    show("rows", "Rows read by a transition", rows_read, FULL if full else FAST)
    show("rare", "Coefficient of a rare covariate", rare_rows, FULL_RARE if full else FAST_RARE)
    if full:
        show("bias", "log alpha of a negative binomial regression", overdispersion, BIAS)
    return tables


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="more rows, long chains")
    main(**vars(parser.parse_args()))
