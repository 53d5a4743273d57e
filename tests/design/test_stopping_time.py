"""The bound on the stopping time of Bardenet et al., and what their rule reads at equilibrium."""

import math

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.acceptance import Concentration
from pymc_austerity.design import expected_share, stopping_time_bound
from tests.kernels.engines import compiled_test
from tests.statistical.errors import LIMIT


def test_formula():
    distance, most, delta, p = 0.3, 1.5, 0.05, 2.0
    d2 = (distance / (2 * most)) ** 2
    expected = math.ceil(4 / d2 * (p * math.log(4 * p / d2) + math.log(2 * p / (delta * (p - 1)))))
    assert stopping_time_bound(distance, most, delta) == expected
    assert stopping_time_bound(distance, most, delta, growth=2.0) == 2 * expected
    assert stopping_time_bound(distance, most, delta, N=5000) == 5000
    assert stopping_time_bound(distance, most, delta, batch_size=10**7) == 10**7


def test_limits():
    assert stopping_time_bound(0.0, 1.0, 0.01) == math.inf
    assert stopping_time_bound(0.0, 1.0, 0.01, N=1000) == 1000
    assert stopping_time_bound(1e9, 1.0, 0.01) == 1
    assert stopping_time_bound(math.inf, 1.0, 0.01, growth=3.0) == 3
    found = stopping_time_bound([[0.1], [1.0]], [1.0, 2.0, 3.0], 0.01)
    assert found.shape == (2, 3)


@pytest.mark.parametrize("p", [1.01, 1.5, 2.0, 10.0])
@pytest.mark.parametrize("delta", [1e-6, 0.01, 0.9])
def test_beyond_the_bound_twice_the_radius_is_within_the_distance(p, delta):
    """Equation 22: what the proof needs, for all t from there on; `distance` in units of 2 C."""
    for distance in np.geomspace(0.01, 30, 50):
        bound = stopping_time_bound(distance, 0.5, delta, p=p)
        t = np.unique(np.append(bound + np.arange(100), bound * np.geomspace(1, 1e4, 100)))
        radius = np.sqrt((math.log(2 * p / (delta * (p - 1))) + p * np.log(t)) / (2 * t))
        assert np.all(2 * radius <= distance * (1 + 1e-12))


DELTA, N = 0.05, 5000


@pytest.mark.parametrize("growth", [1.05, 2.0])
@pytest.mark.parametrize("distance", [0.5, 1.0])
def test_our_rule_stays_within_the_bound(distance, growth):
    rng = np.random.default_rng(4)
    terms = rng.uniform(-1, 1, N)
    terms -= terms.mean()
    most = np.abs(terms).max()
    rule = Concentration(DELTA, growth=growth, bound="hoeffding-serfling")
    n, _, _ = compiled_test(rule.functions.decide)(
        2000, rng, -distance, terms, np.arange(N), rule.bind(N), 2 * most
    )
    bound = stopping_time_bound(distance, most, DELTA, growth=growth, N=N)
    assert bound < N
    assert np.mean(n <= bound) >= 1 - DELTA
    # Loose, as documented; a bound ten times smaller would not hold.
    assert np.mean(n <= bound / 20) < 1 - DELTA


@pytest.mark.parametrize("sd_sum", [0.5, 0.05, 0.01])
@pytest.mark.parametrize("wider", [1.0, 3.0])
def test_the_share_is_that_of_our_rule_at_equilibrium(sd_sum, wider):
    rng, n_local, n_decisions = np.random.default_rng(5), 5000, 2000
    terms = rng.normal(size=n_local)
    terms = (terms - terms.mean()) / terms.std() * sd_sum / math.sqrt(n_local)
    width = wider * np.ptp(terms)
    rule, used = Concentration(batch_size=20), np.empty(n_decisions)
    decide, schedule = compiled_test(rule.functions.decide), Concentration(batch_size=20).bind(n_local)
    for k in range(n_decisions):
        away = rng.normal(-(sd_sum**2) / 2, sd_sum) + rng.exponential()
        n, _, _ = decide(1, rng, -away / n_local, terms, np.arange(n_local), schedule, width)
        used[k] = n[0] / n_local
    expected = expected_share(sd_sum, n_local, batch_size=20, relative_range=width / terms.std())
    # A heuristic: it takes the mean of a subsample to be that of all.
    assert used.mean() == pytest.approx(expected, abs=0.02 + LIMIT * used.std() / math.sqrt(n_decisions))


def test_share_against_sampled_distances():
    """The normal and the exponential part of the distance, and each look, one by one."""
    n_local, sd_sum, delta, p, growth = 10_000, 0.3, 0.02, 1.5, 1.3
    rng = np.random.default_rng(6)
    distance = np.abs(rng.normal(-(sd_sum**2) / 2, sd_sum, 40_000) + rng.exponential(size=40_000))
    schedule = Concentration(delta, p, growth, batch_size=7).bind(n_local)
    going, share = np.full(len(distance), True), np.zeros(len(distance))
    for t, log_share in zip(schedule.ends, schedule.bounds, strict=True):
        share[going] = t / n_local
        going &= distance <= sd_sum * np.sqrt(2 * (math.log(5) + log_share) * (1 - t / n_local) * n_local / t)
    found = expected_share(sd_sum, n_local, delta, p=p, growth=growth, batch_size=7)
    assert abs(share.mean() - found) < LIMIT * stats.sem(share)


def test_share_does_not_fall_with_n_for_steps_of_the_size_of_the_posterior():
    # How near the last look comes to N by chance makes a difference of a percent.
    shares = [expected_share(2.38, 10**k) for k in (4, 6, 8)]
    assert min(shares) > 0.98
    assert np.all(np.diff(expected_share([0.01, 0.1, 1.0], 10**6)) > 0)
    assert type(shares[0]) is float


BOUND = (stopping_time_bound, {"distance": 0.1, "max_abs": 1.0, "delta": 0.01})
SHARE = (expected_share, {"sd_sum": 1.0, "N": 1000})


@pytest.mark.parametrize(
    ("of", "name", "value", "said"),
    [
        (BOUND, "distance", -1.0, "distance must be at least 0, got -1.0"),
        (BOUND, "max_abs", 0.0, "max_abs must be positive and finite, got 0.0"),
        (BOUND, "delta", 1.0, "delta must be in .0, 1., got 1.0"),
        (BOUND, "p", 1.0, "p must be a number above 1"),
        (BOUND, "growth", 0.5, "growth must be at least 1, got 0.5"),
        (BOUND, "batch_size", 0, "batch_size must be an integer of at least 1, got 0"),
        (BOUND, "N", 0, "N must be an integer of at least 1, got 0"),
        (SHARE, "sd_sum", 0.0, "sd_sum must be positive and finite, got 0.0"),
        (SHARE, "N", 10.5, "N must be an integer of at least 1, got 10.5"),
        (SHARE, "delta", 0.0, "delta must be in .0, 1., got 0.0"),
        (SHARE, "p", 1.0, "p must be a number above 1"),
        (SHARE, "growth", 1.0, "growth must be a number above 1, got 1.0"),
        (SHARE, "batch_size", 0, "batch_size must be an integer of at least 1, got 0"),
        (SHARE, "relative_range", -1.0, "relative_range must be finite and not negative, got -1.0"),
    ],
)
def test_wrong_parameters(of, name, value, said):
    function, given = of
    with pytest.raises(ValueError, match=said):
        function(**{**given, name: value})


def test_a_share_needs_the_number_of_terms():
    with pytest.raises(ValueError, match="N must be an integer of at least 1, got None"):
        expected_share(3.0, None)
