"""Figure 6 of Korattikara et al."""

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_austerity.design import acceptance_error, expected_data_usage, optimal_design
from pymc_austerity.plots import plot_test_designs
from tests.plots.artists import inside, line

N = 2000


def moves(seed, n=10):
    rng = np.random.default_rng(seed)
    spread = rng.uniform(0.5, 3.0, size=n)
    return SimpleNamespace(mu=rng.normal(-(spread**2) / 2, spread) / N, sigma_l=spread / np.sqrt(N))


def judged(design, pairs):
    delta = acceptance_error(pairs.mu, pairs.sigma_l, N, **design)
    return np.abs(delta).mean(), 100 * expected_data_usage(pairs.mu, pairs.sigma_l, N, **design).mean()


@pytest.mark.slow("long runs")
def test_designs_are_judged_on_other_moves():
    train, test = moves(1), moves(2)
    left, right = plot_test_designs(train, [0.1, 0.03], test_pairs=test, batch_size=500, N=N)
    ways = {
        "average design": lambda t: optimal_design(train, t, N=N),
        "m = 500": lambda t: optimal_design(train, t, N=N, batch_sizes=[500]),
        "worst-case design": lambda t: optimal_design(None, t, N=N),
    }
    for name, way in ways.items():
        expected = np.array([judged(way(t), test) for t in (0.03, 0.1)])
        np.testing.assert_allclose(line(left, name), np.c_[[0.03, 0.1], expected[:, 0]])
        np.testing.assert_allclose(line(right, name), np.c_[[0.03, 0.1], expected[:, 1]])
    assert (left.get_xscale(), left.get_yscale(), right.get_yscale()) == ("log", "log", "linear")
    assert inside(left.figure)


def test_every_second_move_is_held_out():
    pairs = moves(1)
    left, _ = plot_test_designs(pairs, [0.1], batch_size=500, N=N)
    train, test = (SimpleNamespace(mu=pairs.mu[k::2], sigma_l=pairs.sigma_l[k::2]) for k in (0, 1))
    expected = judged(optimal_design(train, 0.1, N=N), test)[0]
    np.testing.assert_allclose(line(left, "average design")[0, 1], expected)
    assert "5 moves" in left.get_title()
