"""What NUTS and Slice cost for a hyperparameter above the data, and when they see only its own terms."""

import time

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import restricted_nuts, restricted_slice

# numba does not keep code with the data in it.
pytestmark = pytest.mark.filterwarnings("ignore:Cannot cache compiled function")
GROUPS = 50
# PyTensor adds up normal log densities 100 times faster than Bernoulli ones.
LIKELIHOODS = {
    "normal": lambda effect, y: pm.Normal("y", effect, 1, observed=y),
    "logistic": lambda effect, y: pm.Bernoulli("y", logit_p=effect, observed=y > 0),
}


def model(size, likelihood):
    rng = np.random.default_rng(1)
    group = np.arange(size) % GROUPS
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        effect = pm.Normal("effect", 0, tau, shape=GROUPS)
        LIKELIHOODS[likelihood](effect[group], rng.normal(size=GROUPS)[group] + rng.normal(size=size))
    return model


def microseconds(step, point):
    """Best time of one evaluation, with the gradient if the step has one."""
    step.step(point)  # sets the values of the other variables
    function = step.logp if isinstance(step, pm.Slice) else step._logp_dlogp_func._pytensor_function
    q, times = np.zeros(1), []
    for _ in range(7):
        calls, start = 0, time.perf_counter()
        while time.perf_counter() - start < 0.05:
            function(q)
            calls += 1
        times.append((time.perf_counter() - start) / calls)
    return min(times) * 1e6


def point_of(model):
    return {**model.initial_point(), "effect": np.random.default_rng(2).normal(size=GROUPS)}


# Measured: 20 and 35 times, 2600 and 4500 times.
@pytest.mark.parametrize(("likelihood", "at_least"), [("normal", 10), ("logistic", 500)])
@pytest.mark.parametrize(("restricted", "full"), [(restricted_nuts, pm.NUTS), (restricted_slice, pm.Slice)])
def test_against_the_whole_model(capsys, restricted, full, likelihood, at_least):
    """At 300,000 rows."""
    rows = model(300_000, likelihood)
    point = point_of(rows)
    one, two = (microseconds(make([rows["tau"]], model=rows), point) for make in (restricted, full))
    with capsys.disabled():
        print(f"\n{restricted.__name__}, {likelihood}: {one:.1f} us, pm: {two:.0f} us, {two / one:.0f} times")
    assert two > at_least * one


def test_the_cost_does_not_grow_with_the_data(capsys):
    """From 3,000 to 3,000,000 rows."""
    small, large = (model(size, "normal") for size in (3000, 3_000_000))
    times = [microseconds(restricted_nuts([m["tau"]], model=m), point_of(m)) for m in (small, large)]
    with capsys.disabled():
        print(f"\nrestricted_nuts at 3e3 rows: {times[0]:.1f} us, at 3e6: {times[1]:.1f} us")
    assert times[1] < 2 * times[0]
