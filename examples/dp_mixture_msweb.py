"""Patterns of visits to a web site: a Dirichlet-process mixture sampled from minibatches of users.

Reproduces Figures 3(b) and 4(b) of Baker, Fearnhead, Fox & Nemeth (2018) on the anonymous Microsoft web data:
32,711 users visited three of 294 areas of a site on average, 5000 others are held out. The users of a
component share a distribution over areas; the number of components is not fixed. The slice sampler of
appendix D (`dirichlet_process.py`), whose gamma variables move by SCIR or by the steps of Patterson & Teh
(SGRLD) given 1000 users at each sweep, beside the exact slice sampler, which reads all. Step sizes, the shape
a of the prior of a component and the number of components at the start are those of the paper's Table 3;
alpha ~ Gamma(1, rate 1), where the paper only says that its prior is uninformative.

The log predictive is the mean over test users of the log probability of the areas they visited.

What `--full` printed, means over five seeds (standard deviations between seeds):

                          log predictive      of averaged draws   components    ms/sweep
    SCIR                  -11.375 (0.003)     -11.309 (0.005)     21.9 (0.9)      1.7
    SGRLD                 -11.436 (0.003)     -11.295 (0.002)     35.6 (1.2)      1.2
    SGRLD, slow sticks    -11.376 (0.008)     -11.296 (0.007)     30.3 (1.0)      1.0
    exact                 -11.349 (0.004)     -11.309 (0.005)     19.5 (0.3)     11.4

All are of the second half of 4000 sweeps, 200 of the exact sampler. The first column is the mean over draws,
as in the paper's figures: SCIR predicts better than SGRLD with the step sizes of Table 3, and SGRLD has more
components, as the paper says. It is not the last word. With sticks that move fifty times more slowly SGRLD
is as good as SCIR. And of the *average* of the probabilities over draws, the Bayesian prediction, SGRLD has
the better one: its wider draws average to smoother distributions, while SCIR comes as far as the exact
sampler of the same model. In other runs (two seeds) SCIR with h = 0.02 had -11.37, SGRLD with the drift
a - theta of SCIR and h = 0.01 had -11.36, and SCIR with the a = 0.001 of SGRLD had -11.8: areas that a
component has not seen then have no probability, which SGRLD cannot draw. With 32,711 users the exact sampler
is the best in seconds, too.

Run `python examples/dp_mixture_msweb.py` (4000 synthetic users, half a minute), or with `--full` on the web
data (five minutes): from the file msweb.npz in the folder that the environment variable PYMC_AUSTERITY_DATA
names, an archive with the areas of each user as sparse rows, `train_indptr`, `train_indices`, `test_indptr`,
`test_indices`. The synthetic users prefer fewer areas than a = 0.5 says, and are predicted best with the
a = 0.001 of SGRLD: only SCIR and the exact sampler, with one a, are to be compared there.
"""

import argparse
import os
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from dirichlet_process import DirichletProcessMixture
from numba.extending import register_jitable
from sgrld import sgrld_transitions

SEED = 2018
N_AREAS = 294


@register_jitable
def sgrld_step(rng, log_theta, prior, counts, total, step_size):
    """The step of Patterson & Teh (2013): the sum is drawn to that of `prior`, whatever the counts."""
    theta = np.exp(log_theta)
    drift = prior - theta + counts - counts.sum() * theta / theta.sum()
    return np.log(sgrld_transitions(rng, theta, drift, step_size))


# Table 3 of the paper, and SGRLD with sticks that move more slowly, the best of those that were tried.
SGRLD = {"a": 0.001, "step_size": 0.001, "n_start": 30, "step": sgrld_step}
METHODS = {
    "SCIR": {"a": 0.5, "step_size": 0.1, "stick_step_size": 0.1, "n_start": 20},
    "SGRLD": {**SGRLD, "stick_step_size": 0.005},
    "SGRLD, slow sticks": {**SGRLD, "stick_step_size": 0.0001},
    "exact": {"a": 0.5, "n_start": 20},
}
COLOURS = dict(zip(METHODS, ("C0", "C1", "C3", "C2"), strict=True))

# Sweeps from minibatches, of all users, and between evaluations
FAST = {"seeds": 2, "batch_size": 400, "sweeps": 1500, "exact_sweeps": 150, "points": 15}
FULL = {"seeds": 5, "batch_size": 1000, "sweeps": 4000, "exact_sweeps": 200, "points": 40}


def synthetic(n_train=4000, n_test=1000, n_components=8):
    """Users of some components, each of which prefers a few areas."""
    rng = np.random.default_rng(SEED)
    weights = rng.dirichlet(np.full(n_components, 3.0))
    preferences = rng.dirichlet(np.full(N_AREAS, 0.03), n_components)

    def users(n):
        visits = 1 + rng.poisson(2, n)
        z = rng.choice(n_components, n, p=weights)
        areas = [rng.choice(N_AREAS, k, p=preferences[j]) for k, j in zip(visits, z, strict=True)]
        return np.concatenate([[0], np.cumsum(visits)]), np.concatenate(areas)

    return users(n_train), users(n_test)


def msweb():
    folder = os.environ.get("PYMC_AUSTERITY_DATA")
    if not folder:
        raise FileNotFoundError(
            "The environment variable PYMC_AUSTERITY_DATA must name the folder of msweb.npz."
        )
    with np.load(Path(folder) / "msweb.npz", allow_pickle=False) as data:
        return tuple((data[f"{part}_indptr"], data[f"{part}_indices"]) for part in ("train", "test"))


def run(method, train, test, settings, seed):
    """Log predictive, number of components and CPU time along one chain; the last halves averaged."""
    options = dict(METHODS[method])
    if method != "exact":
        options["batch_size"] = settings["batch_size"]
    n_sweeps = settings["exact_sweeps" if method == "exact" else "sweeps"]
    each, seconds, rows, probability = n_sweeps // settings["points"], 0.0, [], []
    mixture = DirichletProcessMixture(*train, N_AREAS, rng=[SEED, seed], **options)
    for k in range(1, settings["points"] + 1):
        began = time.process_time()
        mixture.sweep(each)
        seconds += time.process_time() - began
        log_p = mixture.log_predictive(*test)
        rows.append((method, seed, k * each, seconds, log_p.mean(), mixture.n_occupied, mixture.alpha))
        if 2 * k > settings["points"]:
            probability.append(log_p)
    average = np.logaddexp.reduce(probability, axis=0) - np.log(len(probability))
    columns = ["method", "seed", "sweep", "seconds", "log predictive", "components", "alpha"]
    return pd.DataFrame(rows, columns=columns), average.mean()


def compare(train, test, settings):
    """Traces of all chains, and a table of their last halves."""
    traces, averages = [], {}
    for method in METHODS:
        # The first call compiles, which is not what the seconds are to show.
        run(method, train, test, {**settings, "sweeps": 1, "exact_sweeps": 1, "points": 1}, 0)
        for seed in range(settings["seeds"]):
            trace, averages[method, seed] = run(method, train, test, settings, seed)
            traces.append(trace)
        print(f"{method} done.", flush=True)
    traces = pd.concat(traces)
    late = traces[traces["sweep"] > traces.groupby("method")["sweep"].transform("max") / 2]
    table = late.groupby(["method", "seed"])[["log predictive", "components", "alpha"]].mean()
    table["of the averaged probability"] = pd.Series(averages)
    table["ms/sweep"] = 1e3 * traces.groupby(["method", "seed"])[["seconds", "sweep"]].max().eval(
        "seconds / sweep"
    )
    return traces, table


def plot(traces, path):
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
    for ax, x, y in zip(
        axes, ["sweep", "seconds", "sweep"], ["log predictive", "log predictive", "components"], strict=True
    ):
        for method, unwhiten in COLOURS.items():
            chains = [chain for _, chain in traces[traces["method"] == method].groupby("seed")]
            for chain in chains:
                ax.plot(chain[x], chain[y], color=unwhiten, lw=0.6, alpha=0.6)
            mean = [np.mean([chain[column] for chain in chains], axis=0) for column in (x, y)]
            ax.plot(*mean, color=unwhiten, lw=2, label=method)
        ax.set(xlabel=x, ylabel=y, xscale="log")
    low, high = traces["log predictive"].quantile([0.03, 1])
    for ax in axes[:2]:
        ax.set_ylim(low, high + 0.05 * (high - low))
    axes[1].set_xlabel("CPU seconds")
    axes[2].legend(frameon=False, title="mean, and seeds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(full=False, output="."):
    settings, path = FULL if full else FAST, Path(output) / "dp_mixture_msweb.png"
    train, test = msweb() if full else synthetic()
    traces, table = compare(train, test, settings)
    summary = table.groupby("method").agg(["mean", "std"]).loc[list(METHODS)]
    print("\nMeans over the second half of each chain, and over seeds:\n")
    print(summary.to_string(float_format="{:.3f}".format))
    plot(traces, path)
    print(f"\nFigure: {path}")
    return {"traces": traces, "table": table, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all users of the web data, five seeds")
    parser.add_argument("--output", default=".", help="directory of the figure")
    main(**vars(parser.parse_args()))
