"""Paired ratios of times on two versions: children run alternately, A B B A, and a pair is two neighbours.

A child measures CPU seconds, the least of several repeats. What is compiled comes from the disk: a first
child of each version, which does not count, has put it there. Run as a module, this is the child.
"""

import json
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
from scipy.stats import binom

import pymc_austerity as pa
from tests.golden import hierarchies, models
from tests.golden.child import check_origin
from tests.golden.worktrees import Checkout


def least(function: Callable[[], Any], repeats: int, calls: int = 1) -> float:
    """CPU seconds of one call."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(calls):
            function()
        found.append((time.process_time() - start) / calls)
    return min(found)


def draw_of(step: Any, model: pm.Model, calls: int) -> float:
    """CPU seconds of a draw, a call of step()."""
    step.setup_chain(np.random.default_rng(1), 0, 0)
    state = {"point": model.initial_point()}

    def draw() -> None:
        state["point"] = step.step(state["point"])[0]

    return least(draw, 7, calls)


def measure() -> dict[str, float]:
    """CPU seconds of each timing, by name."""
    logistic, shares = models.logistic(), models.shares()
    groups = hierarchies.plain(hierarchies.Size(20_000, 200))
    # Two rows decide: what is left is the call.
    call = pa.AusterityMH(model=logistic, epsilon=0.5, batch_size=2, proposal=pa.RandomWalk(0.1))
    many = pa.TunaMH(model=logistic, switch_above=np.inf, steps_per_draw=100)
    return {
        "call of AusterityMH": draw_of(call, logistic, 2000),
        "transition of TunaMH": draw_of(many, logistic, 50) / 100,
        "sweep over 200 groups": draw_of(pa.TunaMH(model=groups), groups, 200),
        "draw of SCIR": draw_of(pa.SCIR(model=shares, batch_size=100), shares, 500),
        "set-up of TunaMH": least(lambda: pa.TunaMH(model=models.logistic(), switch_above=np.inf), repeats=3),
        "factorise": least(lambda: pa.factorise(models.two_terms()), repeats=3),
        "recommend": least(lambda: pa.recommend(models.poisson()), repeats=3),
    }


def interval(ratios: np.ndarray) -> tuple[float, float, float]:
    """Median, and the order statistics that include the median with probability 0.95 or more."""
    ratios, n = np.sort(ratios), len(ratios)
    rank = max(k for k in range(1, n // 2 + 1) if k == 1 or 2 * binom.cdf(k - 1, n, 0.5) <= 0.05)
    return float(np.median(ratios)), float(ratios[rank - 1]), float(ratios[-rank])


def child(checkout: Checkout) -> dict[str, float]:
    """Timings of one child."""
    with checkout.start("tests.golden.bench") as told:
        output = told.read()
    if not output:
        raise RuntimeError(f"The timings failed on {checkout.version.name}; see above.")
    found: dict[str, float] = json.loads(output)
    return found


def timed(one: Checkout, two: Checkout, pairs: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """CPU seconds of both, by name of the timing, a value for each pair."""
    for checkout in (one, two):
        child(checkout)
    found: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
    for pair in range(pairs):
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            found[which].append(child((one, two)[which]))
        print(f"  pair {pair + 1} of {pairs}", flush=True)
    before, after = ({name: np.array([t[name] for t in side]) for name in side[0]} for side in found)
    return {name: (before[name], after[name]) for name in before}


def told(one: Checkout, two: Checkout, found: dict[str, tuple[np.ndarray, np.ndarray]]) -> str:
    """Times of the first, and ratios of the second to it."""
    names, pairs = f"{two.version.name} / {one.version.name}", len(next(iter(found.values()))[0])
    lines = [f"{'CPU time':<22}{one.version.name:>14}   {names}: median, 95 % interval of {pairs} pairs"]
    for name, (before, after) in found.items():
        middle, low, high = interval(after / before)
        mark = "" if low <= 1.0 <= high else "  *"
        lines.append(
            f"{name:<22}{np.median(before) * 1e6:>11,.1f} us   {middle:.3f}  [{low:.3f}, {high:.3f}]{mark}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    check_origin()
    warnings.simplefilter("ignore", pa.SubsamplingWarning)
    logging.disable(logging.CRITICAL)
    print(json.dumps(measure()))
