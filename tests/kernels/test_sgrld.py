"""Patterson & Teh's step: its formula, and the bias that it is there to show."""

import math

import numba
import numpy as np
import pytest
from scipy import stats

from pymc_austerity.kernels.langevin import sgrld_transition, sgrld_transitions

transitions = numba.njit(sgrld_transitions)


def test_formula():
    rng, same = np.random.default_rng(1), np.random.default_rng(1)
    theta, a, h = 0.3, 2.0, 0.05
    for _ in range(20):
        expected = abs(theta + h * (a - theta) + math.sqrt(2 * h * theta) * same.standard_normal())
        theta = sgrld_transition(rng, theta, a - theta, h)
        assert theta == pytest.approx(expected, rel=1e-14)


def test_interpreted_and_compiled_draws_are_the_same():
    theta, drift = np.random.default_rng(2).gamma(1.0, size=(2, 100))
    rngs = [np.random.default_rng(3) for _ in range(2)]
    interpreted = sgrld_transitions(rngs[0], theta, drift - theta, 0.1)
    # Compiled code may round a product and a sum at once.
    np.testing.assert_allclose(transitions(rngs[1], theta, drift - theta, 0.1), interpreted, rtol=1e-12)


def stationary(a, h, n=4000):
    rng = np.random.default_rng(4)
    theta = rng.standard_gamma(a, n)
    for _ in range(int(8 / h)):
        theta = transitions(rng, theta, a - theta, h)
    return theta


def test_large_shapes_are_drawn_well():
    assert stats.kstest(stationary(50.0, 0.01), stats.gamma(50.0).cdf).statistic < 0.04


def test_small_ones_are_not():
    """Half of a Gamma(0.1) lies below 6e-4; of the chain next to nothing."""
    theta = stationary(0.1, 0.05)
    assert np.mean(theta < 6e-4) < 0.2
    assert stats.kstest(theta, stats.gamma(0.1).cdf).statistic > 0.3
