"""What a transition of `TunaMH` costs in many dimensions, if rows are tried before they are evaluated or not.

    python -m tests.benchmarks.many_dimensions --dims 100 200

Logistic regression on a dense design. CPU seconds of one thread; the two run in turn, so that a busy machine
slows both. Prints JSON.
"""

import argparse
import json
import logging
import time
from unittest import mock

import numpy as np

from pymc_austerity import TunaMH
from pymc_austerity.step_methods.metropolis import tuna_plan
from tests.benchmarks.set_up import model

_CHUNKS = 10


def started(own, *, tried):
    """A step with its first point, and the effect of compilation behind it."""
    most = tuna_plan._MANY_DIMENSIONS if tried else np.inf
    with mock.patch.object(tuna_plan, "_MANY_DIMENSIONS", most):
        began = time.process_time()
        step = TunaMH(model=own, rng=np.random.default_rng(1), switch_above=np.inf)
        set_up = time.process_time() - began
    assert ("rows that are drawn" in str(step.certificate)) == tried
    step.setup_chain(np.random.default_rng(2), 0, 1000)
    point, _ = step.step(own.initial_point())
    return {"step": step, "point": point, "set_up": set_up, "seconds": 0.0, "rows": [], "accepted": []}


def run(state, transitions):
    began = time.process_time()
    for _ in range(transitions):
        state["point"], (found,) = state["step"].step(state["point"])
        state["rows"].append(found["n_used"])
        state["accepted"].append(found["accepted"])
    state["seconds"] += time.process_time() - began


def compared(n, dim, transitions):
    own = model("logistic", n, dim)
    both = {"tried": started(own, tried=True), "all evaluated": started(own, tried=False)}
    for _ in range(_CHUNKS):
        for state in both.values():
            run(state, transitions // _CHUNKS)
    found = {
        name: {
            "set_up": state["set_up"],
            "ms": 1e3 * state["seconds"] / len(state["rows"]),
            "rows": float(np.mean(state["rows"])),
            "accepted": float(np.mean(state["accepted"])),
        }
        for name, state in both.items()
    }
    return {"n": n, "dim": dim, **found, "ratio": found["all evaluated"]["ms"] / found["tried"]["ms"]}


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.many_dimensions", description=__doc__)
    parser.add_argument("--n", type=lambda text: int(float(text)), default=100_000)
    parser.add_argument("--dims", type=int, nargs="+", default=[100, 200])
    parser.add_argument("--transitions", type=int, default=500)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print(json.dumps([compared(options.n, dim, options.transitions) for dim in options.dims], indent=1))


if __name__ == "__main__":
    main()
