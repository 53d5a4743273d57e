"""The example on stochastic volatility, in its fast mode."""

import numpy as np
import pytest

pytestmark = [
    pytest.mark.slow("particle Gibbs on 5,000 states, and quadrature"),
    # Chains as short as these have not settled.
    pytest.mark.filterwarnings("ignore:Tuning ended"),
]
FAST = 200, 100, 2  # draws, those of tuning before them, and chains


def test_only_transitions_are_local(result):
    assert result["factorisation"].local_terms == [("h", 50 * 99)]


def test_quadrature(result):
    """As computed before, on another grid."""
    mean, sd, correlation = result["exact"]
    assert mean == pytest.approx({"phi": 0.95496, "sigma": 0.3245}, abs=1e-4)
    assert sd == pytest.approx({"phi": 0.00694, "sigma": 0.0195}, rel=0.01)
    assert correlation == pytest.approx(-0.683, abs=0.005)


def test_quadrature_of_a_single_observation(example):
    """x ~ N(0, exp(h / 2)) with h ~ N(0, sigma), by another rule."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    h = 0.3 * nodes
    density = np.exp(-0.5 * (h + 1.2**2 * np.exp(-h) + np.log(2 * np.pi)))
    expected = np.log(weights @ density / weights.sum())
    grid = np.linspace(-7, 7, 121)
    assert example["log_likelihood"](np.array([[1.2]]), 0.9, 0.3, grid) == pytest.approx(expected, abs=1e-8)


def test_means_are_near(result):
    """Some five effective draws of sigma are all that there are."""
    assert np.all(result["table"]["shift"].abs() < 2.5)
    assert np.all(result["table"]["states moved"] > 0.85)


def test_share_of_transitions(result):
    table = result["table"]["share of transitions"]
    assert np.all(table.xs("epsilon 0", level="run") == 1)
    assert np.all(table.xs("epsilon 0.01", level="run") < 0.9)
