"""Proposals that users write: functions, objects, with and without numba."""

import math
import pickle
from copy import deepcopy

import cloudpickle
import numba
import numpy as np
import pytest
import scipy.stats
from pymc.step_methods.state import equal_dataclass_values

from pymc_austerity import AusterityMH, RandomWalk, SubsamplingWarning
from pymc_austerity.testing.steps import move

from .conftest import line_data, near_mode

SCALE = 0.02
INTERPRETED = pytest.warns(SubsamplingWarning, match="interpreted")
# Whether numba compiles the proposal is not the question.
either_way = pytest.mark.usefixtures("interpreted")


def compiled(q, rng):
    return q + SCALE * rng.standard_normal(q.shape[0]), 0.0


def with_scipy(q, rng):
    return scipy.stats.norm.rvs(q, SCALE, size=q.shape, random_state=rng), 0.0


class Walk:
    def __init__(self, scale):
        self.scale = scale
        self.calls = 0

    def propose(self, q, rng):
        self.calls += 1
        return q + self.scale * rng.standard_normal(q.shape[0]), 0.0


def path(line, proposal, near, n=20, **kwargs):
    """Points and statistics of n steps."""
    step = AusterityMH([line["b"]], model=line, proposal=proposal, **kwargs)
    return follow(step, near, n)


def follow(step, near, n=20):
    step.setup_chain(np.random.default_rng(6), 0, n)
    points, stats = move(step, near, n)
    names = ("accepted", "n_used", "log_ratio_mean", "psi")
    return [float(point["b"]) for point in points], [tuple(map(stat.get, names)) for stat in stats]


@pytest.fixture(scope="module")
def expected(line):
    """What the built-in random walk of the same size does."""
    return path(line, RandomWalk(scale=SCALE), near_mode(line))


def assert_close(one, two):
    """Equal decisions; numbers may differ in the last bits between interpreted and compiled."""
    np.testing.assert_allclose(one[0], two[0], rtol=1e-12)
    for left, right in zip(one[1], two[1], strict=True):
        assert left[:2] == right[:2]
        np.testing.assert_allclose(left[2:], right[2:], rtol=1e-9, atol=1e-15)


def test_the_reference_moves(expected):
    accepted = [s[0] for s in expected[1]]
    assert 2 < sum(accepted) < 18


def test_a_function_is_compiled(line, near, expected):
    """Without a warning, which would be an error here."""
    assert path(line, compiled, near) == expected


@pytest.mark.parametrize("proposal", [with_scipy, Walk(SCALE)], ids=["scipy", "object"])
@pytest.mark.covering(1)
def test_what_numba_cannot_compile_runs_interpreted(line, near, expected, proposal):
    with INTERPRETED as caught:
        found = path(line, proposal, near)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert_close(found, expected)


def test_interpreted_in_full(line, near):
    """All rows, in chunks, several transitions for each draw."""
    kwargs = {"epsilon": 0.0, "steps_per_draw": 3, "n": 5}
    with INTERPRETED:
        found = path(line, Walk(SCALE), near, **kwargs)
    assert_close(found, path(line, RandomWalk(scale=SCALE), near, **kwargs))


def test_a_lambda_with_an_integer_hastings_term(line, near, expected):
    assert path(line, lambda q, rng: (q + SCALE * rng.standard_normal(1), 0), near) == expected


def test_a_function_that_the_user_has_compiled(line, near, expected):
    assert path(line, numba.njit(compiled), near) == expected


def test_division_by_zero_in_a_function_of_the_user_is_an_error(line, near):
    """In compiled code too, and not a move to nowhere: here once in twenty moves."""
    with pytest.raises(ZeroDivisionError):
        path(line, lambda q, rng: (q + 1.0 / (0.0 if rng.random() < 0.05 else 1.0), 0.0), near, n=300)


@either_way
def test_the_hastings_term_counts(line, near):
    """psi = (log u - hastings - prior) / N."""
    plain, shifted = (
        path(line, lambda q, rng, h=h: (q + SCALE * rng.standard_normal(1), h), near, n=1)[1][0]
        for h in (0.0, 3.0)
    )
    assert plain[3] - shifted[3] == pytest.approx(3.0 / 2000, rel=1e-9)


@either_way
def test_an_infinite_hastings_term_rejects(line, near):
    points, stats = path(line, lambda q, rng: (q + 1.0, -math.inf), near, n=5)
    assert set(points) == {float(near["b"])}
    assert {s[1] for s in stats} == {0.0}


class TestAliasing:
    """Whatever a proposal does with q, or with what it returned, the chain is not changed."""

    @staticmethod
    def in_place(q, rng):
        q += SCALE * rng.standard_normal(q.shape[0])
        return q, 0.0

    @staticmethod
    def spoils_q(q, rng):
        new = q + SCALE * rng.standard_normal(q.shape[0])
        q[:] = 1e6
        return new, 0.0

    @pytest.mark.parametrize("name", ["in_place", "spoils_q"])
    @pytest.mark.covering(1)
    def test_compiled_and_interpreted(self, line, near, name):
        function, kwargs = getattr(self, name), {"n": 20, "steps_per_draw": 4}

        def propose(q, rng):
            return dict(f=function)["f"](q, rng)

        expected = path(line, RandomWalk(scale=SCALE), near, **kwargs)
        assert path(line, function, near, **kwargs) == expected
        with INTERPRETED:
            assert_close(path(line, propose, near, **kwargs), expected)

    def test_a_buffer_used_again(self, line, near):
        class Buffered:
            def __init__(self):
                self.buffer = np.empty(1)

            def propose(self, q, rng):
                self.buffer[:] = q + SCALE * rng.standard_normal(1)
                return self.buffer, 0.0

        kwargs = {"n": 20, "steps_per_draw": 4}
        with INTERPRETED:
            found = path(line, Buffered(), near, **kwargs)
        assert_close(found, path(line, RandomWalk(scale=SCALE), near, **kwargs))

    @either_way
    def test_the_point_is_not_changed(self, line, near):
        before = deepcopy(near)
        path(line, self.in_place, near, n=1)
        assert equal_dataclass_values(before, near)


class TestOtherArrays:
    """The chain stays in float64."""

    def test_strided(self, line, near, expected):
        def propose(q, rng):
            options = dict(scale=SCALE)
            new = q + options["scale"] * rng.standard_normal(q.shape[0])
            return np.repeat(new, 2)[::2], 0.0

        with INTERPRETED:
            found = path(line, propose, near)
        assert_close(found, expected)


class TestStepWithAUserProposal:
    @either_way
    def test_does_not_adapt(self, line, near):
        step = AusterityMH([line["b"]], model=line, proposal=compiled)
        step.setup_chain(np.random.default_rng(6), 100, 100)
        before = step.sampling_state.proposal_state
        _, (stats,) = step.step(near)
        assert math.isnan(stats["scale"])
        assert equal_dataclass_values(before, step.sampling_state.proposal_state)

    @pytest.mark.slow("compiles an engine outside the cache, twice")
    def test_pickle(self, line, near, expected):
        def propose(q, rng):
            return q + 0.02 * rng.standard_normal(q.shape[0]), 0.0

        step = AusterityMH([line["b"]], model=line, proposal=propose)
        other = cloudpickle.loads(cloudpickle.dumps(step))
        assert follow(other, near) == expected

    def test_pickle_and_copy_of_what_runs_interpreted(self, line, near, expected):
        with INTERPRETED:
            step = AusterityMH([line["b"]], model=line, proposal=Walk(SCALE))
        other = cloudpickle.loads(cloudpickle.dumps(step))
        with INTERPRETED:
            found = follow(other, near)
        assert_close(found, expected)
        assert_close(follow(deepcopy(step), near), expected)

    @either_way
    def test_is_not_kept_in_the_state(self, line):
        step = AusterityMH([line["b"]], model=line, proposal=Walk(SCALE))
        assert pickle.dumps(step.sampling_state)


@either_way
def test_dimension_of_q(line, near):
    seen = []

    def propose(q, rng):
        seen.append(q.copy())
        return q, 0.0

    step = AusterityMH([line["sigma"], line["b"]], model=line, proposal=propose)
    step.step(near)
    np.testing.assert_array_equal(seen[-1], [near["sigma_log__"], near["b"]])
    assert seen[-1].dtype == np.float64


@pytest.mark.slow("a chain of thousands of draws")
def test_an_asymmetric_proposal_with_its_hastings_term_is_right(line, near):
    """Multiplicative moves of b, whose Hastings term is log(b_new / b); the planted fault drops it."""
    means = {}
    for correct in (True, False):
        # A drift upwards, and its density ratio.
        def propose(q, rng, correct=correct):
            step = 0.03 * rng.standard_normal(1) + 0.02
            # log N(-step; .02, .03) - log N(step; .02, .03)
            forward = -0.5 * ((step[0] - 0.02) / 0.03) ** 2
            backward = -0.5 * ((-step[0] - 0.02) / 0.03) ** 2
            return q + step, (backward - forward if correct else 0.0)

        step = AusterityMH([line["b"]], model=line, proposal=propose, epsilon=0.0, steps_per_draw=20)
        means[correct] = np.mean(follow(step, near, 400)[0])
    x, y = line_data(2000)
    exact = np.sum(x * (y - 1.02)) / np.sum(x * x)
    sd = math.exp(0.03) / math.sqrt(np.sum(x * x))
    assert abs(means[True] - exact) < 0.25 * sd
    assert abs(means[False] - exact) > 0.5 * sd
