"""Figures 11 and 12 of Korattikara et al."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from pymc_austerity.design import acceptance_error, error
from pymc_austerity.plots import plot_acceptance_error
from tests.plots.artists import inside, levels, line

N, M, EPSILON = 10_000, 500, 0.05


@pytest.fixture
def moves():
    rng = np.random.default_rng(1)
    spread = rng.uniform(0.5, 4.0, size=12)
    return SimpleNamespace(mu=rng.normal(-1.0, 1.5, size=12) / N, sigma_l=spread / np.sqrt(N))


def wrong_decisions(mu, sigma_l, **test):
    """E_u|E| by brute force: the midpoints of 200,000 cells of u, for all moves at once by interpolation."""
    u = (np.arange(200_000) + 0.5) / 200_000
    grid = np.concatenate([[0.0], np.geomspace(1e-5, 60.0, 600)])
    curve = error(grid, M / N, EPSILON, **test)
    drift = np.abs(N * mu[:, None] - np.log(u)) * np.sqrt(N - 1.0) / (N * sigma_l[:, None])
    return np.interp(drift, grid, curve).mean(axis=1)


@pytest.mark.parametrize("boundary", [0.5, 0.75])
def test_what_is_drawn(moves, boundary):
    left, right = plot_acceptance_error(moves, batch_size=M, epsilon=EPSILON, boundary=boundary, N=N)
    exact = np.minimum(1.0, np.exp(N * moves.mu))
    delta = acceptance_error(moves.mu, moves.sigma_l, N, batch_size=M, epsilon=EPSILON, boundary=boundary)
    np.testing.assert_allclose(line(left, "$\\Delta$, error in $P_a$"), np.c_[exact, delta], atol=1e-12)
    crosses = line(left, "$E_u|\\mathcal{E}|$, wrong decisions")
    expected = wrong_decisions(moves.mu, moves.sigma_l, boundary=boundary)
    np.testing.assert_allclose(crosses[:, 1], expected, atol=2e-5)
    np.testing.assert_allclose(line(right, "proposed moves"), np.c_[exact, exact + delta], atol=1e-12)
    worst = error(0.0, M / N, EPSILON, boundary=boundary)
    np.testing.assert_allclose(sorted(levels(left)), [-worst, 0.0, worst])
    assert np.all(np.abs(delta) <= crosses[:, 1] + 1e-12)
    assert np.all(crosses[:, 1] <= worst)
    assert np.abs(delta).mean() == pytest.approx(float(right.get_title().split("= ")[1]), rel=0.05)
    assert inside(left.figure)


def test_known_errors():
    # (N mu, S) and Delta for m = 500, epsilon = .05, computed independently.
    known = {(0.0, 3.0): -0.182653, (-0.5, 1.0): 0.001899, (-2.0, 3.0): 0.102719}
    total, spread = np.array(list(known)).T
    pairs = SimpleNamespace(mu=total / N, sigma_l=spread * np.sqrt(N - 1) / N)
    left, _ = plot_acceptance_error(pairs, batch_size=M, epsilon=EPSILON, N=N)
    drawn = line(left, "$\\Delta$, error in $P_a$")[:, 1]
    np.testing.assert_allclose(drawn, list(known.values()), atol=5e-4)


def test_a_tree_knows_its_size(moves):
    group = xr.Dataset({"mu": ("pair", moves.mu), "sd": ("pair", moves.sigma_l)}, attrs={"n_local": N})
    idata = xr.DataTree.from_dict({"/log_ratios": group})
    left, _ = plot_acceptance_error(idata, batch_size=M, epsilon=EPSILON)
    again, _ = plot_acceptance_error(moves, batch_size=M, epsilon=EPSILON, N=N)
    for a, b in zip(left.lines, again.lines, strict=True):
        np.testing.assert_array_equal(a.get_xydata(), b.get_xydata())


def test_axes_of_the_user(moves):
    _, axes = plt.subplots(2)
    drawn = plot_acceptance_error(moves, batch_size=M, epsilon=EPSILON, N=N, ax=axes)
    assert drawn[0] is axes[0]
    assert drawn[1] is axes[1]
    assert len(plt.get_fignums()) == 1


def test_an_exact_test_and_a_single_move():
    one = SimpleNamespace(mu=[-1.0 / N], sigma_l=[0.01])
    left, right = plot_acceptance_error(one, batch_size=M, epsilon=0.0, N=N)
    assert line(left, "$\\Delta$, error in $P_a$")[0, 1] == 0.0
    assert right.get_title() == "mean of |$\\Delta$| = 0"
