"""`temperature` divides the likelihood, and nothing else."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_austerity as pma
from tests.step_methods.chains import plain_chain

TEMPERATURE = 40.0


# Other variables of this model are not updated at all.
pytestmark = [
    pytest.mark.filterwarnings("ignore:temperature applies:pymc_austerity.SubsamplingWarning"),
    pytest.mark.usefixtures("interpreted"),
]


@pytest.fixture(scope="module")
def model():
    """A long likelihood, a short one, a potential, a latent vector that is long, and priors."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=1500)
    y = 0.3 + 0.7 * x + 0.5 * rng.normal(size=1500)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 2, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        latent = pm.Normal("latent", slope[0], 1, shape=1200)
        pm.Normal("y", slope[0] + slope[1] * x, sigma, observed=y)
        pm.Normal("few", slope[1], 1, observed=[0.2, 0.9, 0.5])
        pm.Potential("fence", -((latent - slope[0]) ** 4))
    return model


def chain(step, n, start):
    point, draws, flags = start, [], []
    for _ in range(n):
        point, (stats,) = step.step(point)
        draws.append(np.r_[point["slope"], point["sigma_log__"]])
        flags.append(stats["accepted"])
    return np.array(draws), np.array(flags)


@pytest.mark.slow("an interpreted chain that reads all rows")
def test_an_exact_chain_is_a_plain_chain_on_the_tempered_density(model):
    start = model.initial_point() | {
        "slope": np.array([0.3, 0.7]),
        "sigma_log__": np.array(math.log(0.5)),
        "latent": np.random.default_rng(2).normal(0.3, 0.3, 1200),
    }
    scale = 0.02 * math.sqrt(TEMPERATURE)
    with model:
        step = pma.MetropolisHastings(
            [model["slope"], model["sigma"]],
            proposal=pma.RandomWalk(scale),
            temperature=TEMPERATURE,
            rng=np.random.default_rng(3),
        )
    ours, flags = chain(step, 300, start)
    variables = [v for v in model.value_vars if v.name != "latent"]
    theirs = plain_chain(model, variables, TEMPERATURE, 300, scale, start, seed=3)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert 20 < flags.sum() < 280


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan, "2", True])
def test_bad_temperatures_are_named(model, temperature):
    for step in (pma.AusterityMH, pma.MinibatchBarker, pma.MetropolisHastings):
        with model, pytest.raises(ValueError, match="temperature must be a positive number, got"):
            step([model["slope"]], temperature=temperature)


def test_steps_without_the_temperature_are_named(model):
    with (
        model,
        pytest.warns(pma.SubsamplingWarning, match=r"temperature applies to this step only.*sigma_log__"),
    ):
        pma.MetropolisHastings([model["slope"]], temperature=2.0)
