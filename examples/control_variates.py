"""Three real posteriors with Taylor control variates, beside chains on all the data.

Every subsampled decision of `AusterityMH` is made on the remainders of a second-order expansion at the
posterior mode, of 100 rows that are always read and some 50 that are sampled, whatever the number of rows.

    data        rows     model
    covtype     92,962   logistic regression on ten attributes
    RAND        20,190   negative binomial regression with free overdispersion
    adult       32,561   logistic regression on 123 binary features

Posterior means have to agree within 0.05 standard deviations, and log standard deviations within 0.03, each
plus 3.5 Monte Carlo standard errors, with effective sample sizes of 4,000 and more.

Run `python examples/control_variates.py` (synthetic rows beside pm.NUTS, half a minute), or with `--full` on
the data: adult.npz and covtype.npz in the folder that the environment variable PYMC_AUSTERITY_DATA names, and
RAND from statsmodels. The reference is then the exact full-data test with the same proposals, or with
`--reference nutpie` (``pip install nutpie``) a NUTS chain, which takes more than ten minutes for a data set.
"""

import argparse
import os
import time
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
from statsmodels.datasets import randhie

from pymc_austerity import AusterityMH, Laplace, MetropolisHastings, Taylor

SEED = 2017
FULL = {"draws": 20_000, "tune": 500, "reference_draws": 2000}
FAST = {"draws": 2000, "tune": 300, "reference_draws": 500}


def logistic(X, y):
    """Bernoulli regression with N(0, 1) coefficients of standardised or binary columns, and an intercept."""
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 5)
        beta = pm.Normal("beta", 0, 1, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=intercept + X @ beta, observed=y)
    return model


def negative_binomial(X, y):
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 5)
        beta = pm.Normal("beta", 0, 1, shape=X.shape[1])
        alpha = pm.HalfNormal("alpha", 2)
        pm.NegativeBinomial("y", mu=pm.math.exp(intercept + X @ beta), alpha=alpha, observed=y)
    return model


def standardised(X):
    X = X.astype(float)
    return (X - X.mean(axis=0)) / X.std(axis=0)


def real_models():
    folder = Path(os.environ["PYMC_AUSTERITY_DATA"])
    with np.load(folder / "covtype.npz") as covtype:
        yield "covtype", logistic(standardised(covtype["X"]), covtype["y"])
    data = randhie.load_pandas().data
    columns = data[["lncoins", "idp", "lpi", "fmde", "physlm", "disea", "hlthg", "hlthf", "hlthp"]]
    yield "RAND", negative_binomial(standardised(columns.to_numpy()), data["mdvis"].to_numpy().astype(int))
    with np.load(folder / "adult.npz") as adult:
        X = np.zeros((len(adult["train_indptr"]) - 1, 123))
        X[np.repeat(np.arange(len(X)), np.diff(adult["train_indptr"])), adult["train_indices"]] = 1.0
        yield "adult", logistic(X, adult["y_train"])


def synthetic_models(n=5000):
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((n, 5))
    beta = rng.normal(0, 0.5, 5)
    eta = X @ beta
    y = rng.negative_binomial(1.5, 1.5 / (1.5 + np.exp(1 + eta)))
    yield "counts", negative_binomial(X, y)


def sampled(model, settings, chains=2):
    started = time.perf_counter()
    with model:
        step = AusterityMH(control_variate=Taylor())
    set_up = time.perf_counter() - started
    with model:
        idata = pm.sample(
            settings["draws"],
            tune=settings["tune"],
            chains=chains,
            cores=1,
            step=step,
            random_seed=SEED,
            progressbar=False,
        )
    return idata, set_up, time.perf_counter() - started - set_up


def reference(model, settings, sampler):
    """The posterior by a chain on all rows: "exact", or the NUTS of "pymc" or "nutpie"."""
    started = time.perf_counter()
    options = {"tune": 600, "chains": 2, "random_seed": SEED, "progressbar": False}
    with model:
        if sampler == "exact":
            step = MetropolisHastings(proposal=Laplace())
            idata = pm.sample(settings["draws"], cores=1, step=step, **options)
        else:
            idata = pm.sample(settings["reference_draws"], cores=2, nuts_sampler=sampler, **options)
    return idata, time.perf_counter() - started


def moments(idata):
    """Mean, standard deviation, and their Monte Carlo standard errors, for each scalar parameter."""
    table = az.summary(idata, kind="all", round_to="none")
    return table[["mean", "sd", "ess_bulk", "mcse_mean", "mcse_sd"]].astype(float)


def compare(ours, theirs):
    """Differences in units of the standard deviation, and whether they are within the tolerances."""
    a, b = moments(ours), moments(theirs)
    shift = (a["mean"] - b["mean"]) / b["sd"]
    shift_error = np.hypot(a["mcse_mean"], b["mcse_mean"]) / b["sd"]
    spread = np.log(a["sd"] / b["sd"])
    spread_error = np.hypot(a["mcse_sd"] / a["sd"], b["mcse_sd"] / b["sd"])
    agree = (shift.abs() <= 0.05 + 3.5 * shift_error) & (spread.abs() <= 0.03 + 3.5 * spread_error)
    return pd.DataFrame(
        {
            "shift": shift,
            "shift_error": shift_error,
            "log_sd_ratio": spread,
            "spread_error": spread_error,
            "agree": agree,
            "ess": a["ess_bulk"],
            "ess_reference": b["ess_bulk"],
        }
    )


def run(full, sampler="exact"):
    settings = FULL if full else FAST
    rows, tables = [], {}
    for name, model in real_models() if full else synthetic_models():
        ours, set_up, seconds = sampled(model, settings)
        theirs, reference_seconds = reference(model, settings, sampler if full else "pymc")
        table = tables[name] = compare(ours, theirs)
        stats = ours.sample_stats
        rows.append(
            {
                "data": name,
                "parameters": len(table),
                "rows read": float(stats.n_used.mean()),
                "acceptance": float(stats.acceptance_rate.mean()),
                "set-up, s": set_up,
                "sampling, s": seconds,
                "min ESS": table["ess"].min(),
                "reference, s": reference_seconds,
                "reference, min ESS": table["ess_reference"].min(),
                "max |shift|": table["shift"].abs().max(),
                "max |log sd ratio|": table["log_sd_ratio"].abs().max(),
                "agree": bool(table["agree"].all()),
            }
        )
        print(pd.DataFrame(rows[-1:]).T.to_string(header=False), "\n", flush=True)
    return pd.DataFrame(rows).set_index("data"), tables


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="run on the real data")
    parser.add_argument("--reference", choices=["exact", "nutpie"], default="exact")
    arguments = parser.parse_args()
    result, _ = run(arguments.full, arguments.reference)
    print(result.T.to_string(float_format="{:.3g}".format))
