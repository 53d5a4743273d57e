"""Theorem 1: the formula, and that the bound holds for enumerated chains."""

import numpy as np
import pytest

from pymc_austerity.design import acceptance_error, stationary_error_bound
from tests.statistical.theory import stationary, walk_on_grid


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
        (np.nan, 0.5, "delta_max must not be NaN"),
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
