"""Minibatches, their gradients, and Langevin dynamics; interpreted and compiled."""

import math

import numba
import numpy as np
import pytest
from numba.extending import register_jitable
from scipy import linalg

from pymc_austerity.kernels.stochastic_gradient import (
    DivergedError,
    Dynamics,
    gradient_moments,
    langevin_transitions,
)
from pymc_austerity.proposals.langevin import distinct_positions, estimated_gradient
from pymc_austerity.step_methods.langevin.sgld import Inflation
from pymc_austerity.target import Target
from tests.statistical.errors import LIMIT, p_of_counts

NO_FACTOR = np.empty((0, 0))


# Minibatches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "size"), [(1, 1), (1, 9), (5, 9), (8, 9), (9, 9), (300, 100_000), (9999, 10_000)]
)
def test_positions_are_distinct(n, size):
    for seed in range(20):
        drawn = distinct_positions(np.random.default_rng(seed), n, size)
        assert len(set(drawn.tolist())) == n
        assert drawn.min() >= 0
        assert drawn.max() < size
        assert drawn.dtype == np.int64


def test_all_are_drawn_in_order_without_random_numbers():
    rng = np.random.default_rng(1)
    assert distinct_positions(rng, 7, 7).tolist() == list(range(7))
    assert rng.random() == np.random.default_rng(1).random()


def test_all_subsets_in_all_orders_are_equally_likely():
    rng, counts = np.random.default_rng(1), {}
    compiled = numba.njit(distinct_positions)
    for _ in range(60_000):
        drawn = tuple(compiled(rng, 3, 5).tolist())
        counts[drawn] = counts.get(drawn, 0) + 1
    assert len(counts) == 60
    assert p_of_counts(list(counts.values()), np.full(60, 1 / 60)) > 1e-4


def test_compiled_positions_are_the_same():
    compiled = numba.njit(distinct_positions)
    for seed in range(10):
        one, other = (f(np.random.default_rng(seed), 200, 5000) for f in (compiled, distinct_positions))
        np.testing.assert_array_equal(one, other)


# A target: l_i(q) = -(q - y_i)' H (q - y_i) / 2, and a standard normal prior ----------------------


@register_jitable
def slope_of_rows(q, index, args):
    y, h = args
    total = np.zeros(len(q))
    for i in index:
        total -= h @ (q - y[i])
    return total


@register_jitable
def slope_of_prior(q, args):
    return -q


TARGET = Target(global_gradient=slope_of_prior, local_gradient=slope_of_rows)
H = np.array([[1.0, 0.4], [0.4, 0.5]])


def rows(n=400):
    return np.random.default_rng(5).gamma(2.0, 1.0, size=(n, 2))


def test_the_gradient_is_unbiased_and_has_the_variance_of_draws_without_replacement():
    y, q, n = rows(), np.array([1.0, -0.5]), 50
    full = estimated_gradient(q, np.arange(len(y)), len(y), (y, H), TARGET)
    np.testing.assert_allclose(full, -q - len(y) * H @ (q - y.mean(0)), rtol=1e-12)
    rng = np.random.default_rng(1)
    found = np.array(
        [
            estimated_gradient(q, distinct_positions(rng, n, len(y)), len(y), (y, H), TARGET)
            for _ in range(4000)
        ]
    )
    expected = len(y) ** 2 / n * (1 - n / len(y)) * H @ np.cov(y.T) @ H
    assert np.all(np.abs(found.mean(0) - full) < LIMIT * np.sqrt(np.diag(expected) / 4000))
    np.testing.assert_allclose(np.cov(found.T), expected, rtol=0.15)


def test_many_rows_are_read_in_parts():
    sizes = []

    def counted(q, index, args):
        sizes.append(len(index))
        return np.zeros(1)

    target = Target(global_gradient=lambda q, args: np.ones(1), local_gradient=counted)
    assert estimated_gradient(np.zeros(1), np.arange(20_000), 20_000, (), target) == [1.0]
    assert sizes == [8192, 8192, 3616]


def test_moments_of_gradients():
    y, q = rows(), np.array([0.3, 0.1])
    mean, products = np.zeros(2), np.zeros((2, 2))
    gradient_moments(np.random.default_rng(0), q, (y, H), np.arange(len(y)), mean, products, TARGET)
    gradients = -(q - y) @ H
    np.testing.assert_allclose(mean, gradients.mean(0), rtol=1e-12)
    np.testing.assert_allclose(np.tril(products), np.tril(np.cov(gradients.T)) * (len(y) - 1), rtol=1e-10)


# Dynamics -----------------------------------------------------------------------------------------


def dynamics(h=0.001, n=50, factor=NO_FACTOR, tau=1.0, kappa=0.0):
    return Dynamics(h, tau, kappa, n, 400, factor)


@numba.njit
def run(n_draws, rng, q, y, h, dynamics):
    target = Target(None, None, None, slope_of_prior, None, slope_of_rows)
    draws = np.empty((n_draws, len(q)))
    for k in range(n_draws):
        q = langevin_transitions(1, 0, rng, q, (y, h), dynamics, target).q
        draws[k] = q
    return draws


def test_compiled_is_interpreted():
    factor = np.triu(np.random.default_rng(1).normal(size=(2, 2)))
    for d in (dynamics(), dynamics(n=400, factor=factor)):
        compiled = run(20, np.random.default_rng(1), np.zeros(2), rows(), H, d)
        q, rng = np.zeros(2), np.random.default_rng(1)
        for k in range(20):
            q = langevin_transitions(1, 0, rng, q, (rows(), H), d, TARGET).q
            np.testing.assert_allclose(compiled[k], q, rtol=1e-10)


@pytest.mark.parametrize("factor", [NO_FACTOR, np.array([[0.05, 0.03], [0.0, 0.04]])], ids=["I", "L"])
@pytest.mark.covering(1)
def test_the_covariance_is_that_of_the_lyapunov_equation(factor):
    y = rows()
    precision = 400 * H + np.eye(2)
    noise = 400**2 / 50 * (1 - 50 / 400) * H @ np.cov(y.T) @ H
    matrix = factor @ factor.T if factor.size else np.eye(2)
    linear = Inflation(precision, factor, noise, 1.0)
    a = 0.3 * linear.largest_stable
    drift = np.eye(2) - 0.5 * a * matrix @ precision
    expected = linalg.solve_discrete_lyapunov(drift, 0.25 * a * a * matrix @ noise @ matrix + a * matrix)
    ratio = linalg.eigh(expected, linalg.inv(precision), eigvals_only=True)[-1] ** 0.5
    assert linear.sd_ratio(a) == pytest.approx(ratio, rel=1e-9)
    draws = run(200_000, np.random.default_rng(2), np.zeros(2), y, H, dynamics(a, 50, factor))
    np.testing.assert_allclose(np.cov(draws[1000:].T), expected, rtol=0.05)


def test_by_axes_the_ratio_would_be_wrong():
    """The formula of one dimension holds along the axes only where A, V and M commute."""
    precision, noise = np.diag([1.0, 3.0]), np.array([[50.0, 45.0], [45.0, 50.0]])
    linear, a = Inflation(precision, NO_FACTOR, noise, 0.2), 0.2
    axes = max(math.sqrt((1 + a * v / 4) / (1 - a * p / 4)) for p, v in ((1.0, 50.0), (3.0, 50.0)))
    assert linear.sd_ratio(a) > axes * 1.01
    assert linear.largest_stable == pytest.approx(4 / 3)


def test_ratios_between_step_sizes_are_interpolated():
    inflation = Inflation(np.array([[2.0]]), NO_FACTOR, np.array([[3.0]]), 0.7)
    for a in (0.7, 0.6, 0.35, 0.01, 1e-6):
        assert inflation(a) == pytest.approx(math.sqrt((1 + 0.75 * a) / (1 - 0.5 * a)), rel=1e-3)
    assert inflation(0.7) == pytest.approx(inflation.sd_ratio(0.7), rel=1e-14)


def test_step_sizes_decrease():
    rng, shrinking = np.random.default_rng(0), dynamics(0.001, 10, tau=2.0, kappa=0.5)
    outcome = langevin_transitions(3, 5, rng, np.zeros(2), (rows(), H), shrinking, TARGET)
    assert outcome.step_size == pytest.approx(0.001 * (1 + 7 / 2) ** -0.5)
    assert outcome.n_used == 30


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_a_state_that_is_not_finite():
    with pytest.raises(DivergedError, match=r"^Coordinate 0 is no longer finite after a step of size 1"):
        langevin_transitions(
            2000, 0, np.random.default_rng(0), np.ones(2), (rows(), H), dynamics(1e6), TARGET
        )
