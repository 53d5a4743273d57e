"""`plot_data_usage`: how much of the data each draw read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from pymc_austerity.plots.optional import optional
from pymc_austerity.plots.panel import Visuals, check_visuals, panel_plot, panels_of
from pymc_austerity.plots.sampler_statistics import sampler_statistics, title
from pymc_austerity.plots.style import EXACT, colours, percent, short_log_axis
from pymc_austerity.validation import is_whole

_VISUALS = ("blocks", "mean", "title", "xlabel", "ylabel", "yscale", "legend")
# Block means that differ by more than this factor are drawn on a logarithmic axis.
_WIDE = 10.0


@panel_plot(_VISUALS, dimension="sampler")
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
    a plate has several moves, each of which may read 100 % of N. The dashed
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
    if not is_whole(n_blocks) or n_blocks < 1:
        raise ValueError(f"n_blocks must be a positive integer, got {n_blocks!r}.")
    check_visuals(visuals, _VISUALS)
    azp = optional("arviz_plots")
    stats, names = sampler_statistics(idata, "fraction_used")
    shares = stats["fraction_used"]
    blocks = _block_means(100.0 * shares, n_blocks)
    means = shares.mean(("chain", "draw"))
    titles = [
        title(name, "not recorded" if np.isnan(mean) else f"mean {percent(mean)} (dashed)")
        for name, mean in zip(names, means.values, strict=True)
    ]
    n_chains = shares.sizes["chain"]
    pc_kwargs.setdefault("aes", {"color": ["chain"]})
    pc_kwargs.setdefault("color", colours(n_chains))
    panels = panels_of(
        blocks.to_dataset(),
        ["sampler"],
        visuals=visuals,
        plot_collection=plot_collection,
        backend=backend,
        pc_kwargs=pc_kwargs,
        n_panels=shares.sizes["sampler"],
    )
    # A line through one point cannot be seen.
    single = blocks.sizes["block"] == 1
    line = azp.visuals.scatter_xy if single else azp.visuals.line_xy
    panels.draw("blocks", line, **({} if single else {"width": 1.2}))
    average = (100.0 * means).rename("data_usage")
    panel = blocks.isel(block=0, chain=0, plot_axis=0, drop=True).fillna(0.0)
    whole = {"ignore_aes": "all", "data": panel}
    panels.draw(
        "mean",
        azp.visuals.hline,
        data=average,
        color=EXACT,
        linestyle="--",
        width=1.2,
        ignore_aes="all",
    )
    texts = xr.DataArray(titles, dims="sampler", coords={"sampler": shares["sampler"]})
    panels.draw_title(texts, size=11, **whole)
    panels.draw("xlabel", azp.visuals.labelled_x, text="draw", **whole)
    of_plate = "plate_n_used" in idata["sample_stats"]
    label = "data read per sweep (% of N for each move)" if of_plate else "data read per transition (% of N)"
    panels.draw("ylabel", azp.visuals.labelled_y, text=label, **whole)
    panels.draw("yscale", _scale, data=blocks, ignore_aes="all")
    if panels.backend == "matplotlib":
        panels.draw("yscale", lambda da, target, **_: short_log_axis(target.yaxis), ignore_aes="all")
    if n_chains > 1:
        panels.draw_legend("chain")
    return panels.collection


def _block_means(shares: xr.DataArray, n_blocks: int) -> xr.DataArray:
    """Means over blocks of neighbouring draws (y), and where the blocks lie (x)."""
    values = shares.values
    n_draws = values.shape[2]
    starts = np.linspace(0, n_draws, min(n_blocks, n_draws) + 1).astype(int)[:-1]
    known = ~np.isnan(values)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts, axis=2)
    counts = np.add.reduceat(known.astype(float), starts, axis=2)
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    middle = (starts + np.append(starts[1:], n_draws) + 1) / 2
    # Without a position too, a sampler that recorded nothing is not drawn.
    middle = np.where(np.isnan(means), np.nan, middle)
    return xr.DataArray(
        np.stack([middle, means]),
        dims=("plot_axis", "sampler", "chain", "block"),
        coords={"plot_axis": ["x", "y"], "chain": shares["chain"], "sampler": shares["sampler"]},
        name="data_usage",
    ).transpose("sampler", "chain", "plot_axis", "block")


def _scale(da: xr.DataArray, target: Any) -> None:
    """A logarithmic axis for wide ranges, else one that starts at zero."""
    visuals = optional("arviz_plots").visuals
    low, high = _limits(da.sel(plot_axis="y").values)
    if low > 0.0 and high > _WIDE * low:
        visuals.set_yscale(da, target, "log")
    else:
        visuals.set_ylim(da, target, (0.0, 1.08 * high if high > 0.0 else 1.0))


def _limits(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    return (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
