"""Sampling from a sparse Dirichlet distribution with noisy counts: SCIR reaches its corners, SGRLD does not.

Reproduces Figures 1 and 2 of Baker, Fearnhead, Fox & Nemeth (2018). 1000 observations of ten categories, a
Dirichlet prior with alpha = 0.1. In the sparse case the counts are 800, 100, 100 and seven times zero, so
that seven components of the posterior have a shape of 0.1: half of the draws of such a component are below
10^-6. In the dense case all counts are near 100. Both methods see n observations at each step, drawn without
replacement. The Kolmogorov-Smirnov distance is that of 1000 draws after 1000 of burn-in from the posterior,
averaged over the nine conditional distributions of the Rosenblatt transform; for each seed the step size of
the paper's Table 1 is taken with which it is smallest.

What `--full` printed, means over 40 seeds (standard deviations between seeds):

              sparse: SCIR     SGRLD            dense: SCIR     SGRLD
    n = 1     0.132 (0.011)    0.401 (0.022)    0.316 (0.035)   0.339 (0.033)
    n = 10    0.086 (0.009)    0.361 (0.015)    0.193 (0.018)   0.188 (0.030)
    n = 50    0.062 (0.006)    0.360 (0.016)    0.108 (0.013)   0.131 (0.020)
    n = 100   0.053 (0.006)    0.359 (0.022)    0.086 (0.010)   0.104 (0.023)
    n = 500   0.034 (0.003)    0.362 (0.014)    0.051 (0.005)   0.064 (0.010)

    1000 independent draws: 0.027 (0.003)
    median of log10 w_5 with n = 10: SCIR -6.35, SGRLD -4.13, independent draws -6.31, exact -6.23

SGRLD is that of Patterson & Teh (2013), with the drift alpha_j - theta_j + (N / n) sum_i (z_ij - w_j), and
its theta starts at Gamma(1), that of SCIR at Gamma(100). With the drift of SCIR, a - theta, SGRLD comes as
far in the sparse case (0.35 to 0.38), with step sizes about a hundred times larger.

Run `python examples/sparse_simplex.py` (five seeds, as in the paper; fifteen seconds), or with `--full` (a
minute).
"""

import argparse
import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numba
import numpy as np
import pandas as pd
from scipy.special import betainc, betaln
from sgrld import sgrld_transitions

from pymc_austerity.kernels.cox_ingersoll_ross import cir_transitions

N, D = 1000, 10
ALPHA = 0.1
COUNTS = {
    "sparse": np.array([800, 100, 100, 0, 0, 0, 0, 0, 0, 0]),
    "dense": np.array([112, 119, 92, 98, 95, 96, 102, 92, 91, 103]),
}
# Table 1 of the paper
STEP_SIZES = {
    "SCIR": (1.0, 5e-1, 1e-1, 5e-2, 1e-2, 5e-3, 1e-3),
    "SGRLD": (5e-1, 1e-1, 5e-2, 1e-2, 5e-3, 1e-3, 5e-4, 1e-4),
}
# Shape of the gamma distribution that each theta_j starts from
START = {"SCIR": 100.0, "SGRLD": 1.0}
COLOURS = {"SCIR": "C0", "SGRLD": "C1", "independent draws": "C2"}
BURN_IN, DRAWS = 1000, 1000
SEED = 2018

FAST = {"seeds": 5, "batch_sizes": (10, 50, 100, 500)}
FULL = {"seeds": 40, "batch_sizes": (1, 10, 50, 100, 500)}


# The two samplers -------------------------------------------------------------------------------------


@numba.njit
def scaled_counts(rng, labels, n):
    """N / n times the counts in n of the labels, drawn without replacement."""
    counts = np.zeros(D)
    for k in range(n):
        other = k + int(rng.random() * (N - k))
        labels[k], labels[other] = labels[other], labels[k]
        counts[labels[k]] += N / n
    return counts


@numba.njit
def scir_chain(rng, labels, n, h, theta, n_steps):
    """Algorithm 1 of the paper; log theta after each step, (n_steps, D)."""
    log_theta, out = np.log(theta), np.empty((n_steps, D))
    for m in range(n_steps):
        log_theta = cir_transitions(rng, log_theta, ALPHA + scaled_counts(rng, labels, n), h)
        out[m] = log_theta
    return out


@numba.njit
def sgrld_chain(rng, labels, n, h, theta, n_steps):
    """The same by the steps of Patterson & Teh."""
    out = np.empty((n_steps, D))
    for m in range(n_steps):
        drift = ALPHA - theta + scaled_counts(rng, labels, n) - N * theta / theta.sum()
        theta = sgrld_transitions(rng, theta, drift, h)
        out[m] = np.log(theta)
    return out


def run(method, case, n, h, seed):
    """log theta, (DRAWS, D)."""
    rng = np.random.default_rng([SEED, seed])
    labels = np.repeat(np.arange(D), COUNTS[case])
    theta = rng.gamma(START[method], size=D)
    chain = scir_chain if method == "SCIR" else sgrld_chain
    return chain(rng, labels, n, h, theta, BURN_IN + DRAWS)[BURN_IN:]


def independent(case, seed):
    """log theta of independent draws."""
    rng = np.random.default_rng([SEED, seed])
    a = ALPHA + COUNTS[case]
    return np.log(rng.gamma(a + 1, size=(DRAWS, D))) - rng.exponential(size=(DRAWS, D)) / a


# Distance from the posterior --------------------------------------------------------------------------


def distance(log_theta, case):
    """Kolmogorov-Smirnov distance of draws from the posterior, averaged over the conditionals."""
    x, n = np.sort(rosenblatt(log_theta, ALPHA + COUNTS[case]), axis=0), len(log_theta)
    upper = np.arange(1, n + 1)[:, None] / n
    return np.maximum(upper - x, x - upper + 1 / n).max(axis=0).mean()


def rosenblatt(log_theta, shape):
    """Distribution functions of w_k given w_1 .. w_(k-1) under a Dirichlet distribution, (draws, D - 1).

    w_k / (w_k + .. + w_D) is Beta(a_k, a_(k+1) + .. + a_D). From this share and its complement, both computed
    from logarithms, the smaller one is used: nothing is left of a share of 1 - 10^-20 otherwise.
    """
    rest = np.logaddexp.accumulate(log_theta[:, ::-1], axis=1)[:, ::-1]
    share = log_theta[:, :-1] - rest[:, :-1]
    complement = rest[:, 1:] - rest[:, :-1]
    a, b = shape[:-1], np.cumsum(shape[::-1])[::-1][1:]
    return np.where(share < complement, beta_cdf(share, a, b), 1 - beta_cdf(complement, b, a))


def beta_cdf(log_x, a, b):
    """Of Beta(a, b), also where x is zero in floating-point numbers."""
    tail = np.exp(np.minimum(a * log_x - np.log(a) - betaln(a, b), 0))
    return np.where(log_x < -600, tail, betainc(a, b, np.exp(log_x)))


def log10_w(log_theta, j=4):
    """log10 of the component j of w, by default the fifth."""
    return (log_theta[:, j] - np.logaddexp.reduce(log_theta, axis=1)) / np.log(10)


# Tables and figure ------------------------------------------------------------------------------------


def best_steps(seeds, batch_sizes):
    """For each case, method, n and seed the best step size and its distance."""
    rows = []
    for case in COUNTS:
        for method, steps in STEP_SIZES.items():
            for n, seed in itertools.product(batch_sizes, range(seeds)):
                found = {h: distance(run(method, case, n, h, seed), case) for h in steps}
                best = min(found, key=found.get)
                rows.append((case, method, n, seed, best, found[best]))
        for seed in range(seeds):
            rows.append((case, "independent draws", N, seed, np.nan, distance(independent(case, seed), case)))
    return pd.DataFrame(rows, columns=["case", "method", "n", "seed", "step size", "distance"])


def fifth_component(best, n=10):
    """log10 w_5 in the sparse case by each method with its best step size, seed 0."""
    chosen = best.query("case == 'sparse' and n == @n and seed == 0").set_index("method")["step size"]
    draws = {method: log10_w(run(method, "sparse", n, chosen[method], 0)) for method in STEP_SIZES}
    return {"independent draws": log10_w(independent("sparse", 0)), **draws}


def plot(best, fifth, path):
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
    names = ["SCIR", "independent draws", "SGRLD"]
    boxes = axes[0].boxplot(
        [fifth[name] for name in names], tick_labels=names, patch_artist=True, flierprops={"ms": 2}
    )
    for box, name in zip(boxes["boxes"], names, strict=True):
        box.set(facecolor=COLOURS[name], alpha=0.5)
    axes[0].set(title="sparse, 10 observations a step", ylabel=r"$\log_{10} w_5$")
    for ax, case in zip(axes[1:], COUNTS, strict=True):
        for method in STEP_SIZES:
            part = best.query("case == @case and method == @method")
            ax.plot(part["n"], part["distance"], ".", color=COLOURS[method], alpha=0.5)
            ax.plot(part.groupby("n")["distance"].mean(), color=COLOURS[method], label=method)
        exact = best.query("case == @case and method == 'independent draws'")["distance"].mean()
        ax.axhline(exact, color=COLOURS["independent draws"], ls=":", label="1000 independent draws")
        ax.set(title=case, xlabel="observations at each step", xscale="log", ylim=(0, 0.45))
    axes[1].set_ylabel("Kolmogorov-Smirnov distance")
    axes[2].legend(frameon=False, loc="upper right", title="mean, and seeds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(full=False, output="."):
    settings, path = FULL if full else FAST, Path(output) / "sparse_simplex.png"
    best = best_steps(**settings)
    table = best.groupby(["case", "method", "n"])["distance"].agg(["mean", "std"]).unstack([0, 1])
    table = table.swaplevel(0, 1, axis=1).swaplevel(1, 2, axis=1).sort_index(axis=1, ascending=False)
    print(f"Distance with the best step size, {settings['seeds']} seeds:\n")
    print(table.to_string(float_format="{:.3f}".format, na_rep=""))
    usual = best.groupby(["case", "method", "n"])["step size"].median().dropna().unstack("n")
    print("\nStep size, median over seeds:\n")
    print(usual.to_string(float_format="{:g}".format))
    fifth = fifth_component(best)
    medians = {name: float(np.median(x)) for name, x in fifth.items()}
    print("\nMedian of log10 w_5:", ", ".join(f"{name} {m:.2f}" for name, m in medians.items()))
    plot(best, fifth, path)
    print(f"\nFigure: {path}")
    return {"best": best, "table": table, "medians": medians, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="40 seeds, and also one observation at a time")
    parser.add_argument("--output", default=".", help="directory of the figure")
    main(**vars(parser.parse_args()))
