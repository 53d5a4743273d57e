"""Model comparison by PSIS-LOO from subsampled fits: is the answer that of exact fits?

Doctor visits of 20,190 person-years (RAND Health Insurance Experiment): a Poisson regression, a negative
binomial one, and the latter without the covariates of health. Each is fitted by
``AusterityMH(control_variate=Taylor())``, which reads some 200 rows for a decision, and by an exact chain.
Then ``pm.compute_log_likelihood`` on thinned draws, `arviz.loo` and `arviz.compare`, as after any other run.
Here all rows are needed: draws x N numbers are computed and kept.

What may go wrong is the width of the posterior. If a sampler makes standard deviations r times too large,
then for a regular model elpd_loo is about l(mode) - r^2 p instead of l(mode) - p, with p the effective number
of parameters: the fit that is too wide looks worse by (r^2 - 1) p. The last table shows it, with a coarse
test without control variate. A difference of that size matters between models whose elpd differ by some
units, such as with and without one covariate, and if they are fitted by different samplers. It does not
matter where they differ by hundreds, as here.

What `--full` printed (Monte Carlo errors in brackets):

                          elpd_loo: subsampled     exact              difference     p_loo
    negative binomial     -43,396.4 (0.2)          -43,396.9 (0.2)    0.6 (0.3)      14.5, 15.1
    without health        -43,986.9 (0.2)          -43,986.7 (0.1)   -0.2 (0.2)       8.7,  8.5
    Poisson               -62,459.5 (0.7)          -62,461.0 (0.7)    1.5 (1.0)      69.9, 72.2

Both samplers put the models 590 and 19,064 apart, with standard errors of 43 and 680 over the rows.

A negative binomial fit with `epsilon=0.05`, without control variate, has standard deviations r = 1.76 times
too large, and an elpd_loo that is 27.5 (1.1) too small; the rule says 31.9. Beside a difference of 590 that
is little; beside what a single covariate adds it is not.

Run `python examples/model_comparison.py` (2,000 of the rows, two Poisson models, half a minute), or with
`--full` (all rows and models, some minutes).
"""

import argparse
import warnings

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import logsumexp
from statsmodels.datasets import randhie

from pymc_austerity import AusterityMH, Laplace, MetropolisHastings, Taylor
from pymc_austerity.diagnostics import agreement

SEED = 2005
INSURANCE = ["lncoins", "idp", "lpi", "fmde"]
HEALTH = ["physlm", "disea", "hlthg", "hlthf", "hlthp"]

# Draws of each chain; those whose log likelihood is kept, in all; epsilon of the coarse test.
FAST = {"rows": 2000, "draws": 1500, "kept": 500}
FULL = {"rows": None, "draws": 4000, "kept": 800}
COARSE = {"epsilon": 0.05, "batch_size": 500, "steps_per_draw": 4}
CHAINS = 2


def read_data(rows=None):
    """Number of visits, and standardised covariates with an intercept."""
    data = randhie.load_pandas().data
    if rows is not None:
        data = data.iloc[np.random.default_rng(SEED).choice(len(data), rows, replace=False)]
    columns = data[INSURANCE + HEALTH]
    X = ((columns - columns.mean()) / columns.std(ddof=0)).assign(intercept=1.0)
    return data["mdvis"].to_numpy().astype(int), X


def build_model(y, X, family):
    with pm.Model(coords={"covariate": list(X.columns)}) as model:
        beta = pm.Normal("beta", 0, 1, dims="covariate")
        mu = pm.math.exp(X.to_numpy() @ beta)
        if family == "Poisson":
            pm.Poisson("visits", mu, observed=y)
        else:
            alpha = pm.HalfNormal("alpha", 2)
            pm.NegativeBinomial("visits", mu=mu, alpha=alpha, observed=y)
    return model


def make_models(y, X, full):
    without = X.drop(columns=HEALTH)
    if full:
        return {
            "negative binomial": build_model(y, X, "negative binomial"),
            "without health": build_model(y, without, "negative binomial"),
            "Poisson": build_model(y, X, "Poisson"),
        }
    # Two models of one shape, so that they are compiled once.
    return {
        "health": build_model(y, X[[*HEALTH[:4], "intercept"]], "Poisson"),
        "insurance": build_model(y, without, "Poisson"),
    }


def fit(model, step, settings, seed, tune=500):
    """Sample; add the log likelihood of every observation to a thinned copy."""
    idata = pm.sample(
        settings["draws"], tune=tune, chains=CHAINS, cores=1, step=step, model=model, random_seed=seed,
        progressbar=False,
    )  # fmt: skip
    every = settings["draws"] * CHAINS // settings["kept"]
    thinned = idata.sel(draw=slice(None, None, every))
    pm.compute_log_likelihood(thinned, model=model, progressbar=False)
    return idata, thinned


def loo(thinned):
    """`arviz.loo`; the weights of many observations are smoothed, so single warnings say little."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Estimated shape parameter of Pareto")
        return az.loo(thinned, pointwise=True)


def monte_carlo_error(thinned):
    """Of elpd_loo, that of other draws of the same number, to first order and without smoothing.

    elpd_loo = -sum over i of log(mean over draws of 1 / p(y_i | draw)) changes with a draw by the sum of what
    that draw adds to each mean, relative to it.
    """
    terms = next(iter(thinned.log_likelihood.data_vars.values())).to_numpy()
    log_means = logsumexp(-terms, axis=(0, 1)) - np.log(terms.shape[0] * terms.shape[1])
    return float(az.mcse(np.exp(-terms - log_means).sum(axis=-1)))


def rank(scores):
    """`arviz.compare` of the models of one sampler."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Estimated shape parameter of Pareto")
        return az.compare(scores)


def side_by_side(subsampled, exact, scores):
    """elpd_loo of both samplers, its Monte Carlo error, and how far each model is behind the first."""
    samplers = {"subsampled": subsampled, "exact": exact}
    first, rows = next(iter(subsampled)), {name: {} for name in subsampled}
    for sampler, fits in samplers.items():
        found = scores[sampler]
        for name, row in rows.items():
            row[sampler] = found[name].elpd
            row[f"error, {sampler}"] = monte_carlo_error(fits[name][1])
            row[f"p_loo, {sampler}"] = found[name].p
            row[f"k above 0.7, {sampler}"] = int((found[name].pareto_k > 0.7).sum())
            row[f"behind, {sampler}"] = found[first].elpd - found[name].elpd
    for row in rows.values():
        row["difference"] = row["subsampled"] - row["exact"]
        row["its error"] = np.hypot(row["error, subsampled"], row["error, exact"])
    return pd.DataFrame(rows)


def widened(model, exact, right, settings):
    """What a coarse test does to the posterior and to elpd_loo, and what the rule of thumb says."""
    step = AusterityMH(**COARSE, model=model)
    idata, thinned = fit(model, step, {**settings, "draws": 2000}, SEED + 2, tune=1000)
    ratio = float(np.sqrt(np.mean(agreement(idata, exact[0])["sd_ratio"] ** 2)))
    coarse = loo(thinned)
    return pd.Series(
        {
            "share of the data": float(idata.sample_stats["fraction_used"].mean()),
            "sd ratio r": ratio,
            "elpd_loo": coarse.elpd,
            "exact elpd_loo": right.elpd,
            "difference": coarse.elpd - right.elpd,
            "its error": np.hypot(monte_carlo_error(thinned), monte_carlo_error(exact[1])),
            "-(r^2 - 1) p": -(ratio**2 - 1) * right.p,
        }
    )


def main(full=False):
    settings = FULL if full else FAST
    y, X = read_data(settings["rows"])
    print(f"{len(y):,} rows, {X.shape[1]} coefficients.")
    models = make_models(y, X, full)
    subsampled, exact, read = {}, {}, {}
    for k, (name, model) in enumerate(models.items()):
        step = AusterityMH(control_variate=Taylor(), model=model)
        subsampled[name] = fit(model, step, settings, SEED + 10 * k)
        read[name] = float(subsampled[name][0].sample_stats["n_used"].mean())
        step = MetropolisHastings(proposal=Laplace(), model=model)
        exact[name] = fit(model, step, settings, SEED + 10 * k + 1)
        print(f"{name}: {read[name]:.0f} rows read for a decision.", flush=True)
    scores = {
        sampler: {name: loo(thinned) for name, (_, thinned) in fits.items()}
        for sampler, fits in (("subsampled", subsampled), ("exact", exact))
    }
    result = {
        "read": read,
        "ranking": rank(scores["subsampled"]),
        "exact ranking": rank(scores["exact"]),
        "table": side_by_side(subsampled, exact, scores),
    }
    print("\nModels by arviz.compare, from the subsampled fits:\n")
    print(result["ranking"].to_string())
    print("\nelpd_loo from subsampled and exact fits:\n")
    print(result["table"].to_string(float_format="{:,.2f}".format))
    if full:
        best = "negative binomial"
        result["widened"] = widened(models[best], exact[best], scores["exact"][best], settings)
        print("\nNegative binomial by a coarse test without control variate, AusterityMH(epsilon=0.05):\n")
        print(result["widened"].to_string(float_format="{:,.2f}".format))
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all rows and models, long chains")
    main(**vars(parser.parse_args()))
