"""Chains on a Dask cluster: the draws of `pm.sample`, and what it costs to have them elsewhere.

A logistic regression is sampled by `TunaMH` in this process, and on a cluster of two processes of this
machine. What to expect: the same mode, equal draws, and an overhead of a few seconds, in which workers import
PyMC and build their tables. One worker is killed while its chain runs; the chain begins again, and makes the
same draws.

`seconds` are of the wall clock; `MB sent` is what each worker gets.

Run `python examples/cluster.py` (20,000 rows), or with `--full` (1,000,000). `--address tcp://host:8786`
takes a cluster that runs already.
"""

import argparse
import os
import signal
import threading
import time

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
from distributed import Client
from scipy.special import expit

from pymc_austerity import TunaMH, sample_distributed

SEED = 2029
FAST = {"n": 20_000, "draws": 2000}
FULL = {"n": 1_000_000, "draws": 20_000}


def model_of(n):
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(n, 5))
    y = rng.random(n) < expit(X @ np.linspace(-0.5, 0.5, 5))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=5)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y.astype(np.int8))
    return model


def kill_one(client):
    """As the system does where memory is short."""
    while not any(client.processing().values()):
        time.sleep(0.01)
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


def timed(sampler, **options):
    started = time.perf_counter()
    idata = sampler(chains=4, tune=200, random_seed=SEED, progressbar=False, **options)
    return idata, time.perf_counter() - started


def row(where, seconds, *, equal=True, sent=0.0):
    return {"where": where, "seconds": seconds, "equal": equal, "MB sent": sent}


def main(n=FAST["n"], draws=FAST["draws"], address=None):
    with model_of(n) as model:
        began = time.perf_counter()
        step = TunaMH()
        rows = [row("set-up, this process", time.perf_counter() - began)]
        own, seconds = timed(pm.sample, draws=draws, step=step, cores=1)
        rows.append(row("this process", seconds))
        sent = len(cloudpickle.dumps(step)) / 1e6
        with Client(address) if address else Client(n_workers=2, threads_per_worker=1) as client:
            for where in ("set-up, cluster", "set-up, again"):
                began = time.perf_counter()
                there = TunaMH(client=client)
                seconds = time.perf_counter() - began
                equal = there.prediction == step.prediction  # which follows from the mode
                rows.append(row(where, seconds, equal=equal, sent=len(cloudpickle.dumps(model)) / 1e6))
            for where in ("cluster", "again", *(() if address else ("a worker dies",))):
                if where == "a worker dies":
                    threading.Thread(target=kill_one, args=[client]).start()
                found, seconds = timed(sample_distributed, draws=draws, step=step, client=client)
                equal = bool(found.posterior.equals(own.posterior))
                rows.append(row(where, seconds, equal=equal, sent=sent))
    table = pd.DataFrame(rows).set_index("where")
    print(table.to_string(float_format="{:.2f}".format))
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--address")
    given = parser.parse_args()
    main(**(FULL if given.full else FAST), address=given.address)
