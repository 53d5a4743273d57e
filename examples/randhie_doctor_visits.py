"""Doctor visits in the RAND Health Insurance Experiment, with and without a subsample.

20,190 person-years. How many visits to a doctor did a person make in a year, given the insurance plan and
the person's health? The model is a negative binomial regression, written for PyMC as usual. It is sampled
twice by random-walk Metropolis-Hastings, with the same steps: once with every decision made from all rows
(epsilon = 0, exact), once with a sequential t-test on a growing subsample (epsilon > 0, approximate).

Run `make demo`, or `python examples/randhie_doctor_visits.py` (`--fast` for a short run).
"""

import sys
import time
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from scipy.stats import gaussian_kde
from statsmodels.datasets import randhie

from pymc_austerity import AusterityMH, RandomWalk, factorise, find_mode

EPSILON = 0.01  # the default of AusterityMH; try 0.05 to see less data read and a larger error
CHAINS = 2
PILOT = (1600, 2500)  # draws of the short exact chains: while tuning, and after it
DRAWS = 8000
SEED = 1974
FIGURE = Path("figures/randhie.png")

# Columns of the data set, and what the tables and the figure call them.
COVARIATES = {
    "lncoins": "log coinsurance",
    "idp": "individual deductible",
    "lpi": "log incentive payment",
    "fmde": "log max. expenditure",
    "physlm": "physical limitation",
    "disea": "chronic diseases",
    "hlthg": "good health",
    "hlthf": "fair health",
    "hlthp": "poor health",
}


def build_model():
    data = randhie.load_pandas().data
    visits = data["mdvis"].to_numpy().astype(int)
    columns = data[list(COVARIATES)].to_numpy()
    # One standard deviation of each covariate is the unit of its coefficient. This uses the data alone; a
    # mean over rows of something that depends on a parameter would couple all rows, and be refused.
    standardised = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    X = np.column_stack([np.ones(len(visits)), standardised])
    with pm.Model(coords={"covariate": ["intercept", *COVARIATES.values()]}) as model:
        beta = pm.Normal("beta", 0, 1, dims="covariate")
        alpha = pm.HalfNormal("alpha", 2)
        pm.NegativeBinomial("visits", mu=pm.math.exp(X @ beta), alpha=alpha, observed=visits)
    return model


def sample(model, step, start, draws, tune, cores):
    with model:
        return pm.sample(
            draws,
            tune=tune,
            chains=CHAINS,
            cores=cores,
            step=step,
            initvals=start,
            random_seed=SEED,
            progressbar=False,
            compute_convergence_checks=False,  # the tables below have the effective sample sizes
        )


def learn_proposal(model, start, tune, draws, cores):
    """Random walk steps of the shape and size of the posterior, from short exact chains."""
    # The default proposal, AdaptiveRandomWalk, learns while it runs. Under a subsampled test it would learn
    # from a posterior that is too wide, take steps that are too large, and be wrong more often.
    idata = sample(model, AusterityMH(epsilon=0, model=model), start, draws, tune, cores)
    # A step moves the unconstrained variables: beta, and the logarithm of alpha.
    beta, alpha = idata.posterior["beta"].values, idata.posterior["alpha"].values
    q = np.concatenate([beta, np.log(alpha)[..., None]], axis=-1).reshape(-1, beta.shape[-1] + 1)
    # 2.38^2 / D is the best scale of a random walk on a normal distribution.
    return RandomWalk(cov=2.38**2 / q.shape[1] * np.cov(q.T))


def measure(model, epsilon, proposal, start, draws, cores):
    """Sample, and say what it cost."""
    began = time.perf_counter()
    step = AusterityMH(epsilon=epsilon, proposal=proposal, model=model)
    ready = time.perf_counter()
    # The chains start at the mode, and there is nothing to learn: no tuning.
    idata = sample(model, step, start, draws, 0, cores)
    seconds = time.perf_counter() - ready
    stats, draws_of = idata.sample_stats, parameters(idata)
    ess = {name: float(az.ess(values)) for name, values in draws_of.items()}
    worst = min(ess.values())
    million_terms = float(stats["n_used"].sum()) / 1e6
    cost = {
        "acceptance rate": float(stats["acceptance_rate"].mean()),
        "share of data": float(stats["fraction_used"].mean()),
        "decisions that read all rows": float(stats["exhausted"].mean()),
        "million terms evaluated": million_terms,
        "smallest effective sample size": worst,
        "  per million terms": worst / million_terms,
        "  per second": worst / seconds,
        "seconds to build the step": ready - began,
        "seconds in pm.sample": seconds,
    }
    return {"epsilon": epsilon, "stats": stats, "draws": draws_of, "ess": pd.Series(ess), "cost": cost}


def parameters(idata):
    """Draws of every scalar parameter, as arrays of shape (chain, draw)."""
    beta = idata.posterior["beta"]
    draws = {str(c): beta.sel(covariate=c).values for c in beta["covariate"].values}
    return {**draws, "alpha": idata.posterior["alpha"].values}


def compare(exact, subsampled):
    """Posterior means and sds of both, and how they differ, in units of the exact sd."""
    table = pd.DataFrame(
        {
            "exact mean": {name: x.mean() for name, x in exact["draws"].items()},
            "exact sd": {name: x.std() for name, x in exact["draws"].items()},
            "mean": {name: x.mean() for name, x in subsampled["draws"].items()},
            "sd": {name: x.std() for name, x in subsampled["draws"].items()},
        }
    )
    # Monte Carlo standard errors: n effective draws give a mean to sd / sqrt(n) and an sd to sd / sqrt(2 n).
    ratio = table["sd"] / table["exact sd"]
    table["shift"] = (table["mean"] - table["exact mean"]) / table["exact sd"]
    table["error"] = np.sqrt(1 / exact["ess"] + ratio**2 / subsampled["ess"])
    table["sd ratio"] = ratio
    table["error "] = ratio * np.sqrt(0.5 / exact["ess"] + 0.5 / subsampled["ess"])
    return table


def plot(exact, subsampled, path):
    """Marginals of both chains on the scale of the exact one, and the share of data read."""
    figure, axes = plt.subplot_mosaic(
        [["marginals", "histogram"], ["marginals", "trace"]], figsize=(11, 6.5), layout="constrained"
    )
    ax = axes["marginals"]
    names, grid = list(exact["draws"]), np.linspace(-4.5, 4.5, 181)
    for height, name in enumerate(reversed(names)):
        reference = exact["draws"][name]
        for run, unwhiten in [(exact, "C0"), (subsampled, "C1")]:
            label = f"epsilon = {run['epsilon']:g}{'' if run['epsilon'] else ' (exact)'}"
            scaled = (run["draws"][name] - reference.mean()) / reference.std()
            density = height + 2.0 * gaussian_kde(scaled.ravel())(grid)
            ax.plot(grid, density, color=unwhiten, label=label if height == 0 else None)
    ax.set_yticks(range(len(names)), reversed(names))
    ax.set_ylim(-0.3, len(names) + 0.6)
    ax.set_xlabel("distance from the exact posterior mean [exact posterior sd]")
    ax.set_title("Posterior marginals")
    ax.legend(loc="upper right", frameon=False)

    percent = 100 * subsampled["stats"]["fraction_used"].values
    axes["histogram"].hist(percent.ravel(), bins=41, range=(0, 100), color="C1")
    axes["histogram"].set_xlabel("rows read for a decision [% of 20,190]")
    axes["histogram"].set_ylabel("number of decisions")
    axes["histogram"].set_title("Share of data per decision")

    # Single decisions scatter over the whole range, so the trace shows means of 100 draws.
    blocks = percent[:, : percent.shape[1] // 100 * 100].reshape(CHAINS, -1, 100).mean(axis=2)
    for chain, values in enumerate(blocks):
        draw = 100 * np.arange(len(values)) + 50
        axes["trace"].plot(draw, values, color=f"C{chain + 1}", label=f"chain {chain}", lw=1)
    axes["trace"].axhline(100, color="C0", label="exact chain")
    axes["trace"].set_xlabel("draw")
    axes["trace"].set_ylabel("rows read, mean of 100 draws [%]")
    axes["trace"].set_ylim(0, 112)
    axes["trace"].legend(loc="lower right", ncols=3, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def report(exact, subsampled, table):
    print("\n'shift' is the difference of the posterior means in exact sds, 'error' the Monte Carlo standard")
    print("error of the column before it.\n")
    print(table.to_string(float_format="{:.3f}".format), "\n")
    costs = pd.DataFrame({f"epsilon = {run['epsilon']:g}": run["cost"] for run in (exact, subsampled)})
    print(costs.to_string(float_format="{:.2f}".format), "\n")
    share, ratio, shift = subsampled["cost"]["share of data"], table["sd ratio"], table["shift"]
    errors = table[["error", "error "]].mean()
    print(
        f"With epsilon = {subsampled['epsilon']:g} a decision read {share:.0%} of the rows on average. "
        f"Posterior sds came out\n{ratio.mean() - 1:+.0%} from the exact ones on average (each known to "
        f"about {errors['error ']:.0%}), and means at most\n{shift.abs().max():.2f} exact sds away (each "
        f"known to about {errors['error']:.2f})."
    )


def main(fast=False, epsilon=EPSILON, figure=FIGURE):
    began = time.perf_counter()
    pilot, draws, cores = ((1000, 600), 900, 1) if fast else (PILOT, DRAWS, CHAINS)
    model = build_model()

    factorisation = factorise(model)
    print(factorisation, "\n")

    print("Looking for the posterior mode, where the chains start ...", flush=True)
    start = find_mode(model)
    print(f"... found after {time.perf_counter() - began:.0f} s.", flush=True)
    proposal = learn_proposal(model, start, *pilot, cores)
    print(f"Proposal learnt after {time.perf_counter() - began:.0f} s.", flush=True)

    exact = measure(model, 0.0, proposal, start, draws, cores)
    subsampled = measure(model, epsilon, proposal, start, draws, cores)

    table = compare(exact, subsampled)
    report(exact, subsampled, table)
    plot(exact, subsampled, Path(figure))
    print(f"Figure: {figure}. Total: {time.perf_counter() - began:.0f} s.")
    return {"factorisation": factorisation, "exact": exact, "subsampled": subsampled, "table": table}


if __name__ == "__main__":
    main(fast="--fast" in sys.argv[1:])
