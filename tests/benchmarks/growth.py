"""Effects of many groups: does the cost of an effective draw grow with the number of rows?

    python -m tests.benchmarks.growth --sizes 1e5 1e6 1e7 --groups 1000

CPU seconds of one thread for an effective draw, in runs of each size; the slope of its logarithm against that
of N, with the upper end of its confidence interval. What comes before the first draw is left out, by a short
run before each: the set-up, and PyMC's own evaluation of the model where a chain starts. The sizes take
turns, so that a busy machine slows all of them. Prints JSON.
"""

import argparse
import json
import time

import numpy as np
import pymc as pm
from scipy import stats

from pymc_austerity import TunaMH
from tests.benchmarks.hierarchies import _OPTIONS, effective, worst_of
from tests.benchmarks.hierarchy_models import LIKELIHOODS, Hierarchy, model_of, simulated

# Draws of a short run.
_FEW = 10


def started(of: Hierarchy) -> dict:
    """A step that has drawn already, and the effect that mixes worst."""
    model = model_of(of, simulated(of))
    worst = worst_of(model, 1000)
    began = time.process_time()
    with model:
        step = TunaMH()
    return {"model": model, "worst": worst, "step": step, "set_up": time.process_time() - began, "runs": []}


def run(state: dict, draws: int, seed: int) -> None:
    """Draw, and keep the seconds for an effective draw."""
    _, start = drawn(state, _FEW, seed)
    found, seconds = drawn(state, draws, seed)
    size = min(effective(found, state["worst"]).values())
    state["runs"].append((seconds - start) * draws / (draws - _FEW) / size)


def drawn(state: dict, draws: int, seed: int) -> tuple:
    """Draws, and the CPU seconds that they took."""
    began = time.process_time()
    with state["model"]:
        found = pm.sample(draws, step=state["step"], random_seed=seed, **_OPTIONS)
    return found.posterior, time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--groups", type=float, default=1000)
    parser.add_argument("--likelihood", choices=LIKELIHOODS, default="logistic")
    parser.add_argument("--draws", type=int, default=8000)
    parser.add_argument("--runs", type=int, default=4)
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes]
    states = {n: started(Hierarchy(given.likelihood, "intercepts", n, int(given.groups), 0)) for n in sizes}
    for seed in range(given.runs):
        for state in states.values():
            run(state, given.draws, seed + 10)
    x = np.log([n for n, state in states.items() for _ in state["runs"]])
    y = np.log([one for state in states.values() for one in state["runs"]])
    line = stats.linregress(x, y)
    upper = line.slope + stats.t(len(x) - 2).ppf(0.95) * line.stderr
    found = {
        n: {"set_up": state["set_up"], "ms for an effective draw": [1e3 * one for one in state["runs"]]}
        for n, state in states.items()
    }
    print(json.dumps({"sizes": found, "slope": line.slope, "upper end, 95 %": upper}, indent=1))


if __name__ == "__main__":
    main()
