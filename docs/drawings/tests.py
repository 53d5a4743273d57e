"""How a test decides, what its errors do, what it reads, and a verdict of `compare`."""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from matplotlib.figure import Figure

import pymc_austerity as pma
from docs.drawings.exact import regression
from pymc_austerity.acceptance import TTest
from pymc_austerity.design import acceptance_error, data_usage, error, expected_data_usage, expected_share

N, BATCH = 10_000, 500


def sequential() -> Figure:
    """Running means of log ratios between the limits of the t-test, until it stops."""
    rng = np.random.default_rng(3)
    terms = rng.normal(size=N)
    terms = (terms - terms.mean()) / terms.std()
    schedule = TTest(epsilon=0.05, batch_size=BATCH).bind(N)
    ends, bounds = np.array(schedule.ends), np.array(schedule.bounds)
    figure, axes = plt.subplots(figsize=(7, 2.9), layout="constrained")
    limit = bounds / np.sqrt(ends) * np.sqrt(1 - (ends - 1) / (N - 1))
    axes.fill_between(ends, -limit, limit, color="0.9", label="read on")
    for distance, colour in ((0.5, "C0"), (3.0, "C3")):
        mean = np.cumsum(rng.permutation(terms))[ends - 1] / ends + distance / np.sqrt(N - 1)
        stop = int(np.argmax(np.abs(mean) > limit)) if (np.abs(mean) > limit).any() else len(ends) - 1
        axes.plot(
            ends[: stop + 1],
            mean[: stop + 1],
            "-o",
            ms=3,
            color=colour,
            label=rf"$\mu_\mathrm{{std}}$ = {distance}",
        )
        axes.plot(ends[stop], mean[stop], "o", ms=9, mfc="none", color=colour)
    axes.axhline(0, color="k", lw=0.8)
    axes.set(xlabel="rows read, of 10,000", ylabel="mean of log ratios - threshold")
    axes.legend(frameon=False)
    return figure


def too_wide() -> Figure:
    """Stationary densities of a random walk on a normal posterior, decided by tests."""
    q = np.linspace(-6, 6, 241)
    step = q - q[:, None]
    log_ratio = 0.5 * (q[:, None] ** 2 - q**2)
    propose = np.exp(-0.5 * (step / 2.38) ** 2) * (q[1] - q[0]) / (2.38 * np.sqrt(2 * np.pi))
    figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
    axes.plot(q, np.exp(-0.5 * q**2) / np.sqrt(2 * np.pi), color="k", label="posterior")
    for epsilon in (0.01, 0.05, 0.2):
        delta = acceptance_error(
            log_ratio / N, np.abs(step) / np.sqrt(N), N, batch_size=BATCH, epsilon=epsilon
        )
        chain = propose * (np.exp(np.minimum(log_ratio, 0)) + delta)
        np.fill_diagonal(chain, 0)
        chain += np.diag(1 - chain.sum(axis=1))
        stationary = np.linalg.matrix_power(chain, 2**12)[0]
        width = np.sqrt(stationary @ q**2)
        axes.plot(q, stationary / (q[1] - q[0]), label=f"epsilon {epsilon}: sd {width:.2f}")
    axes.set(xlabel="parameter, in posterior standard deviations", yticks=[])
    axes.legend(frameon=False)
    return figure


def errors() -> Figure:
    """Error of a test and what it reads, against the standardised distance."""
    distance = np.linspace(0, 4, 41)
    figure, axes = plt.subplots(1, 2, figsize=(8, 2.7), layout="constrained")
    for epsilon in (0.01, 0.05, 0.2):
        axes[0].plot(distance, error(distance, BATCH / N, epsilon), label=f"epsilon {epsilon}")
        axes[1].plot(distance, data_usage(distance, BATCH / N, epsilon))
    axes[0].set(ylabel="probability of a wrong decision")
    axes[1].set(ylabel="share of the rows read", ylim=(0, 1))
    for ax in axes:
        ax.set(xlabel=r"distance from the threshold, $\mu_\mathrm{std}$")
    axes[0].legend(frameon=False)
    return figure


def cost() -> Figure:
    """Rows that a decision reads at equilibrium, as theory has it, for four rules."""
    sizes = np.geomspace(1e3, 1e6, 7).astype(int)
    rng = np.random.default_rng(7)
    q = rng.normal(size=300)
    new = q + 2.38 * rng.normal(size=300)
    log_ratio, distance = 0.5 * (q**2 - new**2), np.abs(new - q)
    tested = [
        n
        * np.mean(expected_data_usage(log_ratio / n, distance / np.sqrt(n), n, batch_size=500, epsilon=0.01))
        for n in sizes[1:]
    ]
    w, w_new = rng.normal(size=(2, 1000, 10))
    m = (np.linalg.norm(w, axis=1) ** 3 + np.linalg.norm(w_new, axis=1) ** 3) / 6
    drawn = [min(n, regression(n, 10)[2].sum() * m.mean()) for n in sizes]
    bounded = [n * expected_share(2.38, n) for n in sizes]
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for x, y, colour, name in (
        (sizes, sizes, "k", "MetropolisHastings: all rows"),
        (sizes, bounded, "C2", "MHSubLhd: decisions with a bound"),
        (sizes[1:], tested, "C0", "AusterityMH(0.01): no guarantee"),
        (sizes, drawn, "C3", "TunaMH: exact"),
    ):
        axes.loglog(x, y, "--" if colour == "C2" else "-", color=colour, label=name)
    axes.set(xlabel="rows of data", ylabel="rows read for a decision")
    axes.legend(frameon=False)
    return figure


def verdict() -> Figure:
    """What `compare` sees: marginal posteriors of two steps beside the exact chain."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 3))
    y = rng.poisson(np.exp(0.5 + x @ [0.3, -0.2, 0.1]))
    with pm.Model() as model:
        intercept, beta = pm.Normal("intercept", 0, 1), pm.Normal("beta", 0, 1, shape=3)
        pm.Poisson("y", pm.math.exp(intercept + x @ beta), observed=y)
        steps = {"TunaMH": pma.TunaMH(), "coarse": pma.AusterityMH(epsilon=0.2)}
    found = pma.compare(
        model, steps, budget={"draws": 4000}, reference_budget={"draws": 10_000}, tune=1000, chains=2,
        initvals=pma.find_mode(model), random_seed=1,
    )  # fmt: skip
    figure, axes = plt.subplots(1, 2, figsize=(8, 2.6), layout="constrained", sharex=True, sharey=True)
    exact = found.reference.posterior["beta"].values[..., 0].ravel()
    for k, (ax, name) in enumerate(zip(axes, steps, strict=True)):
        row = found.to_dataframe().loc[name]
        draws = found.runs[name].posterior["beta"].values[..., 0].ravel()
        bins = np.linspace(exact.mean() - 6 * exact.std(), exact.mean() + 6 * exact.std(), 61)
        ax.hist(exact, bins, density=True, color="0.85", label="exact chain")
        ax.hist(draws, bins, density=True, histtype="step", color=("C0", "C3")[k], lw=1.6, label=name)
        worst = f"largest sd ratio {row['sd_ratio']:.2f} ({row['sd_ratio_error']:.2f})"
        ax.set_title(f"{name} {row['verdict']}: {worst}", fontsize=9, loc="left")
        ax.set(xlabel="beta[0]", yticks=[])
        ax.legend(frameon=False)
    return figure
