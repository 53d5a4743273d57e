"""What holds for every step: a chain goes on from its state, follows `pm.set_data`, and pickles are small."""

from copy import deepcopy
from functools import partial

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods import CompoundStep

import pymc_austerity as pma
from pymc_austerity.testing.steps import require_same_path
from tests.models import as_model

from .conftest import line_data

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    # Whether a chain has settled after so few draws, and what is slow, is not the question here; and a
    # fresh step tells that its start is far from the mode.
    pytest.mark.filterwarnings("ignore:Tuning ended"),
    pytest.mark.filterwarnings(
        "ignore:(Minibatches|SGLD|The rate|range_bound=|The chain starts):pymc_austerity.SubsamplingWarning"
    ),
]
N, GROUPS = 1200, 12
X, Y = line_data(4 * N)
WALK = pma.RandomWalk(scale=0.02)
REPLACED = pytest.warns(pma.SubsamplingWarning, match="'y' were replaced .* while a chain ran")
# Draws before which the state is stored: none, some, and after tuning. That ends before draw number 12, among
# those that are compared after the second state.
STORED, TUNE = (0, 9, 16), 12


@as_model
def line(n=N):
    y = pm.Data("y", Y[:n])
    beta = pm.Normal("beta", 0, 10, shape=2)
    pm.Normal("outcome", beta[0] + beta[1] * X[:n], pm.HalfNormal("sigma", 10, initval=1.0), observed=y)


@as_model
def groups(n=N):
    y = pm.Data("y", Y[:n])
    tau = pm.HalfNormal("tau")
    effect = pm.Normal("effect", 0, tau, shape=GROUPS)
    pm.Normal("outcome", effect[np.arange(n) % GROUPS], 1.0, observed=y)


@as_model
def selection(n=N):
    y = pm.Data("y", Y[:n])
    gamma, beta = pm.Bernoulli("gamma", 0.5, shape=2), pm.Normal("beta", shape=2)
    pm.Normal("outcome", np.c_[X, X**2][:n] @ (gamma * beta), 1.0, observed=y)


@as_model
def precision(n=N):
    y = pm.Data("y", Y[:n])
    mu = pm.Normal("mu")
    pm.Normal("outcome", mu, tau=pm.Gamma("precision", 2.0, 2.0), observed=y)


@as_model
def rate(n=N):
    """Its shape depends on the data."""
    y, b = pm.Data("y", Y[:n]), pm.Normal("b")
    rate = pm.Gamma("rate", 2.0, 2.0)
    pm.Potential("outcome", y**2 * pm.math.log(rate) - rate * pm.math.exp(b + X[:n]))


@as_model
def mixture(n=60):
    y = pm.Data("y", Y[:n])
    z = pm.Categorical("z", pm.Dirichlet("w", np.ones(3)), shape=n)
    pm.Normal("outcome", pm.math.stack([-2.0, 0.0, 2.0])[z], 1.0, observed=y)


@as_model
def states(n=16):
    y = pm.Data("y", Y[:n])
    h = pm.AR("h", rho=[0.9], sigma=0.5, init_dist=pm.Normal.dist(0, 1), shape=n)
    pm.Normal("outcome", h, 1.0, observed=y)


def of_anchor(**options):
    return pma.SCIR(["rate"], batch_size=100, control_variate="anchor", refresh=5, **options)


STEPS = {
    "AusterityMH": (line, pma.AusterityMH),
    "MetropolisHastings": (line, partial(pma.MetropolisHastings, proposal=WALK)),
    "MHSubLhd": (line, partial(pma.MHSubLhd, ["beta"], range_bound="exact", proposal=WALK)),
    "MinibatchBarker": (line, partial(pma.MinibatchBarker, proposal=WALK)),
    "remainders": (line, partial(pma.AusterityMH, control_variate=pma.Taylor())),
    "Surrogate": (line, partial(pma.AusterityMH, control_variate=pma.Taylor(), proposal=pma.Surrogate())),
    "TunaMH": (line, partial(pma.TunaMH, switch_above=np.inf)),
    "elements": (groups, partial(pma.MetropolisHastings, ["effect"], elementwise=True)),
    "jumps": (selection, pma.ReversibleJump),
    "SGLD": (line, partial(pma.SGLD, step_size=1e-4, batch_size=100)),
    "SCIR": (precision, partial(pma.SCIR, ["precision"])),
    "anchor": (rate, of_anchor),
    "allocations": (mixture, partial(pma.MinibatchCategoricalGibbs, ["z"], batch_size=20)),
    "states": (states, partial(pma.ParticleGibbs, ["h"])),
}


def counted(model, rng):
    allocate = pma.MinibatchCategoricalGibbs(["z"], batch_size=20, model=model, rng=rng)
    return CompoundStep([allocate, pma.SCIR(["w"], counts=allocate, model=model, rng=2)])


BESIDE = {
    "SCIR beside allocations": (mixture, counted),
    "restricted_nuts": (line, partial(pma.restricted_nuts, ["beta"])),
    "restricted_slice": (line, partial(pma.restricted_slice, ["beta"], blocked=True)),
}


def path(step, point, n, first=0):
    """Points and statistics of draws number `first`, ..., `first` + n - 1 of a chain."""
    points, stats = [], []
    for k in range(first, first + n):
        if k == TUNE:
            step.stop_tuning()
        point, found = step.step(point)
        points.append({name: np.array(value) for name, value in point.items()})
        # Time is no part of a chain.
        every = [{k: v for k, v in s.items() if not k.startswith("perf_counter")} for s in found]
        every = [{k: v for k, v in s.items() if k not in ("process_time_diff", "warning")} for s in every]
        stats.append({f"{k} of step {i}": v for i, s in enumerate(every) for k, v in s.items()})
    return points, stats


@pytest.mark.parametrize("name", [*STEPS, *BESIDE])
@pytest.mark.covering(4)
def test_a_chain_goes_on_from_its_state(name):
    """In the same step, in a fresh one, in copies and pickles, while tuning and after it."""
    build, make = {**STEPS, **BESIDE}[name]
    model = build()
    check_that_it_goes_on(model, make(model=model, rng=1), make(model=model, rng=1))


def check_that_it_goes_on(model, step, fresh, n=4):
    """Two steps that are built alike: draws after each state that is stored."""
    unpickled = cloudpickle.loads(cloudpickle.dumps(step))  # of a step that was never moved
    step.setup_chain(np.random.default_rng(5), TUNE, 20)
    point, done = model.initial_point(), 0
    for here in STORED:
        points, _ = path(step, point, here - done, done)
        point, done = (points or [point])[-1], here
        state = step.sampling_state
        others = {"A copy": deepcopy(step), "A pickle": cloudpickle.loads(cloudpickle.dumps(step))}
        expected = path(step, point, n, here)
        for what, other in others.items():
            require_same_path(what, path(other, point, n, here), expected, "It misses something.")
        for what, other in {"The same": step, "A fresh step": fresh, "Its pickle": unpickled}.items():
            other.sampling_state = cloudpickle.loads(cloudpickle.dumps(state))
            require_same_path(what, path(other, point, n, here), expected, "Its state misses something.")
        step.sampling_state = state


def test_several_transitions_for_a_draw():
    """They are those of single draws, with averaged statistics; see test_stats.py for more of them."""
    build, make = STEPS["TunaMH"]
    model = build()
    one, five = (make(model=model, steps_per_draw=k) for k in (1, 5))
    for step in (one, five):
        step.setup_chain(np.random.default_rng(3), 0, 10)
    (points, singles), (fives, means) = (
        path(one, model.initial_point(), 50),
        path(five, model.initial_point(), 10),
    )
    for k, (point, found) in enumerate(zip(fives, means, strict=True)):
        np.testing.assert_array_equal(point["beta"], points[5 * k + 4]["beta"])
        for name, single in (("n_used", "n_used"), ("mean_tree_accept", "accepted")):
            some = [stats[f"{single} of step 0"] for stats in singles[5 * k : 5 * k + 5]]
            assert found[f"{name} of step 0"] == pytest.approx(np.mean(some))


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.covering(3)
def test_pickles_and_states_do_not_grow_with_the_data(name):
    """Beyond the model, whose data every step needs."""
    build, make = STEPS[name]
    steps, of_states = [], []
    for n in (N, 4 * N):
        step = make(model=build(n), rng=1)
        step.step(step.model.initial_point())
        steps.append(len(cloudpickle.dumps(step)) - len(cloudpickle.dumps(step.model)))
        of_states.append(len(cloudpickle.dumps(step.sampling_state)))
    assert max(steps + of_states) < 20_000
    # 3,600 more rows are 28,800 bytes for each number of a row.
    assert abs(steps[1] - steps[0]) < 2000
    assert abs(of_states[1] - of_states[0]) < 100


# Other data ----------------------------------------------------------------------------------------


def draw(step, point, n=6):
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


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.covering(3)
def test_other_data(name):
    """In the middle of a chain, and between two: draws are those of a fresh step, and no others."""
    build, make = STEPS[name]
    model = build()
    step, point = make(model=model, rng=1), model.initial_point()
    point, _ = step.step(point)
    set_y(model, lambda y: 0.5 * y - 1.0)
    with REPLACED:
        found = draw(step, point)
    # Built at the same point: from another the search for the mode ends in other last digits.
    fresh, unlike = (make(model=each, initial_point=point) for each in (model, build()))
    expected, old = draw(fresh, point), draw(unlike, point)
    for variable in expected:
        np.testing.assert_array_equal(found[variable], expected[variable])
    assert any(not np.array_equal(expected[variable], old[variable]) for variable in old)
    set_y(model, lambda y: y + 0.5)
    paths = []
    for each in (step, make(model=model)):
        each.setup_chain(np.random.default_rng(5), TUNE, 20)
        paths.append(path(each, model.initial_point(), 5))
    require_same_path("A rebuilt step", *paths, "It has kept something of the old data.")


@pytest.mark.parametrize("make", [pma.restricted_nuts, pma.restricted_slice])
def test_steps_of_pymc_have_it_in_their_functions(make):
    model = line()
    step, point = make(["beta"], model=model, blocked=True), model.initial_point()
    point, _ = step.step(point)
    set_y(model, lambda y: 0.5 * y - 1.0)
    np.testing.assert_allclose(draw(step, point, 30)["beta"][-1], [-0.5, 1.0], atol=0.2)


def test_equal_data_are_no_others():
    """They are compared once, and what was built stays."""
    model = precision()
    step, point = pma.SCIR(["precision"], model=model), model.initial_point()
    likelihood = step._chains[0].conjugacy
    set_y(model, np.copy)
    for _ in range(2):
        point, _ = step.step(point)
    assert step._chains[0].conjugacy is likelihood
    assert likelihood.gradient.graph.replaced_data() is None


def test_it_is_told_once_in_a_chain():
    model = precision()
    step, point = pma.SCIR(["precision"], model=model), model.initial_point()
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
        y = pm.Data("y", Y[:N])
        level = pm.Gamma("level", 2.0, 2.0, shape=y.shape[0])
        pm.Poisson("outcome", level, observed=pm.math.floor(pm.math.abs(y)).astype("int64"))
    step, point = pma.SCIR(["level"], model=model), model.initial_point()
    set_y(model, lambda y: y[:-1])
    with pytest.raises(ValueError, match=r"'y' were replaced .*'level_log__' has the shape \(1199,\)"):
        step.step(point)


def test_data_of_a_prior():
    """They are in no likelihood, whose data are compared; with none of these the draws are of the prior."""
    with pm.Model() as model:
        alpha = pm.Data("alpha", np.array([1.0, 1.0]))
        pm.Dirichlet("w", alpha)
    step, point = pma.SCIR(["w"], model=model, step_size=50.0, rng=1), model.initial_point()
    point, _ = step.step(point)
    with model:
        pm.set_data({"alpha": np.array([2000.0, 8000.0])})
    point, _ = step.step(point)
    assert 1 / (1 + np.exp(-2 * point["w_simplex__"][0])) == pytest.approx(0.2, abs=0.03)
