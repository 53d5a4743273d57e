"""What subsampling did, panel by panel: the data read over the draws, batch sizes, and batch means."""

import textwrap
from functools import lru_cache
from typing import Any

import numpy as np
import scipy
import xarray as xr

from pymc_austerity.diagnostics import Normality, normality
from pymc_austerity.diagnostics.data_usage import n_local
from pymc_austerity.diagnostics.result import aligned
from pymc_austerity.plots.style import (
    APPROXIMATE,
    EXACT,
    Panels,
    Visuals,
    colours,
    optional,
    panel_plot,
    percent,
    short_log_axis,
    shown,
)
from pymc_austerity.target import Array
from pymc_austerity.validation import few_digits, is_real, require_whole

_OVER_DRAWS = ("blocks", "mean", "title", "xlabel", "ylabel", "yscale", "legend")
_OF_SIZES = ("histogram", "mean", "total", "title", "xlabel", "ylabel", "xscale", "yscale")
# Block means that differ by more than this factor are drawn on a logarithmic axis.
_WIDE = 10.0


def sampler_statistics(idata: Any, base: str, *others: str) -> tuple[xr.Dataset, list[str]]:
    """Statistics with dims (sampler, chain, draw), and the name of each sampler."""
    stats = aligned(idata, base, *others)
    names = [str(name) for name in stats["sampler"].values]
    if 0 in stats.sizes.values():
        raise ValueError(f"idata must have at least one draw of {base}, got {dict(stats.sizes)}.")
    if np.isnan(stats[base].values).all():
        raise ValueError(f"{base} is NaN in all draws: no step recorded it.")
    return stats.assign_coords(sampler=np.arange(len(names))).transpose("sampler", "chain", "draw"), names


@panel_plot(_OVER_DRAWS, dimension="sampler")
def plot_data_usage(
    idata: Any,
    *,
    n_blocks: int = 100,
    visuals: Visuals = None,
    plot_collection: Any = None,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> Any:
    """How much of the data was read, over the draws: one panel for each sampler, one line for each chain.

    Parameters
    ----------
    idata : DataTree
        What `pymc.sample` returned: the statistic `fraction_used` of the group `sample_stats`, with dims
        (chain, draw) or (chain, draw, sampler).
    n_blocks : int >= 1, default 100
        Draws are averaged in so many blocks of neighbours, or fewer if there are fewer draws: 10^5 draws are
        as readable as 100.
    panel_parameters

    Returns
    -------
    PlotCollection
        Its `data` holds the block means, in per cent.

    Raises
    ------
    ImportError
        If the libraries of the extra `plots` are not installed.
    ValueError
        If `idata` has no such statistic, or `n_blocks` is not a positive integer.

    Notes
    -----
    Shares are per transition, as `fraction_used` is: of several transitions a draw, their mean. A sweep over
    a field has several moves, each of which may read 100 % of N. The dashed
    line is the mean over all chains. The axis is logarithmic where block means differ by more than a factor
    of ten. A line that falls or rises shows a chain that is still on its way, or a decision rule that reads
    more in the tails. Statistics of a sampler that records none are NaN; its panel stays empty and says so.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz as az
    >>> from pymc_austerity.plots import plot_data_usage
    >>> shares = np.random.default_rng(1).uniform(0.0, 0.2, size=(2, 1000))
    >>> idata = az.from_dict({"posterior": {"a": shares}, "sample_stats": {"fraction_used": shares}})
    >>> pc = plot_data_usage(idata, n_blocks=10)
    >>> dict(pc.data["data_usage"].sizes)
    {'sampler': 1, 'chain': 2, 'plot_axis': 2, 'block': 10}
    """
    require_whole(1, n_blocks=n_blocks)
    panels = Panels(_OVER_DRAWS, visuals, plot_collection, backend, pc_kwargs)
    azp = optional("arviz_plots")
    stats, names = sampler_statistics(idata, "fraction_used")
    shares = stats["fraction_used"]
    blocks = _block_means(100.0 * shares, n_blocks)
    means = shares.mean(("chain", "draw"))
    titles = [
        f"{shown(name)}\n" + ("not recorded" if np.isnan(mean) else f"mean {percent(mean)} (dashed)")
        for name, mean in zip(names, means.values, strict=True)
    ]
    n_chains = shares.sizes["chain"]
    data, colour = blocks.to_dataset(), {"color": ["chain"]}
    panels.lay_out(data, ["sampler"], len(names), aes=colour, color=colours(n_chains))
    # A line through one point cannot be seen.
    single = blocks.sizes["block"] == 1
    line = azp.visuals.scatter_xy if single else azp.visuals.line_xy
    panels.draw("blocks", line, **({} if single else {"width": 1.2}))
    average = (100.0 * means).rename("data_usage")
    panel = blocks.isel(block=0, chain=0, plot_axis=0, drop=True).fillna(0.0)
    dashed = {"color": EXACT, "linestyle": "--", "width": 1.2, "ignore_aes": "all"}
    panels.draw("mean", azp.visuals.hline, data=average, **dashed)
    of_field = "effects_n_used" in idata["sample_stats"]
    label = "data read per sweep (% of N for each move)" if of_field else "data read per transition (% of N)"
    panels.draw_words(panel, panel.copy(data=titles), 11, xlabel="draw", ylabel=label)
    panels.draw("yscale", _scale, data=blocks, ignore_aes="all")
    if panels.collection.backend == "matplotlib":
        panels.draw("yscale", lambda da, target, **_: short_log_axis(target.yaxis), ignore_aes="all")
    if n_chains > 1:
        panels.draw_legend("chain")
    return panels.collection


def _block_means(shares: xr.DataArray, n_blocks: int) -> xr.DataArray:
    """Means over blocks of neighbouring draws (y), and where the blocks lie (x)."""
    number = np.arange(1, shares.sizes["draw"] + 1)
    block = (number * min(n_blocks, len(number)) - 1) // len(number)
    blocks = shares.assign_coords(draw=number, block=("draw", block)).groupby("block")
    means = blocks.mean()
    # Without a position too, a sampler that recorded nothing is not drawn.
    middle = means.where(means.isnull(), blocks.map(lambda part: part["draw"].mean()))
    both = xr.concat([middle, means], dim="plot_axis").assign_coords(plot_axis=["x", "y"])
    return both.rename("data_usage").transpose("sampler", "chain", "plot_axis", "block")


def _scale(da: xr.DataArray, target: Any, *, scale: str | None = None, **keywords: Any) -> None:
    """A logarithmic axis for wide ranges, else one that starts at zero."""
    visuals = optional("arviz_plots").visuals
    values = da.sel(plot_axis="y").values
    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    if scale is None:
        scale = "log" if low > 0.0 and high > _WIDE * low else "linear"
    if scale == "linear":
        visuals.set_ylim(da, target, (0.0, 1.08 * high if high > 0.0 else 1.0), **keywords)
    else:
        visuals.set_yscale(da, target, scale, **keywords)


@panel_plot(_OF_SIZES, dimension="sampler")
def plot_batch_sizes(
    idata: Any,
    *,
    bins: int = 30,
    visuals: Visuals = None,
    plot_collection: Any = None,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> Any:
    """Histogram of the terms read per transition on logarithmic axes: one panel for each sampler.

    Parameters
    ----------
    idata : DataTree
        What `pymc.sample` returned: the statistics `n_used` and `fraction_used` of the group `sample_stats`,
        with dims (chain, draw) or (chain, draw, sampler).
    bins : int >= 1, default 30
        Bins of equal width in the logarithm; between whole numbers there is at most one edge.
    panel_parameters

    Returns
    -------
    PlotCollection

    Raises
    ------
    ImportError
        If the libraries of the extra `plots` are not installed.
    ValueError
        If `idata` has no such statistics, or `bins` is not a positive integer.

    Notes
    -----
    The height is a density, the share of the draws for each possible size, so that a power law is a
    straight line whatever the bins (figure 2 of Seita et al. 2017 has such tails). The dashed line is the
    mean, the solid one N. Draws that read nothing cannot be drawn on this axis; the title counts them.

    Examples
    --------
    >>> import numpy as np
    >>> import arviz as az
    >>> from pymc_austerity.plots import plot_batch_sizes
    >>> n_used = np.random.default_rng(1).choice([500.0, 1000.0, 5000.0], size=(2, 1000))
    >>> stats = {"n_used": n_used, "fraction_used": n_used / 10_000}
    >>> pc = plot_batch_sizes(az.from_dict({"posterior": {"a": n_used}, "sample_stats": stats}))
    >>> pc.get_target("n_used", {"sampler": 0}).get_xscale()
    'log'
    """
    require_whole(1, bins=bins)
    panels = Panels(_OF_SIZES, visuals, plot_collection, backend, pc_kwargs)
    azp = optional("arviz_plots")
    stats, names = sampler_statistics(idata, "n_used", "fraction_used")
    n_used = stats["n_used"]
    total = n_local(stats).rename("n_used")
    mean = n_used.mean(("chain", "draw"))
    titles = [
        f"{shown(name)}\n{_summary(values, float(n))}"
        for name, values, n in zip(names, n_used.values, total.values, strict=True)
    ]
    panels.lay_out(n_used.to_dataset(), ["sampler"], len(names))
    panels.draw("xscale", azp.visuals.set_xscale, scale="log", ignore_aes="all")
    panels.draw("yscale", azp.visuals.set_yscale, scale="log", ignore_aes="all")
    # Above the bars, which arviz-plots draws over vertical lines.
    line = (
        {"ignore_aes": "all", "width": 1.6, "zorder": 3} if panels.collection.backend == "matplotlib" else {}
    )
    panels.draw("histogram", _histogram, bins=bins, color=APPROXIMATE, alpha=0.55, ignore_aes="all")
    dashed = {"color": APPROXIMATE, "linestyle": "--", **line}
    panels.draw("mean", azp.visuals.vline, data=mean.where(mean > 0.0), **dashed)
    panels.draw("total", azp.visuals.vline, data=total, color=EXACT, **line)
    x, y = "terms read per transition", "share of draws per term"
    panels.draw_words(mean.fillna(0.0), mean.copy(data=titles), 11, xlabel=x, ylabel=y)
    if panels.collection.backend == "matplotlib":
        panels.draw("xscale", lambda da, target, **_: short_log_axis(target.xaxis), ignore_aes="all")
    return panels.collection


def log_histogram(values: Array, bins: int) -> tuple[Array, Array]:
    """Densities (n,) of positive numbers over all that are not NaN, and edges (n + 1,) of even logarithms."""
    known = values[~np.isnan(values)]
    positive = known[known > 0.0]
    low, high = positive.min(), positive.max()
    unit = _common_divisor(positive)
    if unit:
        # Edges between multiples: else bins of one size would hold two sizes, one or none.
        ends = np.geomspace(low / unit - 0.5, high / unit + 0.5, bins + 1)
        edges = unit * (np.unique(np.round(ends + 0.5)) - 0.5)
    else:
        edges = np.geomspace(low / 1.02, high * 1.02, bins + 1)
    counts = np.histogram(positive, edges)[0]
    return counts / len(known) / np.diff(edges), edges


def _common_divisor(sizes: Array) -> int:
    """Size of the batches that add up to `sizes`; the last one, up to N, may be shorter. 0 for means."""
    if not np.array_equal(sizes, np.round(sizes)):
        return 0
    distinct = np.unique(sizes).astype(np.int64)
    return int(np.gcd.reduce(distinct[:-1])) if len(distinct) > 1 else int(distinct[0])


def _histogram(da: xr.DataArray, target: Any, *, bins: int, **keywords: Any) -> Any:
    """Bars, if anything was read."""
    if not np.any(da.values > 0.0):
        return None
    density, edges = log_histogram(da.values.ravel(), bins)
    backend = optional("arviz_plots.plot_collection").backend_from_object(target)
    # A logarithmic axis has no zero to stand on: the lowest bar is to have a height.
    backend.ylim((0.4 * density[density > 0.0].min(), 2.0 * density.max()), target)
    return backend.hist(density, edges[:-1], edges[1:], target, **keywords)


def _summary(values: Array, total: float) -> str:
    known = values[~np.isnan(values)]
    if not len(known):
        return "not recorded"
    text = f"mean {few_digits(known.mean())} (dashed)"
    if not np.isnan(total):
        text += f", N = {total:,.0f}"
    empty = np.mean(known == 0.0)
    return text + (f"\n{percent(empty)} of the draws read none" if empty else "")


# Are batch means normal? --------------------------------------------------------------------------


_VISUALS = ("band", "line", "points", "title", "xlabel", "ylabel", "figure_title")
_COLUMNS, _PANEL = 5, 2.7
# Letters of the verdict for each inch of the figure.
_LETTERS = 11


@panel_plot(_VISUALS, dimension="pair")
def plot_batch_mean_qq(
    idata: Any,
    *,
    band: float = 0.99,
    visuals: Visuals = None,
    plot_collection: Any = None,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> Any:
    """Quantiles of studentised batch means against those of Student's t: one panel for each proposed move.

    Parameters
    ----------
    idata : DataTree
        With the group `log_ratios`, as `probe` or `diagnostics.from_log_ratios` makes it.
    band : float in (0, 1), default 0.99
        Probability with which all points of a panel lie in the grey band if the t-test is right.
    panel_parameters

    Returns
    -------
    PlotCollection

    Raises
    ------
    ImportError
        If the libraries of the extra `plots` are not installed.
    ValueError
        If `idata` has no such group, or `band` is out of its range.

    Notes
    -----
    Figure 7 of Korattikara et al. (2014) as quantile plots, in which tails can be seen: the test
    decides there. The title is the verdict of `diagnostics.normality`. Points above the line on the right, or
    below it on the left, are batches that stop the test more often than epsilon says. The band is that of
    equal local levels: each order statistic stays within the same quantiles of its Beta distribution, chosen
    by simulation of independent batches.

    *When it fails*: rows so rare that no batch has one of them do not show here.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_austerity.diagnostics import from_log_ratios
    >>> from pymc_austerity.plots import plot_batch_mean_qq
    >>> rng = np.random.default_rng(1)
    >>> idata = from_log_ratios(rng.normal(size=(2, 10_000)), n_batches=100, random_seed=1)
    >>> pc = plot_batch_mean_qq(idata)
    >>> pc.viz["figure_title"].item().get_text()[:26]
    'Batch means are normal eno'
    """
    if not is_real(band) or not 0.0 < band < 1.0:
        raise ValueError(f"band must be in (0, 1), got {band!r}.")
    panels = Panels(_VISUALS, visuals, plot_collection, backend, pc_kwargs)
    azp = optional("arviz_plots")
    found = normality(idata)
    x, y = found.qq["theoretical"], found.qq["observed"]
    points = xr.concat([x, y], dim="plot_axis").assign_coords(plot_axis=["x", "y"]).rename("batch_t")
    pairs = points.sizes["pair"]
    width = int(_LETTERS * max(6.0, _PANEL * min(pairs, _COLUMNS)))
    verdict = textwrap.wrap(found.reason, width, break_on_hyphens=False)
    above = 0.2 * len(verdict)
    panels.lay_out(
        points.to_dataset(), ["pair"], pairs, col_wrap=_COLUMNS, panel=(_PANEL, _PANEL), above=above
    )
    limits = _band(found, int(idata["log_ratios"].attrs["batch_size"]), band)
    panels.draw("band", azp.visuals.fill_between_y, data=limits, color="#d9d9d9")
    diagonal = points.copy()
    diagonal.loc[{"plot_axis": "y"}] = x
    panels.draw("line", azp.visuals.line_xy, data=diagonal, color=EXACT, width=1.0)
    panels.draw("points", azp.visuals.scatter_xy, color=APPROXIMATE, size=8)
    panel = points.isel(plot_axis=0, quantile=0, drop=True).fillna(0.0)
    titles = panel.copy(data=[f"move {k}" for k in range(pairs)])
    across, up = "quantile of Student's t", "studentised batch mean"
    panels.draw_words(panel, titles, 10, small=True, xlabel=across, ylabel=up)
    if (keywords := panels.wanted("figure_title", size=11)) is not None:
        panels.collection.add_title("\n".join(verdict), **keywords)
    return panels.collection


def _band(found: Normality, m: int, band: float) -> xr.DataArray:
    """Limits around the diagonal for each move, as `fill_between_y` takes them."""
    x = found.qq["theoretical"].values
    limits = np.full((len(x), 3, x.shape[1]), np.nan)
    for move, row in zip(limits, x, strict=True):
        n = int(np.isfinite(row).sum())
        if n:
            orders, tail = scipy.stats.beta(np.arange(1, n + 1), np.arange(n, 0, -1)), local_level(n, band)
            move[:, :n] = row[:n], *(scipy.stats.t.ppf(q(tail), m - 1) for q in (orders.ppf, orders.isf))
    return xr.DataArray(
        limits,
        dims=("pair", "kwarg", "quantile"),
        coords={"pair": found.qq["pair"], "kwarg": ["x", "y_bottom", "y_top"]},
        name="batch_t",
    )


@lru_cache(maxsize=32)
def local_level(n: int, band: float, replications: int = 2000) -> float:
    """Tail probability for each of n order statistics such that all stay within with probability `band`."""
    rng = np.random.default_rng(0)
    orders = scipy.stats.beta(np.arange(1, n + 1), np.arange(n, 0, -1))
    # All stay within if the smallest tail probability does.
    lowest = np.empty(replications)
    for k in range(replications):
        sample = np.sort(rng.random(n))
        lowest[k] = np.minimum(orders.cdf(sample), orders.sf(sample)).min()
    return float(np.quantile(lowest, 1.0 - band))
