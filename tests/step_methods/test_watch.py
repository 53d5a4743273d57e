"""What is watched while a chain runs: does it fit its expansion, does it drift, does it mix?"""

import re
import warnings
from copy import deepcopy

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import AusterityMH, RandomWalk, SubsamplingWarning, TunaMH, find_mode
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.mode.mode_fit import ModeReport
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.step_methods.metropolis.mixing_pilot import Mixing
from pymc_austerity.step_methods.metropolis.watch import DriftWatch, Expected, FitWatch, MixingWatch, look
from pymc_austerity.testing.steps import move
from tests.step_methods.chains import autoregression

FAR = {"a": 1.0, "b": 4.0, "sigma": 1.0}  # some 90 posterior standard deviations in b
SMALL = RandomWalk(scale=0.002)
EXPECTED = Expected(
    ModeReport(3, 1e-9, 1.0, 0.1, 8, 1, acceptance=0.8, remainder_sd=0.1),
    independent_moves=0.9, reads_all=False, needs_range=False, n_others=1000, n_transitions=1, efficiency=0.9,
    is_field=False, value_name=str, name=str,
)  # fmt: skip
# Of a draw that is as predicted.
GOOD = Outcome(np.zeros(1), 1, 10, 1, 0, 0, True, 0.0, 0.0, 0.0)


def shown(watch, outcomes, **changes):
    """Show a watch a whole phase; what it warned of."""
    watches, asked = [watch], []

    def expected():
        asked.append(True)
        return EXPECTED._replace(**changes)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k, outcome in enumerate(outcomes):
            assert len(watches) == 1, f"it left after {k} draws"
            look(watches, outcome, 1, tunes=watch.of_tuning, expected=expected)
    assert (watches, asked) == ([], [True])
    return "".join(str(w.message) for w in caught)


def outcomes(path):
    """Draws of shape (n,) or (n, D)."""
    return [GOOD._replace(q=q) for q in np.asarray(path, dtype=float).reshape(len(path), -1)]


def test_draws_of_tuning_are_not_shown_to_what_comes_after():
    watches = [DriftWatch(3, 1), MixingWatch(3, 1, has_tuned=True)]
    for k, seen in enumerate([[1, 0], [2, 0], [0], [1], [2], []]):
        look(watches, GOOD, 1, tunes=k < 3, expected=lambda: EXPECTED)
        assert [watch.n_seen for watch in watches] == seen


class TestFit:
    @pytest.mark.parametrize(("independent", "said"), [(0.9, ", predicted was 0.72 or more"), (0.0, "")])
    def test_a_chain_that_is_stuck(self, independent, said):
        """Only of independent moves an acceptance rate was predicted."""
        stuck = [GOOD._replace(n_accepted=int(k % 50 == 0)) for k in range(400)]
        message = shown(FitWatch(400), stuck, independent_moves=independent)
        assert message.startswith("The posterior is not as its expansion at the mode predicts: ")
        assert f"the acceptance rate is 0.02{said}. Steps stay" in message

    @pytest.mark.parametrize("needs_range", [False, True])
    def test_decisions_that_read_all(self, needs_range):
        read = [GOOD._replace(n_exhausted=k % 2) for k in range(400)]
        message = shown(FitWatch(400), read, needs_range=needs_range)
        assert "50% of the decisions read all rows" in message
        assert ("AusterityMH needs none" in message) == needs_range
        assert shown(FitWatch(400), read, reads_all=True) == ""

    def test_remainders_that_vary_more_than_predicted(self):
        """By the square of a sum, less the variance of its estimate; half of it is due to either state."""
        vary = [GOOD._replace(log_ratio_mean=0.005, log_ratio_se=0.003)] * 400
        assert "sums of remainders vary by 2.8, predicted were 0.1 near" in shown(FitWatch(400), vary)
        assert shown(FitWatch(400), vary, n_others=300) == ""
        few = [one._replace(log_ratio_mean=np.nan) if k % 2 else one for k, one in enumerate(vary)]
        assert shown(FitWatch(400), few) == ""

    def test_the_first_half_and_a_short_phase_say_nothing(self):
        bad = GOOD._replace(n_accepted=0)
        assert shown(FitWatch(400), [bad] * 200 + [GOOD] * 200) == ""
        assert shown(FitWatch(198), [bad] * 198) == ""
        assert shown(FitWatch(200), [bad] * 200) != ""


def drift(path):
    """A watch that has seen a whole chain."""
    path = outcomes(path)
    watch = DriftWatch(len(path), len(path[0].q))
    shown(watch, path)
    return watch


class TestDrift:
    def test_a_straight_drift(self):
        watch = drift(np.arange(400.0))
        assert watch.counts.tolist() == [100, 100]
        np.testing.assert_allclose(watch.mean[:, 0], [249.5, 349.5])
        assert watch.shift()[0] == pytest.approx(np.sqrt(12), rel=0.02)
        assert watch.drifting(1).tolist() == [0]

    def test_moments(self):
        path = np.random.default_rng(1).normal(size=(403, 3))
        watch = drift(path)
        quarter = 4 * np.arange(403) // 403
        for k in (0, 1):
            part = path[quarter == k + 2]
            assert watch.counts[k] == len(part)
            np.testing.assert_allclose(watch.mean[k], part.mean(axis=0))
            np.testing.assert_allclose(watch.m2[k], part.var(axis=0) * len(part))

    def test_dimensions_are_independent_and_worst_first(self):
        rng = np.random.default_rng(1)
        t = np.arange(400.0)
        path = np.column_stack([rng.normal(size=400), t + 60 * rng.normal(size=400), rng.normal(size=400), t])
        found = drift(path).drifting(1)
        assert found[0] == 3
        assert set(found) <= {1, 3}

    def test_no_drift(self):
        rng = np.random.default_rng(1)
        settled = np.r_[np.linspace(1000, 0, 200), rng.normal(size=200)]  # the first half does not count
        short = [np.arange(float(n)) for n in (1, 2, 3, 4, 10, 39)]
        for path in [settled, np.zeros(400), *short, *rng.normal(size=(50, 200, 5))]:
            assert len(drift(path).drifting(1)) == 0

    def test_a_chain_that_runs_away(self):
        rng = np.random.default_rng(3)
        path = np.column_stack([np.exp(np.arange(400) / 20), rng.normal(size=400), rng.standard_t(3, 400)])
        assert drift(path).running_away().tolist() == [0]
        stuck = np.r_[0.8 + 0.01 * rng.normal(size=300), rng.normal(size=100)]  # and goes on
        for other in (path[:150], np.r_[np.zeros(300), np.arange(100)], stuck, stuck - 0.8):
            assert len(drift(other).running_away()) == 0


def mixing(draws, *, has_tuned=True, **changes):
    """A watch that has seen all draws, and what it warned of."""
    watch = MixingWatch(len(draws), draws.shape[1], has_tuned=has_tuned)
    return watch, shown(watch, outcomes(draws), **changes)


class TestMixing:
    @pytest.mark.parametrize("rho", [0.0, 0.9, 0.99])
    def test_efficiency(self, rho):
        rng = np.random.default_rng(2)
        found = [mixing(autoregression(rho, 4000, 2, rng))[0].efficiency()[0] for _ in range(20)]
        exact = (1.0 - rho) / (1.0 + rho)
        # The least of four estimates, the coarsest of which has eight batches: below, by a factor at most.
        assert 0.4 * exact < np.median(found) < 1.5 * exact

    def test_sums_are_those_of_all_draws(self):
        draws = np.random.default_rng(3).normal(5.0, 2.0, size=(1001, 3))
        found, _ = mixing(draws)
        assert (found.n_seen, found.length, found.n_full) == (1001, 16, 62)
        np.testing.assert_allclose(found.sums.sum(axis=0), (draws - draws[0]).sum(axis=0))
        np.testing.assert_allclose(found.sums[1], (draws - draws[0])[16:32].sum(axis=0))

    def test_a_chain_that_stands_still(self):
        _, message = mixing(np.ones((600, 2)), efficiency=0.5, name=lambda k: "tau")
        assert "600 draws are worth about 1 independent ones of tau" in message

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({}, "independent ones of 0, and 3,600 were expected. Its decisions.* written non-centred"),
            (
                {"has_tuned": False},
                r"expected\. It had no tuning draws .* tune=100 lets it start near",
            ),
            # Its coordinates are the same, however effects are written.
            (
                {"is_field": True},
                r"NUTS\. If the chain began far outside .*, another start mends that\.$",
            ),
            ({"efficiency": 0.005}, "^$"),
        ],
    )
    def test_a_tenth_of_what_was_announced(self, changes, said):
        _, message = mixing(autoregression(0.99, 4000, 2, np.random.default_rng(4)), **changes)
        assert re.search(said, message)
        assert ("non-centred" in message) == (changes == {})

    def test_no_false_alarm(self):
        rng = np.random.default_rng(5)
        for _ in range(50):
            assert mixing(autoregression(0.8, 1000, 20, rng), efficiency=0.2)[1] == ""


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
    def test_every_chain_warns_once_and_names_the_variable(self, line, small, draw):
        walk = deepcopy(small)
        sigma = pm.Slice([line["sigma"]], model=line)
        with pytest.warns(SubsamplingWarning, match="still drifting in b[.,]") as caught:
            draw(line, [walk, sigma], chains=2, tune=100, draws=100, initvals=FAR)
        assert len([w for w in caught if w.category is SubsamplingWarning]) == 2

    @pytest.mark.usefixtures("interpreted")
    @pytest.mark.slow("builds and compiles several steps")
    def test_separated_responses_under_a_flat_prior(self, draw):
        x = np.random.default_rng(1).normal(size=1000)
        with pm.Model() as model:
            pm.Bernoulli("y", logit_p=pm.Flat("slope") * x, observed=x > 0)
        with pytest.warns(SubsamplingWarning, match="runs away in slope.*posterior may not exist"):
            draw(model, AusterityMH(model=model, rng=1, batch_size=100), chains=1, tune=400, draws=10)

    def test_long_enough_tuning_does_not_warn(self, line, compiled, draw):
        draw(line, compiled, tune=1500, initvals=FAR)

    def test_from_the_mode(self, line, compiled, draw):
        """A warning would be an error here."""
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
        *_, point = move(step, point, 60)[0]
        other = deepcopy(small)
        other.sampling_state = step.sampling_state
        *_, point = move(other, point, 39)[0]
        with pytest.warns(SubsamplingWarning, match="drifting"):
            other.step(point)

    @pytest.mark.usefixtures("interpreted")
    def test_mixing_is_watched_after_tuning_and_across_an_interrupt(self):
        """A chain that crawls from PyMC's initial point is told so: the step knows whether it has tuned."""
        rng = np.random.default_rng(8)
        with pm.Model():
            level = pm.Normal("level")
            pm.Poisson("y", pm.math.exp(level) * np.ones(2000), observed=rng.poisson(3.0, 2000))
            step = TunaMH()
        step.mixing = Mixing(0.9, 0, 4000)

        def see(step):
            look(step.watches, GOOD, 1, tunes=step.tune, expected=step._expected)

        for n_tune in (0, 1):
            step.setup_chain(np.random.default_rng(1), n_tune, 600)
            step.reset_tuning()  # as pm.sample does in one process
            step.stop_tuning()
            for _ in range(300):
                see(step)
            other = deepcopy(step)
            other.sampling_state = step.sampling_state
            for _ in range(299):
                see(other)
            said = "tune=100" if n_tune == 0 else "non-centred"
            with pytest.warns(SubsamplingWarning, match=f"independent ones of level.*{said}"):
                see(other)
