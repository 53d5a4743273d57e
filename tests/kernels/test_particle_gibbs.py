"""Sweeps of particle Gibbs on a linear Gaussian chain whose posterior is known; planted faults must show."""

import math

import numpy as np
import pytest

from pymc_austerity.kernels import particle_gibbs as kernels
from pymc_austerity.kernels.particle_gibbs import (
    Chains,
    ImpossibleStateError,
    LinearMoves,
    ParticleFilter,
    draw_index,
    normalise,
    particle_gibbs,
)
from pymc_austerity.target import Target

PHI, Q = 0.8, 0.5
Y = np.array([1.5, -0.5, 1.0, 2.0])
T = len(Y)
LIMIT = 4.0


def posterior():
    """Mean and covariance of the states: y_t ~ N(x_t, 1), and the first state ~ N(0, 1)."""
    precision = np.eye(T)
    precision[0, 0] += 1.0
    for t in range(1, T):
        precision[t, t] += 1 / Q**2
        precision[t - 1, t - 1] += PHI**2 / Q**2
        precision[t, t - 1] -= PHI / Q**2
        precision[t - 1, t] -= PHI / Q**2
    return np.linalg.solve(precision, Y), np.linalg.inv(precision)


def log_terms(q, index, args):
    return -0.5 * (Y[index] - q) ** 2


def transitions(q, index, args):
    """Log density, slope and precision of the next state where it is q."""
    return np.concatenate([-0.5 * ((q - PHI * q) / Q) ** 2, -(q - PHI * q) / Q**2, np.full(len(q), 1 / Q**2)])


TARGET = Target(log_terms=log_terms, transitions=transitions)
CHAINS = Chains(
    np.array([0, T]), np.arange(T)[:, None], np.ones(T, dtype=bool), np.zeros((1, 1)), np.ones((1, 1, 1))
)
VECTORS, TABLES = np.zeros((T, 1)), np.zeros((T, 1, 1))
LINEAR = LinearMoves(VECTORS, TABLES + PHI, TABLES + 1 / Q, VECTORS, TABLES)


def without_the_path_that_is_kept(log_weights, sums):
    log_weights[0] = -math.inf
    return normalise(log_weights, sums)


def without_the_transition(*args):
    """Ancestors of the path are drawn by their weights alone."""


def draws(n_particles, *, is_linear=True, n=12_000):
    rule = ParticleFilter(n_particles, is_linear, not is_linear)
    rng = np.random.default_rng(24)
    states, found = posterior()[0].copy(), np.empty((n, T))
    for k in range(n):
        particle_gibbs(1, rng, states, (), CHAINS, LINEAR, rule, TARGET)
        found[k] = states
    return found


def largest_error(found, n_batches=40):
    """Of means and second moments, in standard errors from batch means."""
    mean, covariance = posterior()
    scaled = (found - mean) / np.sqrt(np.diag(covariance))
    neighbours = (scaled[:, 1:] * scaled[:, :-1]) - np.diag(
        covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance))), 1
    )
    numbers = np.column_stack([scaled, scaled**2 - 1.0, neighbours])
    batches = (
        numbers[: len(numbers) // n_batches * n_batches].reshape(n_batches, -1, numbers.shape[1]).mean(axis=1)
    )
    error = batches.std(axis=0, ddof=1) / np.sqrt(n_batches)
    return np.abs(numbers.mean(axis=0) / error).max()


class TestInvariance:
    @pytest.mark.parametrize(("n_particles", "is_linear"), [(2, True), (5, True), (3, False)])
    @pytest.mark.covering(1)
    def test_the_posterior_is_invariant(self, n_particles, is_linear):
        assert largest_error(draws(n_particles, is_linear=is_linear)) < LIMIT

    @pytest.mark.parametrize(
        ("name", "bug"),
        [("normalise", without_the_path_that_is_kept), ("add_links", without_the_transition)],
    )
    @pytest.mark.covering(1)
    def test_planted_faults_are_noticed(self, name, bug, monkeypatch):
        monkeypatch.setattr(kernels, name, bug)
        assert largest_error(draws(5)) > 2 * LIMIT


def test_systematic_draws_are_not_used():
    """Of weights .9 and .1, both draws may be the first particle, and both the second."""
    rng = np.random.default_rng(1)
    pairs = np.array([[draw_index(rng, np.array([0.9, 1.0])) for _ in range(2)] for _ in range(4000)])
    assert abs((pairs.sum(axis=1) == 0).mean() - 0.81) < LIMIT * math.sqrt(0.81 * 0.19 / 4000)
    assert (pairs.sum(axis=1) == 2).any()


def test_a_weight_of_zero_is_never_drawn():
    class Last:
        def random(self):
            return 1.0

    assert draw_index(Last(), np.array([0.3, 0.8, 0.8])) == 1


def test_weights():
    log_weights, sums = np.array([0.0, math.nan, math.log(3.0)]), np.empty(3)
    assert normalise(log_weights, sums) == pytest.approx(16 / 10)
    np.testing.assert_allclose(sums * 3, [1, 1, 4])
    assert normalise(np.full(2, -math.inf), np.empty(2)) == -1.0
    assert normalise(np.array([0.0, math.inf]), np.empty(2)) == -1.0


def test_a_time_without_a_possible_particle_is_named():
    target = Target(log_terms=lambda q, index, args: np.where(index == 2, -math.inf, 0.0))
    rule = ParticleFilter(5, True, False)
    with pytest.raises(ImpossibleStateError, match="at site 2"):
        particle_gibbs(1, np.random.default_rng(0), np.zeros(T), (), CHAINS, LINEAR, rule, target)
