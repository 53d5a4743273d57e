"""`plot_batch_sizes`: how many terms a decision read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from pymc_austerity.diagnostics.data_usage import n_local
from pymc_austerity.plots.optional import optional
from pymc_austerity.plots.panel import Visuals, check_visuals, panel_plot, panels_of
from pymc_austerity.plots.sampler_statistics import sampler_statistics, title
from pymc_austerity.plots.style import APPROXIMATE, EXACT, few_digits, percent, short_log_axis
from pymc_austerity.validation import is_whole

_VISUALS = ("histogram", "mean", "total", "title", "xlabel", "ylabel", "xscale", "yscale")


@panel_plot(_VISUALS, dimension="sampler")
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
    if not is_whole(bins) or bins < 1:
        raise ValueError(f"bins must be a positive integer, got {bins!r}.")
    check_visuals(visuals, _VISUALS)
    azp = optional("arviz_plots")
    stats, names = sampler_statistics(idata, "n_used", "fraction_used")
    n_used = stats["n_used"]
    total = n_local(idata, stats).rename("n_used")
    mean = n_used.mean(("chain", "draw"))
    titles = [
        title(name, _summary(values, float(n)))
        for name, values, n in zip(names, n_used.values, total.values, strict=True)
    ]
    panels = panels_of(
        n_used.to_dataset(),
        ["sampler"],
        visuals=visuals,
        plot_collection=plot_collection,
        backend=backend,
        pc_kwargs=pc_kwargs,
        n_panels=n_used.sizes["sampler"],
    )
    panels.draw("xscale", azp.visuals.set_xscale, scale="log", ignore_aes="all")
    panels.draw("yscale", azp.visuals.set_yscale, scale="log", ignore_aes="all")
    # Above the bars, which arviz-plots draws over vertical lines.
    line = {"ignore_aes": "all", "width": 1.6, "zorder": 3} if panels.backend == "matplotlib" else {}
    panels.draw("histogram", _histogram, bins=bins, color=APPROXIMATE, alpha=0.55, ignore_aes="all")
    panels.draw(
        "mean",
        azp.visuals.vline,
        data=mean.where(mean > 0.0),
        color=APPROXIMATE,
        linestyle="--",
        **line,
    )
    panels.draw("total", azp.visuals.vline, data=total, color=EXACT, **line)
    panel = mean.fillna(0.0)
    texts = xr.DataArray(titles, dims="sampler", coords={"sampler": n_used["sampler"]})
    whole = {"ignore_aes": "all", "data": panel}
    panels.draw_title(texts, size=11, **whole)
    panels.draw("xlabel", azp.visuals.labelled_x, text="terms read per transition", **whole)
    panels.draw("ylabel", azp.visuals.labelled_y, text="share of draws per term", **whole)
    if panels.backend == "matplotlib":
        panels.draw("xscale", lambda da, target, **_: short_log_axis(target.xaxis), ignore_aes="all")
    return panels.collection


class Histogram(NamedTuple):
    """Densities of positive numbers in bins that are even in the logarithm.

    Attributes
    ----------
    density : ndarray, shape (n,)
    edges : ndarray, shape (n + 1,)
    """

    density: npt.NDArray[np.float64]
    edges: npt.NDArray[np.float64]


def log_histogram(values: npt.NDArray[np.float64], bins: int) -> Histogram:
    """Histogram of the positive numbers among `values`, as a density over all that are not NaN."""
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
    return Histogram(counts / len(known) / np.diff(edges), edges)


def _common_divisor(sizes: npt.NDArray[np.float64]) -> int:
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


def _summary(values: npt.NDArray[np.float64], total: float) -> str:
    known = values[~np.isnan(values)]
    if not len(known):
        return "not recorded"
    text = f"mean {few_digits(known.mean())} (dashed)"
    if not np.isnan(total):
        text += f", N = {total:,.0f}"
    empty = np.mean(known == 0.0)
    return text + (f"\n{percent(empty)} of the draws read none" if empty else "")
