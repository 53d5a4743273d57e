"""The kernel on all the data: against the sequential kernel and an enumerated chain; what it reads."""

import itertools
import math
from copy import deepcopy
from functools import cache

import numpy as np
import pymc as pm
import pytest
from numba.extending import register_jitable

from pymc_austerity import AusterityMH, MetropolisHastings, RandomWalk
from pymc_austerity.acceptance import Exact, ExactBarker
from pymc_austerity.acceptance.base import RuleFunctions, logistic
from pymc_austerity.compilation import entry
from pymc_austerity.kernels.metropolis import Current, full_transitions, total, transitions, unknown_sum
from pymc_austerity.kernels.subsample import rows_of
from pymc_austerity.model.compile.protocol import constructor
from pymc_austerity.model.factorisation import vector_of
from pymc_austerity.target import CHUNK, Target
from tests.kernels.engines import (
    BOUND_PROPOSALS,
    ScriptedRng,
    by,
    itself,
    make_trace,
    normal_prior,
    regression_data,
    rule_of,
    run_chain,
)
from tests.kernels.three_states import (
    LAW,
    RIGHT,
    TABLE,
    TERMS,
    WITHOUT,
    WRONG_WAY_ROUND,
    barker_matrix,
    jump,
    matrix_by_bisection,
    metropolis_matrix,
)
from tests.statistical.theory import stationary

INF, NAN = math.inf, math.nan
RULES = {"exact": Exact(), "barker": ExactBarker()}


def unknown(n_local, q):
    """A state whose sum is not known."""
    return unknown_sum(n_local, np.array(q, float))


@register_jitable
def regression_rows(q, index, args):
    """log density of y_i ~ N(x_i . q, 1), up to a constant."""
    x, y = args
    out = np.empty(index.shape[0])
    for k in range(index.shape[0]):
        i = index[k]
        residual = y[i]
        for d in range(q.shape[0]):
            residual -= x[i, d] * q[d]
        out[k] = -0.5 * residual * residual
    return out


FULL_REGRESSION = Target(normal_prior, log_terms=regression_rows)


def only(draw):
    """A decision rule of which nothing but this is called."""
    return RuleFunctions(draw, None, None)


@cache
def compiled_full(propose, adapt, draw, target):
    make_rule, proposal = constructor(only(draw)), by(propose, ..., adapt)
    return entry(make_trace(full_transitions, itself, make_rule, proposal, target), cache=False)


START = np.array([0.5, -1.0])


# Against the sequential kernel ----------------------------------------------------------------------


def run_both(n, n_local, bound, rule):
    """Traces of the two kernels, and states of proposals and generators at the end."""
    data = regression_data(n_local)
    theirs = run_chain(n, bound, rule, data, tune=True)
    rng, state = np.random.default_rng(3), deepcopy(bound.state)
    trace = compiled_full(bound.propose, bound.adapt, rule.functions.draw, FULL_REGRESSION)
    ours = trace(n, True, rng, START.copy(), data, unknown(n_local, START), state)
    return theirs, (ours, state, rng.random())


# Each pair is compiled anew.
@pytest.mark.parametrize(("proposal", "rule"), [("scales", "exact"), ("adaptive", "barker")])
@pytest.mark.parametrize("n_local", [400, 2 * CHUNK + 100])
@pytest.mark.covering(1)
def test_both_kernels_make_the_same_transitions(n_local, proposal, rule):
    (theirs, their_state, their_next), (ours, state, following) = run_both(
        600, n_local, BOUND_PROPOSALS[proposal], RULES[rule]
    )
    assert 5 < ours.accepted.sum() < 590  # something happened
    for name in ("q", "accepted", "n_used"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
    np.testing.assert_allclose(ours.psi, theirs.psi, rtol=0, atol=1e-9)
    np.testing.assert_allclose(n_local * ours.mean, n_local * theirs.mean, rtol=1e-9, atol=1e-9)
    assert following == their_next  # as many random numbers were used
    for a, b in zip(state, their_state, strict=True):
        np.testing.assert_array_equal(a, b)


# What is read ---------------------------------------------------------------------------------------


class Reader:
    """A normal target in Python that notes the state and the rows of each call."""

    def __init__(self, n_local, support=INF):
        self.n_local, self.support = n_local, support
        self.y = np.random.default_rng(7).normal(size=n_local)
        self.calls = []
        self.target = Target(self.global_log_ratio, log_terms=self.log_terms)

    def global_log_ratio(self, q_new, q, args):
        return 0.0 if abs(q_new[0]) < self.support else -INF

    def log_terms(self, q, index, args):
        self.calls.append((float(q[0]), index.copy()))
        return -0.5 * (self.y[index] - q[0]) ** 2

    def passes(self):
        """States at which all rows were read, once each and in order, since the last question."""
        calls, self.calls = self.calls, []
        states = [state for state, _ in itertools.groupby(calls, key=lambda call: call[0])]
        rows = np.concatenate([index for _, index in calls]) if calls else np.empty(0, int)
        np.testing.assert_array_equal(rows, np.tile(np.arange(self.n_local), len(states)))
        return states

    def move(self, n, q, current, seed=8, scale=0.1):
        bound = RandomWalk(scale).bind(1)
        return full_transitions(
            n, False, np.random.default_rng(seed), np.array(q), (), current, Exact().functions,
            bound.kernel(bound.state), self.target,
        )  # fmt: skip


@pytest.mark.parametrize("n_local", [300, 2 * CHUNK + 1])
def test_one_pass_for_each_transition(n_local):
    reader, current = Reader(n_local), unknown(n_local, [0.0])
    out = reader.move(20, [0.0], current)
    states = reader.passes()
    assert len(states) == 21  # one for a start that is unknown
    assert states[0] == 0.0
    assert 0 < out.n_accepted < 20
    assert out.n_used == 20 * n_local
    # On from the last state: none for the start.
    kept = current.total[0]
    out = reader.move(20, out.q, current, seed=9)
    assert len(reader.passes()) == 20
    # The sum is right, and not only cheap.
    again = unknown(n_local, [0.0])
    reader.move(0, [0.0], again)
    assert reader.passes() == []
    assert current.total[0] == total(out.q, (), n_local, reader.target) != kept


def test_a_sum_of_another_state_or_none_is_computed_anew():
    reader, current = Reader(300), unknown(300, [0.0])
    out = reader.move(10, [0.0], current)
    reader.passes()
    moved = reader.move(10, [0.1], current, seed=10)
    states = reader.passes()
    assert len(states) == 11
    assert states[0] == 0.1
    fresh = reader.move(10, [0.1], unknown(300, [0.1]), seed=10)
    np.testing.assert_array_equal(moved.q, fresh.q)
    assert moved.n_accepted == fresh.n_accepted
    reader.passes()
    current.total[0] = NAN
    reader.move(10, moved.q, current, seed=11)
    states = reader.passes()
    assert len(states) == 11
    assert states[0] == moved.q[0]
    assert out.q[0] != 0.1


def test_outside_the_prior_no_data_are_read():
    reader, current = Reader(300, support=0.0), unknown(300, [0.0])
    out = reader.move(20, [0.0], current)
    assert len(reader.passes()) == 1
    assert (out.n_used, out.n_stages, out.n_exhausted, out.n_accepted) == (0, 0, 0, 0)
    assert math.isnan(out.log_ratio_mean)
    assert out.q[0] == current.q[0] == 0.0
    assert current.total[0] == total(np.zeros(1), (), 300, reader.target)


def test_many_transitions_at_once_equal_one_at_a_time():
    """And the sum does not drift: after many moves it is that of the terms at the state, to the last bit."""
    reader, bound, results = Reader(400), BOUND_PROPOSALS["adaptive"], []
    for lengths in ([2000], [1] * 2000):
        rng, state, current = np.random.default_rng(5), deepcopy(bound.state), unknown(400, START)
        q, counts = START, np.zeros(4)
        for n in lengths:
            out = full_transitions(
                n, True, rng, q, (), current, Exact().functions, bound.kernel(state), reader.target
            )
            q = out.q
            counts += out.n_accepted, out.n_used, out.n_stages, out.n_exhausted
        assert current.total[0] == total(q, (), 400, reader.target)
        np.testing.assert_array_equal(current.q, q)
        last = out.accepted, out.log_ratio_mean, out.log_ratio_se, out.psi
        results.append((q, counts, last, rng.random(), *state))
    assert 500 < results[0][1][0] < 1900
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_states_are_not_shared_with_the_caller():
    reader, q, current = Reader(300), np.array([0.0]), unknown(300, [0.0])
    out = reader.move(20, q, current)
    assert q[0] == 0.0
    assert not np.shares_memory(out.q, current.q)
    assert not np.shares_memory(q, current.q)


# Sums ------------------------------------------------------------------------------------------------


def total_of(terms):
    target = Target(log_terms=lambda q, index, args: args[0][index])
    return total(np.zeros(1), (terms,), len(terms), target)


@pytest.mark.parametrize("n_local", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_total_equals_the_sum(n_local):
    terms = -1000 + np.random.default_rng(12).normal(size=n_local)
    assert total_of(terms) == pytest.approx(math.fsum(terms), rel=1e-13)


def test_sums_of_chunks_are_compensated():
    """Both ways round: the next part is larger than the sum, or smaller."""
    for parts in ([1e16, 1.0, -1e16], [1.0, 1e16, 1.0, -1e16]):
        terms = np.zeros(len(parts) * CHUNK)
        terms[::CHUNK] = parts
        assert total_of(terms) == math.fsum(parts) != np.cumsum(parts)[-1]


@pytest.mark.parametrize(
    ("values", "expected"), [([-INF], -INF), ([INF], INF), ([INF, -INF], NAN), ([NAN], NAN)]
)
def test_sums_that_are_not_finite(values, expected):
    for place in itertools.product((0, CHUNK, 2 * CHUNK + 5), repeat=len(values)):
        if len(set(place)) < len(values):
            continue
        terms = np.ones(2 * CHUNK + 10)
        terms[list(place)] = values
        with np.errstate(invalid="ignore"):
            np.testing.assert_equal(total_of(terms), expected)


# Infinite and undefined terms ------------------------------------------------------------------------


def one_transition(old, new, global_=0.0, hastings=0.0, u=0.5, rule=RULES["exact"]):
    """One transition from 0 to 1 with given terms at both, by the two kernels: is it accepted?"""
    terms = np.array([old, new], dtype=float)
    n_local = terms.shape[1]

    def propose(state, q, rng):
        return np.ones(1), hastings

    target = Target(
        lambda *_: global_,
        lambda q_new, q, index, args: (terms[int(q_new[0])] - terms[int(q[0])])[index],
        lambda q, index, args: terms[int(q[0])][index],
    )
    current, schedule = unknown(n_local, [0.0]), rule.bind(n_local)
    with np.errstate(invalid="ignore"):  # inf - inf; compiled code does not warn
        ours = full_transitions(
            1, False, ScriptedRng([u]), np.zeros(1), (), current, rule.functions, by(propose), target
        )
        theirs = transitions(
            1, False, ScriptedRng([u]), np.zeros(1), (), rows_of(schedule), rule_of(rule, schedule),
            by(propose), target,
        )  # fmt: skip
        expected = total(ours.q, (), n_local, target)
    assert ours.accepted == theirs.accepted == ours.q[0] == ours.n_accepted
    assert ours.psi == theirs.psi or math.isnan(ours.psi)
    assert current.q[0] == ours.q[0]
    np.testing.assert_equal(current.total[0], expected)
    return ours.accepted


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_infinite_and_undefined_terms(rule):
    for old, new in itertools.product(itertools.product((0.0, INF, -INF, NAN), repeat=2), repeat=2):
        accepted = one_transition(old, new, rule=rule)
        if -INF in new or NAN in (*old, *new) or INF in new:  # a chain would never leave infinity
            assert not accepted, (old, new)
    finite = [0.3, -0.2, 0.1]
    for place in range(3):
        outside = [*finite]
        outside[place] = -INF
        assert not one_transition(finite, outside, rule=rule)
        assert not one_transition(finite, outside, global_=INF, rule=rule)
        assert not one_transition(finite, outside, u=0.0, rule=rule)
        assert not one_transition(outside, outside, rule=rule)
        assert one_transition(outside, finite, rule=rule)  # a start outside the support is left
    assert one_transition(finite, finite, global_=5.0, rule=rule)
    assert not one_transition(finite, finite, global_=-5.0, rule=rule)
    assert one_transition(finite, finite, hastings=5.0, rule=rule)
    assert not one_transition(finite, finite, hastings=-5.0, rule=rule)
    assert one_transition(finite, finite, global_=-1e6, u=0.0, rule=rule)
    for base in ({"global_": -INF}, {"hastings": -INF}, {"global_": NAN}, {"global_": INF, "hastings": -INF}):
        assert not one_transition(finite, finite, **base, rule=rule)


def test_a_tie_rejects():
    same = [0.5, -0.5, 0.25]
    assert not one_transition(same, same, global_=math.log(0.5))
    assert one_transition(same, same, global_=np.nextafter(math.log(0.5), 0))
    assert not one_transition(same, same, rule=ExactBarker())  # logit 1/2 = 0


# Three states, enumerated -----------------------------------------------------------------------------

MATRICES = {"exact": metropolis_matrix(), "barker": barker_matrix()}


@register_jitable
def flat_logistic(rng):
    """A planted fault: a logistic variable of twice the scale."""
    return 2.0 * logistic(rng)


@register_jitable
def rows_wrong_sign(q, index, args):
    return -args[0][int(q[0])][index]


@register_jitable
def no_global(q_new, q, args):
    return 0.0


def full_matrix(draw, hastings=RIGHT, target=TABLE, kept=None):
    """Transition probabilities of the kernel; `kept`: a sum that it believes to be that of its state."""

    def transition(rng, q):
        n_local = TERMS.shape[1]
        current = unknown(n_local, q) if kept is None else Current(n_local, q.copy(), np.array([kept]))
        return full_transitions(1, False, rng, q, (TERMS,), current, only(draw), by(jump, hastings), target)

    return matrix_by_bisection(transition)


@pytest.mark.parametrize("name", RULES)
def test_transition_probabilities_of_three_states_are_exact(name):
    matrix = full_matrix(RULES[name].functions.draw)
    np.testing.assert_allclose(matrix, MATRICES[name], atol=1e-12)
    np.testing.assert_allclose(stationary(matrix), LAW, atol=1e-12)
    # Barker's test accepts less often, at least half as often.
    off = ~np.eye(3, dtype=bool)
    ratio = MATRICES["barker"][off] / MATRICES["exact"][off]
    assert np.all((ratio >= 0.5 - 1e-12) & (ratio < 1))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    "bug",
    [
        {"hastings": WITHOUT},
        {"hastings": WRONG_WAY_ROUND},
        {"target": TABLE._replace(global_log_ratio=no_global)},
        {"target": TABLE._replace(log_terms=rows_wrong_sign)},
        {"kept": TERMS[0].sum()},  # the sum of another state
    ],
)
def test_planted_faults_change_the_law_of_three_states(bug, name):
    matrix = full_matrix(RULES[name].functions.draw, **bug)
    assert np.abs(stationary(matrix) - LAW).max() > 0.02


def test_a_wrong_scale_of_the_logistic_variable_changes_the_law():
    """Planted fault: a logistic variable of twice the scale."""
    assert np.abs(stationary(full_matrix(flat_logistic)) - LAW).max() > 0.02


# In a step --------------------------------------------------------------------------------------------

N = 1200
SCALE = 0.02


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(14)
    x = rng.normal(size=N)
    y = 0.3 + 0.7 * x + 0.5 * rng.normal(size=N)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 2, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", slope[0] + slope[1] * x, sigma, observed=y)
    return model


@pytest.fixture
def start():
    return {"slope": np.array([0.3, 0.7]), "sigma_log__": np.array(np.log(0.5))}


def chain_beside_slice(step, model, point, n):
    """Draws of slope and log sigma; the second step is a slice sampler on sigma."""
    other = pm.Slice([model["sigma"]], model=model, rng=np.random.default_rng(16))
    slopes, sigmas, flags = [], [], []
    for _ in range(n):
        point, (stats,) = step.step(point)
        slopes.append(point["slope"].copy())
        flags.append(stats["accepted"])
        point, _ = other.step(point)
        sigmas.append(float(point["sigma_log__"]))
    return np.array(slopes), np.array(sigmas), np.array(flags)


def plain_chain(model, start, sigmas, rng, barker):
    """Metropolis-Hastings on the log density of the model, given log sigma after each draw."""
    logp = model.compile_logp()
    slope, sigma, states, flags = start["slope"], start["sigma_log__"], [], []
    for following in sigmas:
        new = slope + SCALE * rng.standard_normal(2)
        u = rng.random()
        there, here = (float(logp({"slope": s, "sigma_log__": np.asarray(sigma)})) for s in (new, slope))
        flags.append((math.log(u / (1 - u)) if barker else math.log(u)) < there - here)
        slope = new if flags[-1] else slope
        states.append(slope)
        sigma = following
    return np.array(states), np.array(flags)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.covering(1)
def test_the_sum_is_not_used_again_after_another_step_moved(name, model, start):
    """And the chain is a textbook's, bit for bit."""
    make = {"exact": AusterityMH, "barker": MetropolisHastings}[name]
    rule = {"exact": {"epsilon": 0}, "barker": {"acceptance": RULES[name]}}[name]
    step = make(
        [model["slope"]], model=model, proposal=RandomWalk(SCALE), rng=np.random.default_rng(15), **rule
    )
    assert step._engine.full
    slopes, sigmas, flags = chain_beside_slice(step, model, start, 400)
    assert len(set(sigmas)) == 400
    rng = np.random.default_rng(15)
    states, accepted = plain_chain(model, start, sigmas, rng, name == "barker")
    np.testing.assert_array_equal(slopes, states)
    np.testing.assert_array_equal(flags, accepted)
    assert 40 < accepted.sum() < 360
    assert step.rng.random() == rng.random()


def test_a_sum_that_is_used_again_is_noticed(model, start, monkeypatch):
    step = AusterityMH(
        [model["slope"]], model=model, epsilon=0, proposal=RandomWalk(SCALE), rng=np.random.default_rng(15)
    )
    engine, kept = step._engine, unknown(N, start["slope"])

    def run(n, tune, rng, q, point, proposal_state):
        args = engine.target.args(point)
        return engine._transitions(n, tune, rng, q, args, kept, proposal_state)

    monkeypatch.setattr(engine, "run", run)
    slopes, sigmas, _ = chain_beside_slice(step, model, start, 400)
    states, _ = plain_chain(model, start, sigmas, np.random.default_rng(15), False)
    assert not np.array_equal(slopes, states)


def joint_step(model, **options):
    options = {"proposal": RandomWalk(SCALE), "rng": np.random.default_rng(17)} | options
    return AusterityMH(model=model, epsilon=0, **options)


def test_the_sum_is_kept_from_draw_to_draw(model, start):
    """With all variables in one block nothing else can move: the sum is that of the last state."""
    step = joint_step(model, steps_per_draw=7)
    engine, point = step._engine, start
    logp, plain = model.compile_logp(vars=[model["y"]]), engine.target.interpreted()
    point, _ = step.step(point)
    current = engine._current
    for _ in range(50):
        point, (stats,) = step.step(point)
        assert stats["n_used"] == N
        assert stats["n_stages"] == stats["exhausted"] == 1
        assert engine._current is current
        q = vector_of(step.factorisation, point)
        np.testing.assert_array_equal(current.q, q)
        assert current.total[0] == pytest.approx(total(q, engine.target.args(point), N, plain), rel=1e-14)
        assert current.total[0] == pytest.approx(float(logp(point)), rel=1e-12)


def positions(step, point, n):
    path = []
    for _ in range(n):
        point, _ = step.step(point)
        path.append(vector_of(step.factorisation, point))
    return np.array(path), point


def test_copies_and_chains_do_not_share_a_sum(model, start):
    step = joint_step(model)
    expected, last = positions(step, start, 30)
    step.setup_chain(np.random.default_rng(17), 0, 30)
    assert step._engine._current is None
    again, _ = positions(step, start, 30)
    np.testing.assert_array_equal(expected, again)
    other = deepcopy(step)
    assert other._engine._current is None
    kept = step._engine._current.q.copy(), step._engine._current.total.copy()
    elsewhere = {**last, "slope": last["slope"] + 0.05}
    moved, _ = positions(other, elsewhere, 30)
    np.testing.assert_array_equal(step._engine._current.q, kept[0])
    np.testing.assert_array_equal(step._engine._current.total, kept[1])
    # From a point that is not where it stopped: as a fresh chain does.
    step.rng = np.random.default_rng(18)
    jumped, _ = positions(step, elsewhere, 30)
    step.setup_chain(np.random.default_rng(18), 0, 30)
    fresh, _ = positions(step, elsewhere, 30)
    np.testing.assert_array_equal(jumped, fresh)
    assert not np.array_equal(moved, fresh)
