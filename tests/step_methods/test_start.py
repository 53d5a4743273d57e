"""Where a chain with proposals that are fitted to the mode starts: where it is told to, or near the mode."""

from copy import deepcopy

import cloudpickle
import numpy as np
import pytest

from pymc_austerity import Laplace, MetropolisHastings, RandomWalk, SubsamplingWarning, TunaMH
from pymc_austerity.model.compile import backend
from pymc_austerity.testing.steps import move, require_same_path

pytestmark = pytest.mark.filterwarnings("ignore:Tuning ended")
# Some 250 posterior standard deviations from the mode, in another direction than the model's initial point.
FAR = {"a": np.array(6.0), "b": np.array(-3.0), "sigma_log__": np.array(0.1)}


@pytest.fixture(scope="module")
def tuna(line):
    """Interpreted: what counts is where chains start. Not to be moved."""
    with backend.interpreted():
        return TunaMH(model=line, switch_above=np.inf, rng=1)


def chain(step, tune=10, seed=3):
    """A copy of a step at the start of a chain, as parallel chains begin it."""
    copy = deepcopy(step)
    copy.setup_chain(np.random.default_rng(seed), tune, 10)
    return copy


def distance(point, other):
    return max(abs(float(point[name] - other[name])) for name in ("a", "b"))


def test_the_models_initial_point_is_left(line, tuna, near):
    """Chains of several seeds begin at draws of the fitted distribution, not all at one point."""
    firsts = [chain(tuna, seed=seed).step(line.initial_point())[0] for seed in range(3)]
    assert all(distance(point, near) < 0.2 for point in firsts)
    assert len({float(point["a"]) for point in firsts}) == 3


def test_draws_that_are_poor_are_drawn_again_far_below_the_mode(tuna):
    """The log density of all rows is asked for only where the fit is known to be poor."""
    fit, seen = tuna.recipe.mode_fit, []

    def log_density(q):  # of the mode, of a draw far out in the tail, and of another
        seen.append(q.copy())
        return (0.0, -1e5, -3.0)[len(seen) - 1]

    q, rng = np.zeros(3), np.random.default_rng(1)
    fit.start(q, rng, log_density, "a, b")
    assert not seen
    poor = fit._replace(report=fit.report._replace(acceptance=0.01))
    found = poor.start(q, rng, log_density, "a, b")
    assert len(seen) == 3
    np.testing.assert_array_equal(found, seen[-1])


def test_a_chosen_start_is_kept(tuna):
    with pytest.warns(SubsamplingWarning, match=r"standard deviations from the mode in a, b, sigma, .* kept"):
        point, _ = chain(tuna).step(FAR)
    assert distance(point, FAR) < 0.2  # at most a step of the random walk


def test_a_chosen_start_of_some_variables_is_kept(line, tuna):
    start = {**line.initial_point(), "a": np.array(6.0)}
    with pytest.warns(SubsamplingWarning, match="was therefore kept"):
        point, _ = chain(tuna).step(start)
    assert distance(point, start) < 0.2


def test_a_start_near_the_mode_is_kept_without_a_word(tuna, near):
    """With one generator the first move is that of a chain without tuning, which never leaves its start."""
    tuned, plain = (chain(tuna, tune).step(near) for tune in (10, 0))
    assert distance(tuned[0], plain[0]) == 0.0


def test_without_tuning_every_start_is_kept(line, tuna):
    for start in (line.initial_point(), FAR):
        point, _ = chain(tuna, tune=0).step(start)
        assert distance(point, start) < 0.2


def test_pickles_know_the_initial_point(line, tuna, interpreted):
    one, other = chain(tuna), chain(cloudpickle.loads(cloudpickle.dumps(tuna)))
    start = line.initial_point()
    require_same_path("A pickle", move(other, start, 5), move(one, start, 5), "Its start is another.")
    other.setup_chain(np.random.default_rng(3), 10, 10)
    with pytest.warns(SubsamplingWarning, match="was therefore kept"):
        other.step(FAR)


def test_the_initial_point_is_that_of_the_model(line, near):
    """Not one that the step was built with."""
    with backend.interpreted():
        step = TunaMH(model=line, switch_above=np.inf, initial_point={**line.initial_point(), **near}, rng=1)
    assert distance(chain(step).step(line.initial_point())[0], near) < 0.2


def test_other_steps_may_have_moved_already(line, near):
    """The start of the block counts, not that of other variables."""
    with backend.interpreted():
        step = MetropolisHastings([line["a"], line["b"]], proposal=Laplace(), model=line, rng=1)
    start = {**line.initial_point(), "sigma_log__": np.array(0.4)}
    assert distance(chain(step).step(start)[0], near) < 0.2


@pytest.mark.slow("starts workers")
def test_without_adaptation_sequential_and_parallel_chains_start_alike(line):
    """PyMC sets `tune` and resets tuning where chains run in turn, and does neither in workers."""
    step = TunaMH(model=line, switch_above=np.inf, tune=False, rng=1)
    parallel, sequential = chain(step), chain(step)
    sequential.tune = True
    sequential.reset_tuning()
    start = line.initial_point()
    expected = move(parallel, start, 5)
    require_same_path("A sequential chain", move(sequential, start, 5), expected, "It starts elsewhere.")


def test_other_proposals_start_where_they_are_told(line):
    """A random walk finds its way from the model's initial point, too."""
    with backend.interpreted():
        step = MetropolisHastings(model=line, proposal=RandomWalk(0.01), rng=1)
    for start in (line.initial_point(), FAR):
        assert distance(chain(step).step(start)[0], start) < 0.2
