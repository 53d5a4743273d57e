"""Patterson & Teh's step: its formula, PyMC's contract, and the bias that it is there to show."""

import doctest
import math

import numpy as np
import pymc as pm
import pytest
import sgrld
from scipy import stats
from sgrld import SGRLD, sgrld_transition, sgrld_transitions, transitions

from pymc_austerity import SCIR, SubsamplingWarning
from pymc_austerity.testing.steps import check_interface, check_points, check_state
from tests.statistical.test_scir import compare_with_theory, effective_size, poisson, sampled


def test_formula():
    rng, same = np.random.default_rng(1), np.random.default_rng(1)
    theta, a, h = 0.3, 2.0, 0.05
    for _ in range(20):
        expected = abs(theta + h * (a - theta) + math.sqrt(2 * h * theta) * same.standard_normal())
        theta = sgrld_transition(rng, theta, a - theta, h)
        assert theta == pytest.approx(expected, rel=1e-14)


def test_interpreted_and_compiled_draws_are_the_same():
    theta, drift = np.random.default_rng(2).gamma(1.0, size=(2, 100))
    rngs = [np.random.default_rng(3) for _ in range(2)]
    interpreted = sgrld_transitions(rngs[0], theta, drift - theta, 0.1)
    # Compiled code may round a product and a sum at once.
    np.testing.assert_allclose(transitions(rngs[1], theta, drift - theta, 0.1), interpreted, rtol=1e-12)


def stationary(a, h, n=4000):
    rng = np.random.default_rng(4)
    theta = rng.standard_gamma(a, n)
    for _ in range(int(8 / h)):
        theta = transitions(rng, theta, a - theta, h)
    return theta


def test_large_shapes_are_drawn_well():
    assert stats.kstest(stationary(50.0, 0.01), stats.gamma(50.0).cdf).statistic < 0.04


def test_small_ones_are_not():
    """Half of a Gamma(0.1) lies below 6e-4; of the chain next to nothing."""
    theta = stationary(0.1, 0.05)
    assert np.mean(theta < 6e-4) < 0.2
    assert stats.kstest(theta, stats.gamma(0.1).cdf).statistic > 0.3


# The step ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    """A simplex, a probability and a rate; for the rate minibatches read all rows."""
    rng = np.random.default_rng(3)
    x = rng.gamma(2.0, 1.0, 1500)
    with pm.Model() as model:
        pm.Categorical("z", pm.Dirichlet("w", np.full(4, 0.5)), observed=rng.choice(4, 1500))
        pm.Bernoulli("b", pm.Beta("p", 1.0, 1.0), observed=x > 2)
        pm.Normal("y", pm.Normal("mu"), tau=pm.Gamma("tau", 2.0, 1.0), observed=x)
    return model


@pytest.mark.filterwarnings("ignore:Minibatches of:pymc_austerity.SubsamplingWarning")
@pytest.mark.parametrize("check", [check_interface, check_points, check_state])
def test_contract(model, check):
    options = {"batch_size": 40, "control_variate": "anchor", "refresh": 7, "step_size": 0.01}
    with pytest.warns(SubsamplingWarning, match="rate of 'tau' depends"):
        step = SGRLD(["w", "p", "tau"], rng=1, model=model, **options)
    assert repr(step).startswith("SGRLD(w, p, tau)")
    check(step, model.initial_point())


def test_totals_are_drawn_to_the_sum_of_alpha():
    """On a simplex the data move only the shares."""
    with pm.Model() as model:
        pm.Categorical("z", pm.Dirichlet("w", np.full(4, 5.0)), observed=np.arange(2000) % 4)
        step = SGRLD(step_size=1e-3, steps_per_draw=20)
    step.setup_chain(np.random.default_rng(1), 0, 100)
    point, totals = model.initial_point(), []
    for _ in range(100):
        point, _ = step.step(point)
        totals.append(np.exp(step.log_theta[0]).sum())
    assert 5.0 < np.mean(totals) < 40.0  # 20; with the data it would rise to 2020


def test_sgrld_is_right_where_it_can_be():
    """A gamma variable far from zero and small steps; a component near zero it cannot reach."""
    model, laws = poisson(300, np.random.default_rng(2))
    with model:
        step = SGRLD([model["x"]], step_size=0.05, steps_per_draw=20)
    x, _ = sampled(model, step, 1000)
    errors, ratios = compare_with_theory(x, laws, 1.0, effective_size(1000, 1.0))
    assert np.all(np.abs(errors) < 4.0)
    assert np.all(np.abs(ratios - 1.0) < 0.12)
    with pm.Model() as model:
        pm.Gamma("x", 0.1, 1.0)
        sgrld, scir = (kind([model["x"]], step_size=0.1) for kind in (SGRLD, SCIR))
    low = [np.mean(sampled(model, step, 4000)[0] < 1e-4) for step in (sgrld, scir)]
    assert low[1] > 0.25  # exactly: 0.42
    assert low[0] < 0.05


def test_the_example_in_the_docstring():
    assert doctest.testmod(sgrld) == (0, 7)
