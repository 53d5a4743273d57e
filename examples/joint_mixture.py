"""A mixture of experts without a fixed number of them: features and labels are clustered together.

The model of section 4.2 of Chen, Mansinghka & Ghahramani (2015): a Dirichlet-process mixture of normal
distributions of two features, whose components classify their own rows by a logistic regression each. Sticks
are truncated at 15 components. Four steps move its parts:

    sticks                  SCIR, from exact counts
    allocations z           MinibatchCategoricalGibbs, all rows
    means and scales        MetropolisHastings(elementwise=True), exact
    coefficients B[k]       AusterityMH(elementwise=True): the rows that are in cluster k, or few of them

The sum of the weights that a truncation leaves out bounds how far the *prior* is from that of the Dirichlet
process: 4 N exp(-(K - 1) / alpha) for the marginal distribution of N rows. Of the posterior it says nothing.
What `--full` printed, means over 1500 sweeps (processor milliseconds of a sweep):

                  accuracy  clusters  share of rows  ms, experts  ms, all
    epsilon 0        0.808     6.382          1.000        0.902   12.128
    epsilon 0.05     0.806     6.209          0.319        0.200   11.974
    epsilon 0.3      0.800     7.329          0.087        0.163   11.677

The model that made the data has an accuracy of 0.797. A coarse test reads a tenth of the rows, and finds a
cluster more. The paper reaches the accuracy of the exact sampler in a tenth of its time with epsilon = 0.3,
in an interpreted language. Here the terms of an expert are some nanoseconds each, and allocations take most
of a sweep: there is little to be won.

Run `python examples/joint_mixture.py` (1500 rows, half a minute, too few sweeps to know how many clusters
there are), or with `--full` (10,000 rows, some minutes).
"""

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from scipy.cluster.vq import kmeans2
from scipy.special import expit, logsumexp

from pymc_austerity import SCIR, AusterityMH, MetropolisHastings, MinibatchCategoricalGibbs
from pymc_austerity.diagnostics import n_clusters

K, ALPHA, SEED = 15, 0.2, 2015
N_TEST = 1000
# Six clusters round a circle, each cut by a line of its own.
ANGLES = np.arange(6) * np.pi / 3
MEANS, SCALE = 4.0 * np.column_stack([np.cos(ANGLES), np.sin(ANGLES)]), 0.9
SLOPES = 3.0 * np.column_stack([np.cos(2.3 * ANGLES), np.sin(2.3 * ANGLES)])
EPSILONS = (0.0, 0.05, 0.3)
FAST, FULL = {"n": 1500, "draws": 300, "tune": 200}, {"n": 10_000, "draws": 1500, "tune": 500}


def simulate(n, rng):
    """Features (n, 2) and labels (n,)."""
    cluster = rng.integers(len(MEANS), size=n)
    x = MEANS[cluster] + SCALE * rng.normal(size=(n, 2))
    eta = ((x - MEANS[cluster]) * SLOPES[cluster]).sum(axis=1)
    return x, (rng.random(n) < expit(eta)).astype(int)


def mixture(x, y, start):
    """The model; chains start from the clusters of `start`."""
    centres = np.array([x[start == k].mean(axis=0) if np.any(start == k) else np.zeros(2) for k in range(K)])
    design = np.column_stack([np.ones(len(x)), x])
    with pm.Model() as model:
        sticks = pm.Beta("sticks", 1.0, ALPHA, shape=K - 1)
        left = pt.concatenate([[1.0], pt.cumprod(1.0 - sticks)])
        w = pm.Deterministic("w", pt.concatenate([sticks, [1.0]]) * left)
        z = pm.Categorical("z", w, shape=len(x), initval=start)
        mean = pm.Normal("mean", 0.0, 5.0, shape=(K, 2), initval=centres)
        scale = pm.LogNormal("scale", 0.0, 0.5, shape=K)
        B = pm.Normal("B", 0.0, 3.0, shape=(K, 3))
        pm.Potential("x", pm.logp(pm.Normal.dist(mean[z], scale[z][:, None]), x).sum(axis=1))
        pm.Bernoulli("y", logit_p=(B[z] * design).sum(axis=1), observed=y)
    return model


def steps_for(model, epsilon):
    """The four steps."""
    with model:
        return [
            MinibatchCategoricalGibbs(["z"]),
            SCIR(["sticks"]),
            MetropolisHastings(["mean", "scale"], elementwise=True),
            AusterityMH(["B"], epsilon=epsilon, batch_size=100, elementwise=True),
        ]


def accuracy(idata, x, y):
    """Of the mean predictive probability of label 1 over draws."""
    posterior = idata.posterior.dataset.isel(draw=slice(None, None, 5)).stack(sample=("chain", "draw"))
    design, total, n = np.column_stack([np.ones(len(x)), x]), 0.0, posterior.sizes["sample"]
    for s in range(n):
        one = posterior.isel(sample=s)
        mean, scale, w, B = (one[name].to_numpy() for name in ("mean", "scale", "w", "B"))
        squares = ((x[:, None, :] - mean) ** 2).sum(axis=2)
        log_share = np.log(w + 1e-300) - 2.0 * np.log(scale) - 0.5 * squares / scale**2
        share = np.exp(log_share - logsumexp(log_share, axis=1, keepdims=True))
        total = total + (share * expit(design @ B.T)).sum(axis=1) / n
    return float(np.mean((total > 0.5) == (y == 1))), total


def seconds_of_experts(step, point, sweeps=20):
    """Processor seconds of a sweep over the coefficients, after the chain."""
    started = time.process_time()
    for _ in range(sweeps):
        point, _ = step.step(point)
    return (time.process_time() - started) / sweeps


def figure(x, probability, counts):
    """The test rows with what exact moves predict, and the clusters of every chain."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
    dots = left.scatter(*x.T, c=probability, cmap="coolwarm", s=8, vmin=0, vmax=1)
    fig.colorbar(dots, ax=left, label="predictive probability of label 1")
    left.set(title="Test rows", xlabel="feature 1", ylabel="feature 2", aspect="equal")
    sizes = np.arange(1, K + 1)
    for (epsilon, seen), marker in zip(counts.items(), "osv", strict=True):
        shares = [np.mean(seen == k) for k in sizes]
        right.plot(sizes, shares, marker=marker, label="exact" if epsilon == 0 else f"epsilon {epsilon:g}")
    right.set(title="Occupied clusters", xlabel="clusters", ylabel="share of draws")
    right.legend()
    return fig


def main(full=False, output=None):
    """Run the chains; returns the table, and saves a figure."""
    sizes = FULL if full else FAST
    rng = np.random.default_rng(SEED)
    x, y = simulate(sizes["n"], rng)
    x_test, y_test = simulate(N_TEST, rng)
    # Clusters that are too many merge slowly, and such that are too few are found at once.
    _, start = kmeans2(x, 5, seed=SEED, minit="++")
    rows, counts, predicted = {}, {}, {}
    for epsilon in EPSILONS:
        model = mixture(x, y, start)
        steps = steps_for(model, epsilon)
        started = time.process_time()
        idata = pm.sample(
            sizes["draws"], tune=sizes["tune"], chains=1, cores=1, step=steps, model=model, random_seed=SEED,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
        seconds = (time.process_time() - started) / (sizes["draws"] + sizes["tune"])
        # Two steps record these statistics: the last one has the coefficients.
        used = idata.sample_stats["fraction_used"]
        share = float(used.isel({d: -1 for d in used.dims if d not in ("chain", "draw")}).mean())
        point = {**model.initial_point(), "z": idata.posterior["z"].to_numpy()[0, -1]}
        right, predicted[epsilon] = accuracy(idata, x_test, y_test)
        counts[epsilon] = n_clusters(idata, "z").to_numpy().ravel()
        rows[f"epsilon {epsilon:g}"] = {
            "accuracy": right,
            "clusters": float(counts[epsilon].mean()),
            "share of rows": share,
            "ms, experts": 1e3 * seconds_of_experts(steps[3], point),
            "ms, all": 1e3 * seconds,
        }
        print(pd.DataFrame(rows).T.round(3).to_string(), flush=True)
    if output is not None:
        Path(output).mkdir(parents=True, exist_ok=True)
        figure(x_test, predicted[0.0], counts).savefig(Path(output) / "joint_mixture.png", dpi=100)
    best = np.mean((expit(best_eta(x_test)) > 0.5) == (y_test == 1))
    print(f"of the model that made the data: {best:.3f}")
    return pd.DataFrame(rows).T


def best_eta(x):
    """Log odds under the true model, of the nearest cluster."""
    nearest = ((x[:, None, :] - MEANS) ** 2).sum(axis=2).argmin(axis=1)
    return ((x - MEANS[nearest]) * SLOPES[nearest]).sum(axis=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="10,000 rows, as in the paper")
    parser.add_argument("--output", help="folder for the figure")
    given = parser.parse_args()
    main(given.full, given.output)
