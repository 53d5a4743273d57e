"""Share of the data over draws."""

import numpy as np
import pytest

from pymc_austerity.plots import plot_data_usage
from tests.plots.artists import inside, levels

N = 10_000


def panel(pc, sampler=0):
    return pc.get_target("data_usage", {"sampler": sampler})


def test_lines_are_block_means(run):
    n_used = np.random.default_rng(1).integers(100, 2000, size=(3, 1000))
    axes = panel(plot_data_usage(run(n_used, N), n_blocks=10))
    curves = [x.get_xydata() for x in axes.lines if len(x.get_xdata()) == 10]
    assert len(curves) == 3
    for chain, curve in zip(n_used, curves, strict=True):
        np.testing.assert_allclose(curve[:, 1], 100 * chain.reshape(10, 100).mean(axis=1) / N)
        np.testing.assert_allclose(curve[:, 0], np.arange(10) * 100 + 50.5)
    np.testing.assert_allclose(levels(axes), 100 * n_used.mean() / N)
    assert f"{100 * n_used.mean() / N:.3g} %" in axes.get_title()


def test_blocks_of_unequal_size(run):
    n_used = np.arange(1.0, 8.0)[None, :]
    data = plot_data_usage(run(n_used, 100), n_blocks=3).data["data_usage"]
    np.testing.assert_allclose(data.sel(plot_axis="y").squeeze(), [1.5, 3.5, 6.0])
    np.testing.assert_allclose(data.sel(plot_axis="x").squeeze(), [1.5, 3.5, 6.0])


def test_a_hundred_thousand_draws_are_a_hundred_points(run):
    pc = plot_data_usage(run(np.full((2, 100_000), 500.0), N))
    assert pc.data.sizes["block"] == 100
    assert panel(pc).get_yscale() == "linear"
    assert panel(pc).get_ylim()[0] == 0.0


def test_a_falling_share_has_a_logarithmic_axis(run):
    axes = panel(plot_data_usage(run(np.geomspace(N, 20, 2000)[None, :], N)))
    assert axes.get_yscale() == "log"
    visuals = {"yscale": {"scale": "linear"}}
    axes = panel(plot_data_usage(run(np.geomspace(N, 20, 2000)[None, :], N), visuals=visuals))
    assert axes.get_yscale() == "linear"


def test_one_panel_for_each_sampler_and_nan_is_said(run):
    n_used = np.random.default_rng(2).integers(100, 200, size=(2, 300, 3)).astype(float)
    n_used[..., 1] = np.nan
    n_used[0, :30, 2] = np.nan
    pc = plot_data_usage(run(n_used, N), n_blocks=10)
    assert pc.viz["plot"].sizes == {"sampler": 3}
    assert "not recorded" in panel(pc, 1).get_title()
    assert not panel(pc, 1).lines
    assert "step 2" in panel(pc, 2).get_title()
    first = next(x for x in panel(pc, 2).lines if len(x.get_xdata()) == 10)
    assert np.isnan(first.get_ydata()).sum() == 1
    np.testing.assert_allclose(levels(panel(pc, 2)), 100 * np.nanmean(n_used[..., 2]) / N)
    assert inside(pc.viz["figure"].item())


@pytest.mark.parametrize("shape", [(1, 1), (4, 1), (1, 2), (12, 30)])
def test_few_draws_and_many_chains(run, shape):
    axes = panel(plot_data_usage(run(np.full(shape, 500.0), N)))
    n_points = sum(len(x.get_offsets()) for x in axes.collections)
    if shape[1] == 1:
        assert n_points == shape[0]
    else:
        assert len(axes.lines) == shape[0] + 1


def test_a_legend_only_for_several_chains(run):
    one = plot_data_usage(run(np.full((1, 50), 500.0), N))
    two = plot_data_usage(run(np.full((2, 50), 500.0), N))
    assert not one.viz["figure"].item().legends
    assert len(two.viz["figure"].item().legends[0].get_texts()) == 2
    off = plot_data_usage(run(np.full((2, 50), 500.0), N), visuals={"legend": False})
    assert not off.viz["figure"].item().legends


def test_visuals_are_switched_off_and_changed(run):
    visuals = {"mean": False, "blocks": {"color": "#010203"}, "title": False}
    axes = panel(plot_data_usage(run(np.full((1, 50), 500.0), N), visuals=visuals))
    assert len(axes.lines) == 1
    assert axes.lines[0].get_color() == "#010203"
    assert axes.get_title() == ""


def test_draws_into_the_panels_of_the_user(run):
    first = plot_data_usage(run(np.full((1, 50), 500.0), N))
    again = plot_data_usage(run(np.full((1, 50), 700.0), N), plot_collection=first)
    assert again is first
    assert len(panel(first).lines) == 4
