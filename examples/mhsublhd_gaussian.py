"""Two experiments with Gaussian models: what confidence intervals that hold are worth, and what they cost.

Reproduces sections 4.1 and 4.3 of Bardenet, Doucet & Holmes (2014).

*4.1, the marginal of sigma.* 100,000 points, the model N(mu, sigma^2) with flat priors on mu and sigma, whose
posterior is known: sigma^2 is inverse gamma with shape (n - 2) / 2 and scale n S^2 / 2. `AusterityMH` with
epsilon = 0.05 on batches of 2 or of 500 points, `MHSubLhd` with delta = 0.01, and the exact test. The third
data set is heavy-tailed, exp(N(0, 2)). The paper does not say whether 2 is a variance or a standard
deviation; here it is the *variance*. Steps are fixed, 2 / sqrt(3) posterior standard deviations in both
coordinates, with which an exact chain accepts one half; chains start at the maximum of the likelihood, and a
fifth is burn-in.

*4.3, the share of the data at equilibrium.* The model N(theta, 1) with a flat prior, data from N(1/2, 0.1^2),
steps of two posterior standard deviations, chains from the posterior mode. The log ratios are linear in x, so
their range is |theta' - theta| (max x - min x).

What `--full` printed (Monte Carlo errors in brackets):

                                      bias of sigma [%]   sd / exact sd   share of data
    N(0, 0.1²)    AusterityMH, 2        -4.42 (0.17)          7.2            0.012
                  AusterityMH, 500      -0.043 (0.009)        1.55           0.25
                  MHSubLhd               0.000 (0.011)        1.01           0.99
    exp N(0, 2)   AusterityMH, 500      -7.16 (0.17)          6.5            0.13
                  MHSubLhd              -0.002 (0.011)        1.01           1.00

    share of the data at equilibrium, n = 10^5: 0.523 (0.004), 10^6: 0.444 (0.006), 10^7: 0.408 (0.007)

The paper's bias with batches of two is 7 %; it depends on the size of the steps, which adapt there, and on
how the batch grows. An exact test evaluates each row once, a subsampled one at two states, so below one half
something is gained. The paper's figure goes to n = 10^15, where a quarter of the data is read.

Run `python examples/mhsublhd_gaussian.py` (shorter chains, n up to 100,000, some ten seconds), or with
`--full` (half an hour, most of it for n = 10^7).
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
from scipy.special import gammaln
from scipy.stats import gaussian_kde

from pymc_austerity import AusterityMH, MetropolisHastings, MHSubLhd, RandomWalk, SubsamplingWarning

N = 100_000
EPSILON, DELTA = 0.05, 0.01
SEED = 2014

# Section 4.1: what the data come from, and the first batch.
CASES = {
    "N(0, 0.1²), batches of 2": ("gaussian", 2),
    "N(0, 0.1²), batches of 500": ("gaussian", 500),
    "exp N(0, 2), batches of 500": ("lognormal", 500),
}

# Draws of each rule (4.1), and for each n (4.3).
FAST = {
    "draws": {"MetropolisHastings": 400, "MHSubLhd": 400, "AusterityMH": 3000},
    "sizes": {10_000: 3000, 100_000: 2000},
}
FULL = {
    "draws": {"MetropolisHastings": 5000, "MHSubLhd": 5000, "AusterityMH": 30_000},
    "sizes": {100_000: 10_000, 1_000_000: 5000, 10_000_000: 2500},
}


def make_data(law):
    rng = np.random.default_rng(SEED)
    return rng.normal(0, 0.1, N) if law == "gaussian" else np.exp(rng.normal(0, np.sqrt(2), N))


def chain(model, step, start, draws):
    return pm.sample(
        draws, tune=0, chains=1, cores=1, step=step, initvals=start, model=model, random_seed=SEED,
        progressbar=False, compute_convergence_checks=False, quiet=True,
    )  # fmt: skip


# Section 4.1 ------------------------------------------------------------------------------------------


def exact_sigma(x):
    """Mean, standard deviation and mode of the posterior of sigma, and its log density up to a constant."""
    n, variance = len(x), x.var()
    shape, scale = (n - 2) / 2, n * variance / 2
    # sigma^2 is inverse gamma (shape, scale), so E sigma = sqrt(scale) Gamma(shape - 1/2) / Gamma(shape).
    mean = np.sqrt(scale) * np.exp(gammaln(shape - 0.5) - gammaln(shape))
    sd = np.sqrt(scale / (shape - 1) - mean**2)
    return {
        "mean": mean,
        "sd": sd,
        "mode": np.sqrt(variance * n / (n - 1)),
        "log_density": lambda sigma: -(n - 1) * np.log(sigma) - scale / sigma**2,
    }


def normal_model(x):
    with pm.Model() as model:
        mu = pm.Flat("mu")
        sigma = pm.HalfFlat("sigma")
        pm.Normal("x", mu, sigma, observed=x)
    return model


def sample_sigma(x, name, batch_size, draws):
    """Draws of sigma by one rule, and means of the sample statistics."""
    model = normal_model(x)
    # Posterior standard deviations of mu and, because a step moves unconstrained variables, of log sigma.
    sds = np.array([x.std() / np.sqrt(len(x)), 1 / np.sqrt(2 * len(x))])
    options = {"proposal": RandomWalk(scale=2 / np.sqrt(3) * sds), "model": model}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=SubsamplingWarning)  # of range_bound="exact"
        if name == "AusterityMH":
            step = AusterityMH(epsilon=EPSILON, batch_size=batch_size, **options)
        elif name == "MHSubLhd":
            step = MHSubLhd(delta=DELTA, batch_size=batch_size, range_bound="exact", **options)
        else:
            step = MetropolisHastings(**options)
    idata = chain(model, step, {"mu": x.mean(), "sigma": x.std()}, draws)
    kept = idata.isel(draw=slice(draws // 5, None))
    return kept.posterior["sigma"].values, {
        "share of data": float(kept.sample_stats["fraction_used"].mean()),
        "accepted": float(kept.sample_stats["acceptance_rate"].mean()),
    }


def compare_sigma(draws):
    """The posterior of sigma in each case by each rule, beside the exact one."""
    rows, samples = {}, {}
    for case, (law, batch_size) in CASES.items():
        x = make_data(law)
        exact = exact_sigma(x)
        for name, count in draws.items():
            sigma, stats = sample_sigma(x, name, batch_size, count)
            samples[case, name] = sigma.ravel()
            rows[case, name] = {
                "bias %": 100 * (sigma.mean() / exact["mean"] - 1),
                "error": 100 * float(az.mcse(sigma)) / exact["mean"],
                "in exact sds": (sigma.mean() - exact["mean"]) / exact["sd"],
                "sd / exact sd": sigma.std() / exact["sd"],
                "error ": float(az.mcse(sigma, method="sd")) / exact["sd"],
                "ESS": float(az.ess(sigma)),
                **stats,
            }
        print(f"{case} done.", flush=True)
    return pd.DataFrame(rows).T, samples


def plot_sigma(table, samples, path):
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
    styles = {
        "MetropolisHastings": ("C2", "exact"),
        "MHSubLhd": ("C0", "MHSubLhd"),
        "AusterityMH": ("C1", "AusterityMH"),
    }
    for ax, (case, (law, _)) in zip(axes, CASES.items(), strict=True):
        exact = exact_sigma(make_data(law))
        everything = [samples[case, name] for name in styles]
        low, high = min(s.min() for s in everything), max(s.max() for s in everything)
        low, high = min(low, exact["mean"] - 5 * exact["sd"]), max(high, exact["mean"] + 5 * exact["sd"])
        sigma = np.linspace(low, high, 2000)
        for name, (unwhiten, label) in styles.items():
            density = gaussian_kde(samples[case, name])(sigma)
            share = table.loc[(case, name), "share of data"]
            # The densities differ in height by a factor of ten: each is drawn with its maximum at one.
            ax.fill_between(
                sigma,
                density / density.max(),
                color=unwhiten,
                alpha=0.35,
                label=f"{label}, {share:.1%} of the data",
            )
        log_density = exact["log_density"](sigma)
        ax.plot(sigma, np.exp(log_density - log_density.max()), "k", lw=1, label="closed form")
        ax.plot(exact["mode"], 0, "r^", ms=9, clip_on=False, zorder=5, label="its maximum")
        ax.set(title=case, xlabel=r"$\sigma$", ylim=(0, 1.75), yticks=[])
        ax.legend(frameon=False, loc="upper left")
    axes[0].set_ylabel("density, relative to its maximum")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


# Section 4.3 ------------------------------------------------------------------------------------------


def sample_share(n, draws):
    """Shares of the data that the decisions of a chain at equilibrium read, and its draws of theta."""
    x = np.random.default_rng(SEED).normal(0.5, 0.1, n)
    with pm.Model() as model:
        theta = pm.Flat("theta")
        pm.Normal("x", theta, 1, observed=x)
    width = float(np.ptp(x))
    step = MHSubLhd(
        delta=DELTA,
        range_bound=lambda q, q_new: abs(q_new[0] - q[0]) * width,
        proposal=RandomWalk(2 / np.sqrt(n)),
        model=model,
    )
    idata = chain(model, step, {"theta": x.mean()}, draws)
    z = np.sqrt(n) * (idata.posterior["theta"].values - x.mean())  # exactly N(0, 1)
    return idata.sample_stats["fraction_used"].values.ravel(), z


def compare_shares(sizes):
    rows, runs = {}, {}
    for n, draws in sizes.items():
        began = time.perf_counter()
        share, z = sample_share(n, draws)
        runs[n] = share
        rows[n] = {
            "draws": draws,
            "share of data": share.mean(),
            "error": share.std() / np.sqrt(az.ess(share[None])),
            "read everything": np.mean(share == 1),
            "mean of theta [sd]": z.mean(),
            "error ": float(az.mcse(z)),
            "sd of theta [sd]": z.std(),
            "error  ": float(az.mcse(z, method="sd")),
            "ms/draw": 1e3 * (time.perf_counter() - began) / draws,
        }
        print(f"n = {n:,} done.", flush=True)
    table = pd.DataFrame(rows).T
    table.index.name = "n"
    return table, runs


def plot_shares(table, runs, path):
    figure, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
    for (n, share), unwhiten in zip(runs.items(), ["C0", "C1", "C2"], strict=False):
        draw = np.arange(1, len(share) + 1)
        running = np.cumsum(share) / draw
        label = f"n = $10^{{{np.log10(n):.0f}}}$: {running[-1]:.3f} ± {table.loc[n, 'error']:.3f}"
        ax.plot(draw, running, color=unwhiten, label=label)
    ax.axhline(0.5, color="k", ls=":", lw=1)
    note = "below the line: fewer evaluations than the exact test "
    ax.text(ax.get_xlim()[1], 0.495, note, ha="right", va="top", fontsize=8)
    ax.set(xlabel="draw", ylabel="running mean of the share of the data read", ylim=(0.2, 0.8))
    ax.legend(frameon=False, loc="upper right", title="mean ± Monte Carlo error")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(full=False, output="."):
    settings, folder = FULL if full else FAST, Path(output)
    sigma, samples = compare_sigma(settings["draws"])
    print(
        "\nPosterior of sigma; 'error' is the Monte Carlo error of the column before it ('bias %', 'sd').\n"
    )
    print(sigma.to_string(float_format="{:.3f}".format), "\n")
    plot_sigma(sigma, samples, folder / "mhsublhd_sigma.png")
    shares, runs = compare_shares(settings["sizes"])
    print("\nShare of the data read by MHSubLhd at equilibrium, and its posterior of theta in exact sds:\n")
    print(shares.to_string(float_format="{:,.3f}".format))
    plot_shares(shares, runs, folder / "mhsublhd_share.png")
    print(f"\nFigures: {folder / 'mhsublhd_sigma.png'}, {folder / 'mhsublhd_share.png'}")
    return {
        "sigma": sigma,
        "shares": shares,
        "figures": [folder / f"mhsublhd_{w}.png" for w in ("sigma", "share")],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="long chains, and n up to 10^7")
    parser.add_argument("--output", default=".", help="directory of the figures")
    main(**vars(parser.parse_args()))
