"""What PyMC asks of a step method: state, copies, pickles, chains."""

from copy import copy, deepcopy

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, CompoundStep
from pymc.step_methods.state import equal_dataclass_values

from pymc_austerity import AusterityMH, RandomWalk
from pymc_austerity.testing.steps import (
    check_chains,
    check_interface,
    check_points,
    check_state,
    move,
    require_same_path,
)

from .conftest import N

# Whether a chain has settled after so few draws is not the question here.
pytestmark = [pytest.mark.filterwarnings("ignore:Tuning ended"), pytest.mark.usefixtures("interpreted")]
SMALL = RandomWalk(scale=0.02)
STEPS = 130  # past the first window of the adaptive proposal


def assert_same_path(one, two):
    """Two results of `move` are equal, bit by bit."""
    require_same_path("Another", two, one, "It differs.")


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
        step = AusterityMH(given(line), model=line, proposal=SMALL)
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
            [line["a"], line["b"]], model=line, blocked=False, steps_per_draw=3, batch_size=N
        )
        for method in compound.methods:
            _, (stats,) = method.step(line.initial_point())
            assert stats["n_used"] == N
            assert method.configuration["steps_per_draw"] == 3


@pytest.mark.parametrize("check", [check_interface, check_points, check_state, check_chains])
def test_the_suite(built, near, check):
    """Which tests/conformance runs for all steps."""
    check(built, near)


class TestPoint:
    def test_a_point_overwritten_after_each_draw(self, step, built, near):
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
        step = AusterityMH([line["b"]], model=line, batch_size=N, proposal=RandomWalk(scale=0.05))
        ratios = []
        for a in (1.0, 0.0):
            step.setup_chain(np.random.default_rng(3), 0, 1)
            ratios.append(step.step({**near, "a": np.array(a)})[1][0]["log_ratio_mean"])
        proposed = near["b"] + 0.05 * np.random.default_rng(3).standard_normal()
        logp = line.compile_logp()
        prior = np.diff([float(-0.5 * (b / 10) ** 2) for b in (near["b"], proposed)])[0]
        for a, ratio in zip((1.0, 0.0), ratios, strict=True):
            old, new = (logp({**near, "a": np.array(a), "b": np.array(b)}) for b in (near["b"], proposed))
            assert ratio * N == pytest.approx(new - old - prior, rel=1e-8)


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
        assert_same_path(first, move(other, near))

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
    @pytest.mark.parametrize("use", [deepcopy, lambda s: cloudpickle.loads(cloudpickle.dumps(s))])
    def test_an_unpickled_step_may_be_copied_before_it_is_stepped(self, step, near, use):
        other = use(cloudpickle.loads(cloudpickle.dumps(step)))
        for one in (step, other):
            one.setup_chain(np.random.default_rng(8), 100, 100)
        assert_same_path(move(step, near, 20), move(other, near, 20))

    def test_model_and_types_are_pickled_with_the_step(self, line, step):
        model, other = cloudpickle.loads(cloudpickle.dumps((line, step)))
        assert other._model is model
        assert other.vars == model.value_vars
        assert other.stats_dtypes == step.stats_dtypes
        assert other.stats_dtypes_shapes == step.stats_dtypes_shapes


class TestSize:
    """Beyond the model, nothing of the size of the data is pickled."""

    LIMIT = 20_000

    @staticmethod
    def beyond_the_model(step):
        return len(cloudpickle.dumps(step)) - len(cloudpickle.dumps(step._model))

    def test_a_long_initial_point_is_not_kept(self):
        n = 20_000
        with pm.Model() as model:
            mu = pm.Normal("mu")
            pm.Normal("z", mu, 1.0, shape=n)
            step = AusterityMH([mu], initial_point={"mu": np.array(0.5), "z": np.ones(n)}, rng=1)
        point = {"mu": np.array(0.5), "z": np.random.default_rng(1).normal(1.0, 1.0, n)}
        move(step, point, 5)
        assert self.beyond_the_model(step) < self.LIMIT
        assert len(cloudpickle.dumps(step.sampling_state)) < self.LIMIT
        assert len(cloudpickle.dumps(model)) < 10 * self.LIMIT


class TestChains:
    def test_reset_tuning_forgets(self, step, near):
        step.setup_chain(np.random.default_rng(8), STEPS, 100)
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

        import pymc_austerity.kernels.metropolis as kernel

        def interrupted(*args):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(kernel, "merge", interrupted)
            with pytest.raises(KeyboardInterrupt):
                move(step, near, 1)
        step.setup_chain(np.random.default_rng(8), 0, 10)
        assert_same_path(expected, move(step, near, 3))
        assert np.array_equal(np.sort(step._engine.given["rows"].population), np.arange(N))
