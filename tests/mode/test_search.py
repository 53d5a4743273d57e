"""Rows for the first searches: at random, and without tables of all rows."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_austerity import work
from pymc_austerity.exceptions import SetUpBudgetError
from pymc_austerity.mode import search
from pymc_austerity.mode.newton import Maximum
from pymc_austerity.mode.search import ModeSearch, samples_of_rows, some_at_random


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


class Posterior:
    """A pass over a row takes a million operations."""

    factorisation = SimpleNamespace(n_local=1000)

    def operations(self, n_rows):
        return 1e6 * n_rows

    def density(self, positions):
        return None


@pytest.mark.parametrize(("budget", "n_searched"), [(23.0, 0), (25.0, 1), (95.0, 2), (300.0, 8)])
def test_what_is_left_of_a_search_is_priced_before_each_start(monkeypatch, budget, n_searched):
    """Three passes are the least; if each start takes twenty, others will take ten at least."""
    searched = []

    def maximise(density, start, near):
        work.spend(20e9, "The search for the mode")
        searched.append(start)
        return Maximum(start, 0.0, np.eye(1), 0.0, np.zeros(1), 20)

    monkeypatch.setattr(search, "maximise", maximise)
    with work.budgeted(budget):
        starts = [np.array([float(k)]) for k in range(8)]
        own = ModeSearch(None, Posterior(), {})
        if n_searched == len(starts):
            assert len(own._modes(starts, None, 3, 0.0)[0]) == 8
        else:
            with pytest.raises(SetUpBudgetError, match="The search for the mode.* would take at least"):
                own._modes(starts, None, 3, 0.0)
    assert len(searched) == n_searched


def test_searches_on_more_rows_are_priced_too():
    with work.budgeted(25.0):
        starts = [np.array([float(k)]) for k in range(8)]
        with pytest.raises(SetUpBudgetError, match="would take at least 26"):
            ModeSearch(None, Posterior(), {})._modes(starts, None, 3, 2e9)
