"""`pm.set_data` between two draws of one chain: the next draw is given the new data, in every step."""

from copy import deepcopy

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import (
    SCIR,
    SGLD,
    AusterityMH,
    MetropolisHastings,
    MinibatchCategoricalGibbs,
    ParticleGibbs,
    RandomWalk,
    SubsamplingWarning,
    TunaMH,
    restricted_nuts,
    restricted_slice,
)

from .conftest import line_data

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.filterwarnings("ignore:(Minibatches|SGLD|The rate):pymc_austerity.SubsamplingWarning"),
]
N, GROUPS = 1200, 40
X, Y = line_data(N)
WALK = RandomWalk(scale=0.02)
REPLACED = pytest.warns(SubsamplingWarning, match="'y' were replaced .* while a chain ran")


def line():
    with pm.Model() as model:
        y = pm.Data("y", Y)
        beta = pm.Normal("beta", 0, 10, shape=2)
        pm.Normal("outcome", beta[0] + beta[1] * X, 1.0, observed=y)
    return model


def groups():
    with pm.Model() as model:
        y = pm.Data("y", Y)
        tau = pm.HalfNormal("tau")
        effect = pm.Normal("effect", 0, tau, shape=GROUPS)
        pm.Normal("outcome", effect[np.arange(N) % GROUPS], 1.0, observed=y)
    return model


def precision():
    with pm.Model() as model:
        y = pm.Data("y", Y)
        mu = pm.Normal("mu")
        pm.Normal("outcome", mu, tau=pm.Gamma("precision", 2.0, 2.0), observed=y)
    return model


def rate():
    """Its shape depends on the data."""
    with pm.Model() as model:
        y, b = pm.Data("y", Y), pm.Normal("b")
        rate = pm.Gamma("rate", 2.0, 2.0)
        pm.Potential("outcome", y**2 * pm.math.log(rate) - rate * pm.math.exp(b + X))
    return model


def mixture():
    with pm.Model() as model:
        y = pm.Data("y", Y[:60])
        z = pm.Categorical("z", np.full(3, 1 / 3), shape=60)
        pm.Normal("outcome", pm.math.stack([-2.0, 0.0, 2.0])[z], 1.0, observed=y)
    return model


def states():
    with pm.Model() as model:
        y = pm.Data("y", Y[:30])
        h = pm.AR("h", rho=[0.9], sigma=0.5, init_dist=pm.Normal.dist(0, 1), shape=30)
        pm.Normal("outcome", h, 1.0, observed=y)
    return model


STEPS = {
    "AusterityMH": (line, lambda model: AusterityMH(model=model, proposal=WALK)),
    "MetropolisHastings": (line, lambda model: MetropolisHastings(model=model, proposal=WALK)),
    "elements": (groups, lambda model: MetropolisHastings(["effect"], model=model, elementwise=True)),
    "TunaMH": (line, lambda model: TunaMH(model=model)),
    "SGLD": (line, lambda model: SGLD(model=model, step_size=3e-4, batch_size=100)),
    "SCIR": (precision, lambda model: SCIR(["precision"], model=model)),
    "anchor": (
        rate,
        lambda model: SCIR(["rate"], model=model, batch_size=100, control_variate="anchor"),
    ),
    "allocations": (mixture, lambda model: MinibatchCategoricalGibbs(["z"], model=model)),
    "states": (states, lambda model: ParticleGibbs(["h"], model=model)),
}
SLOW = pytest.mark.slow("builds steps of every kind several times")


def draw(step, point, n=10):
    """Draws from a point with the same random numbers."""
    step.rng = np.random.default_rng(7)
    drawn = []
    for _ in range(n):
        point, _ = step.step(point)
        drawn.append(point)
    return {name: np.array([one[name] for one in drawn]) for name in point}


def set_y(model, change):
    y = model["y"].get_value()
    with model:
        pm.set_data({"y": change(y)})


# A fresh step tells that its start is far from the mode.
@pytest.mark.filterwarnings("ignore:The chain starts:pymc_austerity.SubsamplingWarning")
@pytest.mark.parametrize("name", [pytest.param(each, marks=() if each == "SCIR" else SLOW) for each in STEPS])
def test_the_next_draw_is_given_the_new_data(name):
    build, make = STEPS[name]
    model = build()
    step, point = make(model), model.initial_point()
    point, _ = step.step(point)
    set_y(model, lambda y: 0.5 * y - 1.0)
    with REPLACED:
        found = draw(step, point)
    expected = draw(make(model), point)
    old = draw(make(build()), point)
    for variable in expected:
        np.testing.assert_array_equal(found[variable], expected[variable])
    assert any(not np.array_equal(expected[variable], old[variable]) for variable in old)


@pytest.mark.parametrize("make", [restricted_nuts, restricted_slice])
def test_steps_of_pymc_have_it_in_their_functions(make):
    model = line()
    step, point = make(["beta"], model=model, blocked=True), model.initial_point()
    point, _ = step.step(point)
    set_y(model, lambda y: 0.5 * y - 1.0)
    np.testing.assert_allclose(draw(step, point, 30)["beta"][-1], [-0.5, 1.0], atol=0.2)


def test_equal_data_are_no_others():
    """They are compared once, and what was built stays."""
    model = precision()
    step, point = SCIR(["precision"], model=model), model.initial_point()
    likelihood = step._chains[0].conjugacy
    set_y(model, np.copy)
    for _ in range(2):
        point, _ = step.step(point)
    assert step._chains[0].conjugacy is likelihood
    assert likelihood.gradient.graph.replaced_data() is None


def test_it_is_told_once_in_a_chain():
    model = precision()
    step, point = SCIR(["precision"], model=model), model.initial_point()
    for number in range(2):
        step.setup_chain(np.random.default_rng(number), 0, 10)
        set_y(model, lambda y: y + 1.0)
        with REPLACED as told:
            step.step(point)
            set_y(model, lambda y: y + 1.0)
            deepcopy(step).step(point)
            step.step(point)
        assert len(told) == 1


def test_a_point_of_other_shapes_is_refused():
    with pm.Model() as model:
        y = pm.Data("y", Y)
        level = pm.Gamma("level", 2.0, 2.0, shape=y.shape[0])
        pm.Poisson("outcome", level, observed=pm.math.floor(pm.math.abs(y)).astype("int64"))
    step, point = SCIR(["level"], model=model), model.initial_point()
    set_y(model, lambda y: y[:-1])
    with pytest.raises(ValueError, match=r"'y' were replaced .*'level_log__' has the shape \(1199,\)"):
        step.step(point)


def test_data_of_a_prior():
    """They are in no likelihood, whose data are compared; with none of these the draws are of the prior."""
    with pm.Model() as model:
        alpha = pm.Data("alpha", np.array([1.0, 1.0]))
        pm.Dirichlet("w", alpha)
    step, point = SCIR(["w"], model=model, step_size=50.0, rng=1), model.initial_point()
    point, _ = step.step(point)
    with model:
        pm.set_data({"alpha": np.array([2000.0, 8000.0])})
    point, _ = step.step(point)
    assert 1 / (1 + np.exp(-2 * point["w_simplex__"][0])) == pytest.approx(0.2, abs=0.03)
