"""CPU seconds from nothing compiled to a first draw, of one kind of model after the other in the same caches.

    python -m tests.benchmarks.cold

Each kind is set up by `recommend` and draws once, in a process of its own, and then again in another, when
all that it needs is compiled. Seconds are after imports, of the process and of its children. One thread.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pymc as pm

from tests.benchmarks.everyone.run import ONE_THREAD

ROOT = Path(__file__).parents[2]
N = 20_000


def columns():
    """Data, groups and a predictor that all kinds share."""
    rng = np.random.default_rng(1)
    X, group = rng.normal(size=(N, 3)), rng.integers(0, 200, N)
    return rng, X, group, 0.5 + X @ [0.3, -0.2, 0.1] + 0.5 * rng.normal(size=200)[group]


def regression():
    rng, X, _, eta = columns()
    beta = pm.Normal("beta", 0, 1, shape=3)
    mean = pm.math.exp(pm.Normal("intercept", 0, 1) + X @ beta)
    pm.Poisson("y", mean, observed=rng.poisson(np.exp(eta)))


def effects(group):
    tau = pm.HalfNormal("tau", 1)
    return pm.Normal("a", 0, tau, shape=200)[group]


def hierarchy():
    rng, X, group, eta = columns()
    beta = pm.Normal("beta", 0, 1, shape=3)
    logit = pm.Normal("intercept", 0, 1) + X @ beta + effects(group)
    pm.Bernoulli("y", logit_p=logit, observed=rng.random(N) < 1 / (1 + np.exp(-eta)))


def ordered():
    rng, X, _, eta = columns()
    beta = pm.Normal("beta", 0, 1, shape=3)
    cuts = pm.Normal("cuts", 0, 2, shape=3, transform=pm.distributions.transforms.ordered, initval=[-1, 0, 1])
    y = np.digitize(eta + rng.logistic(size=N), [-1.0, 0.5, 2.0])
    pm.OrderedLogistic("y", eta=X @ beta, cutpoints=cuts, observed=y)


def choices():
    rng, *_ = columns()
    Z, weights = rng.normal(size=(N, 3, 4)), np.array([1.0, -0.5, 0.3, 0.2])
    beta = pm.Normal("beta", 0, 1, shape=4)
    chosen = (Z @ weights + rng.gumbel(size=(N, 3))).argmax(axis=1)
    pm.Categorical("y", logit_p=Z @ beta, observed=chosen)


def censored():
    rng, X, _, eta = columns()
    beta, shape = pm.Normal("beta", 0, 1, shape=3), pm.HalfNormal("shape", 2)
    scale = pm.math.exp(pm.Normal("intercept", 0, 1) + X @ beta)
    lifetime = pm.Weibull.dist(shape, scale)
    y = np.minimum(np.exp(eta) * rng.weibull(1.5, N), 2.0)
    pm.Censored("y", lifetime, lower=None, upper=2.0, observed=y)


def slopes():
    rng, X, group, eta = columns()
    tau = pm.HalfNormal("tau", 1, shape=2)
    u = pm.Normal("u", 0, tau, shape=(200, 2))
    mean = pm.Normal("intercept", 0, 1) + u[group, 0] + (pm.Normal("beta", 0, 1) + u[group, 1]) * X[:, 0]
    pm.Normal("y", mean, pm.HalfNormal("sigma", 1), observed=eta + rng.normal(size=N))


def areas():
    rng, X, group, eta = columns()
    one = np.arange(200)
    near = (np.abs(one[:, None] - one) == 1).astype(float)
    tau, share = pm.HalfNormal("tau", 1), pm.Beta("share", 1, 1)
    phi, theta = pm.ICAR("phi", W=near), pm.Normal("theta", 0, 1, shape=200)
    effect = tau * (pm.math.sqrt(1 - share) * theta + pm.math.sqrt(share) * phi)
    beta = pm.Normal("beta", 0, 1, shape=3)
    mean = pm.math.exp(pm.Normal("intercept", 0, 1) + X @ beta + effect[group])
    pm.Poisson("y", mean, observed=rng.poisson(np.exp(eta)))


def mixture():
    rng, X, _, eta = columns()
    beta, share = pm.Normal("beta", 0, 1, shape=3), pm.Beta("share", 1, 1)
    mean = pm.Normal("intercept", 0, 1) + X @ beta
    parts = [pm.Normal.dist(mean, 1.0), pm.Normal.dist(mean, 4.0)]
    y = eta + np.where(rng.random(N) < 0.3, 4.0, 1.0) * rng.normal(size=N)
    pm.Mixture("y", w=pm.math.stack([share, 1 - share]), comp_dists=parts, observed=y)


KINDS = {
    "regression": regression,
    "hierarchy": hierarchy,
    "ordered": ordered,
    "choices": choices,
    "censored": censored,
    "slopes": slopes,
    "areas": areas,
    "mixture": mixture,
}

TIMED = """
import json, resource, sys, time
import pymc as pm, pymc_austerity
from tests.benchmarks.cold import KINDS
with pm.Model() as model:
    KINDS[sys.argv[1]]()
began = time.process_time()
with model:
    step = pymc_austerity.recommend(model, progressbar=False)
    pm.sample(1, tune=0, chains=1, step=step, progressbar=False, compute_convergence_checks=False)
children = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps(time.process_time() - began + children.ru_utime + children.ru_stime))
"""


def seconds(kind, folder):
    """CPU seconds of a new process, with the caches of a folder."""
    kept = os.environ | ONE_THREAD | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": f"{folder}/numba"}
    kept["PYTENSOR_FLAGS"] = f"base_compiledir={folder}/pytensor"
    command = [sys.executable, "-c", TIMED, kind]
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def measured():
    """Seconds of each kind: with the code of those before it, and with its own."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            kind: {"first": seconds(kind, folder), "again": seconds(kind, folder)} for kind in KINDS
        }  # fmt: skip


def main(given=None):
    argparse.ArgumentParser(prog="python -m tests.benchmarks.cold", description=__doc__).parse_args(given)
    print(json.dumps(measured(), indent=1))


if __name__ == "__main__":
    main()
