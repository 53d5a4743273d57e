"""What a sequential test does, predicted and simulated, and the test that reads least for a given error.

Reproduces Figures 1, 6, 7, 10, 11 and 12 of Korattikara, Chen & Welling (2014) on the logistic regression of
their section 6.1, MNIST digits 7 and 9: 12,214 images, 50 principal components, a random walk with steps of
0.01. Two exact chains start at the mode and give 100 moves each: one for the choice of the designs, the other
for trying them. (The paper's Figure 6 is of an independent component analysis, on audio that is not public.)

* *Error and data usage* of one test (Figures 1 and 10): quadrature, and 1000 real tests of one move, with the
  threshold moved so that the mean is mu_std above or below it. The terms of this move are skewed: on one side
  of the mean tests err more often than predicted, on the other less, and together as predicted.
* *Normal batch means* (Figure 7): z-statistics of means of 500 terms against normal quantiles.
* *Acceptance probability* (Figures 11 and 12): its error Delta for each move, predicted and simulated, and
  the share of wrong decisions, which cancel in part.
* *Designs* (Figure 6): for each target the average design over batch size and epsilon, the average design
  with batches of 600, and the worst-case design; their mean error and data usage on the other moves.
* *Boundaries* (appendix D): error and data usage at mu_std = 0 for Pocock's boundary, O'Brien and Fleming's
  and one between them.

What `--full` printed: with targets of .01, .02, .05 and .1 the average design comes out at .0100, .0197,
.0492 and .0981 on moves that it has not seen (simulated: .0100, .0197, .0509 and .103), and reads .74, .67,
.52 and .36 of the data. The worst-case design reads .86, .83, .78 and .71, for errors of .0009, .0023, .0058
and .014.

Run `python examples/test_design.py` (synthetic data with the same covariance spectrum, 3,000 rows, some
seconds), or with `--full` on MNIST (some minutes): from the file mnist79.npz in the folder that the
environment variable PYMC_AUSTERITY_DATA names, or else from openml.org, for which scikit-learn is needed.
"""

import argparse
import runpy
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import expit, ndtri

from pymc_austerity.acceptance import TTest
from pymc_austerity.design import acceptance_error, data_usage, error, expected_data_usage, optimal_design

EPSILONS = (0.01, 0.05, 0.1, 0.2)  # of the curves
SHOWN = 0.05  # epsilon of the acceptance probabilities
TARGETS = (0.01, 0.02, 0.05, 0.1)
STEP, PRECISION = 0.01, 10.0
SEED = 7

# Moves of each chain, transitions between two of them, tests for each point, epsilons to search.
FAST = {"moves": 60, "thin": 20, "burn_in": 200, "tests": 200, "grid": 15}
FULL = {"moves": 100, "thin": 10, "burn_in": 300, "tests": 1000, "grid": 40}
SIZES = (100, 200, 300, 400, 500, 600, 800, 1000, 1500)


# Moves ------------------------------------------------------------------------------------------------


def mode_of(X, y):
    beta = np.zeros(X.shape[1])
    for _ in range(20):
        p = expit(X @ beta)
        hessian = (X.T * (p * (1 - p))) @ X + PRECISION * np.eye(len(beta))
        beta = beta + np.linalg.solve(hessian, X.T @ (y - p) - PRECISION * beta)
    return beta


def proposed_moves(X, y, seed, moves, thin, burn_in):
    """Every `thin`-th proposal of an exact random walk: its log ratios l_i, and what `design` asks for."""
    rng, n, beta = np.random.default_rng(seed), len(y), mode_of(X, y)
    sign, eta, terms, psi = 2 * y - 1, X @ beta, [], []
    for k in range(burn_in + moves * thin):
        new = beta + STEP * rng.normal(size=len(beta))
        eta_new = X @ new
        change = np.logaddexp(0, -sign * eta) - np.logaddexp(0, -sign * eta_new)
        prior = 0.5 * PRECISION * (beta @ beta - new @ new)
        if k >= burn_in and k % thin == 0:
            terms.append(change)
            psi.append(-prior / n)
        if np.log(rng.random()) < change.sum() + prior:
            beta, eta = new, eta_new
    terms, psi = np.array(terms), np.array(psi)
    mu, sigma_l = terms.mean(axis=1) - psi, terms.std(axis=1)
    return SimpleNamespace(
        mu=mu, sigma_l=sigma_l, terms=terms, psi=psi, N=n, accept=np.exp(np.minimum(0, n * mu))
    )


# The real test ----------------------------------------------------------------------------------------


def running_means(terms, ends, count, rng, block=200):
    """Means of random samples of `terms` at the ends of the stages, and their standard errors."""
    n, starts, mean, se = len(terms), np.append(0, ends[:-1]), [], []
    for k in range(0, count, block):
        rows = min(block, count - k)
        sample = rng.permuted(np.tile(terms - terms.mean(), (rows, 1)), axis=1)
        mean.append(np.add.reduceat(sample, starts, axis=1).cumsum(axis=1) / ends)
        square = np.add.reduceat(sample**2, starts, axis=1).cumsum(axis=1) / ends
        variance = np.maximum(square - mean[-1] ** 2, 0) / (ends - 1) * (1 - (ends - 1) / (n - 1))
        se.append(np.sqrt(variance))
    return terms.mean() + np.concatenate(mean), np.concatenate(se)


def decide(mean, se, psi, schedule):
    """Is the mean of all terms above psi? The answers of the test, and the shares that it read."""
    stop = np.abs(mean - psi[:, None]) > schedule.bounds * se
    stop[:, -1] = True
    stage, rows = stop.argmax(axis=1), np.arange(len(mean))
    return mean[rows, stage] > psi, schedule.ends[stage] / schedule.ends[-1]


def decisions(terms, psi, rule, rng):
    """One test for each psi."""
    schedule = rule.bind(len(terms))
    return decide(*running_means(terms, schedule.ends, len(psi), rng), psi, schedule)


def simulated_tests(moves, batch, tests, rng):
    """Error and data usage of tests of the first move, with the threshold below and above the mean.

    All points are from the same samples.
    """
    terms, n, rows = moves.terms[0], moves.N, []
    mean, se = running_means(terms, TTest(0.5, batch).bind(n).ends, tests, rng)
    for epsilon in EPSILONS:
        schedule = TTest(epsilon, batch).bind(n)
        for mu_std in (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0):
            away = mu_std * terms.std() / np.sqrt(n - 1)
            (above, used), (above_too, used_too) = (
                decide(mean, se, np.full(tests, terms.mean() - side * away), schedule) for side in (1, -1)
            )
            # At mu_std = 0 the mean is at the threshold: of those that stop early half are wrong.
            wrong = np.array([~above, above_too]) if mu_std else 0.5 * (np.array([used, used_too]) < 1)
            used = np.append(used, used_too)
            rows.append(
                {
                    "epsilon": epsilon, "mu_std": mu_std,
                    "error": error(mu_std, batch / n, epsilon), "mean above": wrong[0].mean(),
                    "mean below": wrong[1].mean(), "mc error": wrong.std() / np.sqrt(tests),
                    "data usage": data_usage(mu_std, batch / n, epsilon), "simulated usage": used.mean(),
                    "usage mc error": used.std() / np.sqrt(tests),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def simulated_acceptance(moves, rule, tests, rng):
    """Error of the acceptance probability of each move, and the share read; u is common to both decisions."""
    delta, spread, used = np.empty((3, len(moves.mu)))
    for k, (terms, psi0) in enumerate(zip(moves.terms, moves.psi, strict=True)):
        psi = psi0 + np.log(rng.random(tests)) / moves.N
        above, share = decisions(terms, psi, rule, rng)
        excess = above.astype(float) - (terms.mean() > psi)
        delta[k], spread[k], used[k] = excess.mean(), excess.std() / np.sqrt(tests), share.mean()
    return delta, spread, used


def batch_statistics(moves, batch, count, rng):
    """z-statistics of means of batches, for the first moves."""
    found = []
    for terms in moves.terms[:5]:
        sample = rng.permuted(np.tile(terms, (count, 1)), axis=1)[:, :batch]
        se = np.sqrt(sample.var(axis=1, ddof=1) / batch * (1 - (batch - 1) / (moves.N - 1)))
        found.append(np.sort((sample.mean(axis=1) - terms.mean()) / se))
    return found


# Designs ----------------------------------------------------------------------------------------------


def compare_designs(trial, other, grid, tests, rng):
    """Each kind of design for each target, tried on moves that it has not seen."""
    n, rows = trial.N, []
    epsilons, sizes = np.geomspace(5e-4, 0.4, grid), [size for size in SIZES if size <= n / 4]
    fixed = [min(600, max(sizes))]
    kinds = {
        "average": (trial, sizes), f"average, m = {fixed[0]}": (trial, fixed), "worst case": (None, sizes),
    }  # fmt: skip
    for target in TARGETS:
        for kind, (pairs, batch_sizes) in kinds.items():
            try:
                design = optimal_design(pairs, target, N=n, batch_sizes=batch_sizes, epsilons=epsilons)
            except ValueError:
                continue  # the target is out of reach of this grid
            delta = acceptance_error(other.mu, other.sigma_l, n, **design)
            used = expected_data_usage(other.mu, other.sigma_l, n, **design)
            found, _, read = simulated_acceptance(other, TTest(**design), max(50, tests // 5), rng)
            rows.append(
                {
                    "target": target, "design": kind, "m": design.batch_size, "epsilon": design.epsilon,
                    "promised": design.error, "error": np.abs(delta).mean(),
                    # The sign that is predicted keeps the noise from counting as error.
                    "simulated": np.mean(np.sign(delta) * found),
                    "data usage": used.mean(), "simulated usage": read.mean(),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


# Figure -----------------------------------------------------------------------------------------------


def plot(moves, batch, table, statistics, acceptance, designs, path):
    figure, axes = plt.subplots(2, 4, figsize=(17, 8), layout="constrained")
    plot_curves(axes[0, 0], axes[0, 1], moves.N, batch, table)
    plot_quantiles(axes[0, 2], statistics, batch)
    plot_boundaries(axes[0, 3], batch / moves.N)
    plot_acceptance(axes[1, 0], axes[1, 1], moves, batch, acceptance)
    plot_designs(axes[1, 2], axes[1, 3], designs)
    for ax in axes.flat:
        ax.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_curves(left, right, n, batch, table):
    """Figures 1 and 10."""
    mu_std = np.linspace(0, 8, 200)
    for k, (epsilon, rows) in enumerate(table.groupby("epsilon")):
        bars = {"color": f"C{k}", "ms": 5, "lw": 0.8, "ls": ""}
        left.plot(mu_std, error(mu_std, batch / n, epsilon), color=f"C{k}", label=f"{epsilon:g}")
        for marker, side in (("^", "mean above"), ("v", "mean below")):
            label = side if k == 3 else None
            left.errorbar(
                rows["mu_std"], rows[side], rows["mc error"], marker=marker, mfc="none", label=label, **bars
            )
        right.plot(mu_std, data_usage(mu_std, batch / n, epsilon), color=f"C{k}")
        right.errorbar(rows["mu_std"], rows["simulated usage"], rows["usage mc error"], marker="x", **bars)
    for ax, title in ((left, "Error of one test (Fig. 1)"), (right, "Data usage of one test (Fig. 10)")):
        ax.set(title=title, xlabel="distance |mu_std| of mean and threshold", xlim=(-0.2, 8.2))
    left.set_ylabel("probability of a wrong decision")
    right.set(ylabel="share of the data", ylim=(0, 1))
    left.legend(title="epsilon", frameon=False)


def plot_quantiles(ax, statistics, batch):
    """Figure 7."""
    normal = ndtri((np.arange(len(statistics[0])) + 0.5) / len(statistics[0]))
    for k, values in enumerate(statistics):
        ax.plot(normal, values, ".", ms=4, color=f"C{k}", label=f"move {k + 1}")
    ax.axline((0, 0), slope=1, color="black", lw=1, ls="--")
    ax.set(
        title=f"Means of {batch} terms (Fig. 7)",
        xlabel="normal quantile",
        ylabel="studentised mean of the batch",
    )
    ax.legend(frameon=False, markerscale=2)


def plot_boundaries(ax, pi_1):
    """Appendix D: what can be had at mu_std = 0."""
    epsilon = np.geomspace(1e-4, 0.45, 60)
    for k, boundary in enumerate((0.5, 0.75, 1.0)):
        label = {0.5: "0.5 (Pocock)", 1.0: "1 (O'Brien-Fleming)"}.get(boundary, f"{boundary:g}")
        wrong, used = (f(0.0, pi_1, epsilon, boundary=boundary) for f in (error, data_usage))
        ax.plot(wrong, used, color=f"C{k}", label=label)
    ax.set(
        title="Boundaries at mu_std = 0 (app. D)", xlabel="probability of a wrong decision",
        ylabel="share of the data",
    )  # fmt: skip
    ax.legend(title="boundary", frameon=False)


def plot_acceptance(left, right, moves, batch, acceptance):
    """Figures 11 and 12."""
    delta, spread, _ = acceptance
    predicted = acceptance_error(moves.mu, moves.sigma_l, moves.N, batch_size=batch, epsilon=SHOWN)
    u = (np.arange(200) + 0.5) / 200
    mu_std = (moves.mu[:, None] - np.log(u) / moves.N) * np.sqrt(moves.N - 1) / moves.sigma_l[:, None]
    mean_error = error(mu_std, batch / moves.N, SHOWN).mean(axis=1)
    most = error(0.0, batch / moves.N, SHOWN)
    left.plot(moves.accept, mean_error, "+", color="C2", ms=6, label="wrong decisions")
    left.errorbar(moves.accept, delta, spread, fmt=".", color="C0", ms=5, lw=0.8, label="simulated")
    left.plot(moves.accept, predicted, "o", mfc="none", color="C3", ms=6, label="predicted")
    for sign in (-1, 1):
        left.axhline(sign * most, color="black", ls="--", lw=1, label="worst case" if sign > 0 else None)
    left.set(
        title=f"Error of P_a, epsilon = {SHOWN:g} (Fig. 11)", xlabel="exact acceptance probability P_a",
        ylabel="Delta = P_(a, epsilon) - P_a", ylim=(-1.7 * most, 1.25 * most),
    )  # fmt: skip
    left.legend(frameon=False, loc="lower left", ncols=2)
    right.errorbar(moves.accept, moves.accept + delta, spread, fmt=".", color="C0", ms=5, lw=0.8)
    right.plot(moves.accept, moves.accept + predicted, "o", mfc="none", color="C3", ms=6)
    right.axline((0, 0), slope=1, color="black", lw=1, ls="--")
    right.set(
        title=f"Approximate P_a, epsilon = {SHOWN:g} (Fig. 12)", xlabel="exact acceptance probability P_a",
        ylabel="acceptance probability of the test",
    )  # fmt: skip


def plot_designs(left, right, designs):
    """Figure 6."""
    for marker, (kind, rows) in zip("os^", designs.groupby("design", sort=False), strict=True):
        line = {"marker": marker, "mfc": "none", "ms": 7}
        left.loglog(rows["target"], rows["error"], label=kind, **line)
        right.semilogx(rows["target"], rows["data usage"], label=kind, **line)
    left.plot(TARGETS, TARGETS, color="black", lw=1, ls="--", label="target")
    left.set(title="Error on other moves (Fig. 6a)", xlabel="target error", ylabel="mean |Delta|")
    right.set(title="Data usage (Fig. 6b)", xlabel="target error", ylabel="share of the data", ylim=(0, 1))
    for ax in (left, right):
        ax.set_xticks(TARGETS, [f"{t:g}" for t in TARGETS])
        ax.minorticks_off()
    left.legend(frameon=False)


def main(full=False, output="figures"):
    settings = dict(FULL if full else FAST)
    tests, grid = settings.pop("tests"), settings.pop("grid")
    data = runpy.run_path(str(Path(__file__).with_name("logistic_mnist.py")))
    X, y, *_ = data["mnist"]() if full else data["synthetic"]()
    batch = 500 if full else 150
    rng = np.random.default_rng(SEED)
    trial, other = (proposed_moves(X, y, SEED + k, **settings) for k in (1, 2))
    print(
        f"{trial.N:,} rows, {X.shape[1]} features; mean acceptance probability {trial.accept.mean():.2f}; "
        f"batches of {batch}.\n"
    )
    table = simulated_tests(trial, batch, tests, rng)
    print(f"One test, predicted and simulated ({tests} tests each):\n")
    print(table.to_string(index=False, float_format="{:.3f}".format), flush=True)
    acceptance = simulated_acceptance(other, TTest(SHOWN, batch), tests, rng)
    designs = compare_designs(trial, other, grid, tests, rng)
    print("\nDesigns, tried on moves of another chain: predicted and simulated.\n")
    print(designs.to_string(index=False, float_format="{:.3g}".format))
    path = Path(output) / "test_design.png"
    plot(other, batch, table, batch_statistics(other, batch, max(tests, 500), rng), acceptance, designs, path)
    print(f"\nFigure: {path}")
    return {
        "table": table, "designs": designs, "acceptance": acceptance, "trial": trial, "other": other,
        "batch": batch, "figure": path,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="MNIST instead of synthetic data")
    parser.add_argument("--output", default="figures", help="directory of the figure")
    main(**vars(parser.parse_args()))
