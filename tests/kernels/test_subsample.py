"""Subsamples drawn in blocks of neighbours: equally likely rows, and decisions as with single rows."""

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.acceptance import Exact, TTest
from pymc_austerity.acceptance.base import Schedule
from pymc_austerity.kernels.subsample import (
    draw_without_replacement,
    in_blocks,
    population_of,
    positions,
    random_offset,
    restore_order,
)
from pymc_austerity.kernels.tuna import sort_rows
from tests.kernels.engines import ScriptedRng, compiled_test
from tests.statistical.errors import LIMIT, z_of_count
from tests.statistical.theory import sequential_test_law


@pytest.mark.parametrize(
    ("n_local", "rule", "block"),
    [
        (49_999, TTest(0.05, 500), 1),
        (50_000, TTest(0.05, 500), 25),
        (50_001, TTest(0.05, 512), 32),
        (60_000, TTest(0.05, 499), 1),
        (60_000, TTest(0.05, 96, growth=2.0), 32),
        (60_000, TTest(0.05, 21, growth=2.0), 21),
        (10**6, Exact(), 1),
    ],
)
def test_block_lengths(n_local, rule, block):
    schedule = in_blocks(rule.bind(n_local))
    assert schedule.block == block
    assert not np.any(schedule.ends[:-1] % block)
    np.testing.assert_array_equal(schedule.ends, rule.bind(n_local).ends)
    np.testing.assert_array_equal(population_of(schedule), np.arange(n_local // block))


def blocks_of(n_local, block, ends):
    return Schedule(np.array([*ends, n_local]), np.zeros(len(ends) + 1), block)


@pytest.mark.parametrize(("n_local", "block"), [(12, 3), (13, 3), (14, 3), (11, 4), (9, 1)])
def test_each_row_is_read_once(n_local, block):
    schedule = blocks_of(n_local, block, [2 * block])
    rng = np.random.default_rng(1)
    for offset in range(n_local if block > 1 else 1):
        population = population_of(schedule)
        draw_without_replacement(rng, population, 0, 2)
        draw_without_replacement(rng, population, 2, n_local // block)
        first = positions(population, schedule.block, schedule.ends[-1], offset, 0, 2 * block)
        rest = positions(population, schedule.block, schedule.ends[-1], offset, 2 * block, n_local)
        assert sorted([*first, *rest]) == list(range(n_local))
        apart = [
            positions(population, schedule.block, schedule.ends[-1], offset, k, k + 1)[0]
            for k in range(n_local)
        ]
        assert apart == [*first, *rest]
        restore_order(population, n_local // block)
        np.testing.assert_array_equal(population, np.arange(n_local // block))


@pytest.mark.parametrize(("n_local", "block"), [(12, 3), (14, 3), (11, 4)])
def test_rows_are_equally_likely_whether_or_not_blocks_divide_n(n_local, block):
    """All offsets and all scripts of the generator."""
    schedule = blocks_of(n_local, block, [2 * block])
    size = n_local // block
    scripts = [(np.arange(size - k) + 0.5) / (size - k) for k in range(2)]
    rows, pairs_apart = Counter(), Counter()
    for start in (np.arange(n_local) + 0.5) / n_local:
        for script in itertools.product(*scripts):
            offset = random_offset(ScriptedRng([start]), schedule.block, n_local)
            population = population_of(schedule)
            draw_without_replacement(ScriptedRng(script), population, 0, 2)
            seen = positions(population, schedule.block, schedule.ends[-1], offset, 0, 2 * block)
            assert len(set(seen.tolist())) == 2 * block
            rows.update(seen.tolist())
            pairs_apart.update(int(a - b) % n_local for a, b in itertools.permutations(seen.tolist(), 2))
    assert set(rows) == set(range(n_local))
    assert len(set(rows.values())) == 1
    assert pairs_apart[1] == pairs_apart[n_local - 1] > 0


def test_no_random_number_is_spent_without_blocks():
    assert random_offset(ScriptedRng(), 1, 10) == 0
    assert random_offset(ScriptedRng([0.999]), 2, 10) == 9


@pytest.mark.parametrize("mu_std", [0.0, 2.0])
def test_decisions_in_blocks_of_rows_in_random_order(mu_std):
    """Five populations whose size no block divides: error and data use as of single rows."""
    n_local, epsilon = 50_013, 0.05
    rule, rng = TTest(epsilon, 1600), np.random.default_rng(2)
    schedule = in_blocks(rule.bind(n_local))
    assert schedule.block == 32
    law = sequential_test_law(mu_std, schedule.ends, np.full(len(schedule.ends), stats.norm.isf(epsilon)))
    above, early, share = [], [], []
    for _ in range(5):
        x = rng.normal(size=n_local)
        terms = (x - x.mean()) / x.std() + mu_std / np.sqrt(n_local - 1)
        n, _, mean = compiled_test(rule.functions.decide)(
            500, rng, 0.0, terms, population_of(schedule), schedule
        )
        above.append((n < n_local) & (mean > 0))
        early.append(n < n_local)
        share.append(n / n_local)
    share = np.concatenate(share)
    assert abs(z_of_count(np.sum(above), share.size, law.above[0])) < LIMIT
    assert abs(z_of_count(np.sum(early), share.size, 1 - law.exhausted[0])) < LIMIT
    assert abs(share.mean() - law.data_use[0]) < LIMIT * share.std() / np.sqrt(share.size)


def test_blocks_of_rows_in_order_are_not_a_random_sample():
    """Planted fault: the rows of the same population, sorted, are decided wrongly half of the time."""
    n_local, mu_std = 50_000, 2.0
    rule = TTest(0.05, 1600)
    schedule = in_blocks(rule.bind(n_local))
    x = np.sort(np.random.default_rng(3).normal(size=n_local))
    terms = (x - x.mean()) / x.std() + mu_std / np.sqrt(n_local - 1)
    _, _, mean = compiled_test(rule.functions.decide)(
        500, np.random.default_rng(4), 0.0, terms, population_of(schedule), schedule
    )
    law = sequential_test_law(mu_std, schedule.ends, np.full(len(schedule.ends), stats.norm.isf(0.05)))
    assert abs(z_of_count(np.sum(mean > 0), 500, law.accepts(mu_std)[0])) > LIMIT


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 12, 1000])
def test_sorted_rows_are_those_of_numpy(n):
    rng = np.random.default_rng(n)
    for rows in (rng.integers(1 + n // 2, size=n), np.arange(n), np.arange(n)[::-1].copy(), np.zeros(n, int)):
        expected = np.sort(rows)
        sort_rows(rows)
        np.testing.assert_array_equal(rows, expected)
