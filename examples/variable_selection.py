"""Risk of the predictive mean against data read: variable selection in a logistic regression.

The design of Figure 4 of Korattikara, Chen & Welling (2014, section 6.3): reversible jump with tests of
epsilon = 0, 0.01, 0.05 and 0.1, chains that start with one variable, and the mean squared error of a chain's
running estimate of the predictive mean, on average over test rows and chains. The reference is a long exact
run.

What differs from the paper. Its data, MiniBooNE, cannot be had here: these are 20,000 rows of Covertype
(cover type 2 or not) with its ten quantitative attributes, standardised, of which elevation and others are
correlated. Its prior of the scale of the coefficients, p(nu) ~ 1/nu, has no posterior; here the slab is N(0,
1), and each attribute is in with probability 0.2. Its jumps move one coefficient, and stay near the models
where they start: the paper finds 12 features from one start and 45 from another. Here all active coefficients
are drawn anew (`redraw="all"`). Transitions are counted by the rows that they read, and not by time.

What `--full` printed:

    reference, 48,000 moves    inclusion 1, .998, .011, 1, .079, 1, .859, 1, .163, 1;
                               models 1101011101 (.768), 1101010111 (.123)

    epsilon                    0         0.01      0.05      0.1
    moves                      1100      2261      4433      5817
    share read, births         1         0.73      0.46      0.26
    share read, deaths         1         0.28      0.18      0.12
    share read, swaps          1         0.30      0.20      0.13
    share read, others         1         0.82      0.53      0.31
    swaps accepted             0.03      0.05      0.11      0.16
    risk after 2e6 rows        2.9e-4    7.7e-5    1.4e-4    6.3e-5
    risk after 2e7 rows        5.0e-6    2.5e-6    8.4e-6    2.7e-5
    inclusion off by           0.08      0.11      0.29      0.38

As in the paper the risk is lowest for some epsilon > 0 at each amount of data read. It is of predictions:
with epsilon = 0.05 and above, inclusion probabilities are far off, because more jumps to unlikely models are
taken than should be. The Monte Carlo errors of the last line are some 0.1.

Run `python examples/variable_selection.py` (4,000 synthetic rows, a minute), or with `--full` on Covertype
(ten minutes): from the file covtype.npz in the folder that the environment variable PYMC_AUSTERITY_DATA
names, an archive with the ten quantitative attributes `X` and the labels `y`.
"""

import argparse
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import expit

from pymc_austerity import ReversibleJump
from pymc_austerity.acceptance import Exact, TTest
from pymc_austerity.diagnostics import inclusion

EPSILONS = (0.0, 0.01, 0.05, 0.1)
SEED = 63
POINTS = 25
QUIET = {"progressbar": False, "compute_convergence_checks": False, "quiet": True}

# Draws of the reference; chains for each epsilon, and rows that each reads.
FAST = {"reference": 1500, "chains": 2, "budget": 1e6}
FULL = {"reference": 12_000, "chains": 4, "budget": 2e7}


def synthetic(n_train=4000, n_test=500, p=10):
    """Correlated columns with large, small and no effects."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(n_train + n_test, p)) + rng.normal(size=(n_train + n_test, 1))
    b = np.array([1.0, -0.5, 0.3, 0.2, 0.1, 0.05, 0, 0, 0, 0])
    y = (rng.random(len(X)) < expit(X @ b - 0.3)).astype(int)
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:]


def covtype(n_train=20_000, n_test=2000):
    folder = os.environ.get("PYMC_AUSTERITY_DATA")
    if not folder:
        raise FileNotFoundError(
            "The environment variable PYMC_AUSTERITY_DATA must name the folder of covtype.npz."
        )
    with np.load(Path(folder) / "covtype.npz", allow_pickle=False) as data:
        order = np.random.default_rng(2014).permutation(len(data["y"]))
        train, test = order[:n_train], order[n_train : n_train + n_test]
        X, y = data["X"].astype(float), data["y"].astype(int)
    X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
    return X[train], y[train], X[test], y[test]


def build_model(X, y):
    p = X.shape[1]
    with pm.Model() as model:
        gamma = pm.Bernoulli("gamma", 0.2, shape=p)
        beta = pm.Normal("beta", 0, 1, shape=p)
        a = pm.Normal("a", 0, 5)
        pm.Bernoulli("y", logit_p=a + X @ (gamma * beta), observed=y)
    return model


def sample(model, step, draws, chains, start, seed):
    """Draws, and rows read; from the first draw on, for what is on the way is paid for."""
    p = model.initial_point()["gamma"].size
    values = {"gamma": np.ones(p, dtype=int) if start == "all" else np.eye(p, dtype=int)[0]}
    return pm.sample(
        draws, tune=0, chains=chains, cores=1, step=step, model=model, initvals=values, random_seed=seed,
        **QUIET
    )  # fmt: skip


def predictive(idata, X):
    """Probabilities of test rows, of shape (chain, draw, row)."""
    posterior = idata["posterior"]
    b = posterior["gamma"].to_numpy() * posterior["beta"].to_numpy()
    return expit(posterior["a"].to_numpy()[..., None] + b @ X.T)


def running_risk(idata, X, truth, budget):
    """Mean squared error of running means of predictions, at numbers of rows read."""
    read = np.cumsum(idata["sample_stats"]["n_used"].to_numpy(), axis=1)
    at = np.geomspace(budget / 50, budget, POINTS)
    errors = np.empty((len(read), POINTS))
    for chain, rows in enumerate(read):
        means = np.cumsum(predictive(idata.isel(chain=[chain]), X)[0], axis=0)
        ends = np.clip(np.searchsorted(rows, at), 1, len(rows))
        errors[chain] = [np.mean((means[end - 1] / end - truth) ** 2) for end in ends]
    return at, errors.mean(axis=0)


def run(model, epsilon, X, truth, settings):
    """Chains that read as many rows each, from one variable."""
    step = ReversibleJump(model=model, acceptance=TTest(epsilon) if epsilon else Exact())
    budget = settings["budget"]
    pilot = sample(model, step, 300, 1, "one", SEED)
    draws = int(1.1 * budget / pilot["sample_stats"]["n_used"].to_numpy()[:, 50:].mean())
    idata = sample(model, step, draws, settings["chains"], "one", SEED + 1)
    at, risk = running_risk(idata, X, truth, budget)
    return {"epsilon": epsilon, "at": at, "risk": risk, "idata": idata, "draws": draws}


def tabulate(results, reference, n_rows):
    """Shares of the rows that each kind of move reads, and errors of the inclusion probabilities."""
    exact, rows = inclusion(reference).coefficients["probability"], {}
    for result in results:
        found = inclusion(result["idata"])
        shares = found.jumps["used"] / n_rows
        rows[result["epsilon"]] = {
            "draws": result["draws"],
            **{f"share, {kind}": shares[kind] for kind in shares.index},
            "accepted, swaps": found.jumps.loc["swaps", "accepted"],
            "risk, 1/10": np.interp(result["at"][-1] / 10, result["at"], result["risk"]),
            "risk, end": result["risk"][-1],
            "inclusion off by": (found.coefficients["probability"] - exact).abs().max(),
        }
    return pd.DataFrame(rows).T.rename_axis("epsilon")


def plot(results, table, path):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for k, result in enumerate(results):
        label = f"epsilon = {result['epsilon']:g}" if result["epsilon"] else "exact"
        left.loglog(result["at"], result["risk"], color=f"C{k}", label=label)
    left.set(xlabel="rows read by each chain", ylabel="risk of the predictive mean")
    left.legend(frameon=False)
    kinds = [column for column in table if column.startswith("share")]
    for k, (_, row) in enumerate(table.iterrows()):
        right.bar(np.arange(len(kinds)) + 0.2 * k - 0.3, row[kinds], 0.2, color=f"C{k}")
    right.set_xticks(np.arange(len(kinds)), [kind.removeprefix("share, ") for kind in kinds])
    right.set(ylabel="share of the rows read for a move", ylim=(0, 1.05))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main(full=False, output="."):
    settings, path = FULL if full else FAST, Path(output) / "variable_selection.png"
    X, y, X_test, _ = covtype() if full else synthetic()
    model = build_model(X, y)
    step = ReversibleJump(model=model, jump=0.9, swap=0.6, steps_per_draw=2)
    reference = sample(model, step, settings["reference"], 2, "all", SEED + 2)
    truth = predictive(reference.isel(draw=slice(200, None, 5)), X_test).mean(axis=(0, 1))
    found = inclusion(reference)
    with pd.option_context("display.width", 160, "display.float_format", "{:.4g}".format):
        print(f"{len(y):,} rows. The reference:\n{found.coefficients}\n\n{found.models.head(3)}\n")
        results = [run(model, epsilon, X_test, truth, settings) for epsilon in EPSILONS]
        table = tabulate(results, reference, len(y))
        print(table.T)
    plot(results, table, path)
    return {"table": table, "reference": found, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--full", action="store_true", help="20,000 rows of Covertype")
    parser.add_argument("--output", default=".", help="folder of the figure")
    options = parser.parse_args()
    main(options.full, options.output)
