"""What a set-up of `TunaMH` costs, beside a fused Hessian pass written by hand; in CPU seconds of one thread.

`python -m tests.benchmarks.set_up --out FILE` writes JSON: seconds for each size, warm; with an empty cache;
for a second model of another likelihood after that; and for the same model with other data.
"""

import argparse
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numba
import numpy as np
import pymc as pm

import pymc_austerity
from tests.benchmarks.everyone.run import ONE_THREAD, ROOT
from tests.benchmarks.everyone.worker import machine, versions

LIKELIHOODS = ("logistic", "poisson", "negative binomial")


def model(likelihood, n, dim, seed=1):
    rng = np.random.default_rng(seed)
    x, beta = rng.normal(size=(n, dim - 1)), 0.3 * rng.normal(size=dim)
    eta = beta[0] + x @ beta[1:]
    with pm.Model() as built:
        mean = pm.Normal("level", 0, 5) + pm.math.dot(x, pm.Normal("slopes", 0, 5, shape=dim - 1))
        if likelihood == "logistic":
            pm.Bernoulli("y", logit_p=mean, observed=rng.random(n) < 1 / (1 + np.exp(-eta)))
        elif likelihood == "poisson":
            pm.Poisson("y", pm.math.exp(mean), observed=rng.poisson(np.exp(eta)))
        else:
            counts = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(eta)))
            pm.NegativeBinomial("y", mu=pm.math.exp(mean), alpha=pm.Gamma("alpha", 2, 1), observed=counts)
    return built


@numba.njit
def fused(x, y, q):
    """Value, gradient and Hessian of a logistic log likelihood in one pass."""
    n, d = x.shape
    value, gradient, hessian = 0.0, np.zeros(d), np.zeros((d, d))
    for i in range(n):
        eta = 0.0
        for j in range(d):
            eta += x[i, j] * q[j]
        e = math.exp(-abs(eta))
        s = 1.0 / (1.0 + e) if eta >= 0 else e / (1.0 + e)
        value += y[i] * eta - max(eta, 0.0) - math.log1p(e)
        for j in range(d):
            gradient[j] += (y[i] - s) * x[i, j]
            a = s * (1.0 - s) * x[i, j]
            for k in range(j + 1):
                hessian[j, k] -= a * x[i, k]
    return value, gradient, hessian


def seconds(function):
    start = time.process_time()
    function()
    return time.process_time() - start


def pass_by_hand(n, dim):
    rng = np.random.default_rng(2)
    x, y, q = rng.normal(size=(n, dim)), (rng.random(n) < 0.5) * 1.0, np.full(dim, 0.1)
    fused(x[:10], y[:10], q)
    return min(seconds(lambda: fused(x, y, q)) for _ in range(5))


def built(likelihood, n, dim, seed=1):
    """CPU seconds of the step, without those of the model."""
    own = model(likelihood, n, dim, seed)
    return seconds(lambda: pymc_austerity.TunaMH(model=own))


def warm(likelihood, n, dim, repeats):
    """Each in turn with the pass by hand, so that a busy machine slows both."""
    built(likelihood, n, dim, seed=0)
    pairs = [(built(likelihood, n, dim, seed), pass_by_hand(n, dim)) for seed in range(1, repeats + 1)]
    return {
        "set_up": [a for a, _ in pairs],
        "pass_by_hand": [b for _, b in pairs],
        "ratio": float(np.median([a / b for a, b in pairs])),
    }


def peak_memory(likelihood, n, dim):
    """Bytes a row beside the design, at the worst moment of a set-up and after it."""
    own = model(likelihood, n, dim)
    tracemalloc.start()
    step = pymc_austerity.TunaMH(model=own)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not step.reads_all
    return {"peak": peak / n, "after": after / n}


def elsewhere(folder, *args):
    """The same in a process of its own, whose compiled code is kept in a folder."""
    environment = os.environ | ONE_THREAD
    environment |= {
        "NUMBA_CACHE_DIR": f"{folder}/numba",
        "PYTENSOR_FLAGS": f"base_compiledir={folder}/pytensor",
    }
    code = f"from tests.benchmarks import set_up; print(set_up.built(*{args!r}))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[-1])


def cold():
    with tempfile.TemporaryDirectory() as folder:
        return {
            "logistic, empty cache": elsewhere(folder, "logistic", 100_000, 10),
            "poisson after it": elsewhere(folder, "poisson", 50_000, 6),
            "logistic with other data": elsewhere(folder, "logistic", 100_000, 10, 2),
        }


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.set_up", description=__doc__)
    parser.add_argument("--n", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    found = {"machine": machine(), "versions": versions(), "n": options.n}
    for likelihood, dim in (("logistic", 10), ("logistic", 50), ("poisson", 10), ("negative binomial", 10)):
        name = f"{likelihood}, D = {dim}"
        found[name] = warm(likelihood, options.n, dim, options.repeats)
        print(name, found[name], flush=True)
    found["memory"] = peak_memory("logistic", options.n, 10)
    found["cold"] = cold()
    print(found["memory"], found["cold"])
    options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
