"""One small model, and one comparison of steps on it that many tests look at."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH, MetropolisHastings
from pymc_austerity.exceptions import warn
from pymc_austerity.report import compare

N = 2000


class Failing(AusterityMH):
    """Raises an error in its first draw."""

    def step(self, point):
        raise RuntimeError("planted <failure> & more")


class Warning(MetropolisHastings):
    """Warns in every draw."""

    def step(self, point):
        warn("planted warning | with a bar")
        return super().step(point)


@pytest.fixture(scope="session")
def normal_model():
    """2,000 normal numbers with unknown mean, and a mean of another 2,000."""
    rng = np.random.default_rng(7)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 10, shape=2)
        pm.Normal("y", beta[np.arange(N) % 2], 1, observed=rng.normal(size=N))
    return model


@pytest.fixture(scope="session")
def steps(normal_model):
    """A right step, one with a wrong likelihood, an approximate one, one that fails."""
    return {
        "right": Warning(model=normal_model),
        "hot": MetropolisHastings(temperature=0.8**2, model=normal_model),
        "sloppy <b>": AusterityMH(epsilon=0.3, batch_size=100, model=normal_model),
        "failing": Failing(model=normal_model),
    }


@pytest.fixture(scope="session")
def comparison(normal_model, steps):
    return compare(
        normal_model,
        steps,
        budget={"draws": 2000},
        tune=500,
        chains=2,
        tolerance=0.3,
        n_pairs=3,
        random_seed=5,
    )


@pytest.fixture(scope="session")
def page(comparison):
    return comparison.to_html()
