"""Parameters of a state-space model by subsampled Metropolis-Hastings, its states by particle Gibbs.

After section 4.3 of Chen, Mansinghka & Ghahramani (2015): series x_t ~ N(0, exp(h_t / 2)), whose states are
h_t ~ N(phi h_{t-1}, sigma) with h_0 = 0; second arguments are standard deviations. Priors are
phi ~ Beta(5, 1) and sigma ~ HalfNormal(1). The local terms of (phi, sigma) are the transitions from h_{t-1}
to h_t. The observations contain neither phi nor sigma, and are not read. `ParticleGibbs` draws the states,
of all series in a sweep, and `AusterityMH` makes four transitions of (phi, sigma) beside it.

The paper has 200 series of 5, which say nothing of the parameters: the posterior is nearly the prior, so that
its Figure 9 cannot tell a sampler that reads the data from one that does not. Here are 50 series of 100, and
the posterior is computed by quadrature: the states are summed out on a grid, for each phi and sigma.

What to expect: epsilon = 0 agrees with quadrature within Monte Carlo error. With 30,000 draws epsilon = 0.01
was off by .18 posterior sds in sigma and .10 in phi, with Monte Carlo errors of .06 and .04, and read 69 % of
the transitions: given the states, a small error of each decision adds up. The time goes into the states. It
takes some hundred sweeps to get one independent draw of sigma: given the states, it is known much better than
without them.

Run `python examples/stochastic_volatility.py` (less than a minute, and too few draws to compare), or with
`--full` (some seventeen minutes).
"""

import argparse
import time
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

from pymc_austerity import AusterityMH, ParticleGibbs, factorise

SERIES, LENGTH = 50, 100
PHI, SIGMA = 0.95, 0.3
TRANSITIONS = 4  # of (phi, sigma) for one sweep over the states
SEED = 295
SHOWN = 0  # the series whose states are drawn
# Draws, tuning and chains of each run.
FAST = (300, 200, 2)
FULL = (15_000, 1000, 2)
EPSILONS = (0.0, 0.01)


def simulate():
    """Observations and states, one row for each series."""
    rng = np.random.default_rng(SEED)
    h, states = np.zeros(SERIES), []
    for _ in range(LENGTH):
        h = PHI * h + SIGMA * rng.normal(size=SERIES)
        states.append(h)
    states = np.stack(states, axis=1)
    return np.exp(states / 2) * rng.normal(size=states.shape), states


def volatility_model(x):
    """An ordinary model: a batch of autoregressive series, and normal observations."""
    with pm.Model() as model:
        phi, sigma = pm.Beta("phi", 5, 1), pm.HalfNormal("sigma", 1)
        h = pm.AR("h", rho=[phi], sigma=sigma, init_dist=pm.Normal.dist(0, sigma), shape=x.shape)
        pm.Normal("x", 0, pm.math.exp(h / 2), observed=x)
        pm.Deterministic("shown", h[SHOWN])
    return model


def log_likelihood(x, phi, sigma, grid):
    """log p(x | phi, sigma), with the states summed out on a grid."""
    step = grid[1] - grid[0]

    def normal(z):
        return np.exp(-0.5 * (z / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))

    transition = step * normal(grid[None, :] - phi * grid[:, None])
    weight = np.tile(step * normal(grid), (len(x), 1))
    total = 0.0
    for t in range(x.shape[1]):
        if t:
            weight = weight @ transition
        log_density = -0.5 * (grid + x[:, t, None] ** 2 * np.exp(-grid) + np.log(2 * np.pi))
        weight = weight * np.exp(log_density)
        scale = weight.sum(axis=1, keepdims=True)
        total += np.log(scale).sum()
        weight /= scale
    return total


def quadrature(x, n=15, n_states=121):
    """Posterior of (phi, sigma) on a grid of logit phi and log sigma.

    Returns
    -------
    phi, sigma : ndarray, shape (n,)
    probability : ndarray, shape (n, n)
    """
    logit, log_sigma = np.linspace(2.3, 4.0, n), np.linspace(-1.45, -0.83, n)
    phi, sigma = 1 / (1 + np.exp(-logit)), np.exp(log_sigma)
    grid = np.linspace(-7.0, 7.0, n_states)
    log_posterior = np.array([[log_likelihood(x, p, s, grid) for s in sigma] for p in phi])
    # Beta(5, 1) and the half-normal distribution, with the Jacobians of the coordinates of the grid.
    log_posterior += (5 * np.log(phi) + np.log1p(-phi))[:, None] + (log_sigma - 0.5 * sigma**2)[None, :]
    probability = np.exp(log_posterior - log_posterior.max())
    return phi, sigma, probability / probability.sum()


def moments(phi, sigma, probability):
    """Mean and sd of phi and sigma, and their correlation."""
    weights = {"phi": (phi, probability.sum(axis=1)), "sigma": (sigma, probability.sum(axis=0))}
    mean = {name: float(p @ x) for name, (x, p) in weights.items()}
    sd = {name: float(np.sqrt(p @ (x - mean[name]) ** 2)) for name, (x, p) in weights.items()}
    product = (phi - mean["phi"]) @ probability @ (sigma - mean["sigma"])
    return mean, sd, float(product / (sd["phi"] * sd["sigma"]))


def sample(model, states, epsilon, draws, tune, chains, particles=20):
    """(phi, sigma) by AusterityMH, h by ParticleGibbs, from the values that made the data."""
    began = time.process_time()
    with model:
        step = AusterityMH([model["phi"], model["sigma"]], epsilon=epsilon, steps_per_draw=TRANSITIONS)
        steps = [step, ParticleGibbs([model["h"]], particles=particles)]
        idata = pm.sample(
            draws, tune=tune, chains=chains, cores=1, step=steps, random_seed=SEED, progressbar=False,
            initvals={"phi": PHI, "sigma": SIGMA, "h": states}, var_names=["phi", "sigma", "shown"],
            compute_convergence_checks=False, quiet=True,
        )  # fmt: skip
    posterior = {name: idata.posterior[name].values for name in ("phi", "sigma", "shown")}
    return {"posterior": posterior, "stats": idata.sample_stats, "seconds": time.process_time() - began}


def summarise(runs, exact):
    """Distance from quadrature in posterior sds, with Monte Carlo errors, and what the runs cost."""
    mean, sd, _ = exact
    rows = []
    for run_name, run in runs.items():
        stats = run["stats"]
        for name in ("phi", "sigma"):
            draws = run["posterior"][name]
            rows.append(
                {
                    "parameter": name,
                    "run": run_name,
                    "mean": draws.mean(),
                    "sd": draws.std(),
                    "exact mean": mean[name],
                    "exact sd": sd[name],
                    "shift": (draws.mean() - mean[name]) / sd[name],
                    "mcse": float(az.mcse(draws, method="mean")) / sd[name],
                    "ess": float(az.ess(draws)),
                    "share of transitions": float(stats["fraction_used"].values[..., 0].mean()),
                    "states moved": float(stats["moved"].mean()),
                    "seconds": run["seconds"],
                }
            )
    return pd.DataFrame(rows).set_index(["parameter", "run"]).sort_index()


def plot(runs, grids, states, path):
    phi, sigma, probability = grids
    figure, axes = plt.subplots(1, 3, figsize=(14, 4), layout="constrained", width_ratios=[1, 1, 1.6])
    known = [
        ("phi", r"$\phi$", phi, probability.sum(axis=1)),
        ("sigma", r"$\sigma$", sigma, probability.sum(axis=0)),
    ]
    for ax, (name, symbol, values, p) in zip(axes, known, strict=False):
        for k, (label, run) in enumerate(runs.items()):
            ax.hist(
                run["posterior"][name].ravel(),
                40,
                density=True,
                histtype="step",
                color=f"C{k}",
                lw=1.5,
                label=label,
            )
        ax.plot(values, p / np.gradient(values), color="k", lw=1, label="quadrature")
        ax.set(xlabel=symbol, ylabel="posterior density")
    axes[0].legend(frameon=False, loc="upper left")
    drawn = next(iter(runs.values()))["posterior"]["shown"].reshape(-1, LENGTH)
    times = np.arange(1, LENGTH + 1)
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    axes[2].fill_between(times, low, high, color="C0", alpha=0.25, lw=0, label="90 % intervals")
    axes[2].plot(times, drawn.mean(axis=0), color="C0", label="posterior mean")
    axes[2].plot(times, states[SHOWN], color="k", lw=1, ls=":", label="made the data")
    axes[2].set(xlabel="time", ylabel=f"states of series {SHOWN + 1}")
    axes[2].legend(frameon=False, loc="upper right", ncols=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(full=False, output="."):
    x, states = simulate()
    model = volatility_model(x)
    factorisation = factorise(model, [model["phi"], model["sigma"]])
    print(factorisation, "\n")
    grids = quadrature(x)
    exact = moments(*grids)
    print("Quadrature done.", flush=True)
    runs = {}
    for epsilon in EPSILONS:
        runs[f"epsilon {epsilon:g}"] = sample(model, states, epsilon, *(FULL if full else FAST))
        print(f"Epsilon {epsilon:g} done.", flush=True)
    table = summarise(runs, exact)
    print("\n'shift' is the distance of the mean from quadrature, 'mcse' its Monte Carlo standard error,")
    print("both in posterior sds; 'seconds' of processor time include tuning.\n")
    print(table.to_string(float_format="{:.3g}".format))
    path = Path(output) / "stochastic_volatility.png"
    plot(runs, grids, states, path)
    print(f"\nFigure: {path}")
    return {"factorisation": factorisation, "exact": exact, "runs": runs, "table": table, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="enough draws to compare")
    parser.add_argument("--output", default=".", help="directory of the figure")
    main(**vars(parser.parse_args()))
