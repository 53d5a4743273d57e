"""How much of a million points does a decision read? A mixture of two normals at temperature 10,000.

Reproduces section 6.1 of Seita, Pan, Chen & Canny (2017): x_i ~ N(theta_1, 2) / 2 + N(theta_1 + theta_2, 2)
/ 2 with theta = (0, 1), priors theta_1 ~ N(0, 10), theta_2 ~ N(0, 1) (all second arguments are variances), a
random walk, and tests that begin with 100 points. The tempered posterior is a ridge with a mode at each end,
for (0, 1) and (1, -1) give the same data. Its moments are known from quadrature.

What the paper leaves open, and what is done here: the steps of the random walk have *standard deviation* 0.15
(with variance 0.15, as the paper has it, the minibatch Barker test reads five times as much). Chains start at
(0, 1) and count from the first transition. `MHSubLhd` is given the exact range of the log ratios, which costs
two passes over the data at each transition and is not counted; that is why it makes few draws here.

What `--full` printed, points read for a decision, and posterior standard deviations of 1.6e6 transitions:

                     mean (error)      99 %     largest   accepted
    AusterityMH     14,151 (1,253)  411,314     999,700       0.66
    MHSubLhd        52,949 (7,063)  1,000,000  1,000,000      0.68
    MinibatchBarker    205 (2)        1,000       1,900       0.39

                               theta_1            theta_2    points read   clipped
    exact                       0.4496             0.8514
    batches of 100     0.4416 (0.0020)    0.8344 (0.0038)            202
    batches of 200     0.4477 (0.0021)    0.8464 (0.0039)
    batches of 1000    0.4563 (0.0021)    0.8649 (0.0041)
    100, pilot         0.4533 (0.0021)    0.8581 (0.0040)            339     0.009
    100, pilot, skew   0.4475 (0.0020)    0.8477 (0.0039)            339     0.009

`MinibatchBarker` reads what the paper says (a mean of 210), and so does `AusterityMH` (15,562). With batches
of 100 the posterior is 2 % too narrow: the variance of the noise is estimated from few points, and a batch
that understates it is where reading stops. After a pilot (`pilot=True`, the last with `skew_correction=True`)
and with batches of 200 no difference is seen. That of 1000, 1.5 % or 3.2 errors, does not come again with
other seeds: `--full --seed 1` gives 0.4484 and 0.8480.

Run `python examples/barker_mixture.py` (20,000 points, temperature 200, some seconds), or with `--full` (some
ten minutes).
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
from scipy.special import logsumexp

from pymc_austerity import (
    AusterityMH,
    MetropolisHastings,
    MHSubLhd,
    MinibatchBarker,
    RandomWalk,
    SubsamplingWarning,
)

THETA = (0.0, 1.0)
PRIOR_VARIANCES = (10.0, 1.0)
VARIANCE = 2.0
STEP = 0.15
BATCH = 100
# Options of MinibatchBarker, for the comparison of moments.
VARIANTS = {
    "100": {"batch_size": 100},
    "200": {"batch_size": 200},
    "1000": {"batch_size": 1000},
    "100, pilot": {"batch_size": 100, "pilot": True},
    "100, pilot, skew": {"batch_size": 100, "pilot": True, "skew_correction": True},
}
CHAINS = 2  # with each
SEED = 2017

RULES = {
    "MetropolisHastings": (MetropolisHastings, {}),
    "AusterityMH": (AusterityMH, {"epsilon": 0.005, "batch_size": BATCH}),
    "MHSubLhd": (MHSubLhd, {"batch_size": BATCH, "growth": 1.5, "range_bound": "exact"}),
    "MinibatchBarker": (MinibatchBarker, {"batch_size": BATCH}),
}

# With N / temperature the same, the tempered posteriors are nearly the same.
FAST = {
    "N": 20_000,
    "temperature": 200.0,
    "draws": {"MetropolisHastings": 300, "AusterityMH": 1500, "MHSubLhd": 100, "MinibatchBarker": 5000},
    "long": (3_000, 10),  # draws of each chain whose moments are compared, and transitions for each
}
FULL = {
    "N": 1_000_000,
    "temperature": 10_000.0,
    "draws": {"MetropolisHastings": 1000, "AusterityMH": 5000, "MHSubLhd": 500, "MinibatchBarker": 10_000},
    "long": (80_000, 10),
}


def make_data(N):
    rng = np.random.default_rng(SEED)
    means = np.array([THETA[0], THETA[0] + THETA[1]])
    return rng.normal(means[rng.integers(0, 2, size=N)], np.sqrt(VARIANCE))


def build_model(x):
    with pm.Model() as model:
        theta_1 = pm.Normal("theta_1", 0, np.sqrt(PRIOR_VARIANCES[0]))
        theta_2 = pm.Normal("theta_2", 0, np.sqrt(PRIOR_VARIANCES[1]))
        sd = np.sqrt(VARIANCE)
        components = [pm.Normal.dist(theta_1, sd), pm.Normal.dist(theta_1 + theta_2, sd)]
        pm.Mixture("x", w=[0.5, 0.5], comp_dists=components, observed=x)
    return model


def log_density(theta_1, theta_2, values, counts, temperature):
    """Logarithm of the tempered posterior, up to a constant: the prior is not tempered."""
    first, second = values - theta_1, values - theta_1 - theta_2
    terms = np.logaddexp(-(first**2) / (2 * VARIANCE), -(second**2) / (2 * VARIANCE))
    prior = -(theta_1**2) / (2 * PRIOR_VARIANCES[0]) - theta_2**2 / (2 * PRIOR_VARIANCES[1])
    return prior + counts @ terms / temperature


def group(x, bins=1500):
    """Means and sizes of groups of neighbouring points."""
    counts, edges = np.histogram(x, bins=bins)
    sums, _ = np.histogram(x, bins=edges, weights=x)
    return sums[counts > 0] / counts[counts > 0], counts[counts > 0]


def quadrature(x, temperature, points=161, bins=1500):
    """Masses of the tempered posterior on a grid."""
    values, counts = group(x, bins)
    theta_1, theta_2 = np.linspace(-1.6, 2.6, points), np.linspace(-3.5, 3.5, points)
    log_mass = np.array([[log_density(a, b, values, counts, temperature) for b in theta_2] for a in theta_1])
    mass = np.exp(log_mass - logsumexp(log_mass))
    edge = max(mass[0].max(), mass[-1].max(), mass[:, 0].max(), mass[:, -1].max())
    assert edge < 1e-6 * mass.max(), "the grid is too small"
    return theta_1, theta_2, mass


def moments(grid):
    """Means and standard deviations of theta_1 and theta_2."""
    theta_1, theta_2, mass = grid
    out = {}
    for name, value, law in [("theta_1", theta_1, mass.sum(1)), ("theta_2", theta_2, mass.sum(0))]:
        mean = law @ value
        out[name] = (mean, np.sqrt(law @ (value - mean) ** 2))
    return out


def sample(model, name, temperature, draws, steps_per_draw=1, chains=1, seed=SEED, **changed):
    """Draws and statistics, and the seconds that they took."""
    rule, options = RULES[name]
    options = {**options, **changed}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=SubsamplingWarning)  # of range_bound="exact"
        step = rule(
            proposal=RandomWalk(STEP), temperature=temperature, steps_per_draw=steps_per_draw, model=model,
            **options,
        )  # fmt: skip
    began = time.perf_counter()
    idata = pm.sample(
        draws, tune=0, chains=chains, cores=1, step=step, initvals={"theta_1": THETA[0], "theta_2": THETA[1]},
        model=model, random_seed=seed, progressbar=False, compute_convergence_checks=False, quiet=True,
    )  # fmt: skip
    return idata, time.perf_counter() - began


def compare_sizes(model, N, temperature, draws):
    """Points read for a decision by each rule, and the draws."""
    rows, runs = {}, {}
    for name in RULES:
        idata, seconds = sample(model, name, temperature, draws[name])
        used = idata.sample_stats["n_used"].values.ravel()
        theta = np.stack([idata.posterior[v].values.ravel() for v in ("theta_1", "theta_2")])
        runs[name] = {"used": used, "theta": theta}
        rows[name] = {
            "draws": draws[name],
            "mean": used.mean(),
            "error": used.std() / np.sqrt(az.ess(used[None])) if used.std() else 0.0,
            "median": np.median(used),
            "99 %": np.quantile(used, 0.99),
            "99.9 %": np.quantile(used, 0.999),
            "largest": used.max(),
            "accepted": float(idata.sample_stats["acceptance_rate"].mean()),
            "ms/draw": 1e3 * seconds / draws[name],
        }
        print(f"{name} done.", flush=True)
    return pd.DataFrame(rows).T, runs


def compare_moments(model, grid, temperature, long, seed=SEED):
    """Long chains of MinibatchBarker against quadrature; z: difference in Monte Carlo standard errors."""
    draws, steps_per_draw = long
    rows, chains = {}, {}
    for variant, options in VARIANTS.items():
        idata, seconds = sample(
            model, "MinibatchBarker", temperature, draws, steps_per_draw, CHAINS, seed, **options
        )
        stats = idata.sample_stats
        for name, (mean, sd) in moments(grid).items():
            values = idata.posterior[name].values
            squares = (values - mean) ** 2  # about the known mean
            error_of_mean, error_of_square = float(az.mcse(values)), float(az.mcse(squares))
            rows[name, variant] = {
                "mean": mean,
                "chain": values.mean(),
                "error": error_of_mean,
                "z": (values.mean() - mean) / error_of_mean,
                "sd": sd,
                "chain ": np.sqrt(squares.mean()),
                "error ": error_of_square / (2 * sd),
                "z ": (squares.mean() - sd**2) / error_of_square,
                "ESS": float(az.ess(values)),
                "read": float(stats["n_used"].mean()),
                "clipped": float(stats["clipped"].mean()) if "clipped" in stats else np.nan,
            }
        chains[variant] = idata.posterior["theta_2"].values.ravel()
        print(
            f"Batches of {variant}: {CHAINS} chains of {draws:,} draws of {steps_per_draw} transitions, "
            f"{seconds:.0f} s.",
            flush=True,
        )
    table = pd.DataFrame(rows).T
    table.index.names = ["parameter", "batches"]
    return table, chains


def plot(runs, grid, chains, N, path):
    theta_1, theta_2, mass = grid
    figure, axes = plt.subplots(2, 4, figsize=(14, 7), layout="constrained")
    names = ["MetropolisHastings", "AusterityMH", "MHSubLhd", "MinibatchBarker"]
    levels = mass.max() * np.exp(-np.array([4.5, 3.0, 2.0, 1.0, 0.3]))
    for ax, name in zip(axes[0], names, strict=True):
        theta = runs[name]["theta"]
        ax.plot(*theta, ".", ms=3, alpha=min(1.0, 0.15 + 200 / theta.shape[1]), color="C0", mec="none")
        ax.contour(theta_1, theta_2, mass.T, levels=levels, colors="k", linewidths=0.7)
        label = "Exact" if name == "MetropolisHastings" else name
        ax.set(title=f"{label}, {theta.shape[1]:,} draws", xlim=(-1.2, 2.2), ylim=(-2.8, 2.8))
        ax.set_xlabel(r"$\theta_1$")
    axes[0, 0].set_ylabel(r"$\theta_2$")

    ax = axes[1, 0]
    for (variant, draws), color in zip(chains.items(), ["C0", "C3", "C2", "C1", "C4"], strict=True):
        label = f"batches of {variant}"
        ax.hist(draws, bins=50, range=(-3, 3), density=True, histtype="step", color=color, label=label)
    ax.plot(theta_2, mass.sum(0) / (theta_2[1] - theta_2[0]), "k", label="quadrature")
    ax.set(xlabel=r"$\theta_2$", ylabel="density", title=r"Marginal of $\theta_2$", ylim=(0, None))
    ax.set_ylim(0, 1.6 * ax.get_ylim()[1])
    ax.legend(frameon=False, loc="upper left", fontsize=8)
    bins = np.geomspace(BATCH * 0.9, N * 1.1, 45)
    for ax, name in zip(axes[1, 1:], names[1:], strict=True):
        used = runs[name]["used"]
        weights = np.full(len(used), 1 / len(used))
        ax.hist(used, bins=bins, weights=weights, color="C1")
        ax.axvline(used.mean(), color="k", ls="--")
        ax.set(xscale="log", yscale="log", ylim=(5e-5, 1.5), title=f"{name}, mean {used.mean():,.0f}")
        ax.set_xlabel("points read (dashed: mean)")
    axes[1, 1].set_ylabel("share of the decisions")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(full=False, output=".", seed=SEED):
    settings = FULL if full else FAST
    N, temperature = settings["N"], settings["temperature"]
    x = make_data(N)
    model = build_model(x)
    grid = quadrature(x, temperature)
    sizes, runs = compare_sizes(model, N, temperature, settings["draws"])
    print(f"\nPoints read for a decision, of {N:,}; 'error' is the Monte Carlo error of the mean.\n")
    print(sizes.to_string(float_format="{:,.2f}".format), "\n")
    table, chains = compare_moments(model, grid, temperature, settings["long"], seed)
    print("\nMoments of the tempered posterior by quadrature, and of long chains of MinibatchBarker:\n")
    print(table.to_string(float_format="{:,.4f}".format))
    path = Path(output) / "barker_mixture.png"
    plot(runs, grid, chains, N, path)
    print(f"\nFigure: {path}")
    return {"sizes": sizes, "moments": table, "figure": path, "grid": grid}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="a million points, and long chains")
    parser.add_argument("--output", default=".", help="directory of the figure")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the long chains")
    main(**vars(parser.parse_args()))
