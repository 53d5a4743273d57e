"""SGLD: stationary distributions that are known, and what is predicted of them."""

import numpy as np
import pytest

from pymc_austerity import SGLD, Taylor
from tests.statistical.errors import LIMIT, error_of_mean, sd_with_error
from tests.statistical.langevin import chain, normal_mean, toy, toy_expectation

pytestmark = pytest.mark.filterwarnings("ignore:SGLD accepts every move:pymc_austerity.SubsamplingWarning")


def test_moments_of_the_toy():
    """The numbers that its pages print."""
    mean = toy_expectation(lambda t: t)
    assert mean == pytest.approx(0.010040, abs=5e-6)
    assert toy_expectation(lambda t: (t - mean) ** 2) ** 0.5 == pytest.approx(0.006993, abs=5e-6)
    assert toy_expectation(lambda t: t > 0.02) == pytest.approx(0.0961, abs=3e-4)
    assert toy_expectation(lambda t: t < 0) == pytest.approx(0.00509, abs=5e-5)


@pytest.mark.full_size("two million transitions: what the example of the kink shows with fewer")
def test_the_kink():
    """Minibatches of 500 make it worse by little: it is the Euler step."""
    with toy():
        step = SGLD(step_size=5e-6, batch_size=500, steps_per_draw=20)
        full = SGLD(step_size=5e-6, batch_size=None, steps_per_draw=10)
    draws, stats = chain(step, {"theta": 0.005}, 100_000)
    assert np.mean(draws) == pytest.approx(0.01640, rel=0.015)
    assert np.std(draws) == pytest.approx(0.00841, rel=0.015)
    assert np.mean(draws > 0.02) == pytest.approx(0.335, rel=0.015)
    assert stats["n_used"] == 500
    draws, stats = chain(full, {"theta": 0.005}, 10_000)
    assert np.mean(draws) == pytest.approx(0.01529, rel=0.015)
    assert np.std(draws) == pytest.approx(0.00780, rel=0.015)
    assert stats["fraction_used"] == 1


# aA, batch, and stationary standard deviations in units of the posterior's.
WIDE = [(0.02, 100, 3.33), (0.02, 1000, 1.416), (0.5, 100, 16.97), (0.5, 1000, 5.44)]
EXACT = [
    (0.02, None, None, 1.0025),
    (0.5, None, None, 1.069),
    (0.02, 100, Taylor(), 1.0025),
    (0.5, 100, Taylor(), 1.069),
]


@pytest.fixture(scope="module")
def mean():
    return normal_mean()


def ratio(model, precision, rate, batch, taylor, draws, per_draw):
    """The ratio of a chain, its error, and what is predicted."""
    with model:
        step = SGLD(
            step_size=rate / precision, batch_size=batch, control_variate=taylor, steps_per_draw=per_draw
        )
    found, stats = chain(step, {"mu": 0.0}, draws)
    sd, error = sd_with_error(found[draws // 20 :])
    return sd * precision**0.5, error * precision**0.5, stats["sd_inflation"]


@pytest.mark.parametrize(("rate", "batch", "expected"), WIDE)
def test_a_normal_mean(mean, rate, batch, expected):
    found, error, predicted = ratio(*mean, rate, batch, None, 6000, int(1 + 1 / rate))
    assert predicted == pytest.approx(expected, rel=0.01)
    assert abs(found - expected) < 0.01 * expected + LIMIT * error
    assert error < 0.02 * expected


@pytest.mark.parametrize(("rate", "batch", "taylor", "expected"), EXACT)
def test_without_noise_of_minibatches(mean, rate, batch, taylor, expected):
    draws = 6000 if batch else 800
    found, error, predicted = ratio(*mean, rate, batch, taylor, draws, int(1 + 0.5 / rate))
    assert predicted == pytest.approx(expected, abs=1e-3)
    assert abs(found - expected) < 1e-3 + LIMIT * error


def test_a_drift_of_the_wrong_size_would_be_seen(mean):
    """Half the drift, as if a were the variance of half the noise: sqrt(2) times too wide."""
    # Planted fault: half the drift.

    class Half(SGLD):
        def _build(self, point):
            super()._build(point)
            run = self._engine.run

            def halved(n, first, rng, q, point):
                half = run(n, first, rng, q.copy(), point)
                return half._replace(q=0.5 * (q + half.q))

            self._engine.run = halved

    model, precision = mean
    with model:
        step = Half(step_size=0.5 / precision, control_variate=Taylor())
    found, _ = chain(step, {"mu": 0.0}, 4000)
    sd, error = sd_with_error(found)
    assert abs(sd * precision**0.5 - 1.069) > LIMIT * error * precision**0.5
    assert error_of_mean(found) > 0
