"""Three data sets on which subsampled tests go wrong, and what `sample_stats` shows of it.

Every rule samples the same model with the same steps; the exact posterior is known from quadrature.

* *Heavy tails.* Lognormal data in a normal model: a few of 100,000 rows carry most of what is known of sigma.
* *Rare rows.* A logistic regression with a binary covariate that is 1 in 10 of 100,000 rows: only these know
  its coefficient.
* *Skewed terms.* Amounts with a skewed distribution in an exponential model, at a temperature at which
  batches of 100 seem to be enough for the minibatch Barker test.

What `--full` printed: distance of the posterior mean from the exact one, in exact standard deviations, and
standard deviation relative to the exact one (Monte Carlo errors in brackets), and the share of the data:

                                            shift           sd ratio      share
    Heavy tails   MHSubLhd               -0.03 (0.05)     1.02 (0.03)     1.00
                  AusterityMH            -11.3 (0.7)      6.0  (0.3)      0.38
                  MinibatchBarker, 100    0.07 (0.04)     1.01 (0.02)     0.95
    Rare rows     MHSubLhd               -0.02 (0.04)     0.98 (0.04)     1.00
                  AusterityMH            -0.02 (0.08)     1.87 (0.06)     0.54
                  MinibatchBarker, 100   -0.11 (0.06)     1.47 (0.04)     0.66
    Skewed terms  MHSubLhd               -0.01 (0.06)     0.92 (0.04)     0.48
                  AusterityMH             0.06 (0.02)     0.99 (0.01)     0.05
                  MinibatchBarker, 100    0.39 (0.02)     1.07 (0.02)     0.002
                  MinibatchBarker, 1000   0.03 (0.02)     0.99 (0.01)     0.010

With `--full` two more tables follow: a covariate that is 1 in half of the rows, and amounts of skewness 20.

Nobody sees it in the rare rows: with a covariate that is 1 in half of the rows, `AusterityMH` reads 0.50 in
101 stages, and 0.04 of the decisions read everything, much as here (0.54, 109 and 0.05), and
`MinibatchBarker`, right there with a ratio of 0.96 (0.02), reads 0.79. Nor in the skewed terms, where the
noise is below 1 as the rule wants it; with `max_error=0.1`, which notices the skewness, everything is read.
At skewness 20 the shift is 1.24 (0.03) with batches of 100 and 0.14 (0.02) with 1000. In the heavy tails
`AusterityMH` decides with a standard error of 14 of the log ratio.

Run `python examples/when_rules_fail.py` (20,000 rows, short chains, half a minute), or with `--full` (some
minutes).
"""

import argparse
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import logsumexp
from scipy.stats import gaussian_kde

from pymc_austerity import (
    AusterityMH,
    MetropolisHastings,
    MHSubLhd,
    MinibatchBarker,
    RandomWalk,
    SubsamplingWarning,
)

RARE = 10  # rows
SEED = 2026
BURN_IN = 0.2

# Draws by rules that read all data at each transition, and by the others, which make several for each draw.
FAST = {"N": 20_000, "reading_all": 500, "subsampling": 700, "exact": False}
FULL = {"N": 100_000, "reading_all": 4000, "subsampling": 4000, "exact": True}


@dataclass
class Case:
    """A model, one parameter of which is compared with its exact posterior."""

    name: str
    label: str  # of the parameter
    model: Any
    start: dict
    proposal: Any
    parameter: Any  # posterior -> draws
    grid: np.ndarray
    density: np.ndarray  # on the grid
    rules: dict
    thin: int = 3  # transitions for each draw
    temperature: float = 1.0

    def moments(self):
        mass = self.density / self.density.sum()
        mean = mass @ self.grid
        return mean, np.sqrt(mass @ (self.grid - mean) ** 2)


def rules(range_bound="exact"):
    """Rules to compare, the exact one first."""
    return {
        "MetropolisHastings (exact)": (MetropolisHastings, {}),
        "MHSubLhd(delta=0.01)": (MHSubLhd, {"delta": 0.01, "range_bound": range_bound}),
        "AusterityMH(epsilon=0.01)": (AusterityMH, {"epsilon": 0.01}),
        "MinibatchBarker(100)": (MinibatchBarker, {"batch_size": 100}),
    }


COLOURS = {
    "MetropolisHastings (exact)": "C7",
    "MHSubLhd(delta=0.01)": "C0",
    "AusterityMH(epsilon=0.01)": "C1",
    "MinibatchBarker(100)": "C3",
    "MinibatchBarker(1000)": "C4",
    "MinibatchBarker(max_error=0.1)": "C2",
}


def normalised(log_density, grid):
    density = np.exp(log_density - log_density.max())
    return density / (density.sum() * (grid[1] - grid[0]))


def heavy_tails(N):
    x = np.exp(np.random.default_rng(SEED).normal(0, np.sqrt(2), N))
    with pm.Model() as model:
        mu = pm.Flat("mu")
        sigma = pm.HalfFlat("sigma")
        pm.Normal("x", mu, sigma, observed=x)
    scale = x.std()
    grid = scale * np.linspace(0.98, 1.02, 2001)
    log_density = -(N - 1) * np.log(grid) - N * scale**2 / (2 * grid**2)  # mu integrated out
    # Standard deviations of mu and of log sigma: a step moves unconstrained variables.
    sds = np.array([scale / np.sqrt(N), 1 / np.sqrt(2 * N)])
    return Case(
        "Heavy tails", r"$\sigma$", model, {"mu": x.mean(), "sigma": scale}, RandomWalk(1.7 * sds),
        lambda posterior: posterior["sigma"].values, grid, normalised(log_density, grid), rules(),
    )  # fmt: skip


def rare_rows(N, count=RARE, beta_center=2.6, beta_sd=0.65):
    """Only the counts matter: of rows, and of ones among them, with and without the covariate.

    beta_center and beta_sd are rough moments of its coefficient, for the start, the steps and the grid.
    """
    rng = np.random.default_rng(SEED)
    rare = np.zeros(N)
    rare[rng.choice(N, count, replace=False)] = 1
    y = (rng.random(N) < 0.1).astype(int)
    if count == RARE:
        y[rare == 1] = [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 3)
        beta = pm.Normal("beta", 0, 3)
        pm.Bernoulli("y", logit_p=intercept + beta * rare, observed=y)
    ones, rare_ones = y[rare == 0].sum(), y[rare == 1].sum()
    center, sd = np.log(ones / (N - count - ones)), np.sqrt(1 / ones + 1 / (N - count - ones))
    a, b = np.linspace(-6, 6, 121)[:, None], np.linspace(-8.5, 8.5, 2201)
    a, b = center + sd * a, beta_center + beta_sd * b
    log_density = (
        ones * a - (N - count) * np.logaddexp(0, a) + rare_ones * (a + b) - count * np.logaddexp(0, a + b)
    )
    log_density = logsumexp(log_density - (a**2 + b**2) / 18, axis=0)
    return Case(
        "Rare rows", r"coefficient of the rare covariate", model, {"intercept": center, "beta": beta_center},
        RandomWalk(1.7 * np.array([sd, beta_sd])), lambda posterior: posterior["beta"].values, b,
        normalised(log_density, b), rules(range_bound=None),  # a certificate is known
    )  # fmt: skip


def common_rows(N):
    """The same without rare rows."""
    case = rare_rows(N, N // 2, beta_center=0.0, beta_sd=2 / np.sqrt(0.09 * N))
    return only(case, "Covariate 1 in half of the rows", "AusterityMH(epsilon=0.01)", "MinibatchBarker(100)")


def skewed_terms(N, shape=0.03):
    """A gamma prior is conjugate: the tempered posterior of the rate is a gamma distribution."""
    x = np.random.default_rng(SEED).gamma(shape, 1 / shape, N)  # mean 1, skewness 2 / sqrt(shape), 11.5
    temperature = N / 10
    with pm.Model() as model:
        rate = pm.Gamma("rate", 1, 1)
        pm.Exponential("x", rate, observed=x)
    grid = np.linspace(-2.5, 2, 2001)  # of log(rate)
    log_density = (1 + N / temperature) * grid - (1 + x.sum() / temperature) * np.exp(grid)
    chosen = rules()
    chosen["MinibatchBarker(1000)"] = (MinibatchBarker, {"batch_size": 1000})
    chosen["MinibatchBarker(max_error=0.1)"] = (MinibatchBarker, {"batch_size": 100, "max_error": 0.1})
    return Case(
        "Skewed terms", "log(rate)", model, {"rate": 1.0}, RandomWalk(0.2),
        lambda posterior: np.log(posterior["rate"].values), grid, normalised(log_density, grid), chosen,
        20, temperature,
    )  # fmt: skip


def more_skewed_terms(N):
    case = skewed_terms(N, shape=0.01)
    return only(case, "Skewness 20", "MinibatchBarker(100)", "MinibatchBarker(1000)")


def only(case, name, *chosen):
    return replace(case, name=name, rules={rule: case.rules[rule] for rule in chosen})


def sample(case, name, settings):
    """Draws of the parameter by one rule, and means of the sample statistics."""
    rule, options = case.rules[name]
    reads_all = rule in (MetropolisHastings, MHSubLhd) or "max_error" in options
    draws, thin = (settings["reading_all"], 1) if reads_all else (settings["subsampling"], case.thin)
    with warnings.catch_warnings():
        # of range_bound="exact", and of what max_error implies
        warnings.filterwarnings("ignore", category=SubsamplingWarning)
        step = rule(
            proposal=case.proposal,
            temperature=case.temperature,
            steps_per_draw=thin,
            model=case.model,
            **options,
        )
    idata = pm.sample(
        draws, tune=0, chains=1, cores=1, step=step, initvals=case.start, model=case.model, random_seed=SEED,
        progressbar=False, compute_convergence_checks=False, quiet=True,
    )  # fmt: skip
    kept = idata.isel(draw=slice(int(BURN_IN * draws), None))
    return case.parameter(kept.posterior), kept.sample_stats


def compare(case, settings):
    mean, sd = case.moments()
    rows, draws = {}, {}
    for name, (rule, _) in case.rules.items():
        if rule is MetropolisHastings and not settings["exact"]:
            continue
        values, stats = sample(case, name, settings)
        draws[name] = values.ravel()
        rows[name] = {
            "shift": (values.mean() - mean) / sd,
            "error": float(az.mcse(values)) / sd,
            "sd ratio": values.std() / sd,
            "error ": float(az.mcse(values, method="sd")) / sd,
            "ESS": float(az.ess(values)),
            "fraction_used": float(stats["fraction_used"].mean()),
            "n_stages": float(stats["n_stages"].mean()),
            "exhausted": float(stats["exhausted"].mean()),
            "acceptance": float(stats["acceptance_rate"].mean()),
            "N log_ratio_se": settings["N"] * float(stats["log_ratio_se"].median()),
        }
    return pd.DataFrame(rows).T, draws


def plot(results, path):
    figure, axes = plt.subplots(1, 3, figsize=(15, 5), layout="constrained")
    for ax, (case, _, draws) in zip(axes, results, strict=True):
        spread = np.concatenate([np.quantile(v, [0.001, 0.999]) for v in draws.values()])
        low, high = min(spread.min(), case.grid[0]), max(spread.max(), case.grid[-1])
        place = np.linspace(low, high, 3000)
        for name, values in draws.items():
            ax.plot(place, gaussian_kde(values)(place), color=COLOURS[name], lw=1.7, label=name)
        ax.plot(case.grid, case.density, "k--", lw=1, label="quadrature")
        low, high = spread.min(), spread.max()
        ax.set_xlim(low - 0.1 * (high - low), high + 0.1 * (high - low))
        ax.set(title=case.name, xlabel=case.label, ylim=(0, 1.75 * case.density.max()), yticks=[])
        ax.legend(frameon=False, loc="upper left", fontsize=9)
    axes[0].set_ylabel("posterior density")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(full=False, output="."):
    settings = FULL if full else FAST
    results = []
    print(
        "shift: distance of the posterior mean from the exact one, in exact sds; 'error': Monte Carlo error\n"
        "of the column before it; N log_ratio_se: what a rule takes for the noise of its log ratio."
    )
    for make in (heavy_tails, rare_rows, skewed_terms, *((common_rows, more_skewed_terms) if full else ())):
        case = make(settings["N"])
        table, draws = compare(case, settings)
        results.append((case, table, draws))
        mean, sd = case.moments()
        print(f"\n{case.name}: {case.label}, exact mean {mean:.4f} and sd {sd:.4f}\n")
        print(table.to_string(float_format="{:.3f}".format), flush=True)
    path = Path(output) / "when_rules_fail.png"
    plot(results[:3], path)
    print(f"\nFigure: {path}")
    return {"tables": {case.name: table for case, table, _ in results}, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="long chains")
    parser.add_argument("--output", default=".", help="directory of the figure")
    main(**vars(parser.parse_args()))
