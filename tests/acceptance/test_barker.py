"""The minibatch Barker test: its acceptance probability is the logistic function of the log ratio.

Where all terms are read it is the exact test: see `tests.conformance.test_rules`.
"""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.special import expit, ndtri

from pymc_austerity.acceptance import Barker
from pymc_austerity.acceptance.barker import noise_variance, normal_distance
from tests.acceptance.test_barker_pilot import sample_of, trials
from tests.conformance.test_rules import without_correction
from tests.statistical.errors import LIMIT

N = 20_000


def normal_terms(log_ratio, total_sd, n=N):
    """n terms with sum `log_ratio`, whose batch means are nearly normal; N s_l = `total_sd`."""
    z = ndtri((np.arange(n) + 0.5) / n)
    return log_ratio / n + z / z.std() * total_sd / n


def acceptance(rule, log_ratio, total_sd, n_calls, functions=None, n=N):
    done = trials(rule, normal_terms(log_ratio, total_sd, n), n_calls, functions=functions)
    return done.accepted.mean(), done.read


@pytest.mark.parametrize("log_ratio", [-3.0, -0.7, 0.0, 1.5])
@pytest.mark.parametrize("total_sd", [3.0, 25.0])
@pytest.mark.covering(3)
def test_accepts_with_the_logistic_probability(log_ratio, total_sd):
    rule, n_calls = Barker(100), 40_000
    found, read = acceptance(rule, log_ratio, total_sd, n_calls)
    expected = expit(log_ratio)
    error = math.sqrt(expected * (1 - expected) / n_calls)
    assert abs(found - expected) <= rule.error_bound(N) + LIMIT * error
    assert read.max() < N
    # N^2 s_l^2 terms bring the variance to 1; the first batch has a hundred.
    assert 0.9 < read.mean() / max(100, total_sd**2) < 1.3


def test_a_normal_variable_in_the_place_of_a_logistic_one_is_noticed():
    """Planted fault: the noise of the subsample alone, as if it were logistic."""
    rule, n_calls = Barker(100), 40_000
    functions = rule.functions._replace(accept=without_correction)
    found, _ = acceptance(rule, 1.5, 3.0, n_calls, functions)
    assert abs(found - expit(1.5)) > rule.error_bound(N) + LIMIT * math.sqrt(0.25 / n_calls)


def test_variance_of_the_noise_has_the_finite_population_factor():
    """Over all samples of 3 of 6 terms, the mean of s^2 is the variance of N times the mean."""
    terms = np.array([0.3, -1.2, 2.0, 0.7, 0.1, -0.4])
    samples = [np.array(c) for c in combinations(terms, 3)]
    true = np.var([6 * s.mean() for s in samples])
    found = np.mean([noise_variance(sample_of(s, 6)) for s in samples])
    assert found == pytest.approx(true, rel=1e-12)


@pytest.mark.parametrize("batches", [1, 5])
def test_distance_from_a_normal_variable_is_never_understated(batches):
    rng = np.random.default_rng(2)
    for law in (rng.standard_normal, rng.standard_exponential, lambda n: rng.lognormal(0, 1.5, n)):
        x = law(500)
        z = np.abs(x - x.mean()) / x.std()
        exact = (6.4 * np.mean(z**3) + 2 * np.mean(z)) / math.sqrt(500)
        found = normal_distance(sample_of(x, 10_000, batches))
        assert exact * (1 - 1e-12) <= found < 1.6 * exact
        if batches == 1:
            assert found == pytest.approx(exact, rel=1e-9)


def test_max_error_reads_at_least_what_it_implies():
    rule = Barker(500, max_error=0.1)
    assert rule.implied_batch_size == 7056
    assert Barker().implied_batch_size == 0
    _, read = acceptance(rule, 0.0, 3.0, 200)
    # A normal variable needs (6.4 * 1.596 + 2 * .798)^2 / .01 = 13,946 terms. Moments about the mean of a
    # first batch of 500, which is off by .036 sd on average, are enlarged by 9.5 and 4.5 %: 16,490. A stage
    # has 500.
    assert 16_240 <= read.mean() <= 17_240
    _, read = acceptance(Barker(500), 0.0, 3.0, 200)
    assert np.all(read == 500)


def test_equal_terms_decide_nothing():
    for terms in (np.zeros(1000), np.full(1000, 0.1)):
        assert np.all(trials(Barker(100), terms, 20).read == 1000)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"batch_size": 1}, "batch_size must be an integer of at least 2, got 1"),
        ({"batch_size": 10.5}, "batch_size must be"),
        ({"max_error": 0.0}, "max_error must be positive and finite, got 0.0"),
        ({"pilot": 1}, "pilot must be True or False, got 1"),
        ({"pilot": True, "skew_correction": "yes"}, "skew_correction must be True or False, got 'yes'"),
        ({"pilot": True, "max_error": 0.1}, "max_error=0.1 reads on"),
        ({"skew_correction": True}, "needs pilot=True. Where reading stops"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        Barker(**parameters)
