"""What PyMC asks of a step method: state, copies, pickles, chains."""

from copy import copy, deepcopy

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, Competence, CompoundStep
from pymc.step_methods.state import equal_dataclass_values

from pymc_austerity import AdaptiveRandomWalk, AusterityMH, RandomWalk

from .conftest import N, line_model

# Whether a chain has settled after so few draws is not the question here.
pytestmark = [pytest.mark.filterwarnings("ignore:Tuning ended"), pytest.mark.usefixtures("interpreted")]
SMALL = RandomWalk(scale=0.02)
STEPS = 130  # past the first window of the adaptive proposal


def move(step, point, n=STEPS):
    """Points and statistics of n steps in a row."""
    points, stats = [], []
    for _ in range(n):
        point, (stat,) = step.step(point)
        points.append(point)
        stats.append(stat)
    return points, stats


def assert_same_path(one, two):
    """Two results of `move` are equal, bit by bit."""
    assert equal_dataclass_values(one[0], two[0])
    for left, right in zip(one[1], two[1], strict=True):
        assert left.keys() == right.keys()
        for name in left:
            np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def assert_same_state(one, two):
    assert equal_dataclass_values(one, two)


class TestClass:
    def test_a_blocked_step(self, built):
        assert isinstance(built, BlockedStep)
        assert built.name == "austerity_mh"
        assert AusterityMH.default_blocked

    @pytest.mark.parametrize("has_grad", [True, False])
    def test_is_never_assigned_automatically(self, line, has_grad):
        for var in line.value_vars:
            assert AusterityMH.competence(var, has_grad) == Competence.INCOMPATIBLE
        answers = AusterityMH._competence(line.value_vars, [has_grad] * 3)
        assert answers == [Competence.INCOMPATIBLE] * 3

    def test_is_not_registered_with_pymc(self):
        assert AusterityMH not in STEP_METHODS


class TestVariables:
    def test_default_is_all(self, line, built):
        assert built.vars == line.value_vars

    def test_random_variables_are_turned_into_value_variables(self, line):
        step = AusterityMH([line["sigma"], line["b"]], model=line, proposal=SMALL)
        assert [v.name for v in step.vars] == ["sigma_log__", "b"]

    def test_value_variables(self, line):
        values = [line.rvs_to_values[line["sigma"]], line.rvs_to_values[line["b"]]]
        assert AusterityMH(values, model=line, proposal=SMALL).vars == values

    def test_a_single_variable_needs_no_list(self, line):
        assert [v.name for v in AusterityMH(line["b"], model=line).vars] == ["b"]
        assert [v.name for v in AusterityMH(vars=line["b"], model=line).vars] == ["b"]

    def test_a_tuple(self, line):
        assert [v.name for v in AusterityMH((line["b"],), model=line).vars] == ["b"]

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


class TestPoint:
    def test_returns_a_new_point(self, step, near):
        before = deepcopy(near)
        points, _ = move(step, near)
        assert equal_dataclass_values(near, before)
        assert any(p["a"] != near["a"] for p in points)

    def test_values_do_not_share_memory(self, step, near):
        first, _ = step.step(near)
        kept = deepcopy(first)
        move(step, first, 20)
        assert equal_dataclass_values(first, kept)
        for one in first.values():
            for name in near:
                assert not np.shares_memory(one, near[name]) or one is near[name]

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

    def test_shapes_and_dtypes_stay(self, step, near):
        for point in move(step, near, 20)[0]:
            assert list(point) == list(near)
            for name, value in point.items():
                assert isinstance(value, np.ndarray)
                assert value.shape == near[name].shape
                assert value.dtype == near[name].dtype

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
    def test_a_step_changes_the_state(self, step, near):
        before = step.sampling_state
        move(step, near, 1)
        assert not equal_dataclass_values(step.sampling_state, before)

    def test_reading_the_state_copies_it(self, step, near):
        state = step.sampling_state
        kept = deepcopy(state)
        move(step, near)
        assert_same_state(state, kept)

    @pytest.mark.parametrize("warm_up", [0, STEPS])
    @pytest.mark.covering(1)
    def test_restored_state_gives_the_same_draws(self, step, near, warm_up):
        move(step, near, warm_up)
        state = step.sampling_state
        first, first_end = move(step, near), step.sampling_state
        step.sampling_state = state
        second, second_end = move(step, near), step.sampling_state
        assert_same_path(first, second)
        assert_same_state(first_end, second_end)

    def test_restoring_does_not_tie_a_step_to_the_state(self, step, near):
        state = step.sampling_state
        kept = deepcopy(state)
        step.sampling_state = state
        move(step, near)
        assert_same_state(state, kept)

    @pytest.mark.slow("compiles each kernel")
    def test_state_in_another_step_continues_identically(self, step, line, near):
        move(step, near)
        other = AusterityMH(model=line, rng=99)
        other.sampling_state = step.sampling_state
        assert_same_path(move(step, near), move(other, near))
        assert_same_state(step.sampling_state, other.sampling_state)

    @pytest.mark.slow("builds and compiles several steps")
    def test_state_survives_a_pickle(self, step, near):
        move(step, near)
        state = cloudpickle.loads(cloudpickle.dumps(step.sampling_state))
        assert_same_state(state, step.sampling_state)
        first = move(step, near)
        step.sampling_state = state
        assert_same_path(first, move(step, near))

    def test_state_of_other_variables_is_refused(self, step, line):
        other = AusterityMH([line["b"]], model=line)
        with pytest.raises(ValueError, match="var_names"):
            other.sampling_state = step.sampling_state

    def test_state_of_a_compound(self, line, near):
        compound = AusterityMH([line["a"], line["b"]], model=line, blocked=False, rng=5)
        state = compound.sampling_state
        ends = []
        for _ in range(2):
            compound.sampling_state = state
            point = near
            for _ in range(20):
                point, _ = compound.step(point)
            ends.append(point)
        assert equal_dataclass_values(*ends)


class TestCopies:
    @pytest.mark.parametrize("copier", [deepcopy, copy], ids=["deepcopy", "copy"])
    @pytest.mark.covering(1)
    def test_a_copy_draws_the_same(self, step, near, copier):
        move(step, near)
        if copier is copy:
            step = deepcopy(step)
        state = step.sampling_state
        other = copier(step)
        first = move(step, near)
        other.sampling_state = state
        assert_same_path(first, move(other, near))

    def test_a_copy_shares_nothing_that_changes(self, step, near):
        move(step, near)
        other = deepcopy(step)
        kept = step.sampling_state
        assert_same_state(other.sampling_state, kept)
        assert other.rng is not step.rng
        move(other, near)
        assert_same_state(step.sampling_state, kept)
        assert not equal_dataclass_values(other.sampling_state, kept)

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

    def test_compound(self, line, near):
        compound = CompoundStep([AusterityMH([line["b"]], model=line, rng=1)])
        other = deepcopy(compound)
        compound.step(near)
        assert not equal_dataclass_values(compound.sampling_state, other.sampling_state)


class TestPickle:
    @pytest.mark.slow("builds and compiles several steps")
    def test_an_unpickled_step_draws_the_same(self, step, near):
        move(step, near)
        other = cloudpickle.loads(cloudpickle.dumps(step))
        assert_same_state(step.sampling_state, other.sampling_state)
        assert_same_path(move(step, near), move(other, near))
        assert_same_state(step.sampling_state, other.sampling_state)

    def test_an_unpickled_step_starts_a_chain_like_a_fresh_one(self, step, near):
        other = cloudpickle.loads(cloudpickle.dumps(step))
        for s in (step, other):
            s.setup_chain(np.random.default_rng(8), 100, 100)
        assert_same_path(move(step, near), move(other, near))

    @pytest.mark.parametrize("use", [deepcopy, lambda s: cloudpickle.loads(cloudpickle.dumps(s))])
    def test_an_unpickled_step_may_be_copied_before_it_is_stepped(self, step, near, use):
        other = use(cloudpickle.loads(cloudpickle.dumps(step)))
        assert_same_path(move(step, near, 20), move(other, near, 20))

    def test_the_model_is_pickled_with_the_step(self, line, step):
        model, other = cloudpickle.loads(cloudpickle.dumps((line, step)))
        assert other._model is model
        assert other.vars == model.value_vars

    def test_parameters_survive(self, line):
        step = AusterityMH(
            [line["b"]],
            epsilon=0.05,
            batch_size=100,
            growth=2.0,
            boundary=0.7,
            proposal=SMALL,
            steps_per_draw=7,
            model=line,
            rng=4,
        )
        other = cloudpickle.loads(cloudpickle.dumps(step))
        point = line.initial_point()
        assert_same_path(move(step, point, 20), move(other, point, 20))

    def test_stats_metadata_survives(self, step):
        other = cloudpickle.loads(cloudpickle.dumps(step))
        assert other.stats_dtypes == step.stats_dtypes
        assert other.stats_dtypes_shapes == step.stats_dtypes_shapes


class TestSize:
    """Beyond the model, nothing of the size of the data is pickled."""

    LIMIT = 20_000

    @staticmethod
    def beyond_the_model(step):
        return len(cloudpickle.dumps(step)) - len(cloudpickle.dumps(step._model))

    def test_pickle_and_state_do_not_grow_with_the_data(self, near):
        sizes, states = [], []
        for n in (N, 10 * N):
            # A model of its own: one that other tests use gathers their tags on its variables.
            step = AusterityMH(model=line_model(n), rng=1)
            move(step, near, 5)
            sizes.append(self.beyond_the_model(step))
            states.append(len(cloudpickle.dumps(step.sampling_state)))
        assert max(sizes) < self.LIMIT
        assert max(states) < self.LIMIT
        # 18,000 more rows are 144 kB; names of variables vary by some bytes.
        assert abs(sizes[1] - sizes[0]) < 500
        assert abs(states[1] - states[0]) < 100

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

    @pytest.mark.parametrize("proposal", [RandomWalk(scale=0.1), AdaptiveRandomWalk()])
    def test_proposals_are_small(self, line, proposal):
        step = AusterityMH([line["b"]], model=line, proposal=proposal)
        assert self.beyond_the_model(step) < self.LIMIT


class TestChains:
    def test_setup_chain_starts_afresh(self, step, near):
        paths = []
        for _ in range(2):
            step.setup_chain(np.random.default_rng(8), 200, 100)
            paths.append(move(step, near))
        assert_same_path(*paths)

    def test_setup_chain_uses_the_generator_it_is_given(self, step, near):
        paths = []
        for seed in (8, 9):
            step.setup_chain(np.random.default_rng(seed), 200, 100)
            paths.append(move(step, near))
        assert not equal_dataclass_values(paths[0][0], paths[1][0])

    def test_the_way_sequential_and_parallel_chains_begin(self, step, near):
        """Sequential chains also set `tune` and call `reset_tuning`."""
        step.setup_chain(np.random.default_rng(8), 200, 100)
        parallel = move(step, near)
        initial = step.sampling_state
        step.sampling_state = initial
        step.setup_chain(np.random.default_rng(8), 200, 100)
        step.tune = True
        step.reset_tuning()
        assert_same_path(parallel, move(step, near))

    def test_without_tuning_nothing_is_learnt(self, step, near):
        step.setup_chain(np.random.default_rng(8), 0, 100)
        before = step.sampling_state.proposal_state
        move(step, near)
        assert equal_dataclass_values(before, step.sampling_state.proposal_state)

    def test_stop_tuning_freezes_the_proposal(self, step, near):
        step.setup_chain(np.random.default_rng(8), STEPS, 100)
        start = step.sampling_state.proposal_state
        move(step, near)
        learnt = step.sampling_state.proposal_state
        assert not equal_dataclass_values(start, learnt)
        step.stop_tuning()
        move(step, near)
        assert equal_dataclass_values(learnt, step.sampling_state.proposal_state)

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

    @pytest.mark.slow("builds and compiles several steps")
    def test_a_seed(self, line):
        point = line.initial_point()
        paths = [move(AusterityMH([line["b"]], model=line, rng=s), point) for s in (3, 3, 4)]
        assert_same_path(paths[0], paths[1])
        assert not equal_dataclass_values(paths[0][0], paths[2][0])

    def test_an_exception_in_a_proposal_leaves_no_trace(self, line, near):
        """Neither in the order of the rows nor in any other way: the next chain is as if fresh."""
        state = {"left": 10_000}

        def propose(q, rng):
            if state["left"] == 0:
                raise KeyboardInterrupt
            state["left"] -= 1
            return q + 0.01 * rng.standard_normal(q.shape), 0.0

        step = AusterityMH([line["b"]], model=line, proposal=propose)
        step.setup_chain(np.random.default_rng(8), 0, 10)
        expected = move(step, near, 5)
        state["left"] = 3
        step.setup_chain(np.random.default_rng(8), 0, 10)
        with pytest.raises(KeyboardInterrupt):
            move(step, near, 5)
        state["left"] = 10_000
        step.setup_chain(np.random.default_rng(8), 0, 10)
        assert_same_path(expected, move(step, near, 5))

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
