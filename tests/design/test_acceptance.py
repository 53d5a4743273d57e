"""Errors of the acceptance probability: known values, quadrature, the real rule; and of a whole chain."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_austerity.acceptance import TTest
from pymc_austerity.acceptance.ttest import significant
from pymc_austerity.design import (
    acceptance_error,
    data_usage,
    error,
    expected_data_usage,
    stationary_error_bound,
)
from pymc_austerity.design.acceptance import decision_errors
from tests.kernels.engines import compiled_test
from tests.statistical.errors import LIMIT
from tests.statistical.theory import stationary, walk_on_grid

N = 10_000
TEST = {"batch_size": 500, "epsilon": 0.05}


def both(log_ratio, sd_sum, n_local=N, **test):
    """At N mu = log_ratio, and sigma_l = sd_sum / sqrt(N)."""
    move = log_ratio / n_local, sd_sum / math.sqrt(n_local), n_local
    return acceptance_error(*move, **test), expected_data_usage(*move, **test)


@pytest.mark.parametrize(
    ("log_ratio", "sd_sum", "expected"), [(0.0, 3.0, -0.182653), (-0.5, 1.0, 0.001899), (-2.0, 3.0, 0.102719)]
)
def test_known_values(log_ratio, sd_sum, expected):
    # What is left is sqrt(N - 1) for sqrt(N).
    assert both(log_ratio, sd_sum, **TEST)[0] == pytest.approx(expected, abs=5e-6)


def direct(log_ratio, sigma_l, n_local, batch_size, epsilon, boundary):
    """Equation 6 as it stands, over v = -log u, on panels that get finer towards both ends."""
    steps = np.append(0.0, np.geomspace(1e-8, 0.5, 60))
    x, weights = np.polynomial.legendre.leggauss(8)
    found = []
    for low, high in ((0.0, min(max(-log_ratio, 0.0), 40.0)), (min(max(-log_ratio, 0.0), 40.0), 40.0)):
        edges = low + (high - low) * np.append(steps, 1 - steps[-2::-1])
        half = np.diff(edges)[:, None] / 2
        v = edges[:-1, None] + half * (1 + x)
        mu_std = (log_ratio + v) * math.sqrt(n_local - 1) / (n_local * sigma_l)
        for function in (error, data_usage):
            values = function(mu_std, batch_size / n_local, epsilon, boundary=boundary)
            found.append(np.sum(half * weights * values * np.exp(-v)))
    accepted_wrongly, used, rejected_wrongly, used_too = found
    return accepted_wrongly - rejected_wrongly, used + used_too


@pytest.mark.parametrize("boundary", [0.5, 1.0])
@pytest.mark.parametrize("sd_sum", [1e-3, 0.1, 3.0, 1e3])
@pytest.mark.parametrize("log_ratio", [0.0, -1e-4, -2.0, -38.0, -500.0, 4.0, 500.0])
def test_agrees_with_direct_quadrature(log_ratio, sd_sum, boundary):
    test = {"batch_size": 500, "epsilon": 0.02, "boundary": boundary}
    expected = direct(log_ratio, sd_sum / math.sqrt(N), N, **test)
    assert both(log_ratio, sd_sum, **test) == pytest.approx(expected, abs=1e-8)


def test_without_cancellation_the_error_is_that_of_the_test():
    """At N mu = 0 and with a large variance every u is near the threshold, on one side."""
    found, used = both(0.0, 1e6, **TEST)
    assert found == pytest.approx(-error(0.0, 0.05, 0.05), abs=1e-4)
    assert used == pytest.approx(data_usage(0.0, 0.05, 0.05), abs=1e-4)


def test_wrong_decisions_do_not_cancel():
    law = decision_errors(np.array([-0.5 / N]), np.array([1.0 / math.sqrt(N)]), N, 500, 0.05, 0.5)
    assert abs(law.signed[0]) < 0.1 * law.absolute[0]
    assert law.absolute[0] < error(0.0, 0.05, 0.05)


# Limits and shapes ----------------------------------------------------------------------------------


def test_equal_terms_are_all_read():
    """As by the rule: without variance it decides nothing before n = N."""
    assert both(-1.0, 0.0, **TEST) == (0.0, 1.0)
    rule, terms = TTest(0.05, 500), np.full(N, -0.25)  # whose mean is without rounding errors
    n, _, _ = compiled_test(significant)(
        20, np.random.default_rng(1), -1.0, terms, np.arange(N), rule.bind(N)
    )
    assert set(n) == {N}


@pytest.mark.parametrize("log_ratio", [math.inf, -math.inf])
def test_impossible_moves_are_decided_by_the_first_batch(log_ratio):
    assert both(log_ratio, 1.0, **TEST) == (0.0, 0.05)


@pytest.mark.parametrize("test", [{"batch_size": 500, "epsilon": 0.0}, {"batch_size": N, "epsilon": 0.3}])
def test_exact_tests(test):
    assert both(-1.0, 1.0, **test) == (0.0, 1.0)


def test_moves_broadcast():
    mu, sigma_l = np.array([0.0, -1.0, 2.0]) / N, np.array([[0.01], [0.03]])
    found = acceptance_error(mu, sigma_l, N, **TEST)
    assert found.shape == expected_data_usage(mu, sigma_l, N, **TEST).shape == (2, 3)
    assert found[1, 1] == pytest.approx(acceptance_error(mu[1], 0.03, N, **TEST), abs=1e-15)
    assert type(acceptance_error(0, 0.01, N, **TEST)) is float
    assert acceptance_error([], 0.01, N, **TEST).shape == (0,)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("mu", math.nan, "mu must be a number, got nan"),
        ("sigma_l", -1.0, "sigma_l must be finite and not negative, got -1.0"),
        ("sigma_l", math.inf, "sigma_l must be finite and not negative, got inf"),
        ("N", 100, "batch_size must be at most N = 100, got 500"),
        ("N", 1e4, "N must be an integer of at least 2, got 10000.0"),
        ("batch_size", 1, "batch_size must be an integer of at least 2, got 1. One term has no variance"),
        ("batch_size", 50.5, "batch_size must be an integer of at least 2, got 50.5"),
        ("epsilon", 0.6, r"epsilon must be in \[0, 0.5\]"),
        ("epsilon", [0.1], r"epsilon must be in .*got \[0.1\]"),
        ("boundary", 0.3, r"boundary must be in \[0.5, 1\]"),
    ],
)
def test_a_wrong_parameter_is_named(name, value, said):
    given = {"mu": 0.0, "sigma_l": 0.01, "N": N, **TEST, name: value}
    for function in (acceptance_error, expected_data_usage):
        with pytest.raises(ValueError, match=said):
            function(**given)


# Properties -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    log_ratio=st.floats(-60, 20),
    sd_sum=st.floats(1e-4, 1e4),
    batch=st.integers(100, N),
    epsilon=st.floats(1e-6, 0.5),
    boundary=st.floats(0.5, 1.0),
)
def test_ranges(log_ratio, sd_sum, batch, epsilon, boundary):
    found, used = both(log_ratio, sd_sum, batch_size=batch, epsilon=epsilon, boundary=boundary)
    accept = math.exp(min(log_ratio, 0.0))
    assert -accept - 1e-12 <= found <= 1 - accept + 1e-12
    assert abs(found) <= error(0.0, batch / N, epsilon, boundary=boundary) + 1e-9
    assert batch / N - 1e-12 <= used <= data_usage(0.0, batch / N, epsilon, boundary=boundary) + 1e-9


# The rule itself ------------------------------------------------------------------------------------


def simulated(log_ratio, sd_sum, n_local, rule, n_decisions, seed=3):
    """Acceptances too many, and shares read, one number for each decision; u is common to both decisions."""
    rng, schedule, population = np.random.default_rng(seed), rule.bind(n_local), np.arange(n_local)
    decide = compiled_test(significant)
    excess, used = np.empty(n_decisions), np.empty(n_decisions)
    for k in range(n_decisions):
        if k % 500 == 0:
            x = rng.normal(size=n_local)
            terms = (x - x.mean()) / x.std() * sd_sum / math.sqrt(n_local) + log_ratio / n_local
        psi = math.log(rng.random()) / n_local
        n, _, mean = decide(1, rng, psi, terms, population, schedule)
        excess[k] = float(mean[0] > psi) - float(log_ratio / n_local > psi)
        used[k] = n[0] / n_local
    return excess, used


@pytest.mark.parametrize(("log_ratio", "sd_sum"), [(0.0, 3.0), (-2.0, 3.0), (-0.5, 1.0)])
def test_the_rule_does_what_is_predicted(log_ratio, sd_sum):
    n_local, batch = 2000, 150
    values = simulated(log_ratio, sd_sum, n_local, TTest(0.05, batch), 10_000)
    expected = both(log_ratio, sd_sum, n_local, batch_size=batch, epsilon=0.05)
    for value, predicted in zip(values, expected, strict=True):
        assert abs(value.mean() - predicted) < LIMIT * value.std() / math.sqrt(len(value))


def test_a_sigma_with_another_divisor_is_noticed():
    """Planted fault: the standard deviation of the sum in place of that of a term."""
    values, _ = simulated(-2.0, 3.0, 2000, TTest(0.05, 150), 10_000)
    planted = acceptance_error(-2.0 / 2000, 3.0, 2000, batch_size=150, epsilon=0.05)
    assert abs(values.mean() - planted) > LIMIT * values.std() / 100


# Theorem 1: the formula, and that the bound holds for enumerated chains -----------------------------


def test_formula():
    assert stationary_error_bound(0.01, 0.9) == pytest.approx(0.1)
    assert stationary_error_bound(0.0, 0.99) == 0.0
    assert stationary_error_bound(0.3, 0.0) == 0.3
    assert stationary_error_bound(0.2, 0.9) == 1.0
    assert stationary_error_bound([0.01, 0.02], 0.5) == pytest.approx([0.02, 0.04])


@pytest.mark.parametrize(
    ("delta_max", "eta", "said"),
    [
        (-0.1, 0.5, r"delta_max must be in \[0, 1\], got -0.1"),
        (1.1, 0.5, r"delta_max must be in \[0, 1\], got 1.1"),
        (0.1, 1.0, r"eta must be in \[0, 1\), got 1.0"),
        (0.1, -0.1, r"eta must be in \[0, 1\), got -0.1"),
        (np.nan, 0.5, "delta_max must be in .*got nan"),
    ],
)
def test_wrong_values(delta_max, eta, said):
    with pytest.raises(ValueError, match=said):
        stationary_error_bound(delta_max, eta)


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum(axis=-1)


@pytest.mark.parametrize("epsilon", [0.001, 0.01, 0.1])
def test_the_bound_holds_for_a_chain_on_a_grid(epsilon):
    """A normal mean, with acceptance probabilities of the exact and of the sequential test."""
    n_local, grid = 2000, np.linspace(-3, 3, 31)
    log_ratio = 0.5 * (grid[:, None] ** 2 - grid[None, :] ** 2)
    sigma_l = np.abs(grid[:, None] - grid[None, :]) / np.sqrt(n_local)
    delta = acceptance_error(log_ratio / n_local, sigma_l, n_local, batch_size=200, epsilon=epsilon)
    exact = np.exp(np.minimum(log_ratio, 0))
    before, after = (walk_on_grid(grid, 2.0, a) for a in (exact, exact + delta))
    # Dobrushin's coefficient: the largest distance between two rows.
    eta = max(total_variation(before[i], before).max() for i in range(len(grid)))
    distance = total_variation(stationary(before), stationary(after))
    bound = stationary_error_bound(np.abs(delta).max(), eta)
    assert 0 < eta < 1
    assert 0 < distance < bound
    assert distance > bound / 200
