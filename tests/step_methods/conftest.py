"""Models and steps that the tests share.

A test that moves a step takes a copy (`step`), so that the shared one stays as it was built. Tests of
messages, states, types and pickles take `interpreted`: what they build is not compiled.
"""

from copy import deepcopy

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH
from pymc_austerity.model.compile import backend
from pymc_austerity.step_methods.metropolis import field_pilot
from tests.sampling import sampled

N = 2000
MODE = {"a": 1.0, "b": 2.0, "sigma": 1.0}


def line_data(n):
    rng = np.random.default_rng(101)
    x = rng.normal(size=n)
    return x, 1.0 + 2.0 * x + rng.normal(size=n)


def line_model(n=N):
    """Two scalars and one transformed scalar: y = a + b x + sigma * noise, with labelled rows."""
    x, y = line_data(n)
    with pm.Model(coords={"row": range(n)}) as model:
        a = pm.Normal("a", 0, 10)
        b = pm.Normal("b", 0, 10)
        sigma = pm.HalfNormal("sigma", 10)
        pm.Normal("y", a + b * x, sigma, observed=y, dims="row")
    return model


@pytest.fixture(scope="session")
def line():
    return line_model()


def fresh(step, tune=0, seed=1):
    """A copy of a step at the start of a chain."""
    copy = deepcopy(step)
    copy.setup_chain(np.random.default_rng(seed), tune, 0)
    return copy


@pytest.fixture(scope="session")
def built(line):
    """A step for all variables of `line`, interpreted; not to be moved."""
    with backend.interpreted():
        return AusterityMH(model=line, rng=1)


@pytest.fixture
def step(built):
    """A copy of a step for all variables of `line`, as if it were fresh."""
    copy = fresh(built)
    copy.tune = True
    return copy


def near_mode(line):
    """A point near the mode of `line`."""
    return {
        **line.initial_point(),
        "a": np.array(1.02),
        "b": np.array(1.98),
        "sigma_log__": np.array(0.03),
    }


@pytest.fixture
def near(line):
    return near_mode(line)


@pytest.fixture
def short_pilots(monkeypatch):
    """Few sweeps of a field's pilot, where its findings do not matter: interpreted ones take long."""
    for name, n in {"SETTLE": 3, "COUNTED": 6}.items():
        monkeypatch.setattr(field_pilot, f"_{name}", n)
        monkeypatch.setattr(field_pilot, f"_TRIAL_{name}", n)


@pytest.fixture(scope="session")
def draw():
    """Sample quietly, without convergence checks; the draws are few."""

    def sample(model, step, *, draws=20, **kwargs):
        with model:
            return sampled(draws, step, **{"tune": 20, "chains": 2, "random_seed": 11, **kwargs})

    return sample


@pytest.fixture(scope="session")
def same():
    """Are two results of `draw` equal, bit by bit, in all draws and sample statistics?"""

    def equal(one, two):
        groups = ("posterior", "sample_stats")
        return all(one[g].to_dataset().equals(two[g].to_dataset()) for g in groups)

    return equal
