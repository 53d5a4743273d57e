"""Budgets, and the clock that keeps them, on made-up draws."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_austerity.report import run as clock_module
from pymc_austerity.report.run import Budget, Clock, Settings, budget_of


class Time:
    """Seconds that pass when told to."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(clock_module, "time", SimpleNamespace(perf_counter=lambda: self.now))


@pytest.fixture
def time(monkeypatch):
    return Time(monkeypatch)


def run(clock, time, chain, *, tune, seconds, most=10_000, pause=5.0):
    """A chain whose draws take `seconds` each, tuning draws twice as long; how many it made."""
    time.now += pause  # compiling, starting
    for k in range(tune + most):
        time.now += seconds * (2.0 if k < tune else 1.0)
        draw = SimpleNamespace(chain=chain, draw_idx=k, tuning=k < tune, stats=[{"n_used": 10.0}])
        try:
            clock(None, draw)
        except KeyboardInterrupt:
            return k + 1 - tune
    return most


def make(kind, amount, *, tune=4, max_draws=1000, count=lambda stats: stats[0]["n_used"]):
    return Clock(Budget(kind, amount), Settings(2, tune, max_draws, None, None), count)


def test_seconds_are_shared_among_chains(time):
    clock = make("seconds", 20.0)
    assert [run(clock, time, k, tune=4, seconds=0.125) for k in range(2)] == [80, 80]
    assert clock.lengths == [80, 80]
    assert clock.seconds == pytest.approx(20.0)
    assert clock.tuning_seconds == pytest.approx(2 * 4 * 0.25)
    assert clock.terms == 1600


def test_without_tuning_the_first_draw_is_counted_too(time):
    clock = make("seconds", 20.0, tune=0)
    run(clock, time, 0, tune=0, seconds=0.125)
    assert clock.lengths == [80]
    assert clock.seconds == pytest.approx(10.0)
    assert clock.tuning_seconds == 0.0


def test_terms_are_shared_among_chains(time):
    clock = make("terms", 600.0)
    assert [run(clock, time, k, tune=4, seconds=0.1) for k in range(2)] == [30, 30]


def test_later_chains_are_as_long_as_the_first_unless_they_take_for_ever(time):
    clock = make("seconds", 20.0)
    assert run(clock, time, 0, tune=4, seconds=0.125) == 80
    assert run(clock, time, 1, tune=4, seconds=0.25) == 80
    assert run(clock, time, 2, tune=4, seconds=1.0) == 30


def test_limits_of_draws(time):
    for clock, n in (
        (make("seconds", 1e-6), 20),
        (make("seconds", 1e6, max_draws=9), 9),
        (make("draws", 12), 12),
    ):
        assert run(clock, time, 0, tune=4, seconds=1.0) == n


def test_a_chain_that_the_user_stopped_is_told_from_one_that_is_over(time):
    clock = make("draws", 12)
    assert run(clock, time, 0, tune=4, seconds=1.0) == 12
    assert clock.ended == 1
    assert run(clock, time, 1, tune=4, seconds=1.0, most=3) == 3  # PyMC ends a chain without a word
    assert clock.ended == 1
    assert run(clock, time, 2, tune=4, seconds=1.0) == 1 - 4  # at its first draw


def test_terms_that_are_not_counted(time):
    clock = make("terms", 600.0, count=lambda stats: np.nan)
    with pytest.raises(ValueError, match="does not count the local terms"):
        run(clock, time, 0, tune=4, seconds=1.0)
    clock = make("seconds", 20.0, count=lambda stats: np.nan)
    run(clock, time, 0, tune=4, seconds=1.0)
    assert np.isnan(clock.terms)


def test_budgets_in_words():
    given = [10, 1, 0.5, {"seconds": 3600}, {"terms": 1e8}, {"draws": 2000}]
    assert [str(budget_of(each)) for each in given] == [
        "10 seconds",
        "1 second",
        "0.5 seconds",
        "3,600 seconds",
        "100,000,000 local terms",
        "2,000 draws of each chain",
    ]
