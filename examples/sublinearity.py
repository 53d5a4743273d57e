"""How many terms does one decision read, and how long does it take, as the data grow?

Reproduces Figure 5 of Chen, Mansinghka & Ghahramani (2015): logistic regression with two features on
synthetic data, epsilon = 0.01, batches of 100, current and proposed weights *fixed* while N grows. What to
expect: the terms per decision flatten at 6000, as the theory of the sequential test says, while an exact
decision reads all N.

A fixed pair is what makes this sublinear: the larger N, the clearer the decision. At equilibrium a chain
proposes steps of the size of the posterior, which shrinks with 1 / sqrt(N). The figure shows what the theory
says of such steps too: they read a nearly constant share of the data.

Time is processor time of single decisions, all from the same point. Around a decision, `step` needs some ten
microseconds in Python; these are measured with moves that are refused unread, and subtracted.

Run `python examples/sublinearity.py` (N up to 1e5, some seconds), or with `--full` (N up to 1e6, a minute).
"""

import argparse
import time
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from scipy.stats import norm

from pymc_austerity import AusterityMH

EPSILON = 0.01
BATCH = 100
G = norm.isf(EPSILON)
CURRENT = np.array([1.0, 0.6])  # the weights that the data come from
MOVE = np.array([0.11, -0.08])  # as long as draws from N(0, 0.1^2), the proposal of the paper
PRIOR_SD = np.sqrt(0.1)
UNREAD = 100.0  # from weights beyond this every move is refused without a look at the data
SEED = 2015

FAST = {"sizes": [1_000, 10_000, 100_000], "repeats": 300, "simulations": 1000}
FULL = {
    "sizes": [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000],
    "repeats": 2000,
    "simulations": 8000,
}


def make_data(n):
    """Labels of both kinds, each with two standard normal features around a center of its own."""
    rng = np.random.default_rng(SEED)
    y = rng.integers(0, 2, size=n)
    X = rng.normal(size=(n, 2)) + np.outer(y - 0.5, CURRENT)
    return X, y


def build_model(X, y):
    with pm.Model() as model:
        w = pm.Normal("w", 0, PRIOR_SD, shape=2)
        pm.Bernoulli("y", logit_p=X @ w, observed=y)
    return model


def fixed_move(q, rng):
    """Propose always the same; from far out, nothing that could be accepted."""
    if q[0] > UNREAD:
        return q + MOVE, -np.inf
    return q + MOVE, 0.0


def call_repeatedly(step, point, repeats):
    """Terms read and processor seconds taken by single decisions, all from the same point."""
    used, seconds = np.empty(repeats), np.empty(repeats)
    for k in range(repeats):
        began = time.process_time()
        _, (stats,) = step.step(point)  # the point that it arrives at is thrown away
        seconds[k] = time.process_time() - began
        used[k] = stats["n_used"]
    return used, seconds


def measure(X, y, epsilon, repeats):
    """Terms and time per decision, and the standard errors of their means."""
    step = AusterityMH(
        epsilon=epsilon, batch_size=BATCH, proposal=fixed_move, model=build_model(X, y), rng=SEED
    )
    point = {"w": CURRENT}
    call_repeatedly(step, point, 5)
    used, seconds = call_repeatedly(step, point, repeats)
    # A call costs some time before and after the decision. It is seen where moves are refused unread.
    _, overhead = call_repeatedly(step, {"w": np.array([2 * UNREAD, 0.0])}, repeats)
    overhead = np.median(overhead)
    return {
        "terms": used.mean(),
        "error": used.std(ddof=1) / np.sqrt(repeats),
        "microseconds": 1e6 * (seconds.mean() - overhead),
        "error ": 1e6 * seconds.std(ddof=1) / np.sqrt(repeats),
        "overhead": 1e6 * overhead,
    }


def log_ratios(X, y, move):
    """l_i(proposed) - l_i(current) of every row."""
    new, old = X @ (CURRENT + move), X @ CURRENT
    return y * (new - old) - np.logaddexp(0, new) + np.logaddexp(0, old)


def expected_terms(X, y, move, simulations):
    """Terms per decision if means of batches are normal (Korattikara et al. 2014, appendix A)."""
    rng = np.random.default_rng(SEED)
    N, ratios = len(y), log_ratios(X, y, move)
    prior = (CURRENT @ CURRENT - (CURRENT + move) @ (CURRENT + move)) / (2 * PRIOR_SD**2)
    psi = (np.log(rng.random(simulations)) - prior) / N
    drift = (ratios.mean() - psi) * np.sqrt(N - 1) / ratios.std()
    # With tau = share / (1 - share), the statistic times sqrt(tau) is Brownian motion with this drift.
    share = np.arange(BATCH, N, BATCH) / N
    tau = np.append(0.0, share / (1 - share))
    position, terms = np.zeros(simulations), np.full(simulations, float(N))
    running = np.arange(simulations)
    for stage, (before, now) in enumerate(pairwise(tau), start=1):
        dt = now - before
        position += drift[running] * dt + np.sqrt(dt) * rng.standard_normal(len(running))
        stops = np.abs(position) > G * np.sqrt(now)
        terms[running[stops]] = stage * BATCH
        position, running = position[~stops], running[~stops]
        if not len(running):
            break
    return terms.mean(), terms.std(ddof=1) / np.sqrt(simulations)


def compare(sizes, repeats, simulations):
    """One row for each N."""
    X, y = make_data(max(sizes))
    rows = []
    for n in sizes:
        row = {"N": n, **measure(X[:n], y[:n], EPSILON, repeats)}
        row["theory"], row["error  "] = expected_terms(X[:n], y[:n], MOVE, simulations)
        exact = measure(X[:n], y[:n], 0.0, max(10, repeats // 20))
        row["exact terms"], row["exact microseconds"] = exact["terms"], exact["microseconds"]
        shrinking = MOVE * np.sqrt(sizes[0] / n)
        row["theory, steps ~ 1/sqrt(N)"], _ = expected_terms(X[:n], y[:n], shrinking, simulations // 10)
        rows.append(row)
        print(f"N = {n:,} done.", flush=True)
    return pd.DataFrame(rows).set_index("N")


def plot(table, path):
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    X, y = make_data(1000)
    for label, marker in [(0, "o"), (1, "^")]:
        left.plot(*X[y == label].T, marker, ms=3, alpha=0.6, label=f"y = {label}")
    left.set(xlabel="feature 1", ylabel="feature 2", title="(a) The first 1000 rows")
    left.legend(frameon=False, loc="upper left")

    middle.loglog(table.index, table["exact terms"], "k--", label="exact: all N")
    shrinking = table["theory, steps ~ 1/sqrt(N)"]
    middle.loglog(table.index, shrinking, "C2:", label=r"theory, steps $\propto 1/\sqrt{N}$")
    middle.loglog(table.index, table["theory"], "C0", label="theory, fixed step")
    bars = {"fmt": "o", "ms": 5, "color": "C1", "capsize": 3, "zorder": 5}
    middle.errorbar(table.index, table["terms"], 2 * table["error"], label="measured, fixed step", **bars)
    middle.set(xlabel="N", ylabel="terms per decision", title="(b) Terms read")
    middle.legend(frameon=False, loc="upper left")

    right.loglog(table.index, table["exact microseconds"], "ks--", ms=4, label="exact")
    time_error = 2 * table["error "]
    right.errorbar(table.index, table["microseconds"], time_error, label=f"epsilon = {EPSILON}", **bars)
    right.set(xlabel="N", ylabel="processor time per decision [µs]", title="(c) Time")
    right.legend(frameon=False, loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def report(table):
    print("\nMeans over decisions; 'error' is the standard error of the column before it. 'microseconds' are")
    print("processor time of a call less the 'overhead', a call whose move is refused without reading.\n")
    print(table.to_string(float_format="{:,.1f}".format))


def main(full=False, output="."):
    table = compare(**(FULL if full else FAST))
    report(table)
    path = Path(output) / "sublinearity.png"
    plot(table, path)
    print(f"\nFigure: {path}")
    return {"table": table, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="N up to 1e6, and many repeats")
    parser.add_argument("--output", default=".", help="directory of the figure")
    main(**vars(parser.parse_args()))
