"""Rows for the first searches: at random, and without tables of all rows."""

import numpy as np
import pytest

from pymc_austerity.mode.search import samples_of_rows, some_at_random


@pytest.mark.parametrize("n", [100_000, 1_000_003])
def test_they_are_different_and_in_order(n):
    some = some_at_random(n, 5000, np.random.default_rng(1))
    assert len(some) == 5000
    assert 0 <= some[0] <= some[-1] < n
    assert np.all(np.diff(some) > 0)


def test_every_row_is_as_likely():
    """Of parts that are shifted at random: also rows at their ends, and at those of all rows."""
    n, size, rng = 1_000_003, 300_000, np.random.default_rng(2)
    counts = sum(np.bincount(some_at_random(n, size, rng), minlength=n) for _ in range(40))
    groups = np.add.reduceat(counts, np.r_[0:20, np.arange(20, n, 50_000)])
    sizes = np.diff(np.r_[0:20, np.arange(20, n, 50_000), n])
    expected = 40 * size / n * sizes
    assert np.all(np.abs(groups - expected) < 5 * np.sqrt(40 * size / n * sizes))


def test_they_do_not_grow_with_the_data():
    sizes = [samples_of_rows(n, 10, np.random.default_rng(1), n) for n in (1_000_000, 100_000_000)]
    assert [[None if s is None else len(s) for s in each] for each in sizes] == [
        [2000, 20_000, 200_000, None]
    ] * 2
