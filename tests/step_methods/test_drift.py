"""A chain that is still on its way when tuning ends."""

import warnings
from copy import deepcopy

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH, RandomWalk, SubsamplingWarning, find_mode
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.step_methods.metropolis import drift_watch as watching

FAR = {"a": 1.0, "b": 4.0, "sigma": 1.0}  # some 90 posterior standard deviations in b
SMALL = RandomWalk(scale=0.002)


def watch(path):
    """Watch a whole chain, of shape (n,) or (n, D)."""
    path = np.asarray(path, dtype=float).reshape(len(path), -1)
    drift = watching.start(path.shape[1], len(path))
    for q in path:
        watching.watch(drift, q)
    return drift


class TestStatistic:
    def test_a_straight_drift(self):
        drift = watch(np.arange(400.0))
        assert drift.counts.tolist() == [400, 400, 100, 100]
        np.testing.assert_allclose(drift.mean[:, 0], [249.5, 349.5])
        assert watching.shift(drift)[0] == pytest.approx(np.sqrt(12), rel=0.02)
        assert watching.still_drifting(drift, 1).tolist() == [0]

    def test_moments(self):
        path = np.random.default_rng(1).normal(size=(403, 3))
        drift = watch(path)
        quarter = 4 * np.arange(403) // 403
        for k in (2, 3):
            part = path[quarter == k]
            assert drift.counts[k] == len(part)
            np.testing.assert_allclose(drift.mean[k - 2], part.mean(axis=0))
            np.testing.assert_allclose(drift.m2[k - 2], part.var(axis=0) * len(part))

    def test_the_first_half_does_not_count(self):
        path = np.r_[np.linspace(1000, 0, 200), np.random.default_rng(1).normal(size=200)]
        assert len(watching.still_drifting(watch(path), 1)) == 0

    def test_dimensions_are_independent_and_worst_first(self):
        rng = np.random.default_rng(1)
        t = np.arange(400.0)
        path = np.column_stack([rng.normal(size=400), t + 60 * rng.normal(size=400), rng.normal(size=400), t])
        found = watching.still_drifting(watch(path), 1)
        assert found[0] == 3
        assert set(found) <= {1, 3}

    def test_white_noise_is_not_a_drift(self):
        for seed in range(50):
            path = np.random.default_rng(seed).normal(size=(200, 5))
            assert len(watching.still_drifting(watch(path), 1)) == 0

    def test_a_chain_that_never_moves(self):
        assert len(watching.still_drifting(watch(np.zeros(400)), 1)) == 0

    @pytest.mark.parametrize("n", [1, 2, 3, 4, 10, 39])
    def test_too_few_draws_say_nothing(self, n):
        assert len(watching.still_drifting(watch(np.arange(float(n))), 1)) == 0

    def test_a_chain_that_runs_away(self):
        rng = np.random.default_rng(3)
        path = np.column_stack([np.exp(np.arange(400) / 20), rng.normal(size=400), rng.standard_t(3, 400)])
        assert watching.running_away(watch(path)).tolist() == [0]
        assert len(watching.running_away(watch(path[:150]))) == 0  # too few draws
        assert len(watching.running_away(watch(np.r_[np.zeros(300), np.arange(100)]))) == 0  # it stood still
        stuck = np.r_[0.8 + 0.01 * rng.normal(size=300), rng.normal(size=100)]
        assert len(watching.running_away(watch(stuck))) == 0  # it was stuck, and goes on
        assert len(watching.running_away(watch(stuck - 0.8))) == 0

    def test_after_tuning_nothing_is_added(self):
        drift = watch(np.arange(400.0))
        kept = deepcopy(drift)
        watching.watch(drift, np.array([1e9]))
        assert drift.mean.tolist() == kept.mean.tolist()


@pytest.fixture(scope="module")
def small(line):
    """A step that takes hundreds of draws to cross the distance."""
    with interpreted():
        return AusterityMH([line["a"], line["b"]], model=line, proposal=SMALL)


@pytest.fixture(scope="module")
def compiled(line):
    """A step that learns, for thousands of draws."""
    return AusterityMH(model=line, rng=1)


class TestChain:
    def test_warns_once_and_names_the_variable(self, line, small, draw):
        walk = deepcopy(small)
        sigma = pm.Slice([line["sigma"]], model=line)
        with pytest.warns(SubsamplingWarning, match="still drifting in b[.,]") as caught:
            draw(line, [walk, sigma], chains=1, tune=100, draws=100, initvals=FAR)
        assert len([w for w in caught if w.category is SubsamplingWarning]) == 1

    def test_every_chain_warns(self, line, small, draw):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            draw(
                line,
                [deepcopy(small), pm.Slice([line["sigma"]], model=line)],
                chains=2,
                tune=100,
                initvals=FAR,
            )
        assert len([w for w in caught if w.category is SubsamplingWarning]) == 2

    @pytest.mark.usefixtures("interpreted")
    @pytest.mark.slow("builds and compiles several steps")
    def test_separated_responses_under_a_flat_prior(self, draw):
        x = np.random.default_rng(1).normal(size=1000)
        with pm.Model() as model:
            pm.Bernoulli("y", logit_p=pm.Flat("slope") * x, observed=x > 0)
        with pytest.warns(SubsamplingWarning, match="runs away in slope.*posterior may not exist"):
            draw(model, AusterityMH(model=model, rng=1, batch_size=100), chains=1, tune=400, draws=10)

    def test_a_good_chain_does_not_warn(self, line, compiled, draw):
        """A warning would be an error here."""
        draw(line, compiled, tune=400, initvals={"a": 1.0, "b": 2.0, "sigma": 1.0})

    def test_long_enough_tuning_does_not_warn(self, line, compiled, draw):
        draw(line, compiled, tune=1500, initvals=FAR)

    def test_from_the_mode(self, line, compiled, draw):
        draw(line, compiled, tune=400, initvals=find_mode(line))

    def test_without_tuning_there_is_nothing_to_watch(self, line, small, draw):
        draw(line, [deepcopy(small), pm.Slice([line["sigma"]], model=line)], tune=0, initvals=FAR)

    @pytest.mark.usefixtures("interpreted")
    def test_a_vector_is_named_once(self, draw):
        y = np.random.default_rng(2).normal(size=(1000, 3))
        with pm.Model() as model:
            w = pm.Normal("w", 0.0, 100.0, shape=3)
            pm.Normal("y", w, 1.0, observed=y)
            step = AusterityMH(proposal=SMALL)
        with pytest.warns(SubsamplingWarning, match=r"drifting in w\. "):
            draw(model, step, chains=1, tune=100, initvals={"w": np.full(3, 3.0)})

    def test_the_state_in_the_middle_of_tuning_can_be_restored(self, line, small):
        """Whether there is a warning is part of the state."""
        step = deepcopy(small)
        step.setup_chain(np.random.default_rng(1), 100, 10)
        point = {"a": np.array(1.0), "b": np.array(9.0), "sigma_log__": np.array(0.0)}
        for _ in range(60):
            point, _ = step.step(point)
        other = deepcopy(small)
        other.sampling_state = step.sampling_state
        for _ in range(39):
            point, _ = other.step(point)
        with pytest.warns(SubsamplingWarning, match="drifting"):
            other.step(point)
