"""A population of several vectors is subsampled as if it were one."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH, RandomWalk
from tests.statistical.errors import LIMIT, error_of_mean, sd_with_error

HALF = 30_000


def chain(parts, seed):
    """Draws of a common mean, and shares of the data read."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        for k, part in enumerate(parts):
            pm.Normal(f"y{k}", mu, 1, observed=part)
    everything = np.concatenate(parts)
    sd = len(everything) ** -0.5
    step = AusterityMH(
        model=model, epsilon=0.05, proposal=RandomWalk(2 * sd), rng=np.random.default_rng(seed)
    )
    point = {"mu": np.array(everything.mean())}
    draws, share = [], []
    for _ in range(6000):
        point, (stats,) = step.step(point)
        draws.append(float(point["mu"]))
        share.append(stats["fraction_used"])
    return np.array(draws) / sd, np.array(share)


@pytest.mark.slow("compiles two engines, and compares long chains")
def test_two_vectors_are_read_like_their_concatenation():
    rng = np.random.default_rng(1)
    data = rng.normal(1.0, 1.0, HALF), rng.normal(-1.0, 1.0, HALF)
    (one_mu, one), (two_mu, two) = chain([np.concatenate(data)], 2), chain(data, 3)
    error = np.hypot(error_of_mean(one), error_of_mean(two))
    assert abs(one.mean() - two.mean()) < LIMIT * error
    (one_sd, e1), (two_sd, e2) = sd_with_error(one_mu), sd_with_error(two_mu)
    assert abs(one_sd - two_sd) < LIMIT * np.hypot(e1, e2)
