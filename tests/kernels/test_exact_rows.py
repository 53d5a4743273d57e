"""Exact rows, evaluated at every step: their numbering, and decisions about the others."""

import inspect
import math
import types

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pymc_austerity.acceptance import Exact, TTest
from pymc_austerity.kernels import metropolis
from pymc_austerity.kernels.log_ratio_range import exact_range
from pymc_austerity.kernels.subsample import (
    NO_ROWS,
    among_others,
    in_blocks,
    population_of,
    positions,
    rows_of,
)
from pymc_austerity.proposals import RandomWalk
from tests.kernels.engines import (
    REGRESSION,
    ScriptedRng,
    assert_same_traces,
    compiled_trace,
    given_transition,
    interpreted_trace,
    reference_test,
    regression_data,
    run_chain,
)
from tests.kernels.three_states import LAW, kernel_matrix, metropolis_matrix
from tests.statistical.theory import stationary

INF, NAN = math.inf, math.nan


# How the others are numbered --------------------------------------------------------------------------


@st.composite
def exact_rows(draw, largest=60):
    """(N, exact rows that leave at least one other)."""
    n = draw(st.integers(1, largest))
    rows = draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n - 1))
    return n, rows


def numbering(n, rows):
    """`Rows` of n terms, of which some are exact."""
    return rows_of(Exact().bind(n - len(rows)), np.array(rows, dtype=np.int64))


def others_of(n, rows):
    return np.setdiff1d(np.arange(n), rows)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(case=exact_rows())
@example(case=(1, []))
@example(case=(2, [0]))
@example(case=(2, [1]))
@example(case=(9, [0, 1, 2, 3]))
@example(case=(9, [5, 6, 7, 8]))
@example(case=(9, [0, 8]))
@example(case=(9, [8, 2, 7, 0, 3, 1, 5, 6]))
def test_among_others_is_the_increasing_bijection(case):
    n, rows = case
    others = others_of(n, rows)
    found = among_others(np.arange(len(others)), numbering(n, rows))
    np.testing.assert_array_equal(found, others)


def test_numbers_in_any_order_and_compiled():
    rng = np.random.default_rng(1)
    rows = rng.choice(1000, 100, replace=False)
    index, kept = rng.permutation(900), rows.copy()
    numbered = numbering(1000, rows)
    found = among_others(index, numbered)
    np.testing.assert_array_equal(found, others_of(1000, rows)[index])
    np.testing.assert_array_equal(numba.njit(among_others)(index, numbered), found)
    np.testing.assert_array_equal(rows, kept)
    assert found.dtype == np.int64


def test_without_exact_rows_nothing_is_renumbered():
    index = np.array([3, 0, 2])
    np.testing.assert_array_equal(among_others(index, numbering(4, NO_ROWS)), index)
    assert len(NO_ROWS) == 0


@settings(deadline=None, max_examples=200, derandomize=True)
@given(case=exact_rows(200), batch=st.integers(2, 40), share=st.floats(0, 1, exclude_max=True))
def test_blocks_that_cover_everything_cover_the_others_once(case, batch, share):
    n, rows = case
    others = others_of(n, rows)
    rule = TTest(0.05, batch if batch <= len(others) else None)
    schedule = in_blocks(rule.bind(len(others)), always=True)
    offset = int(share * len(others))
    numbers = positions(population_of(schedule), schedule.block, len(others), offset, 0, len(others))
    found = among_others(numbers, numbering(n, rows))
    np.testing.assert_array_equal(np.sort(found), others)


# One transition against an independent computation -----------------------------------------------------


class UniformsOf:
    """A generator that remembers its first uniform number, the u of the decision."""

    def __init__(self, seed):
        self._rng, self.first = np.random.default_rng(seed), None

    def random(self):
        if self.first is None:
            self.first = float(self._rng.random())
            return self.first
        return self._rng.random()


RULES = [TTest(0.05, 10), TTest(0.2, 4, boundary=0.8), TTest(0.5, 30), TTest(0.01, 20)]


def check_transitions(rule, **options):
    """psi, rows, stops and decisions of many transitions, computed again with numpy."""
    stopped = {False: 0, True: 0}
    for seed in range(60):
        rng = np.random.default_rng([seed, 1])
        n, k = 120, int(rng.integers(1, 25))
        rows = rng.choice(n, k, replace=False)
        terms = 0.05 * rng.standard_normal(n) + rng.normal(0, 0.02)
        terms[rows] += rng.normal(0, 0.5)
        base = rng.normal(size=2)
        base[0] -= terms.sum()  # a decision that is not clear
        uniforms = UniformsOf([seed, 2])
        out, calls = given_transition(uniforms, terms, rule=rule, exact=rows, base=base, **options)
        n_others = n - k
        psi = (math.log(uniforms.first) - base.sum() - math.fsum(terms[rows])) / n_others
        assert out.psi == pytest.approx(psi, rel=1e-9, abs=1e-12)
        np.testing.assert_array_equal(calls[0], np.sort(rows))
        read = np.concatenate(calls[1:])
        assert len(np.unique(read)) == len(read)
        assert not np.intersect1d(read, rows).size
        values = np.full(n_others, NAN)
        values[: len(read)] = terms[read]
        used, accepted, error = reference_test(values, psi, rule)
        assert len(read) == used
        assert out.accepted == accepted
        assert out.n_used == k + used
        assert out.n_exhausted == (used == n_others)
        assert out.log_ratio_mean == pytest.approx(values[:used].mean(), rel=1e-9, abs=1e-12)
        assert out.log_ratio_se == pytest.approx(error, rel=1e-9, abs=1e-15)
        if used == n_others:
            assert out.accepted == (math.log(uniforms.first) < base.sum() + math.fsum(terms))
        stopped[bool(used == n_others)] += 1
    return stopped


@pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_t_test_is_one_of_the_others(rule, blocks):
    stopped = check_transitions(rule, blocks=blocks)
    assert stopped[False] >= 3
    if rule.epsilon < 0.2:
        assert stopped[True] >= 3


def planted(old, new):
    """The kernel with one piece of its source replaced."""
    source = inspect.getsource(metropolis)
    assert source.count(old) == 1, old
    module = types.ModuleType("planted")
    exec(source.replace(old, new), module.__dict__)
    return module.transitions


BUGS = {
    "N in psi": (
        "psi = (threshold - base) / rows.n_others",
        "psi = (threshold - base) / (rows.n_others + n_exact)",
    ),
    "the sum forgotten": ("                base += x\n", "                pass\n"),
    "sampled again": (
        "index = among_others(positions(population, block, rows.n_others, offset, start, stop), rows)",
        "index = positions(population, block, rows.n_others, offset, start, stop)",
    ),
    "not counted": ("n_used += n_exact", "pass"),
}


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])
def test_planted_faults_are_seen(bug, blocks):
    with pytest.raises(AssertionError):
        check_transitions(RULES[0], blocks=blocks, kernel=planted(*BUGS[bug]))


def test_a_wrong_numbering_is_seen():
    """One exact row counts as one of the others, and one of these is never read."""

    def off_by_one(schedule, exact):
        rows = rows_of(schedule, exact)
        return rows._replace(others_before=rows.others_before + 1)

    with pytest.raises(AssertionError):
        check_transitions(RULES[0], numbered=off_by_one)


# The exact rule -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[], [0], [6], [1, 4], [5, 0, 6], [0, 1, 2, 3, 4, 5]], ids=str)
def test_transition_probabilities_of_three_states(rows):
    found = kernel_matrix(rows=rows)
    np.testing.assert_allclose(found, metropolis_matrix(), atol=1e-12)
    np.testing.assert_allclose(stationary(found), LAW, atol=1e-12)


@pytest.mark.parametrize("bug", ["the sum forgotten", "N in psi", "sampled again"])
def test_planted_faults_change_the_transition_probabilities(bug):
    found = kernel_matrix(rows=[1, 4], kernel=planted(*BUGS[bug]))
    assert np.abs(found - metropolis_matrix()).max() > 0.005


# What is not finite --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Exact(), TTest(0.05, 2)], ids=["exact", "ttest"])
@pytest.mark.parametrize(
    ("special", "accepted"),
    [({0: -INF}, False), ({0: NAN}, False), ({0: INF, 1: -INF}, False), ({0: INF}, True), ({0: 1e300}, True)],
)
def test_a_sum_of_the_exact_rows_that_is_not_finite(special, accepted, rule):
    terms = np.array([0.0, 0.5, -1.0, -2.0, -1.0, -2.5, -1.5, -0.5])
    terms[list(special)] = list(special.values())
    with np.errstate(invalid="ignore"):
        out, calls = given_transition(UniformsOf(1), terms, rule=rule, exact=[0, 1])
    assert out.accepted == accepted
    if not accepted:  # the others are not looked at
        assert len(calls) == 1
        assert (out.n_used, out.n_stages, out.n_exhausted) == (2, 0, 0)
        assert math.isnan(out.log_ratio_mean)


@pytest.mark.parametrize("base", [-INF, NAN])
def test_outside_the_prior_the_exact_rows_are_not_read(base):
    options = {"rule": TTest(0.05, 2), "exact": [0, 1], "base": (base, 0.0)}
    out, calls = given_transition(UniformsOf(1), np.ones(8), **options)
    assert not out.accepted
    # NaN is no longer told from a sum that is not a number, and may be looked at.
    assert len(calls) == 0 or math.isnan(base)
    assert out.n_stages == 0


def test_infinite_terms_of_the_others_still_reject():
    terms = np.r_[INF, np.zeros(9)]
    terms[5] = -INF
    with np.errstate(invalid="ignore"):
        out, _ = given_transition(ScriptedRng([0.5]), terms, exact=[0])
    assert not out.accepted


# Chains -------------------------------------------------------------------------------------------------

N, D = 400, 2
# Far from sorted; the first row and the last.
ROWS = np.r_[399, 0, np.random.default_rng(2).choice(np.arange(1, 399), 38, replace=False)]


@pytest.fixture(scope="module")
def regression():
    return regression_data(N)


WALK = RandomWalk(0.08).bind(D)


def test_an_exact_chain_is_the_same_with_exact_rows(regression):
    plain, _, plain_after = run_chain(400, WALK, Exact(), regression)
    for rows in (ROWS, [0], np.arange(N - 1)):
        found, _, after = run_chain(400, WALK, Exact(), regression, exact=rows)
        for name in ("q", "accepted", "n_used", "n_stages"):
            np.testing.assert_array_equal(getattr(found, name), getattr(plain, name), err_msg=name)
        assert after == plain_after
    assert 40 < plain.accepted.sum() < 360


@pytest.mark.parametrize("blocks", [False, True], ids=["rows", "blocks"])
@pytest.mark.parametrize("rule", [Exact(), TTest(0.05, 30)], ids=["exact", "ttest"])
@pytest.mark.covering(1)
def test_interpreted_and_compiled_chains_are_identical(rule, blocks, regression):
    (ours, _, after), (theirs, _, plain_after) = (
        run_chain(200, WALK, rule, regression, exact=ROWS, blocks=blocks, make=make)
        for make in (compiled_trace, interpreted_trace)
    )
    assert after == plain_after
    # The sum of the exact rows is numpy's, whose order of additions numba does not follow.
    assert_same_traces(ours, theirs, psi=1e-9, error=1e-12)
    assert 20 < ours.accepted.sum() < 180
    used = ours.n_used
    assert np.all(used >= len(ROWS))
    if isinstance(rule, TTest):
        assert np.any(used < N)
        assert np.all((used == N) == (ours.exhausted == 1))
        assert np.all((used - len(ROWS)) % 30 == 0)  # which divides 360


def test_the_range_is_that_of_the_others(regression):
    """`exact_range` over the rows that are sampled from; exact rows may be anything."""
    x, y = regression
    old, new = np.array([0.5, -1.0]), np.array([0.6, -0.9])
    wild = y.copy()
    wild[ROWS] += 1e6
    found = exact_range(0, new, old, (x, wild), numbering(N, ROWS), REGRESSION)
    ratios = 0.5 * ((y - x @ old) ** 2 - (y - x @ new) ** 2)
    assert found == pytest.approx(np.ptp(ratios[others_of(N, ROWS)]), rel=1e-12)
    assert exact_range(0, new, old, (x, y), numbering(N, []), REGRESSION) == pytest.approx(np.ptp(ratios))
