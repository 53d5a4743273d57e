"""What does each decision rule pay for a classifier? MNIST digits 1 and 7, at temperature 29.

Follows section 6.2 of Seita, Pan, Chen & Canny (2017): a flat prior, a random walk, chains that start at
zero, and the accuracy of each single draw on the test set against the training points read so far.

What differs from the paper: it has 450,000 training images of MNIST8M, here there are the 13,007 of MNIST,
and 2,163 test images. The temperature is N / 450, as there (1000; here 28.9), for this ratio sets how much
`MinibatchBarker` reads. Features are 50 standardised principal components instead of 784 pixels, and steps
have standard deviation 0.03 in each. Points read are those of the decision: with `range_bound="exact"`
`MHSubLhd` also evaluates all terms at each transition to find their range, which is not counted.

What `--full` printed, four chains with 2e7 points each (in brackets: standard errors):

                            mean  median    99 %  largest     points to 95 %         points to 98 %
    MinibatchBarker          175     100     600    2,700    351,580 (17,823)    1,048,874 (263,708)
    AusterityMH            1,228     200  12,118   13,007    251,865 (35,518)      826,256 (168,835)
    MHSubLhd              13,007  13,007  13,007   13,007  3,507,127 (466,320)   8,763,100 (1,020,491)
      with exact range    12,723  13,007  13,007   13,007  3,043,334 (339,079)  11,217,511 (2,256,603)

                                  accuracy                           log likelihood
    after              3e5     1e6     5e6     2e7          3e5      1e6      5e6      2e7
    MinibatchBarker  0.9274  0.9792  0.9836  0.9872      -0.2565  -0.0656  -0.0784  -0.1170
    AusterityMH      0.9600  0.9752  0.9820  0.9838      -0.1619  -0.0807  -0.0697  -0.0791
    MHSubLhd         0.6518  0.8053  0.9632  0.9831      -0.6311  -0.4816  -0.1404  -0.0514
      exact range    0.6774  0.8194  0.9673  0.9777      -0.6238  -0.4612  -0.1345  -0.0713

What is reproduced: `MinibatchBarker` reads a seventh of what `AusterityMH` reads for a decision, and never
much; the certified range makes `MHSubLhd` read everything, as the paper found (the exact range nearly so);
both others need a tenth of its points. What is not: that `MinibatchBarker` arrives with half the points of
`AusterityMH`. Far from the mode decisions are clear, which a t-test uses, while noise is what Barker's test
pays for, and it accepts less. The size of the steps decides: to 98 % with steps of 0.02 it needs 569,713
(106,380) against 1,772,359 (404,826), and with 0.05 (a mean of 467, the paper: 393) 1,137,556 (38,451)
against 902,251 (246,098). The log likelihood of single draws falls again as weights grow: the tempered
posterior is wide. The exact chain does the same: -0.0691, -0.0544, -0.1077 after 1000, 5000, 20,000 draws.

Run `python examples/mnist_decision_rules.py` (5,000 synthetic rows, half a minute), or with `--full` on MNIST
(three to five minutes): from the file mnist17.npz in the folder that the environment variable
PYMC_AUSTERITY_DATA names, or else from openml.org, for which scikit-learn is needed.
"""

import argparse
import os
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import expit

from pymc_austerity import (
    AusterityMH,
    MetropolisHastings,
    MHSubLhd,
    MinibatchBarker,
    RandomWalk,
    SubsamplingWarning,
)

COMPONENTS = 50
BATCH = 100
STEP = 0.03
POINTS_PER_DEGREE = 450  # N / temperature, as in the paper
SEED = 17

RULES = {
    "MinibatchBarker": (MinibatchBarker, {}),
    "AusterityMH": (AusterityMH, {"epsilon": 0.05}),
    "MHSubLhd": (MHSubLhd, {"growth": 2.0}),
    "MHSubLhd, exact range": (MHSubLhd, {"growth": 2.0, "range_bound": "exact"}),
}
COLOURS = dict(zip(RULES, ["C0", "C1", "C2", "C4"], strict=True))

# Chains of each rule, points that each chain reads, where they are compared, and accuracies to reach. Then
# other steps of the random walk, and the points that a chain reads with them; and ends of an exact chain.
FAST = {
    "chains": 2,
    "budget": 3e6,
    "at": (1e5, 1e6, 3e6),
    "targets": (0.8, 0.88),
    "steps": ((0.02,), 7e5),
    "exact": (200, 1000),
}
FULL = {
    "chains": 4,
    "budget": 2e7,
    "at": (1e5, 3e5, 1e6, 5e6, 2e7),
    "targets": (0.95, 0.98),
    "steps": ((0.02, 0.05), 5e6),
    "exact": (1000, 5000, 20_000),
}


def synthetic(n_train=5000, n_test=1000):
    """Standard normal features, and labels from a logistic regression."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(n_train + n_test, COMPONENTS))
    y = (rng.random(len(X)) < expit(X @ rng.normal(0, 1.6, COMPONENTS))).astype(int)
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:]


def mnist():
    """Standardised principal components of the images of 1 and 7; label 1 is a 7."""
    train, y_train, test, y_test = pixels_from_file() if os.environ.get("PYMC_AUSTERITY_DATA") else download()
    mean = train.mean(axis=0)
    _, _, directions = np.linalg.svd(train - mean, full_matrices=False)
    directions = directions[:COMPONENTS].T
    X, X_test = (train - mean) @ directions, (test - mean) @ directions
    return X / X.std(axis=0), y_train, X_test / X.std(axis=0), y_test


def pixels_from_file():
    with np.load(Path(os.environ["PYMC_AUSTERITY_DATA"]) / "mnist17.npz") as data:
        labels = [(data[f"digit_{part}"] == 7).astype(int) for part in ("train", "test")]
        return data["X_train"] / 255, labels[0], data["X_test"] / 255, labels[1]


def download():
    try:
        from sklearn.datasets import fetch_openml
    except ImportError as error:
        raise ImportError(
            "Without scikit-learn MNIST cannot be downloaded: install it, or let the environment variable "
            "PYMC_AUSTERITY_DATA name the folder of mnist17.npz."
        ) from error
    pixels, digit = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
    digit = digit.astype(int)
    chosen = (digit == 1) | (digit == 7)
    in_train = np.arange(len(digit)) < 60_000
    train, test = chosen & in_train, chosen & ~in_train
    return pixels[train] / 255, (digit[train] == 7) * 1, pixels[test] / 255, (digit[test] == 7) * 1


def build_model(X, y):
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=X.shape[1])
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model


def build_step(model, name, N, scale):
    rule, options = RULES[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=SubsamplingWarning)  # of range_bound="exact"
        return rule(
            batch_size=BATCH, temperature=N / POINTS_PER_DEGREE, proposal=RandomWalk(scale), rng=SEED,
            model=model, **options,
        )  # fmt: skip


def run(step, n_dim, budget):
    """A chain from zero that stops when `budget` points are read: weights, points read, and acceptance."""
    point, total, draws, used, accepted = {"beta": np.zeros(n_dim)}, 0.0, [], [], []
    while total < budget:
        point, (stats,) = step.step(point)
        total += stats["n_used"]
        draws.append(point["beta"])
        used.append(stats["n_used"])
        accepted.append(stats["mean_tree_accept"])
    return np.array(draws), np.array(used), np.mean(accepted)


def predictions(beta, X_test, y_test, block=1000):
    """Accuracy and mean log likelihood on the test set of each single draw."""
    accuracy, log_likelihood = np.empty(len(beta)), np.empty(len(beta))
    for k in range(0, len(beta), block):
        eta = (beta[k : k + block] @ X_test.T) * (2 * y_test - 1)
        accuracy[k : k + block] = (np.sign(eta) + 1).mean(axis=1) / 2  # weights of zero guess
        log_likelihood[k : k + block] = -np.logaddexp(0, -eta).mean(axis=1)
    return accuracy, log_likelihood


def curve(values, used, grid):
    """Mean over the draws made with the last fifth of c points, for each c in `grid`."""
    read, sums = np.cumsum(used), np.append(0, np.cumsum(values))
    end = np.searchsorted(read, grid, side="right")
    begin = np.minimum(np.searchsorted(read, 0.8 * grid, side="right"), end - 1)  # one draw at least
    return np.where(end > 0, (sums[end] - sums[begin]) / np.maximum(end - begin, 1), np.nan)


def first_at(target, values, grid):
    """Points read when a curve first is as high as `target`; NaN if it never is."""
    reached = values >= target
    return grid[np.argmax(reached)] if reached.any() else np.nan


def compare(model, name, data, settings, scale=STEP, budget=None):
    X, _, X_test, y_test = data
    budget = budget or settings["budget"]
    grid = np.geomspace(2e4, budget, 150)
    step = build_step(model, name, len(X), scale)
    used, rates, curves = [], [], {"accuracy": [], "log likelihood": []}
    for _ in range(settings["chains"]):
        beta, read, rate = run(step, X.shape[1], budget)
        for values, key in zip(predictions(beta, X_test, y_test), curves, strict=True):
            curves[key].append(curve(values, read, grid))
        used.append(read)
        rates.append(rate)
    return {
        "grid": grid,
        "used": np.concatenate(used),
        "late": np.concatenate([u[len(u) // 2 :] for u in used]),
        "accepted": np.mean(rates),
        "to targets": {
            target: np.array([first_at(target, values, grid) for values in curves["accuracy"]])
            for target in settings["targets"]
        },
        **{key: np.array(values) for key, values in curves.items()},
    }


def sizes(results):
    """Points read for a decision."""
    rows = {}
    for name, result in results.items():
        used = result["used"]
        rows[name] = {
            "decisions": len(used),
            "mean": used.mean(),
            "median": np.median(used),
            "99 %": np.quantile(used, 0.99),
            "largest": used.max(),
            "2nd half": result["late"].mean(),
            "accepted": result["accepted"],
        }
    return pd.DataFrame(rows).T


def error(values):
    return values.std(ddof=1) / np.sqrt(len(values))


def at_budgets(results, settings, key):
    """Means over chains of accuracy or log likelihood after so many points."""
    rows = {}
    for name, result in results.items():
        mean = result[key].mean(axis=0)
        rows[name] = {f"{c:.0e}": np.interp(c, result["grid"], mean) for c in settings["at"]}
        rows[name]["error"] = error(result[key][:, -1])
    return pd.DataFrame(rows).T


def costs(result):
    """Points read to each accuracy: mean over chains and its error, NaN if a chain does not get there."""
    row = {}
    for target, points in result["to targets"].items():
        row[f"to {target:.0%}"], row[f"error of {target:.0%}"] = points.mean(), error(points)
    return row


def by_step_size(model, data, settings):
    """The two rules that read little, with other steps of the random walk."""
    rows = {}
    scales, budget = settings["steps"]
    for scale in scales:
        for name in ("MinibatchBarker", "AusterityMH"):
            result = compare(model, name, data, settings, scale, budget)
            rows[scale, name] = {"mean": result["used"].mean(), **costs(result)}
    table = pd.DataFrame(rows).T
    table.index.names = ["step", "rule"]
    return table


def exact_chain(model, data, ends):
    """Log likelihood of single draws of one exact chain, a mean over the last fifth before each end."""
    X, _, X_test, y_test = data
    step = MetropolisHastings(
        temperature=len(X) / POINTS_PER_DEGREE, proposal=RandomWalk(STEP), rng=SEED, model=model
    )
    beta, _, _ = run(step, X.shape[1], ends[-1] * len(X))
    _, log_likelihood = predictions(beta, X_test, y_test)
    return {end: log_likelihood[end * 4 // 5 : end].mean() for end in ends}


def plot(results, N, path):
    names = list(results)
    figure, axes = plt.subplot_mosaic([["a", "a", "b", "b"], names], figsize=(13, 7.5), layout="constrained")
    for key, ax in [("accuracy", axes["a"]), ("log likelihood", axes["b"])]:
        for name, result in results.items():
            for values in result[key]:
                ax.plot(result["grid"], values, color=COLOURS[name], lw=0.5, alpha=0.5)
            ax.plot(result["grid"], result[key].mean(axis=0), color=COLOURS[name], lw=2, label=name)
        ax.set(xscale="log", xlabel="training points read", title=f"{key.capitalize()} on the test set")
        ax.grid(alpha=0.3)
    axes["a"].set_ylim(0.5, 1)
    axes["b"].set_ylim(-0.8, 0)
    axes["a"].legend(frameon=False, loc="lower right")
    bins = np.geomspace(BATCH * 0.9, N * 1.1, 40)
    for name in names:
        ax, used = axes[name], results[name]["used"]
        ax.hist(used, bins=bins, weights=np.full(len(used), 1 / len(used)), color=COLOURS[name])
        ax.axvline(used.mean(), color="k", ls="--")
        ax.set(xscale="log", yscale="log", ylim=(1e-5, 1.5), title=f"{name}\nmean {used.mean():,.0f}")
        ax.set_xlabel("points read (dashed: mean)")
    axes[names[0]].set_ylabel("share of the decisions")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(full=False, output="."):
    settings = FULL if full else FAST
    data = mnist() if full else synthetic()
    N = len(data[0])
    print(f"{N:,} training rows, {data[0].shape[1]} features, {len(data[2]):,} test rows.")
    model = build_model(*data[:2])
    results = {}
    for name in RULES:
        results[name] = compare(model, name, data, settings)
        print(f"{name} done.", flush=True)
    chains, budget = settings["chains"], settings["budget"]
    tables = {
        "sizes": sizes(results),
        "accuracy": at_budgets(results, settings, "accuracy"),
        "log likelihood": at_budgets(results, settings, "log likelihood"),
        "costs": pd.DataFrame({name: costs(result) for name, result in results.items()}).T,
        "steps": by_step_size(model, data, settings),
        "exact": exact_chain(model, data, settings["exact"]),
    }
    whole, fine = "{:,.2f}".format, "{:,.4f}".format
    print(f"\nPoints read for a decision, of {N:,}; {chains} chains with {budget:.0e} points each.\n")
    print(tables["sizes"].to_string(float_format=whole))
    for key in ("accuracy", "log likelihood"):
        print(f"\nTest {key} after so many points read, and the standard error of the last mean:\n")
        print(tables[key].to_string(float_format=fine))
    print("\nPoints read to an accuracy:\n")
    print(tables["costs"].to_string(float_format="{:,.0f}".format))
    print("\nPoints read for a decision and to an accuracy, with other steps of the random walk:\n")
    print(tables["steps"].to_string(float_format="{:,.0f}".format))
    print("\nTest log likelihood of an exact chain after so many draws:", end=" ")
    print(", ".join(f"{end:,}: {value:.4f}" for end, value in tables["exact"].items()))
    path = Path(output) / "mnist_decision_rules.png"
    plot(results, N, path)
    print(f"\nFigure: {path}")
    return {"results": results, "tables": tables, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="MNIST instead of synthetic data")
    parser.add_argument("--output", default=".", help="directory of the figure")
    main(**vars(parser.parse_args()))
