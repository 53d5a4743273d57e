"""Theory of decision rules: figures 1, 6 and 10 to 12 of Korattikara et al., and the picture of a bound."""

import math
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest

from pymc_austerity.acceptance import Concentration
from pymc_austerity.design import acceptance_error, data_usage, error, expected_data_usage, optimal_design
from pymc_austerity.plots import (
    plot_acceptance_error,
    plot_bound_schematic,
    plot_design_curves,
    plot_test_designs,
)
from pymc_austerity.plots.designs import decide
from tests.plots.artists import inside, levels, line, places

N, M, EPSILON = 10_000, 500, 0.05
ROWS = 2000  # where designs are searched
BOUNDS = ["hoeffding-serfling", "empirical-bernstein", "empirical-bernstein-serfling"]


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


# Curves of designs ---------------------------------------------------------------------------------


def test_boundaries_have_their_own_style():
    left, right = plot_design_curves(0.05, 0.05, boundaries=[0.5, 0.75, 1.0])
    for k, (axes, function, unit) in enumerate([(left, error, 1.0), (right, data_usage, 100.0)]):
        for boundary in (0.5, 0.75, 1.0):
            x, y = line(axes, f"$\\epsilon$ = 0.05, boundary {boundary:g}").T
            np.testing.assert_allclose(y, unit * function(x, 0.05, 0.05, boundary=boundary), err_msg=str(k))
            worst = unit * function(0.0, 0.05, 0.05, boundary=boundary)
            assert np.isclose(levels(axes), worst).sum() == 1
        curves = [c for c in axes.lines if c.get_label().startswith("$")]
        assert len({str(c._unscaled_dash_pattern) for c in curves}) == 3
        assert len({c.get_color() for c in curves}) == 1
    assert inside(plot_design_curves(0.04)[0].figure)


# Designs that are found ----------------------------------------------------------------------------


def proposed(seed, n=10):
    rng = np.random.default_rng(seed)
    spread = rng.uniform(0.5, 3.0, size=n)
    return SimpleNamespace(mu=rng.normal(-(spread**2) / 2, spread) / ROWS, sigma_l=spread / np.sqrt(ROWS))


def judged(design, pairs):
    delta = acceptance_error(pairs.mu, pairs.sigma_l, ROWS, **design)
    return np.abs(delta).mean(), 100 * expected_data_usage(pairs.mu, pairs.sigma_l, ROWS, **design).mean()


@pytest.mark.slow("long runs")
def test_designs_are_judged_on_other_moves():
    train, test = proposed(1), proposed(2)
    left, right = plot_test_designs(train, [0.1, 0.03], test_pairs=test, batch_size=500, N=ROWS)
    ways = {
        "average design": lambda t: optimal_design(train, t, N=ROWS),
        "m = 500": lambda t: optimal_design(train, t, N=ROWS, batch_sizes=[500]),
        "worst-case design": lambda t: optimal_design(None, t, N=ROWS),
    }
    for name, way in ways.items():
        expected = np.array([judged(way(t), test) for t in (0.03, 0.1)])
        np.testing.assert_allclose(line(left, name), np.c_[[0.03, 0.1], expected[:, 0]])
        np.testing.assert_allclose(line(right, name), np.c_[[0.03, 0.1], expected[:, 1]])
    assert (left.get_xscale(), left.get_yscale(), right.get_yscale()) == ("log", "log", "linear")
    assert inside(left.figure)


def test_every_second_move_is_held_out():
    pairs = proposed(1)
    left, _ = plot_test_designs(pairs, [0.1], batch_size=500, N=ROWS)
    train, test = (SimpleNamespace(mu=pairs.mu[k::2], sigma_l=pairs.sigma_l[k::2]) for k in (0, 1))
    expected = judged(optimal_design(train, 0.1, N=ROWS), test)[0]
    np.testing.assert_allclose(line(left, "average design")[0, 1], expected)
    assert "5 moves" in left.get_title()


# A bound -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("psi", [-0.3, 0.05, 0.1, 1.0])
def test_it_stops_where_psi_leaves_the_drawn_interval(bound, psi):
    values = np.random.default_rng(3).normal(0.1, 0.5, size=3000)
    means, ends, radii, accepted = decide(values, psi, Concentration(bound=bound))
    at = means[ends - 1]
    outside = np.abs(at - psi) > radii
    assert not outside[:-1].any()
    assert outside[-1] or ends[-1] == 3000
    assert accepted == (at[-1] > psi)
    np.testing.assert_allclose(means[-1], values.mean())


def test_what_is_drawn_of_a_bound():
    values = np.random.default_rng(3).normal(0.1, 0.5, size=5000)
    axes = plot_bound_schematic(values, 0.02, random_seed=4)
    means, ends, radii, _ = decide(np.random.default_rng(4).permutation(values), 0.02, Concentration())
    drawn = line(axes, "mean of the first $t$ terms")
    np.testing.assert_allclose(drawn, np.c_[np.arange(1, ends[-1] + 1), means[: ends[-1]]])
    assert 0.02 in levels(axes)
    assert values.mean() in levels(axes)
    assert places(axes) == [ends[-1]]
    bars = axes.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose([np.ptp(b[:, 1]) / 2 for b in bars], radii, rtol=1e-9)
    assert f"{ends[-1]:,} of 5,000" in axes.get_title()
    assert inside(axes.figure)


def test_the_seed_draws_the_order():
    first, again, other = (
        line(plot_bound_schematic(random_seed=s), "mean of the first $t$ terms")[:50] for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("values", [np.zeros(50), np.arange(2.0), np.full(1000, 3.0)])
def test_equal_and_few_terms(values):
    axes = plot_bound_schematic(values, 0.0)
    assert math.isfinite(axes.get_ylim()[0])


def test_the_old_name_of_the_seed():
    with pytest.warns(FutureWarning, match="^seed= is now random_seed=.$"):
        axes = plot_bound_schematic(seed=2)
    new = plot_bound_schematic(random_seed=2)
    np.testing.assert_array_equal(*(line(ax, "mean of the first $t$ terms") for ax in (axes, new)))
