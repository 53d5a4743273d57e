"""Moves of a plate that a test decides: which rows it reads, and what it makes of them."""

import math

import numpy as np
import pytest

from pymc_austerity.acceptance import Exact, ExactBarker, TTest
from pymc_austerity.kernels.elements import READS_ALL
from pymc_austerity.kernels.metropolis import Rule, no_range
from pymc_austerity.kernels.plates import row_tests
from pymc_austerity.kernels.plates.decisions import compare
from pymc_austerity.kernels.plates.row_tests import groups_by_tests, shared_by_test
from pymc_austerity.kernels.plates.thinning import shift_of
from pymc_austerity.step_methods.metropolis.engine.plates import row_tests as made_tests
from tests.kernels.plates.cases import case_of, case_of_model, log_remainders, model_of, pair_of


@pytest.fixture(scope="module")
def case():
    """A case in which nothing is bounded."""
    return case_of_model(model_of("bernoulli", "centered", 400), reads_all=True)


def numbers_of(case, rule):
    """Tests of all rows and of groups."""
    found = made_tests(rule, np.diff(case.arrays.rows.starts))
    tests, schedule = found["tests"], found["rule"].schedule
    return tests, Rule(schedule, math.nan, *rule.functions, no_range)


def pairs(case, seed):
    """Two states with other theta and levels, and two with one theta."""
    rng = np.random.default_rng(seed)
    (theta, eps), (theta_new, eps_new) = case.draw(rng, 2.0), case.draw(rng, 2.0)
    old = case.state(theta, eps)
    return pair_of(old, case.state(theta_new, eps)), pair_of(old, case.state(theta, eps_new))


def sums_of(case, pair):
    """Log ratios of the groups, all rows read."""
    result = np.zeros(len(pair.levels))
    shift = shift_of(case.arrays.bounds, pair.d, pair.d_new)
    compare(np.random.default_rng(0), case.arrays, pair, shift, 1.0, result)
    return result


def test_all_rows_are_the_sum_of_remainders(case):
    rng = np.random.default_rng(31)
    (theta, eps), (theta_new, _) = case.draw(rng, 2.0), case.draw(rng, 2.0)
    old, new = case.state(theta, eps), case.state(theta_new, eps)
    found = shared_by_test(rng, case.arrays, numbers_of(case, Exact()), pair_of(old, new), -0.3)
    expected = log_remainders(case, new) - log_remainders(case, old)
    assert found.log_ratio == pytest.approx(expected - 0.3, abs=1e-9)
    assert (found.n_used, found.n_whole) == (400, len(eps))


@pytest.mark.parametrize("rule", [Exact(), ExactBarker()])
@pytest.mark.covering(1)
def test_shares_of_accepted_moves(case, rule):
    """Those of the rule, for theta and for every group, where all rows are read."""
    shared, of_groups = pairs(case, 32)
    rng, numbers, n = np.random.default_rng(33), numbers_of(case, rule), 250
    base = np.linspace(-1.5, 1.0, len(shared.levels))

    def expected(log_ratio):
        return np.minimum(1.0, np.exp(log_ratio)) if rule == Exact() else 1 / (1 + np.exp(-log_ratio))

    taken = np.mean([shared_by_test(rng, case.arrays, numbers, shared, -0.5).accepted for _ in range(n)])
    p = expected(sums_of(case, shared).sum() - 0.5)
    assert abs(taken - p) < 4 * np.sqrt(p * (1 - p) / n)
    accepted, total = np.zeros(len(base), bool), np.zeros(len(base))
    for _ in range(n):
        counts = groups_by_tests(rng, case.arrays, numbers, of_groups, base.copy(), accepted)
        assert counts.accepted == accepted.mean()
        assert counts.n_used == 400
        total += accepted
    p = expected(sums_of(case, of_groups) + base)
    assert (np.abs(total / n - p) < 4.5 * np.sqrt(p * (1 - p) / n) + 1e-12).all()


def recorded(case, rule, pair, monkeypatch):
    """Rows of each read of a group."""
    found = []
    of_rows = row_tests.remainder_changes

    def record(new, old, index, args):
        found.append((args[-1], args[-2] + index))
        return of_rows(new, old, index, args)

    monkeypatch.setattr(row_tests, "remainder_changes", record)
    accepted = np.zeros(len(pair.levels), bool)
    rng, numbers = np.random.default_rng(34), numbers_of(case, rule)
    counts = groups_by_tests(rng, case.arrays, numbers, pair, np.zeros(len(accepted)), accepted)
    return found, counts


def test_a_group_reads_some_of_its_own_rows(case, monkeypatch):
    """At random, and those with too few for a test read all."""
    rule, (_, pair), starts = TTest(epsilon=0.4, batch_size=4), pairs(case, 35), case.arrays.rows.starts
    found, counts = recorded(case, rule, pair, monkeypatch)
    sizes, read = np.diff(starts), {}
    for g, rows in found:
        assert ((rows >= starts[g]) & (rows < starts[g + 1])).all()
        read.setdefault(g, []).extend(rows)
    assert counts.n_used == sum(map(len, read.values())) < 400
    assert all(len(set(rows)) == len(rows) for rows in read.values())
    small = {g for g in range(len(sizes)) if 0 < sizes[g] < 8}
    assert small
    assert all(len(read[g]) == sizes[g] for g in small)
    assert any(len(rows) == 4 and max(rows) - min(rows) > 3 for rows in read.values())
    assert counts.n_whole >= len(small)
    monkeypatch.undo()
    again, _ = recorded(case, rule, pair, monkeypatch)
    for (_, one), (_, other) in zip(again, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_order_of_rows_is_restored(case):
    """Nothing is left of a test for the next."""
    (shared, of_groups), rng = pairs(case, 36), np.random.default_rng(37)
    numbers = numbers_of(case, TTest(epsilon=0.4, batch_size=10))
    accepted = np.zeros(len(shared.levels), bool)
    for _ in range(20):
        shared_by_test(rng, case.arrays, numbers, shared, 0.0)
        groups_by_tests(rng, case.arrays, numbers, of_groups, np.zeros(len(accepted)), accepted)
    np.testing.assert_array_equal(numbers[0].population, np.arange(400))


def test_impossible_states_are_rejected_without_rows(case):
    shared, of_groups = pairs(case, 38)
    rng, numbers = np.random.default_rng(39), numbers_of(case, TTest(batch_size=20))
    for base in (-np.inf, np.nan):
        assert shared_by_test(rng, case.arrays, numbers, shared, base)[:2] == (0.0, 0)
        accepted = np.ones(len(of_groups.levels), bool)
        base_of_groups = np.full(len(accepted), base)
        accepted[:] = False
        assert groups_by_tests(rng, case.arrays, numbers, of_groups, base_of_groups, accepted)[:2] == (0, 0)
        assert not accepted.any()


def test_a_normal_likelihood_reads_no_row():
    normal = case_of("normal", "centered", 400)
    shared, of_groups = pairs(normal, 40)
    rng, numbers = np.random.default_rng(41), numbers_of(normal, Exact())
    taken = [shared_by_test(rng, normal.arrays, numbers, shared, -0.5) for _ in range(1000)]
    assert {one.n_used for one in taken} == {0}
    p = np.exp(-0.5)
    assert abs(np.mean([one.accepted for one in taken]) - p) < 4 * np.sqrt(p * (1 - p) / 1000)
    accepted = np.zeros(len(of_groups.levels), bool)
    groups_by_tests(rng, normal.arrays, numbers, of_groups, np.full(len(accepted), 0.1), accepted)
    assert accepted.all()


def test_stages():
    """Populations of one size share their stages; small ones have none."""
    found = made_tests(TTest(batch_size=10), np.array([30, 0, 15, 30, 25]))
    tests, schedule = found["tests"], found["rule"].schedule
    assert tests.first_stage.tolist()[2:4] == [READS_ALL, READS_ALL]
    all_rows, *_ = firsts = tests.first_stage[tests.first_stage != READS_ALL]
    assert firsts[1] == firsts[2]
    np.testing.assert_array_equal(schedule.ends[all_rows:][:10], np.arange(10, 101, 10))
    np.testing.assert_array_equal(schedule.ends[firsts[1] :][:3], [10, 20, 30])
    assert len(tests.population) == 100
