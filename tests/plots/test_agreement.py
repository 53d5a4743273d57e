"""Posteriors over each other."""

import numpy as np
import pytest

from pymc_austerity.diagnostics import agreement
from pymc_austerity.plots import plot_agreement
from tests.diagnostics.results import result
from tests.plots.artists import inside


def posterior(seed, draws=400, chains=2, scale=1.0):
    rng = np.random.default_rng(seed)
    return {
        "a": scale * rng.normal(size=(chains, draws)),
        "b": rng.gamma(3.0, size=(chains, draws, 2, 2)),
        "k": rng.poisson(3.0, size=(chains, draws)),
    }


@pytest.fixture
def pair():
    return result(posterior(1, scale=1.3)), result(posterior(2, draws=250))


def test_a_panel_for_each_scalar_and_its_row_in_the_title(pair):
    pc = plot_agreement(*pair)
    table = agreement(*pair)
    figure = pc.viz["figure"].item()
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert len(titles) == 6
    for label, row in table.iterrows():
        (title,) = [t for t in titles if t.startswith(f"{label}\n")]
        assert f"shift {row['shift']:+.2f} ± {row['shift_error']:.2f} sd" in title
        assert f"sd ratio {row['sd_ratio']:.2f} ± {row['sd_ratio_error']:.2f}" in title
    assert inside(figure)


def test_the_densities(pair):
    axes = plot_agreement(*pair, var_names="a").get_target("a", {})
    assert len(axes.lines) == 2
    for line, idata in zip(axes.lines, pair, strict=True):
        x, density = line.get_xydata().T
        step, draws = x[1] - x[0], idata["posterior"]["a"].values
        np.testing.assert_allclose(density.sum() * step, 1.0, atol=0.02)
        # A kernel estimate is as wide as the draws, up to its own bandwidth (a tenth of the variance here).
        mean = np.sum(x * density) * step
        np.testing.assert_allclose(mean, draws.mean(), atol=0.05)
        sd = np.sqrt(np.sum((x - mean) ** 2 * density) * step)
        assert draws.std() * 0.95 < sd < draws.std() * 1.15


def test_whole_numbers_are_counted(pair):
    axes = plot_agreement(*pair, var_names=["k"]).get_target("k", {})
    draws = [idata["posterior"]["k"].values for idata in pair]
    support = np.arange(min(d.min() for d in draws), max(d.max() for d in draws) + 1)
    for line, d in zip(axes.lines, draws, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), support)
        np.testing.assert_allclose(line.get_ydata(), [np.mean(d == k) for k in support])


def test_only_what_both_have():
    a, b = posterior(1), posterior(2)
    del a["k"], b["b"]
    pc = plot_agreement(result(a), result(b))
    assert list(pc.viz["plot"].data_vars) == ["a"]


def test_names_in_the_legend(pair):
    pc = plot_agreement(*pair, var_names="a", names=("austerity", "NUTS"))
    legend = pc.viz["figure"].item().legends[0]
    assert [t.get_text() for t in legend.get_texts()] == ["austerity", "NUTS"]
    assert legend.get_title().get_text() == "posterior"
    other = plot_agreement(*pair, var_names="a", visuals={"legend": {"title": "by"}})
    assert other.viz["figure"].item().legends[0].get_title().get_text() == "by"


def test_a_constant_cannot_be_compared():
    a, b = result({"a": np.zeros((2, 100))}), result({"a": posterior(1)["a"]})
    axes = plot_agreement(a, b).get_target("a", {})
    assert "cannot be compared" in axes.get_title()
    assert len(axes.lines) == 1


def test_a_constant_among_others():
    a, b = posterior(1), posterior(2)
    for draws in (a, b):
        draws["b"][..., 0, 0] = 1.0
    pc = plot_agreement(result(a), result(b), var_names="b")
    drawn = [len(axes.lines) for axes in pc.viz["figure"].item().axes]
    assert drawn == [0, 2, 2, 2]


@pytest.mark.parametrize(("chains", "draws"), [(1, 100), (5, 20)])
def test_chains(chains, draws):
    a, b = (result({"a": posterior(s, draws, chains)["a"]}) for s in (1, 2))
    assert len(plot_agreement(a, b).get_target("a", {}).lines) == 2


def test_scalars_are_compared_by_their_labels():
    a, b = (result({"a": posterior(s)["b"][..., 0] + [0.0, 100.0]}) for s in (1, 2))
    turned = b.isel(a_dim_0=[1, 0])
    for other in (b, turned, b.isel(a_dim_0=[1])):
        pc = plot_agreement(a, other)
        for k in other["posterior"]["a_dim_0"].values:
            axes = pc.get_target("a", {"a_dim_0": k})
            assert axes.get_title().startswith(f"a[{k}]\n")
            np.testing.assert_array_equal([x.get_xdata().mean() > 50.0 for x in axes.lines], [k == 1] * 2)
