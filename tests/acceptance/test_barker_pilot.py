"""Barker's test after a pilot: the stopping rule's error goes (Seita et al. 2017, algorithm 1)."""

import math

import numba
import numpy as np
import pytest
from scipy.special import ndtri

from pymc_austerity.acceptance import Barker
from pymc_austerity.acceptance.barker_noise import noise_variance, skewness_error
from pymc_austerity.acceptance.barker_pilot import clipped, everything, others_for
from pymc_austerity.acceptance.barker_skewness import accept_with_skewness, probability
from pymc_austerity.acceptance.base import nothing_read
from pymc_austerity.kernels.metropolis import merge
from pymc_austerity.kernels.subsample import draw_without_replacement, restore_order
from tests.acceptance.barker_trials import CORRECTION, error_of, gamma_terms, scaled, trials

N_CALLS = 100_000
# Shape, N, batch size, s of a batch, log ratio; and the error of the test that stops as s^2 falls below 1.
STOPPING = [
    ((1.0, 10_000, 200, 0.9, -1.0), -0.0155),
    ((0.25, 5000, 150, 0.8, -1.0), -0.0118),
    ((0.25, 5000, 150, 0.8, 0.0), -0.0066),
    ((0.25, 5000, 150, 0.8, 1.0), -0.0065),
]


@pytest.mark.parametrize(("case", "expected"), STOPPING)
@pytest.mark.slow("many simulated decisions")
def test_stopping_errs_and_a_pilot_does_not(case, expected):
    terms, batch, log_ratio = gamma_terms(*case), case[2], case[4]
    found, error = error_of(trials(Barker(batch), terms, N_CALLS).accepted, log_ratio)
    assert abs(found - expected) < 0.004, (found, error)
    found, error = error_of(trials(Barker(batch, pilot=True), terms, N_CALLS).accepted, log_ratio)
    assert abs(found) < 0.008 + 3 * error, (found, error)
    rule = Barker(batch, pilot=True, skew_correction=True)
    found, error = error_of(trials(rule, terms, N_CALLS).accepted, log_ratio)
    assert abs(found) < 0.004 + 3 * error, (found, error)


def test_the_correction_alone_makes_stopping_worse():
    """Why it is refused without a pilot."""
    case, _ = STOPPING[2]
    rule, terms = Barker(case[2]), gamma_terms(*case)
    plain, _ = error_of(trials(rule, terms, N_CALLS).accepted, case[4])
    functions = rule.functions._replace(accept=accept_with_skewness)
    corrected, _ = error_of(trials(rule, terms, N_CALLS, functions=functions).accepted, case[4])
    assert corrected < plain - 0.004


@numba.njit
def own_rows_too(n_calls, rng, terms, batch, schedule, correction):
    """A planted fault: of the n rows that decide the first are those of the pilot."""
    n_local, order, found = len(terms), np.arange(len(terms)), np.empty(n_calls)
    for t in range(n_calls):
        draw_without_replacement(rng, order, 0, 4 * batch)
        n = others_for(schedule, merge(nothing_read(n_local), terms[order[:batch]]))
        sample = merge(nothing_read(n_local), terms[order[:n]])
        restore_order(order, 4 * batch)
        found[t] = probability(correction, n_local * sample.mean, 1.0 - noise_variance(sample), 0.0)
    return found


def test_a_pilot_whose_rows_decide_is_noticed():
    case, _ = STOPPING[0]
    terms, batch = gamma_terms(*case), case[2]
    schedule = Barker(batch, pilot=True).bind(len(terms))
    found = own_rows_too(60_000, np.random.default_rng(2), terms, batch, schedule, CORRECTION)
    found, error = error_of(found, case[4])
    assert found < -0.008 - 3 * error, (found, error)


def sample_of(values, n_local):
    return merge(nothing_read(n_local), np.asarray(values, float))


@pytest.mark.parametrize(
    ("n_local", "sd", "block"), [(10_000, 0.02, 1), (10_000, 0.002, 1), (4000, 0.009, 25)]
)
def test_as_many_others_as_bring_the_variance_to_its_aim(n_local, sd, block):
    schedule = Barker(100, pilot=True).bind(n_local)._replace(block=block)
    pilot = sample_of(sd * np.random.default_rng(3).normal(size=100), n_local)
    n = others_for(schedule, pilot)
    assert n % block == 0
    assert n >= 100

    def with_variance(n):
        return n_local**2 * pilot.m2 / 99 / n * (1 - n / n_local)

    if n > 100:
        assert with_variance(n) <= 0.7 < with_variance(n - block)
    else:
        assert with_variance(100) < 0.7


def test_all_are_read_where_others_are_too_few():
    rng, rule = np.random.default_rng(4), Barker(100, pilot=True)
    n_local = 1000
    schedule = rule.bind(n_local)
    for sd, few in ((0.02, False), (0.1, True), (1.0, True)):
        n = others_for(schedule, sample_of(sd * rng.normal(size=100), n_local))
        assert (n == 0) == few
        assert n <= 900
    assert others_for(schedule, sample_of(np.full(100, 0.1), n_local)) == 0  # equal terms tell nothing
    huge = sample_of([1e100, -1e100], n_local)._replace(m2=math.inf)
    assert others_for(schedule, huge) == 0
    # Their s^2 is 0.7 at exactly 900 rows: N^2 m2 / 99 / 900 * (1 - 0.9).
    half = np.repeat([1.0, -1.0], 50)
    just = math.sqrt(0.7 * 900 * 99 / 100 / (n_local**2 * 0.1))
    assert others_for(schedule, sample_of(0.999 * just * half, n_local)) == 900
    assert others_for(schedule, sample_of(1.001 * just * half, n_local)) == 0


def test_terms_that_do_not_fill_a_block_are_too_few():
    schedule = Barker(100, pilot=True).bind(1010)._replace(block=50)
    half, spread = np.repeat([1.0, -1.0], 50), 0.7 * 905 * 99 / 100 / (1010**2 * (1 - 905 / 1010))
    assert others_for(schedule, sample_of(math.sqrt(spread) * half, 1010)) == 0  # 950 of 910
    assert others_for(schedule._replace(block=1), sample_of(math.sqrt(spread) * half, 1010)) in (905, 906)


def test_a_pilot_that_is_all_there_is_decides():
    rule = Barker(100, pilot=True)
    np.testing.assert_array_equal(rule.bind(100).ends, [100])
    np.testing.assert_array_equal(rule.bind(1000).ends, [100, 1000])
    whole = sample_of(np.arange(100.0), 100)
    assert everything(rule.bind(100), 0, whole, 0.0, math.nan)
    assert not everything(rule.bind(1000), 0, sample_of(np.arange(100.0), 1000), 0.0, math.nan)
    assert not clipped(rule.bind(100), whole)
    assert not clipped(Barker(pilot=True).bind(1), sample_of([1.0], 1))


@pytest.mark.parametrize("skew_correction", [False, True])
def test_everything_read_is_the_exact_test(skew_correction):
    terms = gamma_terms(0.25, 300, 100, 30.0, 0.4)
    done = trials(Barker(100, pilot=True, skew_correction=skew_correction), terms, 40_000)
    assert np.all(done.read == 300)
    assert np.all(done.n == 300)
    assert not done.clipped.any()
    found, error = error_of(done.accepted, 0.4)
    assert abs(found) < 4 * error
    # The decisions are those of the test without the correction, one by one: nothing is added at n = N.
    plain = trials(Barker(100, pilot=True), terms, 40_000)
    np.testing.assert_array_equal(done.accepted, plain.accepted)


def test_rows_of_the_pilot_are_counted_and_clipped_decisions_too():
    terms = scaled(ndtri((np.arange(10_000) + 0.5) / 10_000), 200, 0.9, 0.3)
    done = trials(Barker(200, pilot=True), terms, 20_000)
    np.testing.assert_array_equal(done.read, 200 + done.n)
    # .81 * 200 / .7 = 231 rows; s^2 of n normal terms is .7 chi^2 / (n - 1) times another such ratio.
    assert abs(done.n.mean() - 231.4) < 4
    rng = np.random.default_rng(5)
    n = np.maximum(200, 231.4 * rng.chisquare(199, 400_000) / 199)
    expected = np.mean(0.81 * 200 / n * rng.chisquare(n - 1) / (n - 1) > 1)
    assert abs(done.clipped.mean() - expected) < 4 * math.sqrt(expected / 20_000) + 0.1 * expected
    found, error = error_of(done.accepted, 0.3)
    assert abs(found) < Barker(200).error_bound(10_000) + 4 * error


def test_third_moment_without_bias():
    """Over all samples of 4 of 7 terms, from the center of the first batch, and not from the mean."""
    from itertools import permutations

    terms = np.random.default_rng(6).gamma(0.5, size=7)
    found = []
    for order in permutations(range(7), 4):
        sample = merge(merge(nothing_read(7), terms[list(order[:1])]), terms[list(order[1:])])
        found.append(skewness_error(sample))
    # The factor of barker_skewness, and an unbiased estimate of the cumulant of a finite population.
    cubes = np.sum((terms - terms.mean()) ** 3)
    expected = 7**3 / 4**2 * (1 - 4 / 7) * (1 / 3 - 4 / 7 / 6) * cubes * 7 / (6 * 5)
    assert np.mean(found) == pytest.approx(expected, rel=1e-10)
    assert skewness_error(sample_of(terms[:2], 7)) == 0.0
    assert noise_variance(sample_of(terms[:2], 7)) > 0.0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"pilot": 1}, "pilot must be True or False, got 1"),
        ({"pilot": True, "skew_correction": "yes"}, "skew_correction must be True or False, got 'yes'"),
        ({"pilot": True, "max_error": 0.1}, "max_error=0.1 reads on"),
        ({"skew_correction": True}, "needs pilot=True. Where reading stops"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        Barker(**parameters)
