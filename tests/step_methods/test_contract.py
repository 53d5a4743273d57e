"""What PyMC asks of a step method, and what holds for every step.

A chain goes on from its state in copies, in pickles and in a fresh step, it follows `pm.set_data`, and
pickles are small.
"""

from copy import copy, deepcopy
from functools import partial

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, CompoundStep
from pymc.step_methods.state import equal_dataclass_values

import pymc_austerity as pma
from pymc_austerity import AusterityMH, RandomWalk
from pymc_austerity.kernels import metropolis as kernel
from pymc_austerity.testing.steps import (
    check_chains,
    check_interface,
    check_points,
    check_state,
    move,
    require_same_path,
)
from tests.models import as_model

from . import conftest
from .conftest import line_data

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    # Whether a chain has settled after so few draws, and what is slow, is not the question here; and a
    # fresh step tells that its start is far from the mode.
    pytest.mark.filterwarnings("ignore:Tuning ended"),
    pytest.mark.filterwarnings(
        "ignore:(Minibatches|SGLD|The rate|range_bound=|The chain starts|Moves of what):"
        "pymc_austerity.SubsamplingWarning"
    ),
]
N, GROUPS = 1200, 40
X, Y = line_data(4 * N)
WALK = RandomWalk(scale=0.02)
REPLACED = pytest.warns(pma.SubsamplingWarning, match="'y' were replaced .* while a chain ran")
# Draws before which the state is stored: none, some, and after tuning. That ends before draw number 12, among
# those that are compared after the second state.
STORED, TUNE = (0, 9, 16), 12


@as_model
def regression(n=N):
    x, y = pm.Data("x", X[:n]), pm.Data("y", Y[:n])
    beta = pm.Normal("beta", 0, 10, shape=2)
    pm.Normal("outcome", beta[0] + beta[1] * x, pm.HalfNormal("sigma", 10, initval=1.0), observed=y)


@as_model
def groups(n=N):
    y, group = pm.Data("y", Y[:n]), pm.Data("group", np.arange(n) % GROUPS)
    effect = pm.Normal("effect", 0, pm.HalfNormal("tau"), shape=GROUPS)
    pm.Logistic("outcome", effect[group], 1.0, observed=y)


@as_model
def slopes(n=N):
    """Correlated slopes of groups."""
    x, y, group = pm.Data("x", X[:n]), pm.Data("y", Y[:n]), pm.Data("group", np.arange(n) % GROUPS)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=2))
    u = pm.MvNormal("u", np.zeros(2), chol=chol, shape=(GROUPS, 2))
    pm.Logistic("outcome", u[group, 0] + u[group, 1] * x, 1.0, observed=y)


@as_model
def selection(n=N):
    x, y = pm.Data("x", X[:n]), pm.Data("y", Y[:n])
    gamma, beta = pm.Bernoulli("gamma", 0.5, shape=2), pm.Normal("beta", shape=2)
    pm.Normal("outcome", pm.math.stack([x, x**2], axis=1) @ (gamma * beta), 1.0, observed=y)


@as_model
def precision(n=N):
    y = pm.Data("y", Y[:n])
    mu = pm.Normal("mu")
    pm.Normal("outcome", mu, tau=pm.Gamma("precision", 2.0, 2.0), observed=y)


@as_model
def rate(n=N):
    """Its shape depends on the data."""
    x, y, b = pm.Data("x", X[:n]), pm.Data("y", Y[:n]), pm.Normal("b")
    rate = pm.Gamma("rate", 2.0, 2.0)
    pm.Potential("outcome", y**2 * pm.math.log(rate) - rate * pm.math.exp(b + x))


@as_model
def mixture(n=60):
    y = pm.Data("y", Y[:n])
    z = pm.Categorical("z", pm.Dirichlet("w", np.ones(3)), shape=y.shape[0])
    pm.Normal("outcome", pm.math.stack([-2.0, 0.0, 2.0])[z], 1.0, observed=y)


@as_model
def states(n=16):
    y = pm.Data("y", Y[:n])
    h = pm.AR("h", rho=[0.9], sigma=0.5, init_dist=pm.Normal.dist(0, 1), shape=(y.shape[0],))
    pm.Normal("outcome", h, 1.0, observed=y)


def of_anchor(**options):
    return pma.SCIR(["rate"], batch_size=100, control_variate="anchor", refresh=5, **options)


STEPS = {
    "AusterityMH": (regression, AusterityMH),
    "MetropolisHastings": (regression, partial(pma.MetropolisHastings, proposal=WALK)),
    "MHSubLhd": (regression, partial(pma.MHSubLhd, ["beta"], range_bound="exact", proposal=WALK)),
    "MinibatchBarker": (regression, partial(pma.MinibatchBarker, proposal=WALK)),
    "remainders": (regression, partial(AusterityMH, control_variate=pma.Taylor())),
    "Surrogate": (regression, partial(AusterityMH, control_variate=pma.Taylor(), proposal=pma.Surrogate())),
    "TunaMH": (regression, partial(pma.TunaMH, switch_above=np.inf)),
    "elements": (groups, partial(pma.MetropolisHastings, ["effect"], elementwise=True)),
    "field": (groups, partial(pma.TunaMH, switch_above=np.inf)),
    "slopes": (slopes, partial(pma.TunaMH, switch_above=np.inf)),
    "field, tested": (groups, partial(AusterityMH, control_variate=pma.Taylor())),
    "jumps": (selection, pma.ReversibleJump),
    "SGLD": (regression, partial(pma.SGLD, step_size=1e-4, batch_size=100)),
    "SCIR": (precision, partial(pma.SCIR, ["precision"])),
    "anchor": (rate, of_anchor),
    "allocations": (mixture, partial(pma.MinibatchCategoricalGibbs, ["z"], batch_size=1 / 3)),
    "states": (states, partial(pma.ParticleGibbs, ["h"])),
}
# What belongs to a chain and is not learnt: of SCIR, and of fields.
CARRIED = ("n_transitions", "processes", "memory", "others")


def counted(model, rng):
    allocate = pma.MinibatchCategoricalGibbs(["z"], batch_size=20, model=model, rng=rng)
    return CompoundStep([allocate, pma.SCIR(["w"], counts=allocate, model=model, rng=2)])


BESIDE = {
    "SCIR beside allocations": (mixture, counted),
    "restricted_nuts": (regression, partial(pma.restricted_nuts, ["beta"])),
    "restricted_slice": (regression, partial(pma.restricted_slice, ["beta"], blocked=True)),
}


def cases(names, elsewhere, reason):
    """Names, of which those whose code other cases run are of full size."""
    marked = pytest.mark.full_size(reason)
    return [pytest.param(name, marks=[marked] if name in elsewhere else []) for name in names]


# Steps of which tests/conformance asks the same, compiled and with their posteriors; and a longer field.
SUITE_ELSEWHERE = {*STEPS} - {"AusterityMH", "TunaMH", "field", "field, tested", "anchor"}


@pytest.mark.usefixtures("short_pilots")
@pytest.mark.parametrize("name", cases(STEPS, SUITE_ELSEWHERE, "tests/conformance or `field` run its code"))
@pytest.mark.covering(2)
def test_the_suite(name):
    """Of steps and models that tests/conformance has not, and of the step that users meet first."""
    build, make = STEPS[name]
    model = build()
    step, point = make(model=model, rng=1), model.initial_point()
    for check in (check_interface, check_points, check_state):
        check(step, point)
    check_chains(step, point, CARRIED)


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


@pytest.mark.usefixtures("short_pilots")
@pytest.mark.parametrize("name", [*STEPS, *BESIDE])
@pytest.mark.covering(4)
def test_a_chain_goes_on_from_its_state(name):
    """In the same step, in a fresh one, in copies and pickles, while tuning and after it."""
    build, make = {**STEPS, **BESIDE}[name]
    model, n = build(), 4
    step, fresh = (make(model=model, rng=1) for _ in range(2))
    unpickled = deepcopy(cloudpickle.loads(cloudpickle.dumps(step)))  # of a step that was never moved
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


# Statistics of a draw of several transitions, which are means over these or those of the last.
MEANS = ("n_used", "fraction_used", "n_stages", "exhausted", "effects_acceptance", "shared_n_used")
OF_THE_LAST = ("accepted", "log_ratio_mean", "log_ratio_se", "psi")


@pytest.mark.usefixtures("short_pilots")
@pytest.mark.parametrize(
    ("name", "options"), [("AusterityMH", {"proposal": WALK}), ("TunaMH", {}), ("field", {})]
)
def test_several_transitions_for_a_draw(name, options):
    """They are those of single draws, with averaged statistics."""
    build, make = STEPS[name]
    model, k, paths = build(), 5, []
    for n in (1, k):
        step = make(model=model, steps_per_draw=n, **options)
        step.setup_chain(np.random.default_rng(3), 0, 10)
        paths.append(path(step, model.initial_point(), 50 // n))
    (points, singles), (fives, means) = paths
    for i, (point, found) in enumerate(zip(fives, means, strict=True)):
        for variable, value in point.items():
            # What a field keeps between its transitions it computes anew for each draw.
            np.testing.assert_allclose(value, points[k * i + k - 1][variable], rtol=0, atol=1e-9)
        for stat, single in [*zip(MEANS, MEANS, strict=True), ("mean_tree_accept", "accepted")]:
            if f"{stat} of step 0" in found:
                some = [stats[f"{single} of step 0"] for stats in singles[k * i : k * i + k]]
                assert found[f"{stat} of step 0"] == pytest.approx(np.mean(some))
        if name == "AusterityMH":
            for stat in OF_THE_LAST:
                assert found[f"{stat} of step 0"] == singles[k * i + k - 1][f"{stat} of step 0"]
    assert len({found["n_used of step 0"] for found in means}) > 1


@pytest.mark.usefixtures("short_pilots")
@pytest.mark.parametrize("name", [*STEPS, *BESIDE])
@pytest.mark.covering(3)
def test_pickles_and_states_do_not_grow_with_the_data(name):
    """Beyond the model, whose data every step needs."""
    build, make = {**STEPS, **BESIDE}[name]
    steps, of_states = [], []
    for n in (N, 4 * N):
        model = build(n)
        step = make(model=model, rng=1)
        step.step(model.initial_point())
        steps.append(len(cloudpickle.dumps(step)) - len(cloudpickle.dumps(model)))
        of_states.append(len(cloudpickle.dumps(step.sampling_state)))
    deviations = getattr(step, "deviations", None)  # of each coordinate, by batches
    room = 0 if deviations is None else deviations.sums.nbytes
    assert max(steps + of_states) < 20_000 + room
    # 3,600 more rows are 28,800 bytes for each number of a row.
    assert abs(steps[1] - steps[0]) < 2000
    assert abs(of_states[1] - of_states[0]) < 100


# Other data ----------------------------------------------------------------------------------------


def draw(step, point, n=6):
    """Draws from a point with the same random numbers."""
    step.rng = np.random.default_rng(7)
    points, _ = move(step, point, n)
    return {name: np.array([one[name] for one in points]) for name in point}


def set_y(model, change):
    y = model["y"].get_value()
    with model:
        pm.set_data({"y": change(y)})


@pytest.mark.usefixtures("short_pilots")
@pytest.mark.parametrize("name", cases(STEPS, ["remainders"], "`Surrogate` has the same remainders"))
@pytest.mark.covering(3)
def test_other_data(name):
    """In the middle of a chain, and between two, of which one has fewer rows: as a fresh step draws."""
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
    rows = {data: model[data].get_value() for data in ("x", "y", "group") if data in model.named_vars}
    for share in (1.0, 11 / 12, 1.0):
        with model:
            pm.set_data({data: values[: round(share * len(values))] for data, values in rows.items()})
        paths = []
        for each in (step, make(model=model)):
            each.setup_chain(np.random.default_rng(5), TUNE, 20)
            paths.append(path(each, model.initial_point(), 5))
        require_same_path("A rebuilt step", *paths, "It has kept something of the old data.")


@pytest.mark.parametrize("make", [pma.restricted_nuts, pma.restricted_slice])
def test_steps_of_pymc_have_it_in_their_functions(make):
    model = regression()
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


# Variables, points, and what is shared ------------------------------------------------------------------


class TestClass:
    def test_a_blocked_step_that_is_not_registered_with_pymc(self, built):
        assert isinstance(built, BlockedStep)
        assert built.name == "austerity_mh"
        assert AusterityMH.default_blocked
        assert AusterityMH not in STEP_METHODS


class TestVariables:
    def test_default_is_all(self, line, built):
        assert built.vars == line.value_vars

    @pytest.mark.parametrize(
        "given",
        [
            lambda m: [m["sigma"], m["b"]],
            lambda m: (m["sigma"], m["b"]),
            lambda m: [m.rvs_to_values[m["sigma"]], m.rvs_to_values[m["b"]]],
        ],
        ids=["list", "tuple", "value variables"],
    )
    def test_they_become_value_variables(self, line, given):
        step = AusterityMH(given(line), model=line, proposal=WALK)
        assert step.vars == [line.rvs_to_values[line[name]] for name in ("sigma", "b")]

    def test_a_single_variable_needs_no_list(self, line):
        assert AusterityMH(line["b"], model=line).vars == AusterityMH(vars=line["b"], model=line).vars

    def test_the_model_of_the_context(self, line):
        with line:
            assert AusterityMH([line["b"]])._model is line

    def test_no_model(self):
        with pytest.raises(TypeError, match="No model on context stack"):
            AusterityMH()

    def test_order_of_the_block_does_not_change_which_value_belongs_to_which(self, line, near):
        start = {**near, "a": np.array(1.0), "b": np.array(2.0), "sigma_log__": np.array(0.0)}
        names = ["sigma", "b"]
        step = AusterityMH(
            [line[n] for n in names], model=line, proposal=RandomWalk(scale=[1e-3, 1e-6]), rng=3
        )
        point = move(step, start, 50)[0][-1]
        assert 1e-5 < abs(point["sigma_log__"]) < 0.1
        assert 0 < abs(point["b"] - 2.0) < 1e-4
        assert point["a"] == start["a"]

    @pytest.mark.parametrize("given", ["vars", "default"])
    def test_unblocked(self, line, given):
        kwargs = {"vars": [line["a"], line["b"]]} if given == "vars" else {}
        compound = AusterityMH(**kwargs, model=line, blocked=False, rng=5)
        assert isinstance(compound, CompoundStep)
        expected = ["a", "b"] if given == "vars" else ["a", "b", "sigma_log__"]
        assert [[v.name for v in m.vars] for m in compound.methods] == [[n] for n in expected]
        streams = {m.rng.bit_generator.state["state"]["state"] for m in compound.methods}
        assert len(streams) == len(expected)

    def test_unblocked_with_a_single_variable_is_a_step(self, line):
        assert isinstance(AusterityMH([line["b"]], model=line, blocked=False), AusterityMH)

    def test_unblocked_passes_its_parameters_on(self, line):
        compound = AusterityMH(
            [line["a"], line["b"]], model=line, blocked=False, steps_per_draw=3, batch_size=conftest.N
        )
        for method in compound.methods:
            _, (stats,) = method.step(line.initial_point())
            assert stats["n_used"] == conftest.N
            assert method.configuration["steps_per_draw"] == 3


class TestPoint:
    def test_a_point_overwritten_after_each_draw(self, step, near):
        """With several cores PyMC hands the same arrays over at each call, with new contents."""
        shared = deepcopy(near)
        other = deepcopy(step)
        expected, stats = move(step, near, 40)
        for point, stat in zip(expected, stats, strict=True):
            new, (new_stat,) = other.step(shared)
            assert equal_dataclass_values(new, point)
            assert new_stat["n_used"] == stat["n_used"]
            for name, value in new.items():
                shared[name][...] = value

    def test_matrices_keep_their_shape(self):
        rng = np.random.default_rng(3)
        x = rng.normal(size=(1000, 1))
        with pm.Model():
            w = pm.Normal("w", shape=(2, 3))
            pm.Normal("y", w[0] + x * w[1], 1.0, observed=rng.normal(size=(1000, 3)))
            step = AusterityMH(proposal=RandomWalk(scale=1e-3), rng=3)
        start = {"w": np.arange(6.0).reshape(2, 3) / 100}
        point = move(step, start, 20)[0][-1]
        assert point["w"].shape == (2, 3)
        np.testing.assert_allclose(point["w"], start["w"], atol=0.05)

    def test_variables_outside_the_block_are_read_at_each_call(self, line, near):
        """The decision at the same random numbers depends on the other variables."""
        step = AusterityMH([line["b"]], model=line, batch_size=conftest.N, proposal=RandomWalk(scale=0.05))
        ratios = []
        for a in (1.0, 0.0):
            step.setup_chain(np.random.default_rng(3), 0, 1)
            ratios.append(step.step({**near, "a": np.array(a)})[1][0]["log_ratio_mean"])
        proposed = near["b"] + 0.05 * np.random.default_rng(3).standard_normal()
        logp = line.compile_logp()
        prior = np.diff([float(-0.5 * (b / 10) ** 2) for b in (near["b"], proposed)])[0]
        for a, ratio in zip((1.0, 0.0), ratios, strict=True):
            old, new = (logp({**near, "a": np.array(a), "b": np.array(b)}) for b in (near["b"], proposed))
            assert ratio * conftest.N == pytest.approx(new - old - prior, rel=1e-8)


class TestState:
    def test_state_of_other_variables_is_refused(self, step, line):
        other = AusterityMH([line["b"]], model=line)
        with pytest.raises(ValueError, match="var_names"):
            other.sampling_state = step.sampling_state


class TestCopies:
    def test_a_shallow_copy_draws_the_same(self, step, near):
        move(step, near)
        state = step.sampling_state
        other = copy(step)
        first = move(step, near)
        other.sampling_state = state
        require_same_path("A copy", move(other, near), first, "It differs.")

    def test_a_copy_shares_model_and_code(self, step, line):
        other = deepcopy(step)
        assert other._model is line
        for shared in ("_transitions", "target"):
            assert getattr(other._engine, shared) is getattr(step._engine, shared)
        assert other._engine._schedule is step._engine._schedule
        assert other._engine.given["rows"].population is not step._engine.given["rows"].population

    def test_the_old_name_of_the_mode_fit_warns(self, step):
        with pytest.warns(FutureWarning, match="mode_fit"):
            assert step.centre is step.mode_fit

    def test_a_copy_in_a_container_is_copied_once(self, step):
        one, two = deepcopy([step, step])
        assert one is two


class TestPickle:
    def test_model_and_types_are_pickled_with_the_step(self, line, step):
        model, other = cloudpickle.loads(cloudpickle.dumps((line, step)))
        assert other._model is model
        assert other.vars == model.value_vars
        assert other.stats_dtypes == step.stats_dtypes
        assert other.stats_dtypes_shapes == step.stats_dtypes_shapes

    def test_a_long_initial_point_is_not_kept(self):
        n = 20_000
        with pm.Model() as model:
            mu = pm.Normal("mu")
            pm.Normal("z", mu, 1.0, shape=n)
            step = AusterityMH([mu], initial_point={"mu": np.array(0.5), "z": np.ones(n)}, rng=1)
        point = {"mu": np.array(0.5), "z": np.random.default_rng(1).normal(1.0, 1.0, n)}
        move(step, point, 5)
        size = len(cloudpickle.dumps(model))
        assert len(cloudpickle.dumps(step)) < size + 20_000
        assert len(cloudpickle.dumps(step.sampling_state)) < 20_000
        assert size < 200_000


class TestChains:
    def test_reset_tuning_forgets(self, step, near):
        step.setup_chain(np.random.default_rng(8), 130, 100)  # past the first window
        start = step.sampling_state.proposal_state
        move(step, near, 50)
        step.reset_tuning()
        assert equal_dataclass_values(start, step.sampling_state.proposal_state)

    def test_tune_false_never_learns(self, line, near):
        step = AusterityMH([line["b"]], model=line, tune=False, rng=1)
        step.setup_chain(np.random.default_rng(8), 100, 100)
        step.tune = True  # as PyMC does for each sequential chain
        before = step.sampling_state.proposal_state
        move(step, near)
        assert equal_dataclass_values(before, step.sampling_state.proposal_state)

    def test_an_interrupt_while_rows_are_drawn_leaves_no_trace(self, line, near, monkeypatch):
        """Ctrl-C may come at any point of a transition that runs interpreted."""

        def propose(q, rng):
            return q + 0.01 * rng.standard_normal(q.shape[0]), 0.0

        step = AusterityMH([line["b"]], model=line, proposal=propose, epsilon=1e-9, batch_size=100)
        step.setup_chain(np.random.default_rng(8), 0, 10)
        expected = move(step, near, 3)
        step.setup_chain(np.random.default_rng(8), 0, 10)

        def interrupted(*args):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(kernel, "merge", interrupted)
            with pytest.raises(KeyboardInterrupt):
                move(step, near, 1)
        step.setup_chain(np.random.default_rng(8), 0, 10)
        require_same_path("The same", move(step, near, 3), expected, "It differs.")
        assert np.array_equal(np.sort(step._engine.given["rows"].population), np.arange(conftest.N))
