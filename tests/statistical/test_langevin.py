"""Langevin moves under a test: the kink that uncorrected moves get wrong, and its other side."""

import numpy as np
import pytest

from pymc_austerity import AusterityMH, Langevin, MetropolisHastings
from tests.statistical.errors import LIMIT, error_of_mean
from tests.statistical.langevin import chain, toy, toy_expectation

A = 5e-6
# Of the moments, beyond Monte Carlo error.
ALLOWED = 0.0004


def moments(draws):
    """Distances of mean, sd and mass to the left of the kink from the truth, with Monte Carlo errors."""
    mean = toy_expectation(lambda t: t)
    sd = toy_expectation(lambda t: (t - mean) ** 2) ** 0.5
    left = toy_expectation(lambda t: t < 0)
    return (
        (np.mean(draws) - mean, error_of_mean(draws)),
        (np.std(draws) - sd, error_of_mean((draws - mean) ** 2) / (2 * sd)),
        (np.mean(draws < 0) - left, error_of_mean(draws < 0)),
    )


def require(draws):
    mean, sd, left = moments(draws)
    for difference, error in (mean, sd):
        assert abs(difference) < ALLOWED + LIMIT * error
        assert error < 2e-4
    assert abs(left[0]) < 0.0025


@pytest.mark.slow("200,000 transitions on all rows")
def test_the_kink_with_an_exact_test():
    with toy():
        step = MetropolisHastings(proposal=Langevin(A, batch_size=500), steps_per_draw=10)
    draws, stats = chain(step, {"theta": -0.0001}, 20_000)
    require(draws)
    assert 10_000 < stats["n_used"] < 10_501


@pytest.mark.slow("long chains of single moves")
def test_the_kink_with_few_rows():
    """Epsilon of 0.05; from the left of the kink."""
    with toy():
        step = AusterityMH(epsilon=0.05, proposal=Langevin(A, batch_size=500), steps_per_draw=10)
    draws, stats = chain(step, {"theta": -0.0001}, 20_000)
    require(draws)
    assert 800 < stats["n_used"] < 6000


def test_without_a_random_walk_the_left_is_never_left():
    """The reverse proposal forbids it, not the density."""
    with toy():
        alone = MetropolisHastings(proposal=Langevin(A, batch_size=500, mix=0.0), steps_per_draw=100)
        mixed = MetropolisHastings(proposal=Langevin(A, batch_size=500), steps_per_draw=100)
    stuck, _ = chain(alone, {"theta": -0.0001}, 100)
    assert np.all(stuck == -0.0001)
    free, _ = chain(mixed, {"theta": -0.0001}, 100)
    assert np.mean(free > 0) > 0.9
