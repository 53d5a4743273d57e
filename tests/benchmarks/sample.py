"""Draws a second of `pma.sample` beside `pm.sample(step=...)`: `python -m tests.benchmarks.sample`.

Pairs in alternation, CPU seconds of one chain in this process, results included. The draws are compared, too.
"""

import logging
import time

import numpy as np
import pymc as pm

import pymc_austerity as pma
from tests.benchmarks.logistic import model

PAIRS, DRAWS = 15, 20_000
QUIET = {"tune": 50, "chains": 1, "cores": 1, "progressbar": False, "compute_convergence_checks": False}


def seconds(sampler, step, built, seed):
    """CPU seconds, and the draws."""
    start = time.process_time()
    idata = sampler(DRAWS, step=step, model=built, random_seed=seed, quiet=True, **QUIET)
    return time.process_time() - start, idata.posterior["beta"].values


def paired(built):
    """Ratios of draws a second, one for each pair."""
    step, ratios = pma.TunaMH(model=built), []
    for seed in range(-1, PAIRS):  # the first warms up
        theirs, expected = seconds(pm.sample, step, built, seed + 1)
        ours, draws = seconds(pma.sample, step, built, seed + 1)
        assert np.array_equal(draws, expected)
        if seed >= 0:
            ratios.append(theirs / ours)
    return np.array(ratios)


def with_deterministic(n):
    """Values that PyMC computes draw by draw."""
    built = model(n)
    with built:
        pm.Deterministic("odds", pm.math.exp(built["beta"]))
    return built


if __name__ == "__main__":
    logging.disable(logging.INFO)
    for name, make in {"logistic, N = 100,000": model, "and its odds": with_deterministic}.items():
        logs = np.log(paired(make(100_000)))
        half = 2.14 * logs.std(ddof=1) / np.sqrt(PAIRS)
        low, middle, high = np.exp(logs.mean() + half * np.array([-1.0, 0.0, 1.0]))
        print(f"{name}: {middle:.2f} times the draws a second (95 % limits {low:.2f} to {high:.2f})")
