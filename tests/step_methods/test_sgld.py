"""SGLD: PyMC's contract, workers, replaced data, options, and errors that say what to do."""

import logging
import math
import re
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_austerity as pma
from pymc_austerity.step_methods import DecreasingStepSize
from pymc_austerity.testing.steps import fresh, move
from tests.sampling import sampled

pytestmark = [
    pytest.mark.filterwarnings("ignore:SGLD accepts every move:pymc_austerity.SubsamplingWarning"),
    pytest.mark.usefixtures("interpreted"),
]
N = 2000


def build_model(n=N):
    rng = np.random.default_rng(1)
    with pm.Model(coords={"term": ["level", "slope"]}) as model:
        x = pm.Data("x", rng.normal(size=n))
        y = pm.Data("y", rng.poisson(np.exp(1 + 0.3 * rng.normal(size=n))))
        beta = pm.Normal("beta", dims="term")
        sigma = pm.HalfNormal("sigma")
        pm.Poisson("visits", pt.exp(beta[0] + beta[1] * x), observed=y)
        pm.Normal("z", beta[0], sigma, observed=rng.normal(1.0, 0.5, n))
    return model


@pytest.fixture(scope="module")
def model():
    return build_model()


@pytest.fixture(scope="module")
def step(model):
    """For some variables, by name; the others are moved by NUTS."""
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore", pma.SubsamplingWarning)
        return pma.SGLD(["beta"], step_size=DecreasingStepSize(2e-5, 10, 0.5), steps_per_draw=3)


@pytest.mark.compiled
@pytest.mark.slow("compiles NUTS, too")
def test_with_nuts_beside_it(model, step):
    with model:
        nuts = pma.restricted_nuts(["sigma"])
    one = sampled(15, [step, nuts], tune=15, chains=2, random_seed=3, model=model)
    assert one.posterior["beta"].dims == ("chain", "draw", "term")
    sizes = one.sample_stats["step_size"].to_numpy()
    assert sizes.shape == (2, 15, 2)
    assert np.any(np.all(np.diff(sizes[0], axis=0) < 0, axis=0))  # of SGLD, without an end at that of tuning


@pytest.mark.compiled
@pytest.mark.slow("builds and compiles several steps")
def test_statistics(step, model):
    point, (stats,) = fresh(step).step(model.initial_point())
    assert set(stats) == {"step_size", "n_used", "fraction_used", "sd_inflation"}
    assert stats["step_size"] == pytest.approx(2e-5 * 1.2**-0.5)
    assert (stats["n_used"], stats["fraction_used"]) == (100.0, 100 / (2 * N))
    assert 1 < stats["sd_inflation"] < 10
    assert "sigma_log__" in point


def test_interpreted_draws_are_those_of_compiled_ones(step, model):
    with model:
        slow = pma.SGLD(["beta"], step_size=DecreasingStepSize(2e-5, 10, 0.5), steps_per_draw=3)
    one, other = (move(fresh(each), model.initial_point(), 5)[0][-1] for each in (slow, step))
    np.testing.assert_allclose(one["beta"], other["beta"], rtol=1e-9)


def test_it_warns_once_and_says_how_wide(model):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        step = pma.SGLD([model["beta"]], model=model, step_size=2e-5)
        step.setup_chain(np.random.default_rng(1), 0, 3)
        move(step, model.initial_point(), 3)
    (warning,) = told
    assert warning.category is pma.SubsamplingWarning
    assert re.search(r"accepts every move.*up to [\d.]+ times too large", str(warning.message))


def test_without_a_mode_there_is_no_prediction(caplog):
    with pm.Model():
        mu = pm.Normal("mu")
        pm.Potential("p", -pt.sqrt(pt.abs(mu - np.linspace(-1, 1, N))))
        with caplog.at_level(logging.INFO, logger="pymc_austerity"):
            step = pma.SGLD(step_size=1e-5)
        _, (stats,) = step.step({"mu": np.array(0.3)})
    assert math.isnan(stats["sd_inflation"])


def test_other_variables(model):
    with (
        model,
        pytest.raises(ValueError, match="sigma_log__, which it contains|would be moved by another step"),
    ):
        pma.SGLD(["beta"], step_size=1e-5, control_variate=pma.Taylor())
    with pm.Model():
        k = pm.Poisson("k", 3.0)
        W = pma.distributions.UniformStiefel("W", 2)
        pm.Normal("y", k * W[0, 0], 1.0, observed=np.zeros(N))
        with pytest.raises(ValueError, match="Only continuous variables can be updated; discrete: k"):
            pma.SGLD([k], step_size=1e-5)
        with pytest.raises(ValueError, match=r"W has orthonormal columns.*proposal=StiefelWalk"):
            pma.SGLD([W], step_size=1e-5)


def test_a_share_of_the_rows_and_a_few_transitions_of_each_draw(model):
    with model:
        step = pma.SGLD(["beta"], step_size=1e-5, batch_size=0.1, steps_per_draw=2)
    _, (stats,) = step.step(model.initial_point())
    assert stats["n_used"] == 400
    assert step.configuration["batch_size"] == 400


def test_a_state_that_is_not_finite_is_an_error():
    """The curvature grows without bound away from the mode."""
    with pm.Model() as model:
        mu = pm.Normal("mu", shape=2)
        pm.Potential("p", -((mu[0] + mu[1] - np.linspace(-1, 1, N)) ** 4))
        step = pma.SGLD(step_size=1e-4)
    point = {"mu": np.array([50.0, 0.0])}
    with pytest.raises(
        ValueError, match=r"^The state of mu\[[01]\] is no longer finite after a step of size 0.0001"
    ):
        move(step, point, 50)
    assert model


def test_a_start_outside_the_support(model):
    with model:
        step = pma.SGLD(["beta"], step_size=1e-5)
    with pytest.raises(ValueError, match="log density of the term"):
        step.step({**model.initial_point(), "beta": np.array([np.nan, 0.0])})
