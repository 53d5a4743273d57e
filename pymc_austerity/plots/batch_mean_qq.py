"""`plot_batch_mean_qq`: are batch means normal enough for the t-test?"""

import textwrap
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from pymc_austerity.diagnostics import Normality, normality
from pymc_austerity.plots.style import (
    APPROXIMATE,
    EXACT,
    Panels,
    Visuals,
    optional,
    panel_plot,
)
from pymc_austerity.validation import is_real

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
    titles = [f"move {k}" for k in range(pairs)]
    across, up = "quantile of Student's t", "studentised batch mean"
    panels.draw_words(panel, titles, 10, small=True, xlabel=across, ylabel=up)
    if panels.shows("figure_title"):
        panels.collection.add_title("\n".join(verdict), **panels.keywords("figure_title", {"size": 11}))
    return panels.collection


def _band(found: Normality, m: int, band: float) -> xr.DataArray:
    """Limits around the diagonal for each move, as `fill_between_y` takes them."""
    x = found.qq["theoretical"].values
    limits = np.full((len(x), 3, x.shape[1]), np.nan)
    for move, row in zip(limits, x, strict=True):
        n = int(np.isfinite(row).sum())
        if n:
            orders, tail = stats.beta(np.arange(1, n + 1), np.arange(n, 0, -1)), local_level(n, band)
            move[:, :n] = row[:n], *(stats.t.ppf(q(tail), m - 1) for q in (orders.ppf, orders.isf))
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
    orders = stats.beta(np.arange(1, n + 1), np.arange(n, 0, -1))
    # All stay within if the smallest tail probability does.
    lowest = np.empty(replications)
    for k in range(replications):
        sample = np.sort(rng.random(n))
        lowest[k] = np.minimum(orders.cdf(sample), orders.sf(sample)).min()
    return float(np.quantile(lowest, 1.0 - band))
