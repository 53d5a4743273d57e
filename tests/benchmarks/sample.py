"""`pma.sample` beside `pm.sample`: `python -m tests.benchmarks.sample [loops] [models]`.

*loops*: draws a second with ``step=TunaMH()``. Pairs in alternation, CPU seconds of one chain in this
process, results included. The draws are compared, too.

*models*: seconds to 1,000 effective draws, as a clock has them, of 20 models: five hierarchies as they are,
the same five with ``step="nuts"``, and ten others; 4 chains with the defaults of either. An effective draw is
the smaller of bulk and tail, of the element of the free variables that has fewest. All seconds count, those
of compilation too, but for what PyTensor and numba keep on disk from an earlier run. Beside these the seconds
of the chains alone, as the result has them.
"""

import argparse
import logging
import time
import warnings

import arviz_stats
import numpy as np
import pymc as pm
from scipy import stats

import pymc_austerity as pma
from tests.benchmarks.logistic import model
from tests.benchmarks.sample_models import HIERARCHIES, OTHERS

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


def loops():
    """The gain of many draws in one call."""
    for name, make in {"logistic, N = 100,000": model, "and its odds": with_deterministic}.items():
        middle, low, high = limits(np.log(paired(make(100_000))))
        print(f"{name}: {middle:.2f} times the draws a second (95 % limits {low:.2f} to {high:.2f})")


def limits(logs):
    """The geometric mean of ratios, and its 95 % limits."""
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    return np.exp(logs.mean() + half * np.array([0.0, -1.0, 1.0]))


def to_a_thousand(sampler, built, seed, **options):
    """Seconds to 1,000 effective draws: of all, and of the chains alone."""
    start = time.perf_counter()
    with built:
        idata = sampler(chains=4, random_seed=seed, progressbar=False, **options)
    seconds = time.perf_counter() - start
    names = [rv.name for rv in built.free_RVs]
    sizes = [
        float(one.min())
        for method in ("bulk", "tail")
        for one in arviz_stats.ess(idata.posterior, var_names=names, method=method).data_vars.values()
    ]
    return 1000.0 / min(sizes) * np.array([seconds, idata.posterior.attrs["sampling_time"]])


def models(pairs, only):
    """A line for each model, and what they have in common."""
    cases = {name: (make, {}) for name, make in (HIERARCHIES | OTHERS).items()}
    cases |= {f"{name}, NUTS": (make, {"step": "nuts"}) for name, make in HIERARCHIES.items()}
    print("| model | pm.sample | pma.sample | ratio (95 % limits) | of the chains alone |")
    print("| --- | ---: | ---: | ---: | ---: |")
    means = {}
    for name, (make, options) in cases.items():
        if only and only not in name:
            continue
        built, rows = make(), []
        for seed in range(pairs):
            theirs = to_a_thousand(pm.sample, built, seed + 10)
            ours = to_a_thousand(pma.sample, built, seed + 10, **options)
            rows.append((theirs, ours))
        both = np.array(rows)  # (pair, sampler, seconds)
        logs = np.log(both[:, 0] / both[:, 1])
        middle, low, high = limits(logs[:, 0])
        theirs, ours = np.exp(np.log(both[:, :, 0]).mean(axis=0))
        means[name] = middle
        alone = np.exp(logs[:, 1].mean())
        ratio = f"{middle:.3g} ({low:.3g} to {high:.3g})"
        print(f"| {name} | {theirs:.3g} | {ours:.3g} | {ratio} | {alone:.3g} |", flush=True)
    every = np.array(list(means.values()))
    nuts = [value for name, value in means.items() if name.endswith("NUTS")]
    print(f"\nGeometric mean {np.exp(np.log(every).mean()):.3g}, least {every.min():.3g}")
    if nuts:
        print(f"Hierarchies with NUTS: median {np.median(nuts):.3g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["loops"], choices=["loops", "models"])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    if "loops" in asked.parts:
        loops()
    if "models" in asked.parts:
        models(asked.pairs, asked.only)
