"""Should the tolerance of a sequential test fall along the chain? No: loose draws are many and wide.

Korattikara, Chen & Welling (2014), section 7, suggest a large epsilon at first and a smaller one later, as
with the step sizes of Langevin dynamics. This example tries it where all is known: a normal mean with known
variance and a flat prior, N = 100,000, batches of 500, and a random walk with steps of 2.4 posterior standard
deviations, from the posterior. Each chain may read 1000 times N terms. Its epsilon is constant, or falls
linearly with what was read. In such a model the mean of the log ratios has the standardised distance

    mu_std = (Lambda - log u) / |t' - t|,    Lambda = (t^2 - t'^2) / 2,

from its threshold, with t the distance from the posterior mean in posterior standard deviations. The test is
simulated as what it is for normal means: a Brownian motion W with drift mu_std at times tau_j = pi_j /
(1 - pi_j), pi_j = 500 j / N, which stops where |W| > Phi^-1(1 - epsilon) tau_j^1/2 (equations 10 to 12).

What `--full` printed, over 400 chains, in units of the posterior variance:

                    bias of the variance      squared error of the mean       draws
    0 (exact)             0.003 (0.005)                0.0043 (0.0003)       1,000
    0.01                  0.546 (0.009)                0.0046 (0.0003)       1,970
    0.05                  2.576 (0.012)                0.0055 (0.0004)       4,468
    0.1                   5.078 (0.014)                0.0058 (0.0004)      10,448
    0.2                  10.314 (0.013)                0.0044 (0.0003)      43,761
    0.2 to 0.01           7.477 (0.017)                0.0080 (0.0005)      15,229
    0.1 to 0.001          3.300 (0.015)                0.0079 (0.0006)       4,997

Neither schedule beats the exact test: both have far too much variance, and a larger error of the mean. The
first passes, at a large epsilon, make most of the draws, from a distribution that is several times too wide,
and these are averaged in. What makes a small epsilon cheap is a control variate: with
`control_variate=Taylor()` some 50 rows decide at any N (`docs/explanation/remainder_decisions.md`).

Run `python examples/tolerance_schedule.py` (40 chains, some seconds), or with `--full` (400, a minute).
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numba
import numpy as np
import pandas as pd
from scipy.stats import norm

N, BATCH, STEP, PASSES, SEED = 100_000, 500, 2.4, 1000.0, 2014
FAST, FULL = 40, 400
# epsilon at the first and at the last pass.
SCHEDULES = {
    "0 (exact)": (0.0, 0.0),
    "0.01": (0.01, 0.01),
    "0.05": (0.05, 0.05),
    "0.1": (0.1, 0.1),
    "0.2": (0.2, 0.2),
    "0.2 to 0.01": (0.2, 0.01),
    "0.1 to 0.001": (0.1, 0.001),
}
FALLING = ("0.2 to 0.01", "0.1 to 0.001")
# Points of a chain at which its estimates are written down.
POINTS = 100


@numba.njit
def decide(rng, mu_std, G, n_stages):
    """Is the mean above its threshold, by the test; and the share of the data that it read."""
    w = before = 0.0
    for j in range(1, n_stages):
        tau = j / (n_stages - j)
        w += mu_std * (tau - before) + np.sqrt(tau - before) * rng.standard_normal()
        before = tau
        if abs(w) > G * np.sqrt(tau):
            return w > 0.0, j / n_stages
    return mu_std > 0.0, 1.0


@numba.njit
def chain(rng, quantiles, n_stages, passes, points):
    """Running mean of t and of t^2, at equal shares of the passes; and how many draws were made."""
    t, spent, n, total, squares = rng.standard_normal(), 0.0, 0, 0.0, 0.0
    means, seconds, draws = np.empty(points), np.empty(points), np.empty(points)
    done = 0
    while done < points:
        G = quantiles[min(len(quantiles) - 1, int(spent / passes * len(quantiles)))]
        new = t + STEP * rng.standard_normal()
        distance = (0.5 * (t * t - new * new) - np.log(rng.random())) / abs(new - t)
        accepted, share = decide(rng, distance, G, n_stages)
        if accepted:
            t = new
        spent += share
        n, total, squares = n + 1, total + t, squares + t * t
        while done < points and spent >= (done + 1) * passes / points:
            means[done], seconds[done], draws[done] = total / n, squares / n, n
            done += 1
    return means, seconds, draws


def run(first, last, n_chains, seed=SEED):
    """Running means, second moments and numbers of draws of chains whose epsilon falls linearly."""
    with np.errstate(divide="ignore"):
        quantiles = norm.isf(np.linspace(first, last, 1001))
    rngs = np.random.default_rng(seed).spawn(n_chains)
    found = [chain(rng, quantiles, N // BATCH, PASSES, POINTS) for rng in rngs]
    return tuple(np.array(values) for values in zip(*found, strict=True))


def table_of(runs):
    rows = {}
    for name, (means, seconds, draws) in runs.items():
        end, spread = means[:, -1] ** 2, seconds[:, -1] - 1.0
        root = np.sqrt(len(end))
        rows[name] = {
            "bias of the variance": spread.mean(),
            "(error)": spread.std() / root,
            "squared error of the mean": end.mean(),
            "(error) ": end.std() / root,
            "draws": draws[:, -1].mean(),
        }
    table = pd.DataFrame(rows).T
    table.index.name = "epsilon"
    return table


def plot(runs, table, path):
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.9), layout="constrained")
    passes = PASSES * np.arange(1, POINTS + 1) / POINTS
    colors = dict(zip(runs, ["k", "C0", "C1", "C2", "C3", "C3", "C2"], strict=True))
    for name, (_, seconds, draws) in runs.items():
        style = "--" if name in FALLING else "-"
        axes[0].plot(passes, draws.mean(0), style, color=colors[name], label=name)
        axes[1].plot(passes, seconds.mean(0), style, color=colors[name])
    axes[0].set(xlabel="passes over the data", ylabel="draws", yscale="log", title="Loose draws are many")
    axes[0].legend(frameon=False, fontsize=8, title="epsilon")
    axes[1].set(
        xlabel="passes over the data", ylabel="variance of the draws", yscale="log",
        title="and wide, and do not go away",
    )  # fmt: skip
    axes[1].axhline(1.0, color="0.6", lw=0.8, zorder=0)
    place = np.arange(len(table))
    axes[2].errorbar(
        place, table["squared error of the mean"], 2 * table["(error) "], fmt="none", ecolor="0.5", capsize=3
    )
    axes[2].scatter(place, table["squared error of the mean"], color=list(colors.values()), zorder=3)
    axes[2].axhline(table["squared error of the mean"].iloc[0], color="0.6", lw=0.8, zorder=0)
    axes[2].set_xticks(place, table.index, rotation=40, ha="right")
    axes[2].set(title="Squared error of the posterior mean", ylabel="posterior variances", ylim=(0, None))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main(full=False, output=".", seed=SEED):
    runs = {name: run(*ends, FULL if full else FAST, seed) for name, ends in SCHEDULES.items()}
    table = table_of(runs)
    print(f"\n{PASSES:,.0f} passes over {N:,} terms, {FULL if full else FAST} chains:\n")
    print(table.to_string(float_format="{:,.4f}".format))
    path = Path(output) / "tolerance_schedule.png"
    plot(runs, table, path)
    print(f"\nFigure: {path}")
    return {"table": table, "runs": runs, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="400 chains")
    parser.add_argument("--output", default=".", help="directory of the figure")
    parser.add_argument("--seed", type=int, default=SEED)
    main(**vars(parser.parse_args()))
