"""The exact transition of the Cox-Ingersoll-Ross process: its law, moments with noisy shapes, extremes."""

import math

import numba
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from pymc_austerity.kernels import cox_ingersoll_ross as cir

P_LIMIT = 1e-4
ERRORS = 4

transitions = numba.njit(cir.cir_transitions)


def draws(log_theta, shape, step_size, n, seed=1):
    rng = np.random.default_rng(seed)
    return transitions(rng, np.full(n, float(log_theta)), np.full(n, float(shape)), step_size)


# The law of one transition --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 30.1])
@pytest.mark.parametrize("theta", [0.01, 2.0, 40.0, 3e4])
@pytest.mark.parametrize("h", [0.01, 0.5, 3.0])
@pytest.mark.covering(15)
def test_noncentral_chi_square(shape, theta, h):
    w = 2 * np.exp(draws(math.log(theta), shape, h, 5_000)) / (1 - math.exp(-h))
    law = stats.ncx2(2 * shape, 2 * theta * math.exp(-h) / (1 - math.exp(-h)))
    assert stats.kstest(w, law.cdf).pvalue > P_LIMIT


# With a noisy shape: Corollary 4.2 ------------------------------------------------------------------------


def noisy_shapes(rng, a, noise, size):
    """Positive estimates with mean a and variance `noise`, skewed."""
    if noise == 0:
        return np.full(size, a)
    return rng.gamma(a**2 / noise, noise / a, size)


def run(a, noise, h, theta0, n_steps, n_chains, seed):
    """States of independent chains after `n_steps`."""
    rng = np.random.default_rng(seed)
    log_theta = np.log(theta0 * np.ones(n_chains))
    for _ in range(n_steps):
        log_theta = transitions(rng, log_theta, noisy_shapes(rng, a, noise, n_chains), h)
    return np.exp(log_theta)


def corollary(a, noise, h, theta0, n_steps, inflation=math.tanh):
    """Mean and variance after n steps."""
    e = math.exp(-n_steps * h)
    mean = theta0 * e + a * (1 - e)
    variance = 2 * theta0 * (e - e**2) + a * (1 - e) ** 2
    return mean, variance + (1 - e**2) * inflation(h / 2) * noise


def errors_off(x, mean, variance):
    """How far mean and variance of a sample are from given ones, in standard errors."""
    square = (x - mean) ** 2
    z_mean = (x.mean() - mean) / math.sqrt(variance / len(x))
    return z_mean, (square.mean() - variance) / (square.std() / math.sqrt(len(x)))


# a, Var(estimate of a), h, theta0, number of steps
CASES = [
    (0.6, 0.3, 0.5, 2.0, 1),
    (0.6, 2.0, 1.0, 0.01, 3),
    (5.1, 40.0, 0.1, 20.0, 5),
    (5.1, 40.0, 0.1, 20.0, 40),
    (100.1, 9000.0, 0.3, 10.0, 7),
    (100.1, 9000.0, 2.0, 500.0, 2),
    (800.1, 0.0, 0.05, 300.0, 4),
]


@pytest.mark.parametrize(("a", "noise", "h", "theta0", "n_steps"), CASES)
@pytest.mark.covering(5)
def test_moments_after_some_steps(a, noise, h, theta0, n_steps):
    """Planted fault: a missing inflation, where there is much noise."""
    x = run(a, noise, h, theta0, n_steps, 200_000, seed=3)
    z_mean, z_variance = errors_off(x, *corollary(a, noise, h, theta0, n_steps))
    assert abs(z_mean) < ERRORS
    assert abs(z_variance) < ERRORS
    missing = corollary(a, noise, h, theta0, n_steps, inflation=lambda _: 0.0)
    assert noise < 1.0 or errors_off(x, *missing)[1] > 2 * ERRORS


# Extremes ---------------------------------------------------------------------------------------------------


def cdf_of_log_gamma(x, shape):
    """Of log Gamma(shape), also where the variable itself is zero in floating-point numbers."""
    tail = np.exp(np.minimum(shape * x - gammaln(shape + 1), 0.0))
    return np.where(x < -40, tail, stats.gamma.cdf(np.exp(np.maximum(x, -40)), shape))


@pytest.mark.parametrize("shape", [1e-3, 0.02, 1.0, 1.5])
def test_log_gamma(shape):
    rng = np.random.default_rng(5)
    x = np.array([cir.log_gamma_draw(rng, shape) for _ in range(10_000)])
    assert stats.kstest(x, cdf_of_log_gamma, (shape,)).pvalue > P_LIMIT


@pytest.mark.parametrize("log_theta", [-1e4, -800.0, -np.inf])
@pytest.mark.parametrize("shape", [1e-3, 3.0])
def test_from_a_state_far_below_the_smallest_number(log_theta, shape):
    h = 0.1
    x = draws(log_theta, shape, h, 10_000, seed=6)
    assert np.all(np.isfinite(x))
    assert stats.kstest(x - math.log(-math.expm1(-h)), cdf_of_log_gamma, (shape,)).pvalue > P_LIMIT


def test_the_smallest_shape():
    assert np.all(np.isfinite(draws(0.0, 1e-300, 10.0, 1000)))


@pytest.mark.parametrize("shape", [0.3, 7.0])
@pytest.mark.parametrize("log_theta", [15.0, 20.0, 36.0, 50.0])
def test_states_with_many_events(shape, log_theta):
    """The means of the Poisson variable go from three million to beyond the largest integer."""
    h = 0.5
    x = draws(log_theta, shape, h, 20_000, seed=7)
    theta = math.exp(log_theta)
    z = theta * (np.expm1(x - log_theta + h) * math.exp(-h)) - shape * -math.expm1(-h)
    z /= math.sqrt(2 * theta * (math.exp(-h) - math.exp(-2 * h)))
    assert stats.kstest(z, stats.norm.cdf).pvalue > P_LIMIT


@pytest.mark.parametrize("log_theta", [100.0, 1e3, 1e5])
@pytest.mark.parametrize("shape", [0.3, 7.0, 1e10])
def test_states_beyond_the_largest_number(log_theta, shape):
    x = draws(log_theta, shape, 0.5, 100)
    np.testing.assert_allclose(x, log_theta - 0.5, rtol=1e-12)


@pytest.mark.parametrize("mean", [20.0, 100.0])
@pytest.mark.parametrize("shape", [0.05, 0.3, 0.5, 0.7, 6.0])
def test_without_drawing_the_number_of_events(monkeypatch, shape, mean):
    """The branch for large means, at means where its error of mean^(-3/2) would begin to show."""
    # Planted fault: one degree of freedom more.
    monkeypatch.setattr(cir, "_LOG_MOST_EVENTS", -1.0)
    rng = np.random.default_rng(8)
    x = [cir.log_noncentral_gamma_draw(rng, shape, math.log(mean)) for _ in range(20_000)]
    law = stats.ncx2(2 * shape, 2 * mean)
    assert stats.kstest(2 * np.exp(x), law.cdf).pvalue > P_LIMIT
    # One degree of freedom more or less, as a slip in it would give, is noticed.
    assert stats.kstest(2 * np.exp(x), stats.ncx2(2 * shape + 2, 2 * mean).cdf).pvalue < P_LIMIT


def test_the_branch_with_larger_shapes_is_exact_for_any_mean(monkeypatch):
    monkeypatch.setattr(cir, "_LOG_MOST_EVENTS", -math.inf)
    rng = np.random.default_rng(9)
    x = [cir.log_noncentral_gamma_draw(rng, 0.8, math.log(0.4)) for _ in range(20_000)]
    assert stats.kstest(2 * np.exp(x), stats.ncx2(1.6, 0.8).cdf).pvalue > P_LIMIT


# One function, two lives --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_theta", "shape", "h"),
    [
        (-1e4, 1e-3, 0.1),
        (0.0, 0.1, 1.0),
        (3.0, 40.0, 0.3),
        (12.0, 3.0, 0.3),
        (18.0, 3.0, 0.3),
        (40.0, 0.3, 0.01),
    ],
)
def test_interpreted_and_compiled_draws_are_the_same(log_theta, shape, h):
    n = 300
    arguments = np.full(n, log_theta), np.full(n, shape), h
    rngs = [np.random.default_rng(10) for _ in range(3)]
    interpreted = cir.cir_transitions(rngs[0], *arguments)
    np.testing.assert_array_equal(transitions(rngs[1], *arguments), interpreted)
    one = np.array([log_theta]), np.array([shape]), h
    one_by_one = [cir.cir_transitions(rngs[2], *one) for _ in range(n)]
    np.testing.assert_array_equal(np.ravel(one_by_one), interpreted)
    assert rngs[0].random() == rngs[1].random() == rngs[2].random()


@pytest.mark.parametrize("h", [0.01, 0.5, 4.0])
def test_noise(h):
    assert math.isclose(cir.cir_noise(h), (1 - math.exp(-h)) / (1 + math.exp(-h)))
