"""Parameters of a state-space model by subsampled Metropolis-Hastings, its states by NUTS.

Reproduces Figure 9 of Chen, Mansinghka & Ghahramani (2015): 200 series of 5 observations
x_t ~ N(0, exp(h_t / 2)) with h_t ~ N(phi h_{t-1}, sigma) and h_0 = 0 (second arguments are standard
deviations), phi = 0.95, sigma = 0.1; priors phi ~ Beta(5, 1) and sigma^2 ~ inverse gamma (5, scale 0.05).
The local terms of (phi, sigma^2) are the 1000 transitions from h_{t-1} to h_t, which depend on one another
through h; the observations contain neither phi nor sigma, and are not read. `AusterityMH` makes ten
transitions of (phi, sigma^2), then `pm.NUTS` one of all h (the paper: particle Gibbs). The ground truth is
NUTS on everything, parametrised so that sigma and the states are not correlated.

What to expect: epsilon = 0 agrees with the ground truth within Monte Carlo error, a tenth of a posterior sd
of sigma; so do the paper's epsilon = 0.001 (here with batches of 100), and the defaults of `AusterityMH`,
epsilon = 0.01 with batches of 500. Batches of 100 at epsilon = 0.01 do not: sigma comes out too small by
half a posterior sd. Log ratios are skewed, so that sigma given h is off by 5 % of its sd; h follows sigma,
and what is small in each sweep adds up. The time goes into the states: terms that are not read save nothing
that could be seen, and it takes some hundred sweeps to get one independent draw of sigma.

Run `python examples/stochastic_volatility.py` (some seconds, and far too few draws to compare), or with
`--full` (six minutes).
"""

import argparse
import time
import warnings
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt

from pymc_austerity import AusterityMH, RandomWalk, SubsamplingWarning, factorise

SERIES, LENGTH = 200, 5
PHI, SIGMA = 0.95, 0.1
TRANSITIONS = 10  # of (phi, sigma^2) for one of h
STEPS = [0.3, 0.05]  # of logit phi and log sigma^2: about their sds given h
SEED = 9

# (epsilon, batch_size) of the runs: exact, the paper's, the defaults of AusterityMH, and too little.
RUNS = [(0.0, 500), (0.001, 100), (0.01, 500), (0.01, 100)]
# Draws, tuning and chains of the ground truth and of each run.
FAST = {"truth": (500, 500, 2), "runs": (1200, 400, 2), "which": [0, 2]}
FULL = {"truth": (4000, 1000, 2), "runs": (15_000, 1000, 4), "which": [0, 1, 2, 3]}


def simulate():
    """Observations and states, series after series."""
    rng = np.random.default_rng(SEED)
    h = np.zeros((SERIES, LENGTH + 1))
    for t in range(LENGTH):
        h[:, t + 1] = PHI * h[:, t] + SIGMA * rng.normal(size=SERIES)
    h = h[:, 1:].ravel()
    return np.exp(h / 2) * rng.normal(size=h.size), h


def parameters():
    return pm.Beta("phi", 5, 1), pm.InverseGamma("sigma2", 5, beta=0.05)


def centred_model(x):
    """The states as a vector of one term for each transition."""
    t = np.tile(np.arange(LENGTH), SERIES)
    previous = np.where(t > 0, np.arange(x.size) - 1, 0)

    def transition(h, phi, sigma):
        before = (t > 0) * h[previous]  # h_0 = 0
        return pm.logp(pm.Normal.dist(phi * before, sigma), h)

    with pm.Model() as model:
        phi, sigma2 = parameters()
        sigma = pm.math.sqrt(sigma2)
        h = pm.CustomDist("h", phi, sigma, logp=transition, shape=x.size, signature="(),()->()")
        pm.Normal("x", 0, pm.math.exp(h / 2), observed=x)
    return model


def non_centred_model(x):
    """The same posterior, with standard normal innovations: NUTS samples it well."""
    with pm.Model() as model:
        phi, sigma2 = parameters()
        sigma = pm.math.sqrt(sigma2)
        z = pm.Normal("z", 0, 1, shape=(SERIES, LENGTH))
        h = [sigma * z[:, 0]]
        for t in range(1, LENGTH):
            h.append(phi * h[-1] + sigma * z[:, t])
        pm.Normal("x", 0, pm.math.exp(pt.stack(h, axis=1).ravel() / 2), observed=x)
    return model


def sample(model, draws, tune, chains, **kwargs):
    """Draws of phi and sigma, statistics, and seconds of processor time."""
    began = time.process_time()
    idata = pm.sample(
        draws, tune=tune, chains=chains, cores=1, model=model, var_names=["phi", "sigma2"],
        random_seed=SEED, progressbar=False, compute_convergence_checks=False, quiet=True, **kwargs,
    )  # fmt: skip
    posterior = {"phi": idata.posterior["phi"].values, "sigma": np.sqrt(idata.posterior["sigma2"].values)}
    return {"posterior": posterior, "stats": idata.sample_stats, "seconds": time.process_time() - began}


def sample_in_turns(model, h, epsilon, batch_size, *settings):
    """(phi, sigma^2) by AusterityMH, h by NUTS; from the values that made the data."""
    with model:
        step = AusterityMH(
            [model["phi"], model["sigma2"]],
            epsilon=epsilon,
            batch_size=batch_size,
            threshold=100,
            proposal=RandomWalk(scale=STEPS),
            steps_per_draw=TRANSITIONS,
        )
        # Trajectories of 31 small steps: sigma moves as far in a sweep as with longer ones, and the steps
        # still suit the states when sigma has become smaller than it was while they were tuned.
        steps = [step, pm.NUTS([model["h"]], target_accept=0.95, max_treedepth=5)]
    start = {"phi": PHI, "sigma2": SIGMA**2, "h": h}
    with warnings.catch_warnings():
        # Sigma takes hundreds of sweeps through its posterior, so that it is on its way whenever tuning ends.
        # What that means for the results is in their effective sample sizes.
        warnings.filterwarnings("ignore", "Tuning ended while the chain was still", SubsamplingWarning)
        return sample(model, *settings, step=steps, initvals=start)


def summarise(runs):
    """Posterior means and sds with their Monte Carlo standard errors, and what they cost."""
    rows = []
    for name, run in runs.items():
        stats = run["stats"]
        share = float(stats["fraction_used"].mean()) if "fraction_used" in stats else np.nan
        for parameter, draws in run["posterior"].items():
            rows.append(
                {
                    "run": name,
                    "parameter": parameter,
                    "mean": draws.mean(),
                    "mcse": float(az.mcse(draws, method="mean")),
                    "sd": draws.std(),
                    "mcse ": float(az.mcse(draws, method="sd")),
                    "ess": float(az.ess(draws)),
                    "rhat": float(az.rhat(draws)),
                    "share of data": share,
                    "seconds": run["seconds"],
                }
            )
    table = pd.DataFrame(rows).set_index(["parameter", "run"]).sort_index(level=0, sort_remaining=False)
    truth = table.xs("truth", level="run")
    sd, mean, error = (truth[c].reindex(table.index, level="parameter") for c in ("sd", "mean", "mcse"))
    table.insert(4, "shift", (table["mean"] - mean) / sd)
    table.insert(5, "mcse  ", np.hypot(table["mcse"], error) / sd)
    return table


def autocorrelation(draws, lags):
    """Of draws of shape (chain, draw), around their common mean."""
    deviations = draws - draws.mean()
    n = draws.shape[1]
    return [np.mean(deviations[:, : n - k] * deviations[:, k:]) / deviations.var() for k in lags]


def plot(runs, path):
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for ax, name, symbol in zip(axes, ["phi", "sigma"], [r"$\phi$", r"$\sigma$"], strict=False):
        low, high = np.quantile(runs["truth"]["posterior"][name], [0.001, 0.999])
        bins = np.linspace(low, 1 if name == "phi" else high, 41)
        for k, (label, run) in enumerate(runs.items()):
            draws = run["posterior"][name].ravel()
            if label == "truth":
                ax.hist(draws, bins, density=True, color="0.8", label="ground truth (NUTS)")
            else:
                ax.hist(draws, bins, density=True, color=f"C{k - 1}", histtype="step", lw=1.5, label=label)
        ax.axvline(PHI if name == "phi" else SIGMA, color="k", lw=1, ls=":", label="made the data")
        ax.set(xlabel=symbol, ylabel="posterior density")
        ax.set_ylim(top=1.08 * ax.get_ylim()[1])
    axes[0].legend(frameon=False, loc="upper left")

    for k, (label, run) in enumerate(runs.items()):
        draws = np.log(run["posterior"]["sigma"])
        lags = np.unique(np.linspace(0, min(draws.shape[1] // 4, 600), 100).astype(int))
        style = {"color": "0.6", "lw": 3} if label == "truth" else {"color": f"C{k - 1}"}
        axes[2].plot(lags, autocorrelation(draws, lags), label=label, **style)
    axes[2].axhline(0, color="k", lw=0.5)
    axes[2].set(xlabel="lag [draws]", ylabel=r"autocorrelation of $\log\,\sigma$")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(full=False, output="."):
    settings = FULL if full else FAST
    x, h = simulate()
    model = centred_model(x)
    factorisation = factorise(model, [model["phi"], model["sigma2"]], threshold=100)
    print(factorisation, "\n")
    runs = {"truth": sample(non_centred_model(x), *settings["truth"])}
    print("Ground truth done.", flush=True)
    for epsilon, batch_size in (RUNS[k] for k in settings["which"]):
        name = f"epsilon {epsilon:g}, batch {batch_size}" if epsilon else "epsilon 0 (exact)"
        runs[name] = sample_in_turns(model, h, epsilon, batch_size, *settings["runs"])
        print(f"{name} done.", flush=True)
    table = summarise(runs)
    print("\n'mcse' is the Monte Carlo standard error of the column before it, 'shift' the distance of the")
    print("mean from the truth in posterior sds; 'seconds' of processor time include tuning.\n")
    print(table.to_string(float_format="{:.3g}".format))
    path = Path(output) / "stochastic_volatility.png"
    plot(runs, path)
    print(f"\nFigure: {path}")
    return {"factorisation": factorisation, "runs": runs, "table": table, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="enough draws to compare")
    parser.add_argument("--output", default=".", help="directory of the figure")
    main(**vars(parser.parse_args()))
