"""The Metropolis-Hastings kernel against chains, enumerations and sums written independently."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba.extending import register_jitable
from scipy.special import stdtrit

from pymc_austerity.acceptance import Exact, TTest
from pymc_austerity.acceptance.base import RuleFunctions, nothing_read, standard_error
from pymc_austerity.kernels.metropolis import (
    Rule,
    draw_without_replacement,
    merge,
    restore_order,
    sequential_test,
    transitions,
)
from pymc_austerity.kernels.subsample import ALL_ROWS, NO_ROWS, Rows, rows_of
from pymc_austerity.proposals import RandomWalk
from pymc_austerity.proposals.base import no_adaptation
from pymc_austerity.target import Target
from tests.kernels.engines import (
    BOUND_PROPOSALS,
    GIVEN,
    REGRESSION,
    ScriptedRng,
    assert_same_traces,
    compiled_trace,
    given_transition,
    interpreted_trace,
    nothing,
    reference_test,
    regression_data,
    rule_of,
    run_chain,
)
from tests.kernels.three_states import (
    GLOBAL,
    JUMPS,
    LAW,
    RIGHT,
    TABLE,
    TERMS,
    WITHOUT,
    WRONG_WAY_ROUND,
    counts_of_moves,
    jump,
    kernel_matrix,
    table_global,
    table_terms,
    with_rest,
    worst_p,
)
from tests.statistical.errors import LIMIT
from tests.statistical.theory import stationary

N, D = 400, 2
P_LIMIT = 1e-4


@pytest.fixture(scope="module")
def regression():
    return regression_data(N)


RULES = {
    "exact": Exact(),
    "pocock": TTest(0.05, 50),
    "growing": TTest(0.1, 20, growth=2.0, boundary=0.75),
    "one_batch": TTest(0.5, 30),
}


# (a) Interpreted and compiled ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "proposal"),
    [
        *((["exact"], proposal) for proposal in BOUND_PROPOSALS),
        (["pocock", "growing", "one_batch"], "user"),
    ],
)
@pytest.mark.covering(1)
def test_interpreted_and_compiled_draws_are_identical(rules, proposal, regression):
    bound = BOUND_PROPOSALS[proposal]
    for rule in map(RULES.get, rules):
        (ours, state, after), (theirs, plain_state, plain_after) = (
            run_chain(400, bound, rule, regression, make=make, tune=True)
            for make in (compiled_trace, interpreted_trace)
        )
        assert 20 < ours.accepted.sum() < 350  # something happened
        assert after == plain_after  # as many random numbers were used
        assert_same_traces(ours, theirs, error=1e-13)
        for a, b in zip(state, plain_state, strict=True):
            np.testing.assert_array_equal(a, b)


# (b) Without subsampling: plain Metropolis-Hastings -------------------------------------------------


def plain_chain(n, log_density, q, scale, rng):
    """Metropolis-Hastings as in a textbook: normals for the step, then one uniform."""
    states, accepted, here = [], [], log_density(q)
    for _ in range(n):
        q_new = q + scale * rng.standard_normal(len(q))
        there = log_density(q_new)
        accepted.append(math.log(rng.random()) < there - here)
        if accepted[-1]:
            q, here = q_new, there
        states.append(q)
    return np.array(states), np.array(accepted)


def test_exact_rule_is_a_plain_chain_bit_for_bit(regression):
    x, y = regression

    def log_density(q):
        return -0.5 * q @ q / 4 - 0.5 * np.sum((y - x @ q) ** 2)

    scale = np.array([0.1, 0.15])
    bound, rule = RandomWalk(scale).bind(D), Exact()
    ours, _, after = run_chain(5000, bound, rule, regression, seed=5, tune=True)
    rng = np.random.default_rng(5)
    states, accepted = plain_chain(5000, log_density, np.array([0.5, -1.0]), scale, rng)
    np.testing.assert_array_equal(ours.q, states)
    np.testing.assert_array_equal(ours.accepted, accepted)
    assert 500 < accepted.sum() < 4500
    assert after == rng.random()


# (c) Everything enumerated --------------------------------------------------------------------------


@register_jitable
def table_terms_wrong_sign(q_new, q, index, args):
    return -table_terms(q_new, q, index, args)


@pytest.mark.parametrize(
    ("hastings", "target"),
    [
        (WITHOUT, TABLE),
        (WRONG_WAY_ROUND, TABLE),
        (RIGHT, Target(nothing, table_terms)),
        (RIGHT, Target(table_global, table_terms_wrong_sign)),
    ],
)
def test_planted_faults_change_the_law_of_three_states(hastings, target):
    matrix = kernel_matrix(hastings=hastings, target=target)
    assert np.abs(stationary(matrix) - LAW).max() > 0.02


def moves(trace, n, hastings, terms, rule, seed):
    """States of a compiled chain, and counts of its moves from each state to each.

    Given its state, each move is a fresh draw from that row of the transition matrix.
    """
    schedule = rule.bind(terms.shape[1])
    rng = np.random.default_rng(seed)
    out = trace(n, False, rng, np.array([0.0]), (terms,), rows_of(schedule), hastings, schedule)
    states = out.q[:, 0].astype(int)
    return states, counts_of_moves(states)


def given_test(rng, psi, terms, population, schedule, decide):
    """`sequential_test` on given terms: (terms read, stages, mean, standard error)."""
    sample, stages, n_read = sequential_test(
        rng, psi, math.nan, None, None, (terms,), Rows(len(terms), population, NO_ROWS, NO_ROWS, ALL_ROWS, 0),
        Rule(schedule, 0, *RuleFunctions(None, decide, None), None), GIVEN,
    )  # fmt: skip
    assert (sample.n_local, sample.n) == (len(terms), n_read)
    return sample.n, stages, sample.mean, standard_error(sample.n, sample.n_local, sample.m2)


SIX = np.array([0.9, -0.4, 0.25, -0.1, 0.6, -1.1])
SMALL_TESTS = [TTest(0.1, 2), TTest(0.2, 2), TTest(0.25, 2, boundary=0.8)]


@cache
def outcomes(rule, psi, fpc=True):
    """Exact law of (terms read, decision): all 720 orders of six rows are equally likely."""
    law = dict.fromkeys(itertools.product((2, 4, 6), (False, True)), 0)
    for order in itertools.permutations(SIX):
        law[reference_test(order, psi, rule, fpc)[:2]] += 1
    return {key: count / 720 for key, count in law.items()}


@pytest.mark.parametrize("rule", SMALL_TESTS, ids=str)
@pytest.mark.parametrize("psi", [-0.3, 0.02, 0.2])
def test_decisions_on_six_rows_enumerated(rule, psi):
    """All scripts of the generator, each equally likely, against all orders of the rows."""
    schedule = rule.bind(6)
    law = dict.fromkeys(itertools.product((2, 4, 6), (False, True)), 0)
    choices = [(np.arange(6 - k) + 0.5) / (6 - k) for k in range(4)]
    for script in itertools.product(*choices):
        population = np.arange(6)
        n, stages, mean, error = given_test(
            ScriptedRng(script), psi, SIX, population, schedule, rule.functions.decide
        )
        assert stages == n / 2
        assert population.tolist() == list(range(6))
        assert (error == 0) == (n == 6)
        law[n, bool(mean > psi)] += 1 / 360
    expected = outcomes(rule, psi)
    assert law == pytest.approx(expected, abs=1e-12)
    assert sum(expected[n, d] > 0 for n in (2, 4) for d in (False, True)) >= 2
    assert outcomes(rule, psi, fpc=False) != pytest.approx(expected, abs=1e-3)


def subsampled_matrix(terms, rule):
    """Transition probabilities of the three states with a t-test, by enumeration.

    For each order of the terms the decision is constant in psi between the edges of the stopping
    regions.
    """
    n_local = terms.shape[1]
    matrix = np.zeros((3, 3))
    for i, j in itertools.permutations(range(3), 2):
        base = GLOBAL[j] - GLOBAL[i] + math.log(JUMPS[j, i] / JUMPS[i, j])
        accepted = []
        for order in itertools.permutations(terms[j] - terms[i]):
            edges = [np.mean(order)]
            for n in range(rule.batch_size, n_local, rule.batch_size):
                mean, error = np.mean(order[:n]), np.std(order[:n], ddof=1) / np.sqrt(n)
                far = error * np.sqrt(1 - (n - 1) / (n_local - 1)) * stdtrit(n - 1, rule.epsilon)
                edges += [mean - far, mean, mean + far]
            u = np.unique(np.r_[0, np.clip(np.exp(np.array(edges) * n_local + base), 0, 1), 1])
            psi = (np.log((u[1:] + u[:-1]) / 2) - base) / n_local
            accepted.append(np.diff(u) @ [reference_test(order, p, rule)[1] for p in psi])
        matrix[i, j] = JUMPS[i, j] * np.mean(accepted)
    return with_rest(matrix)


def test_three_states_with_a_t_test_have_the_enumerated_law():
    terms, rule = np.ascontiguousarray(TERMS[:, :4]), TTest(0.25, 2)
    matrix = subsampled_matrix(terms, rule)
    biased = stationary(matrix)
    trace = compiled_trace(jump, no_adaptation, rule.functions, TABLE)
    states, counts = moves(trace, 200_000, RIGHT, terms, rule, seed=11)
    assert worst_p(counts, matrix) > P_LIMIT
    # The law itself, with the error of a Markov chain's averages from its fundamental matrix.
    inverse = np.linalg.inv(np.eye(3) - matrix + biased)
    exact = np.exp(terms.sum(axis=1) + GLOBAL)
    z_exact = []
    for k in range(3):
        centred = np.eye(3)[k] - biased[k]
        variance = biased @ (2 * centred * (inverse @ centred) - centred**2)
        error = np.sqrt(variance / len(states))
        assert abs(np.mean(states == k) - biased[k]) < LIMIT * error
        z_exact.append((np.mean(states == k) - exact[k] / exact.sum()) / error)
    # What austerity costs here is more than the check allows, so that it can tell.
    assert np.abs(z_exact).max() > LIMIT


# (d) Draws without replacement ----------------------------------------------------------------------


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    n_local=st.integers(1, 40),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
@example(n_local=1, cuts=[1], seed=0)
@example(n_local=5, cuts=[4, 5], seed=0)
def test_draws_are_distinct_and_undone(n_local, cuts, seed):
    rng, population = np.random.default_rng(seed), np.arange(n_local)
    ends, start = sorted({min(c, n_local) for c in cuts}), 0
    for end in ends:
        before = population[:start].copy()
        draw_without_replacement(rng, population, start, end)
        np.testing.assert_array_equal(population[:start], before)  # rows already read stay read
        np.testing.assert_array_equal(np.sort(population), np.arange(n_local))
        start = end
    restore_order(population, start)
    np.testing.assert_array_equal(population, np.arange(n_local))


def swap_with_any(rng, population, start, end):
    """The exchange is with any place, not only with those that are left."""
    for k in range(start, end):
        j = int(rng.random() * len(population))
        population[k], population[j] = population[j], population[k]


@pytest.mark.parametrize(("draw", "right"), [(draw_without_replacement, True), (swap_with_any, False)])
def test_all_ordered_samples_are_equally_likely(draw, right):
    """Each of the 7 * 6 * 5 scripts of the generator gives another ordered sample of 3 from 7.

    Planted fault: an exchange with any place.
    """
    samples = set()
    for script in itertools.product(*((np.arange(7 - k) + 0.5) / (7 - k) for k in range(3))):
        population = np.arange(7)
        rng = ScriptedRng(script)
        draw(rng, population, 0, 1)
        draw(rng, population, 1, 3)
        samples.add(tuple(population[:3].tolist()))
    assert (samples == set(itertools.permutations(range(7), 3))) == right


def test_reading_everything_uses_no_random_numbers():
    population = np.arange(8)
    draw_without_replacement(ScriptedRng(), population, 0, 8)
    np.testing.assert_array_equal(population, np.arange(8))
    rng = ScriptedRng([0.99, 0.5, 0.1])
    draw_without_replacement(rng, population, 0, 3)
    draw_without_replacement(rng, population, 3, 8)
    assert rng.calls == ["random"] * 3
    restore_order(population, 8)
    np.testing.assert_array_equal(population, np.arange(8))


def test_a_transition_asks_for_the_proposal_and_then_for_one_u(regression):
    rng = ScriptedRng([0.5], [0.1, -0.2])
    bound, rule, schedule = RandomWalk(0.1).bind(D), Exact(), Exact().bind(N)
    transitions(
        1, False, rng, np.zeros(D), regression, rows_of(schedule), rule_of(rule, schedule),
        bound.kernel(bound.state), REGRESSION,
    )  # fmt: skip
    assert rng.calls == ["normal", "random"]


# (e) Running moments --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8),
    center=st.sampled_from([0.0, 3.0, -1e4, 1e8]),
    spread=st.sampled_from([1e-3, 1.0, 1e5]),
    seed=st.integers(0, 2**32 - 1),
)
@example(sizes=[500, 500, 214], center=1e8, spread=1.0, seed=0)
def test_merge_equals_moments_of_everything(sizes, center, spread, seed):
    rng = np.random.default_rng(seed)
    batches = [center + spread * rng.normal(size=k) for k in sizes]
    everything = np.concatenate(batches)
    sample = nothing_read(len(everything))
    for batch in batches:
        sample = merge(sample, batch)
    n = sample.n
    exact_mean, exact = exact_moments(everything)
    # No running mean can do better than its own rounding, |mean| eps, times the spread.
    rounding = 2.2e-16 * abs(center) * np.sqrt(n * exact)
    assert sample.mean == pytest.approx(exact_mean, rel=1e-12, abs=1e-12 * spread)
    assert sample.m2 == pytest.approx(exact, rel=1e-12, abs=rounding)
    assert (n, sample.n_local) == (len(everything), len(everything))
    assert (sample.low, sample.high) == (everything.min(), everything.max())
    assert sample.center == pytest.approx(exact_moments(batches[0])[0], rel=1e-12, abs=1e-12 * spread)
    distances = np.abs(everything - sample.center)
    assert sample.absolute == pytest.approx(math.fsum(distances), rel=1e-12)
    assert sample.cubed == pytest.approx(math.fsum(distances**3), rel=1e-12)


def exact_moments(x):
    """Mean and sum of squared deviations of doubles, in rational arithmetic."""
    numbers = [Fraction(float(v)) for v in x]
    mean = sum(numbers) / len(numbers)
    return float(mean), float(sum((v - mean) ** 2 for v in numbers))


def test_merge_keeps_the_variance_of_numbers_with_a_mean_of_1e8():
    x = 1e8 + np.random.default_rng(13).normal(size=1000)
    sample = merge(merge(nothing_read(1000), x[:400]), x[400:])
    exact_mean, exact = exact_moments(x)
    assert sample.mean == pytest.approx(exact_mean, rel=1e-12)
    assert sample.m2 == pytest.approx(exact, rel=2e-8)  # |mean| / sd times eps
    assert np.sum(x**2) - len(x) * x.mean() ** 2 != pytest.approx(exact, rel=0.1)  # planted fault


# (f) Edges -------------------------------------------------------------------------------------------


def decide_once(terms, psi, rule, seed=0):
    rng, population = np.random.default_rng(seed), np.arange(len(terms))
    return given_test(rng, psi, terms, population, rule.bind(len(terms)), rule.functions.decide)


def one_transition(global_=0.0, terms=(0.0,) * 6, hastings=0.0, u=0.5, leaves=False, rule=None):
    """One transition whose every ingredient is given."""
    rng = ScriptedRng([u, *[0.0] * 100])
    return given_transition(rng, terms, base=(global_, hastings), leaves=leaves, rule=rule)[0]


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("rule", [Exact(), TTest(0.05, 2)])
@pytest.mark.parametrize(
    ("changes", "accepted"),
    [
        ({"global_": 5.0}, True),
        ({"global_": -5.0}, False),
        ({"hastings": 5.0}, True),
        ({"hastings": -5.0}, False),
        ({"terms": [1.0, 2, 1, 2, 1, 2]}, True),
        ({"terms": [-1.0, -2, -1, -2, -1, -2]}, False),
        ({"terms": [-INF, 1, 1, 1, 1, 1]}, False),
        ({"terms": [NAN, 1, 1, 1, 1, 1]}, False),
        ({"terms": [INF, -1, -1, -1, -1, -1]}, False),
        ({"terms": [INF, -1, -1, -1, -1, -1], "leaves": True}, True),
        ({"terms": [INF, -INF, 1, 1, 1, 1]}, False),
        ({"global_": INF}, False),
        ({"global_": INF, "leaves": True}, True),
        ({"hastings": INF}, False),
        ({"global_": INF, "terms": [-1.0, -2, -1, -2, -1, -2], "leaves": True}, True),
        ({"global_": INF, "terms": [-INF, 1, 1, 1, 1, 1]}, False),
        ({"global_": INF, "hastings": -INF}, False),
        ({"u": 0.0, "global_": -1e6}, True),  # log 0 = -inf: any finite ratio is above
        ({"u": 0.0, "terms": [-INF, 1, 1, 1, 1, 1]}, False),
    ],
)
def test_infinite_and_undefined_ratios(changes, accepted, rule):
    with np.errstate(invalid="ignore"):  # inf - inf; compiled code does not warn
        assert one_transition(**changes, rule=rule).accepted == accepted


@pytest.mark.parametrize("base", [-INF, NAN])
@pytest.mark.parametrize("part", ["global_", "hastings"])
@pytest.mark.parametrize("rule", [Exact(), TTest(0.05, 2)])
def test_outside_the_prior_no_data_are_read(base, part, rule):
    out = one_transition(**{part: base}, rule=rule)
    assert not out.accepted
    assert (out.n_used, out.n_stages, out.n_exhausted) == (0, 0, 0)
    assert math.isnan(out.log_ratio_mean)


@pytest.mark.parametrize("psi", [INF, -INF])
def test_a_stage_that_is_not_finite_stops_the_reading(psi):
    terms = np.full(10_000, -INF)
    n, stages, mean, error = decide_once(terms, psi, TTest(0.05, 100))
    assert (n, stages, mean) == (100, 1, -INF)
    assert math.isnan(error)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.25, 2.0**-10, 0.1, -1.7, 1e-3, 1 / 3])
def test_equal_terms_decide_nothing_whatever_their_binary_digits(value):
    """Equal terms in the first two batches, and others later, leave the test undecided."""
    n, _, mean, _ = decide_once(np.full(4000, value), -0.3, TTest(0.05, 500))
    assert n == 4000
    assert mean == pytest.approx(value)


def test_rare_rows_are_not_missed_because_the_others_are_equal():
    """20 rows in 10000 decide; a first batch without one (p = .36) must not end the test."""
    terms = np.full(10_000, -0.001)
    terms[::500] = 1.0
    decisions = [decide_once(terms, 0.0, TTest(0.01, 500), seed)[2] > 0 for seed in range(100)]
    assert terms.mean() > 0
    assert np.mean(decisions) > 0.95


def test_chunks_do_not_change_a_decision():
    """More terms than are evaluated at a time, in an order that matters to nobody."""
    terms = np.random.default_rng(14).normal(size=20_000)
    n, _, mean, error = decide_once(terms, 0.0, Exact())
    assert n == 20_000
    assert mean == pytest.approx(terms.mean(), rel=1e-11)
    assert error == 0.0
    n, _, mean, error = decide_once(terms, mean - 3.0, TTest(0.5, 17_000))
    rows = np.arange(20_000)
    draw_without_replacement(np.random.default_rng(0), rows, 0, 17_000)
    seen = terms[rows[:17_000]]
    assert n == 17_000
    assert mean == pytest.approx(seen.mean(), rel=1e-11)
    correction = 1 - (17_000 - 1) / (20_000 - 1)
    assert error == pytest.approx(seen.std(ddof=1) / np.sqrt(17_000) * np.sqrt(correction))
