"""Concentration bounds: pinned radii, coverage on finite populations, decisions against the exact test."""

import math

import numba
import numpy as np
import pytest

from pymc_austerity.acceptance import Concentration, Exact
from pymc_austerity.acceptance.base import Sample
from pymc_austerity.acceptance.concentration import (
    empirical_bernstein,
    empirical_bernstein_serfling,
    hoeffding_serfling,
)
from tests.kernels.engines import compiled_test
from tests.statistical.errors import LIMIT

RADII = {
    "hoeffding-serfling": hoeffding_serfling,
    "empirical-bernstein": empirical_bernstein,
    "empirical-bernstein-serfling": empirical_bernstein_serfling,
}

# Radii -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        ("hoeffding-serfling", 0.92697417),
        ("empirical-bernstein", 1.36443171),
        ("empirical-bernstein-serfling", 1.99568055),
    ],
)
def test_radii_at_the_pinned_point(bound, expected):
    radius = RADII[bound](100, 1000, 1.0, 6.0, -math.log(0.01))
    assert radius == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("t", [7, 500, 501, 900])
@pytest.mark.parametrize("c", [0.5, 3.0])
def test_radii_of_the_bernstein_bounds_written_out(t, c):
    """C is the largest |l_i|, the range is 2 C (errata 4-6)."""
    n, sd, delta = 1000, 0.7, 0.02
    x = math.log(3 / delta)
    expected = sd * math.sqrt(2 * x / t) + 6 * c * x / t
    assert empirical_bernstein(t, n, sd, 2 * c, -math.log(delta)) == pytest.approx(expected, rel=1e-12)
    rho = 1 - (t - 1) / n if t <= n / 2 else (1 - t / n) * (1 + 1 / t)
    x = math.log(5 / delta)
    kappa = 4.454653676892976
    expected = sd * math.sqrt(2 * rho * x / t) + kappa * 2 * c * x / t
    found = empirical_bernstein_serfling(t, n, sd, 2 * c, -math.log(delta))
    assert found == pytest.approx(expected, rel=1e-12)


# Coverage --------------------------------------------------------------------------------------------


def miss_rates(radius, width, n, share, delta, n_draws=4000, seed=3):
    """How often, at each t, the interval of a sample of a +-1 population of n misses the mean of all."""
    rng = np.random.default_rng(seed)
    population = np.where(np.arange(n) < share * n, 1.0, -1.0)
    mean = population.mean()
    misses = np.zeros(n - 1)
    for _ in range(n_draws):
        x = rng.permutation(population)
        t = np.arange(1, n)
        means = np.cumsum(x)[:-1] / t
        sd = np.sqrt(np.maximum(1 - means**2, 0))
        radii = [radius(int(k), n, s, width, -math.log(delta)) for k, s in zip(t, sd, strict=True)]
        misses += np.abs(means - mean) > radii
    return misses / n_draws


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("bound", RADII)
def test_the_interval_covers_the_mean_at_every_t(bound, share):
    function = numba.njit(RADII[bound])
    rates = miss_rates(function, 2.0, 60, share, delta=0.1)
    assert rates.max() <= 0.1


def test_c_in_the_place_of_the_range_does_not_cover():
    """Planted fault: equation 7 with the range set to C."""
    rates = miss_rates(numba.njit(hoeffding_serfling), 1.0, 60, 0.5, delta=0.1)
    assert rates.max() > 0.1 + LIMIT * math.sqrt(0.1 / 4000)


# The rule --------------------------------------------------------------------------------------------


def test_looks_grow_geometrically_and_spend_delta():
    schedule = Concentration(delta=0.02, p=2.0, growth=2.0).bind(1000)
    assert schedule.ends.tolist() == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]
    shares = np.exp(-schedule.bounds)
    np.testing.assert_allclose(shares, 0.02 * 0.5 / np.arange(1, 12) ** 2, rtol=1e-12)
    assert shares.sum() <= 0.02
    assert Concentration(growth=1.01, batch_size=3).bind(6).ends.tolist() == [3, 4, 5, 6]
    assert Concentration(batch_size=50).bind(50).ends.tolist() == [50]


def test_the_first_look_at_one_term_never_decides():
    """At t = 1 the radius is at least the range (errata 7)."""
    for bound in RADII:
        rule = Concentration(bound=bound)
        one = Sample(1, 1000, 0.4, 0.0, 0.4, 0.4, 0.4, 0.0, 0.0, 0.0)
        assert not rule.functions.decide(rule.bind(1000), 0, one, -0.59, 1.0)


def test_a_certainly_constant_population_is_decided_by_one_term():
    rule = Concentration()
    one = Sample(1, 1000, 0.4, 0.0, 0.4, 0.4, 0.4, 0.0, 0.0, 0.0)
    assert rule.functions.decide(rule.bind(1000), 0, one, 0.399, 0.0)


def decisions(rule, terms, log_u, width, seed):
    """Accepted, and terms read, for one decision with each log u."""
    population, schedule = np.arange(len(terms)), rule.bind(len(terms))
    rng = np.random.default_rng(seed)
    accepted, read = [], []
    for psi in log_u / len(terms):
        n, _, mean = RUN[rule.bound](1, rng, psi, terms, population, schedule, width)
        accepted.append(mean[0] > psi)
        read.append(n[0])
    return np.array(accepted), np.array(read)


RUN = {bound: compiled_test(Concentration(bound=bound).functions.decide) for bound in RADII}


@pytest.mark.parametrize("bound", RADII)
@pytest.mark.parametrize("law", ["gaussian", "lognormal"])
@pytest.mark.covering(2)
def test_decisions_differ_from_the_exact_ones_in_a_share_delta_at_most(law, bound):
    """2000 decisions about the mean of N(mu, .) data, at equilibrium and away from it."""
    rng, n = np.random.default_rng(4), 5000
    x = rng.standard_normal(n) if law == "gaussian" else rng.lognormal(0.0, 2.0, n)
    x = (x - x.mean()) / x.std()
    rule, wrong, total, saved = Concentration(delta=0.01, bound=bound), 0, 0, 0
    for scale in (1.0, 30.0):  # a step of the size of the posterior, and of thirty times that size
        for k in range(10):
            mu = rng.standard_normal() / math.sqrt(n)
            step = scale * rng.standard_normal() / math.sqrt(n)
            terms = step * (x - mu) - step * step / 2
            log_u = np.log(rng.random(100))
            accepted, read = decisions(rule, terms, log_u, np.ptp(terms), seed=k)
            exact = terms.mean() > log_u / n
            wrong += np.sum(accepted != exact)
            total += len(log_u)
            saved += np.sum(read < n)
    assert total == 2000
    assert wrong <= rule.delta * total
    if law == "gaussian" and bound != "hoeffding-serfling":
        assert saved > 0.1 * total  # or the test would be empty


def test_a_range_that_is_too_small_gives_wrong_decisions_or_is_noticed():
    """Planted fault: the range seen in a batch of a population with a few large terms."""
    rng, n = np.random.default_rng(5), 5000
    terms = np.where(np.arange(n) < 5, -20.0, 1e-3 * rng.standard_normal(n))
    rule = Concentration(delta=0.01)
    log_u = np.full(200, 0.5 * n * terms.mean())
    with pytest.raises(ValueError, match="was bounded by"):
        decisions(rule, terms, log_u, 0.01, seed=0)


# Parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"delta": 0.0}, r"delta must be in \(0, 1\), got 0.0"),
        ({"p": 1.0}, "p must be a number above 1, got 1.0"),
        ({"growth": 1.0}, "growth must be a number above 1, got 1.0"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"bound": "hoeffding"}, "bound must be one of hoeffding-serfling"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        Concentration(**parameters)


def test_promises():
    assert Concentration(delta=0.03).error_bound(1000) == 0.03
    assert Exact().error_bound(1000) == 0.0
    assert Concentration().needs_range
