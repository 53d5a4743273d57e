"""Models and steps that the tests share; each engine is compiled once."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH
from tests.interpreted import interpreted as interpreted

N = 2000
MODE = {"a": 1.0, "b": 2.0, "sigma": 1.0}


@pytest.fixture(scope="session")
def line():
    """y = a + b x + sigma * noise, with labelled rows."""
    rng = np.random.default_rng(101)
    x = rng.normal(size=N)
    with pm.Model(coords={"row": np.arange(N)}) as model:
        a = pm.Normal("a", 0, 10)
        b = pm.Normal("b", 0, 10)
        sigma = pm.HalfNormal("sigma", 10)
        y = 1.0 + 2.0 * x + rng.normal(size=N)
        pm.Normal("y", a + b * x, sigma, observed=y, dims="row")
    return model


@pytest.fixture(scope="session")
def step(line):
    """A step for all variables; `pm.sample` starts each chain afresh."""
    return AusterityMH(model=line)


@pytest.fixture(scope="session")
def draw():
    """Sample quietly, without convergence checks; the draws are few."""

    def sample(model, step, **kwargs):
        options = {
            "draws": 20,
            "tune": 20,
            "chains": 2,
            "cores": 1,
            "random_seed": 11,
            "progressbar": False,
            "quiet": True,
            "compute_convergence_checks": False,
        }
        with model:
            return pm.sample(step=step, **{**options, **kwargs})

    return sample


@pytest.fixture(scope="session")
def same():
    """Are two results of `draw` equal, bit by bit, in all draws and sample statistics?"""

    def equal(one, two, groups=("posterior", "sample_stats")):
        return all(one[g].to_dataset().equals(two[g].to_dataset()) for g in groups)

    return equal
