"""Terms that one decision reads, between fixed points and as the data grow, against the theory of the test.

As in Figure 5 of Chen, Mansinghka & Ghahramani (2015): epsilon = 0.01, batches of 100. The log ratios are
normal, as the theory has them.
"""

from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_austerity import AusterityMH
from tests.statistical.errors import LIMIT
from tests.statistical.theory import sequential_test_law

EPSILON, BATCH = 0.01, 100
MOVE = 0.06  # in units of the sd of the data
SMALLEST = 1000
REPEATS = 1500

BIG = pytest.param(1_000_000, marks=pytest.mark.full_size("a million rows"))
SIZES = [SMALLEST, 10_000, 100_000, BIG]


def data(n):
    return np.random.default_rng(1).normal(0.1, 1.0, n)


def measured(x, move, epsilon=EPSILON):
    """Mean number of terms of decisions between the sample mean and `move` above it, and its error."""

    def propose(q, rng):
        return q + move, 0.0

    with pm.Model() as model:
        mu = pm.Flat("mu")
        pm.Normal("x", mu, 1, observed=x)
    step = AusterityMH(
        model=model, epsilon=epsilon, batch_size=BATCH, proposal=propose, rng=np.random.default_rng(2)
    )
    point = {"mu": np.array(x.mean())}
    used = np.array([step.step(point)[1][0]["n_used"] for _ in range(REPEATS)])
    return used.mean(), used.std(ddof=1) / np.sqrt(REPEATS)


def drifts(x, move, v):
    """Standardised distance of the mean log ratio from psi = -v / N, for v = -log u."""
    return (v / len(x) - move**2 / 2) * np.sqrt(len(x) - 1) / (move * x.std())


def predicted(x, move, epsilon=EPSILON, walks=10_000):
    """Mean number of terms in the idealised test, by simulation of its Brownian motion, and its error."""
    n, rng = len(x), np.random.default_rng(3)
    mu_std = drifts(x, move, rng.exponential(size=walks))
    share = np.arange(BATCH, n, BATCH) / n
    tau = np.append(0.0, share / (1 - share))
    used, running, position = np.full(walks, float(n)), np.arange(walks), np.zeros(walks)
    for stage, (before, now) in enumerate(pairwise(tau), start=1):
        step = now - before
        position += mu_std[running] * step + np.sqrt(step) * rng.standard_normal(len(running))
        goes_on = np.abs(position) <= stats.norm.isf(epsilon) * np.sqrt(now)
        used[running[~goes_on]] = stage * BATCH
        position, running = position[goes_on], running[goes_on]
    return used.mean(), used.std(ddof=1) / np.sqrt(walks)


def by_quadrature(x, move, nodes):
    """The same without simulation, where the stages are few enough."""
    n = len(x)
    v, weights = np.polynomial.laguerre.laggauss(24)
    v, weights = v[weights > 1e-12], weights[weights > 1e-12]
    ends = np.append(np.arange(BATCH, n, BATCH), n)
    critical = np.full(len(ends), stats.norm.isf(EPSILON))
    return n * weights @ sequential_test_law(drifts(x, move, v), ends, critical, nodes).data_use


def of_infinitely_many(x, move, epsilon=EPSILON, walks=10_000):
    """The limit of `predicted` for large N: log ratios have the mean -move^2 / 2, and the sd of move * x."""
    drift, rng = move / (2 * x.std()), np.random.default_rng(4)
    used, running, position, n = np.empty(walks), np.arange(walks), np.zeros(walks), 0
    while len(running):
        n += BATCH
        position += drift * BATCH + np.sqrt(BATCH) * rng.standard_normal(len(running))
        goes_on = np.abs(position) <= stats.norm.isf(epsilon) * np.sqrt(n)
        used[running[~goes_on]] = n
        running, position = running[goes_on], position[goes_on]
    return used.mean(), used.std(ddof=1) / np.sqrt(walks)


@pytest.mark.parametrize("n", [SMALLEST, 10_000])
def test_the_simulation_agrees_with_quadrature(n):
    x = data(n)
    expected = by_quadrature(x, MOVE, nodes=150)
    assert by_quadrature(x, MOVE, nodes=120) == pytest.approx(expected, rel=1e-3)
    terms, error = predicted(x, MOVE)
    assert abs(terms - expected) < LIMIT * error


@pytest.mark.parametrize("n", SIZES)
def test_terms_for_a_fixed_step(n):
    x = data(n)
    terms, error = measured(x, MOVE)
    expected, own_error = predicted(x, MOVE)
    assert error < 0.04 * expected
    assert abs(terms - expected) < LIMIT * np.hypot(error, own_error)
    # Not sublinear for small N, where nearly everything is read; then bounded by a constant.
    most, its_error = of_infinitely_many(x, MOVE)
    assert expected > 0.7 * n if n == SMALLEST else expected < most + LIMIT * np.hypot(own_error, its_error)
    assert most < 6000
    # The check can tell this epsilon from one half as large.
    other, _ = predicted(x, MOVE, EPSILON / 2)
    assert n == SMALLEST or abs(terms - other) > LIMIT * error


@pytest.mark.parametrize("n", SIZES[1:])
def test_terms_for_a_step_as_small_as_the_posterior(n):
    """A chain at equilibrium takes steps in proportion to 1 / sqrt(N), and reads in proportion to N."""
    x, move = data(n), MOVE * np.sqrt(SMALLEST / n)
    terms, error = measured(x, move)
    expected, own_error = predicted(x, move)
    assert abs(terms - expected) < LIMIT * np.hypot(error, own_error)
    assert expected > 0.5 * n


@pytest.mark.parametrize("n", [SMALLEST, 100_000])
def test_the_exact_test_reads_everything(n):
    assert measured(data(n), MOVE, epsilon=0) == (n, 0)
