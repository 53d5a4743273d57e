"""CPU seconds of set-ups: with more rows beside a new step, and with equal rows joined beside plain ones.

``python -m tests.benchmarks.more_rows``; each pair alternates, and medians are printed.
"""

import time

import numpy as np
import pymc as pm
from scipy.special import expit

from pymc_austerity import TunaMH

N, MORE, KINDS, PAIRS = 1_000_000, 1_100_000, 3_000, 5


def regression(x, y):
    with pm.Model() as model:
        data, outcome = pm.Data("x", x), pm.Data("y", y)
        eta = pm.Normal("level") + data @ pm.Normal("slopes", shape=x.shape[1])
        pm.Bernoulli("clicked", logit_p=eta, observed=outcome)
    return model


def seconds(first, second):
    """Median CPU seconds of two calls in alternation, after one of each."""
    found = []
    for k in range(PAIRS + 1):
        for call in (first, second):
            began = time.process_time()
            call()
            if k:
                found.append(time.process_time() - began)
    return np.median(np.reshape(found, (-1, 2)), axis=0)


def main():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(MORE, 10))
    y = rng.binomial(1, expit(0.3 + x @ np.linspace(-0.5, 0.5, 10)))
    model = regression(x[:N], y[:N])
    step = TunaMH(model=model, progressbar=False)
    with model:
        pm.set_data({"x": x, "y": y})
    more, anew = seconds(
        lambda: step.with_more_rows(progressbar=False), lambda: TunaMH(model=model, progressbar=False)
    )
    print(f"{N:,} to {MORE:,} rows: with_more_rows {more:.2f} s, a new step {anew:.2f} s")
    model = regression(rng.normal(size=(KINDS, 2))[rng.integers(KINDS, size=N)], y[:N])
    joined, plain = seconds(
        *(
            lambda compress=compress: TunaMH(model=model, compress=compress, progressbar=False)
            for compress in (True, False)
        )
    )
    print(f"{N:,} rows of {2 * KINDS:,} kinds: joined {joined:.2f} s, plain {plain:.2f} s")


if __name__ == "__main__":
    main()
