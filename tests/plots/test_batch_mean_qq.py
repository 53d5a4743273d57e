"""Quantiles of batch means, and the band around them."""

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.diagnostics import from_log_ratios, normality
from pymc_austerity.plots import plot_batch_mean_qq
from pymc_austerity.plots.data_usage import local_level
from tests.plots.artists import inside


def populations(kind, n_pairs=3, n=4000, n_batches=100):
    rng = np.random.default_rng(5)
    draw = {"normal": rng.normal, "skewed": lambda size: rng.lognormal(0.0, 2.0, size)}[kind]
    return from_log_ratios(draw(size=(n_pairs, n)), batch_size=200, n_batches=n_batches, random_seed=1)


def share_outside(axes):
    """Share of the points of a panel that are outside its band."""
    band, points = axes.collections
    path = band.get_paths()[0].vertices
    x, y = points.get_offsets().T
    edges = [np.unique(path[np.isclose(path[:, 0], v), 1]) for v in x]
    return np.mean([not e.min() <= v <= e.max() for e, v in zip(edges, y, strict=True)])


def test_what_is_drawn():
    idata = populations("normal")
    pc = plot_batch_mean_qq(idata)
    assert pc.viz["plot"].sizes == {"pair": 3}
    for k in range(3):
        axes = pc.get_target("batch_t", {"pair": k})
        x, y = axes.collections[1].get_offsets().T
        np.testing.assert_allclose(y, np.sort(idata["log_ratios"]["batch_t"].values[k]))
        np.testing.assert_allclose(x, stats.t.ppf((np.arange(100) + 0.5) / 100, 199))
        np.testing.assert_array_equal(axes.lines[0].get_xdata(), axes.lines[0].get_ydata())
        assert share_outside(axes) == 0.0
    title = pc.viz["figure_title"].item().get_text()
    assert title.replace("\n", " ") == normality(idata).reason
    assert inside(pc.viz["figure"].item())


def test_skewed_terms_leave_the_band():
    pc = plot_batch_mean_qq(populations("skewed"))
    assert "not normal enough" in pc.viz["figure_title"].item().get_text()
    for k in range(3):
        assert share_outside(pc.get_target("batch_t", {"pair": k})) > 0.1


@pytest.mark.parametrize(("n", "band"), [(20, 0.9), (200, 0.99), (500, 0.99)])
@pytest.mark.covering(1)
def test_all_points_are_within_the_band_with_its_probability(n, band):
    tail = local_level(n, band)
    orders = stats.beta(np.arange(1, n + 1), np.arange(n, 0, -1))
    low, high = orders.ppf(tail), orders.isf(tail)
    samples = np.sort(np.random.default_rng(11).random((20_000, n)), axis=1)
    within = np.mean(np.all((samples >= low) & (samples <= high), axis=1))
    # Errors of this simulation, and of that of 2000 samples in which the level was found.
    error = np.sqrt(band * (1 - band) * (1 / 20_000 + 1 / 2000))
    assert abs(within - band) < 4 * error
    # A band for each point by itself, the planted fault, is far too narrow.
    single = [orders.ppf((1 - band) / 2), orders.isf((1 - band) / 2)]
    wrong = np.mean(np.all((samples >= single[0]) & (samples <= single[1]), axis=1))
    assert band - wrong > 10 * error


def test_batches_without_a_variance_are_left_out():
    terms = np.zeros((2, 1000))
    terms[0, ::250] = 1.0
    terms[1] = np.random.default_rng(1).normal(size=1000)
    idata = from_log_ratios(terms, batch_size=50, n_batches=60, random_seed=1)
    known = int(np.isfinite(idata["log_ratios"]["batch_t"].values[0]).sum())
    assert 0 < known < 60
    pc = plot_batch_mean_qq(idata)
    points = pc.get_target("batch_t", {"pair": 0}).collections[1].get_offsets()
    assert np.isfinite(np.ma.filled(points, np.nan)).all(axis=1).sum() == known


def test_a_single_move_and_no_title():
    pc = plot_batch_mean_qq(populations("normal", n_pairs=1), visuals={"figure_title": False})
    assert pc.viz["figure"].item().get_suptitle() == ""
