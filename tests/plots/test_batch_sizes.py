"""Histograms of what was read."""

import numpy as np
import pytest

from pymc_austerity.plots import plot_batch_sizes
from pymc_austerity.plots.data_usage import log_histogram
from tests.plots.artists import inside, places

N = 10_000


def panel(pc, sampler=0):
    return pc.get_target("n_used", {"sampler": sampler})


@pytest.mark.parametrize("kind", ["whole", "batches", "means", "constant", "with zeros"])
def test_the_density_adds_up(kind):
    rng = np.random.default_rng(1)
    values = {
        "whole": rng.poisson(8.0, 5000) + 1.0,
        "batches": 500.0 * (1 + rng.poisson(3.0, 5000)),
        "means": rng.gamma(2.0, 300.0, 5000),
        "constant": np.full(50, 500.0),
        "with zeros": rng.poisson(0.5, 5000).astype(float),
    }[kind]
    density, edges = log_histogram(np.append(values, np.nan), 30)
    assert np.all(np.diff(edges) > 0)
    assert edges[0] > 0
    np.testing.assert_allclose(np.sum(density * np.diff(edges)), np.mean(values > 0))


@pytest.mark.parametrize("last", [10_000.0, 10_214.0])
def test_no_bin_between_batches_is_empty_by_its_edges(last):
    """The last batch, up to N, may be short."""
    values = np.repeat([*np.arange(500.0, last, 500.0), last], 7)
    density, edges = log_histogram(values, 30)
    np.testing.assert_allclose(np.sum(density * np.diff(edges)), 1.0)
    np.testing.assert_allclose(density[:-1], 7 / len(values) / 500)  # each size for 500 terms
    assert density[-1] > 0 or last % 500
    assert set(np.mod(edges, 500.0)) == {250.0}


def test_a_power_law_is_a_straight_line():
    # P(n > x) = x^-1.5: the density falls like x^-2.5.
    n = np.random.default_rng(3).random(200_000) ** (-1 / 1.5)
    density, edges = log_histogram(n, 25)
    middle, counts = np.sqrt(edges[1:] * edges[:-1]), density * np.diff(edges) * len(n)
    full = counts > 400
    full[0] = False  # begins below the smallest number
    slope = np.polyfit(np.log(middle[full]), np.log(density[full]), 1, w=np.sqrt(counts[full]))[0]
    # A regression on counts with errors 1 / sqrt(count) in the logarithm.
    x, w = np.log(middle[full]), counts[full]
    error = 1 / np.sqrt(np.sum(w * (x - np.average(x, weights=w)) ** 2))
    assert abs(slope + 2.5) < 4 * error


def test_what_is_drawn(run):
    n_used = np.random.default_rng(1).choice([500.0, 1000.0, 10_000.0], p=[0.7, 0.2, 0.1], size=(4, 500))
    axes = panel(plot_batch_sizes(run(n_used, N)))
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    np.testing.assert_allclose(sorted(places(axes)), [n_used.mean(), N])
    assert f"N = {N:,}" in axes.get_title()
    density, _ = log_histogram(n_used.ravel(), 30)
    top = axes.collections[0].get_paths()[0].vertices[:, 1].max()
    np.testing.assert_allclose(top, density.max())
    low, high = axes.get_ylim()
    assert low < density[density > 0].min()
    assert high > density.max()


def test_samplers_nan_and_zeros(run):
    rng = np.random.default_rng(1)
    n_used = np.stack(
        [rng.poisson(0.3, (2, 400)), np.zeros((2, 400)), np.full((2, 400), np.nan), np.full((2, 400), 7.5)],
        -1,
    )
    pc = plot_batch_sizes(run(n_used, np.array([1e6, 100.0, 100.0, 100.0])))
    assert pc.viz["plot"].sizes == {"sampler": 4}
    empty = np.mean(n_used[..., 0] == 0)
    assert f"{100 * empty:.3g} % of the draws read none" in panel(pc, 0).get_title()
    assert "N = 1,000,000" in panel(pc, 0).get_title()
    assert "100 % of the draws read none" in panel(pc, 1).get_title()
    assert "N =" not in panel(pc, 1).get_title()
    assert "not recorded" in panel(pc, 2).get_title()
    assert not panel(pc, 1).collections
    assert not panel(pc, 2).collections
    assert panel(pc, 3).collections
    assert inside(pc.viz["figure"].item())


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 2)])
def test_few_draws(run, shape):
    assert panel(plot_batch_sizes(run(np.full(shape, 500.0), N))).collections


def test_tick_labels_of_less_than_two_decades_are_few(run):
    used = np.random.default_rng(1).integers(1, 10, (2, 300)) * 500.0
    axis = panel(plot_batch_sizes(run(used, N))).xaxis
    low, high = axis.get_view_interval()
    labels = [t.get_text() for t in axis.get_ticklabels(which="both") if low <= t.get_position()[0] <= high]
    assert [text for text in labels if text] == ["500", "1,000", "2,000", "5,000", "10,000"]
