"""Figures of a comparison, as images within a page."""

import base64
import io
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from xarray import DataTree

from pymc_austerity.diagnostics.result import SAMPLE, scalars
from pymc_austerity.plots import (
    plot_agreement,
    plot_batch_mean_qq,
    plot_batch_sizes,
    plot_data_usage,
    plot_risk,
)
from pymc_austerity.plots.style import colours, looks, optional, percent, short_log_axis, shown, tidy
from pymc_austerity.report.judgement import ABSENT
from pymc_austerity.report.run import Run

logger = logging.getLogger(__name__)

_DPI = 90
# Panels of posterior densities for each step, and of quantile plots.
_PANELS, _PAIRS = 6, 6
# Scalars of the first figure, and error bars in all.
_ROWS, _BARS = 12, 48
# Figures of more base64 text in all are left out, so that a page stays under 3 MB.
_MOST = 2_600_000


class Plot(NamedTuple):
    """A figure that is not drawn yet."""

    draw: Callable[[], Any]  # gives a figure or axes of matplotlib, or a PlotCollection
    alt: str  # what it shows, in words
    caption: str


class Album:
    """Draws figures one after the other, until the page is full."""

    def __init__(self) -> None:
        self._pyplot = optional("matplotlib.pyplot")
        self._size = 0

    def drawn(self, plot: Plot) -> dict[str, Any]:
        """An image: PNG in base64, its pixels and its words; without `data` if there is none, and why."""
        if self._size > _MOST:
            return {"caption": f"Left out to keep the page small: {plot.caption}"}
        before = set(self._pyplot.get_fignums())
        buffer = io.BytesIO()
        try:
            # The style of the user may be one for a dark page.
            with warnings.catch_warnings(), self._pyplot.style.context("default"), self._pyplot.ioff():
                warnings.simplefilter("ignore")  # of layouts and the like: what matters is in the tables
                drawn = plot.draw()
                if hasattr(drawn, "viz"):  # a PlotCollection
                    drawn = drawn.viz["figure"].item()
                figure = drawn if hasattr(drawn, "savefig") else drawn.figure
                figure.savefig(buffer, dpi=_DPI, format="png", bbox_inches="tight", pad_inches=0.1)
        # A plot that fails must not take the tables, of hours of sampling, with it. The page says so.
        except Exception as error:
            logger.warning("A figure could not be drawn", exc_info=True)
            return {"caption": f"This figure could not be drawn ({type(error).__name__}: {error})."}
        finally:
            for number in set(self._pyplot.get_fignums()) - before:
                self._pyplot.close(number)
        png = buffer.getvalue()
        width, height = (int.from_bytes(png[k : k + 4], "big") for k in (16, 20))
        data = base64.b64encode(png).decode("ascii")
        self._size += len(data)
        return {"data": data, "width": width, "height": height, "alt": plot.alt, "caption": plot.caption}


# What is shown ------------------------------------------------------------------------------------


def overview(tables: Mapping[str, pd.DataFrame], tolerance: float) -> Plot:
    """Shifts and ratios of all steps at one sight, from `Judgement.table` of each."""
    names = most_different(list(tables.values()))
    return Plot(
        lambda: plot_forest(tables, names, tolerance),
        f"Shifts of posterior means and ratios of posterior standard deviations of {len(names)} scalars for "
        f"{', '.join(tables)}, with Monte Carlo errors. The numbers are in the tables of the steps.",
        "Difference from the reference of the scalars that differ most, with two Monte Carlo standard errors "
        f"to either side. Grey: the tolerance, {tolerance:g} posterior sd.",
    )


def costs(runs: Mapping[str, DataTree], reference: DataTree, var_names: Sequence[str]) -> Plot:
    """Risk against data touched."""
    truth = DataTree.from_dict({"posterior": reference["posterior"].to_dataset()})

    def draw() -> Any:
        axes = plot_risk(runs, truth, var_names=list(var_names))
        # Several lines leave no room within.
        axes.figure.set_figwidth(9.5)
        axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, fontsize=9)
        return axes

    return Plot(
        draw,
        f"Lines of the risk of posterior means against the data touched, for {', '.join(runs)}.",
        "Error of the posterior means that a chain estimates, after so much data. A line that levels off has "
        "reached the bias of its step; below the dotted line the reference is not precise enough to tell.",
    )


def posterior(
    run: Run, table: pd.DataFrame, reference: DataTree, name: str, var_names: Sequence[str]
) -> Plot:
    """The marginals that differ most, beside those of the reference of this name."""
    labels = list(table.index[:_PANELS])
    own, other = (_only(idata, var_names, labels) for idata in (run.idata, reference))
    names = shown(run.name), shown(name)
    return Plot(
        lambda: plot_agreement(own, other, names=names, backend="matplotlib", col_wrap=3),
        f"Marginal posterior densities of {', '.join(labels)} by {run.name} and by the reference; shifts and "
        "ratios of standard deviations are in the table.",
        f"Marginal densities of the {len(labels)} scalars that differ most, of all {len(table)}.",
    )


def data(run: Run) -> list[Plot]:
    """Data used over time, and batch sizes, of a step that counts them."""
    idata = run.idata
    if idata is None or "fraction_used" not in idata["sample_stats"]:
        return []
    share = f"On average {share_of(run)} of the data."
    return [
        Plot(
            lambda: plot_data_usage(idata, backend="matplotlib"),
            f"Share of the data that {run.name} read for a transition, over its draws. {share}",
            f"Share of the data read for a transition, in blocks of draws. {share}",
        ),
        Plot(
            lambda: plot_batch_sizes(idata, backend="matplotlib"),
            f"Histogram of the number of local terms that {run.name} read for a transition. {share}",
            "How many local terms transitions read.",
        ),
    ]


def normality(run: Run, log_ratios: DataTree, verdict: str) -> Plot:
    """Quantiles of batch means against those of a normal distribution."""
    ratios = log_ratios["log_ratios"]
    few = ratios.to_dataset().isel(pair=slice(_PAIRS))
    tree, n = DataTree.from_dict({"log_ratios": few}), few.sizes["pair"]
    return Plot(
        lambda: plot_batch_mean_qq(tree, backend="matplotlib", visuals={"figure_title": False}, col_wrap=3),
        f"Quantiles of studentised batch means of {run.name} against those of Student's t at {n} proposed "
        f"moves. Verdict: {verdict}.",
        f"Studentised batch means at {n} of {ratios.sizes['pair']} probed moves. Points above the band on "
        "the right, or below it on the left: the t-test errs more often than epsilon says.",
    )


def share_of(run: Run) -> str:
    """How much of the data a transition has read, as text."""
    if np.isnan(run.fraction):
        return ABSENT
    share = percent(run.fraction / run.moves)
    return share if run.moves == 1 else f"{run.moves} x {share}"


def _only(idata: Any, var_names: Sequence[str], labels: Sequence[str]) -> DataTree:
    """Some scalars of a posterior, each as a variable of its own."""
    draws = scalars(idata, list(var_names))
    # Titles are made of the names.
    chosen = {label.replace("$", r"\$"): (SAMPLE, draws[label]) for label in labels}
    coords = {d: np.arange(idata["posterior"].sizes[d]) for d in SAMPLE}
    return DataTree.from_dict({"posterior": xr.Dataset(chosen, coords)})


def most_different(tables: Sequence[pd.DataFrame]) -> list[str]:
    """Labels of the scalars with the most significant difference in any of the tables, the worst first."""
    worst = pd.concat([t[["z_shift", "z_sd"]].abs().max(axis=1) for t in tables], axis=1).max(axis=1)
    rows = max(3, min(_ROWS, _BARS // len(tables)))
    return [str(name) for name in worst.sort_values(ascending=False, kind="stable").index[:rows]]


def plot_forest(tables: Mapping[str, pd.DataFrame], names: Sequence[str], tolerance: float) -> Any:
    """Shifts and sd ratios of some scalars, from `Judgement.table` of each step, as a matplotlib Figure."""
    height = 1.3 + 0.12 * len(names) * max(len(tables), 2) + 0.2 * np.ceil(len(tables) / 3)
    figure, axes = optional("matplotlib.pyplot").subplots(
        1, 2, figsize=(8.5, height), sharey=True, layout="constrained"
    )
    tidy(axes)
    rows = np.arange(len(names))[::-1]
    looked = list(zip(tables.items(), looks("os^Dv", len(tables)), colours(len(tables)), strict=True))
    for ax, value, label, middle, limits in (
        (axes[0], "shift", "shift of the mean (posterior sd)", 0.0, (-tolerance, tolerance)),
        (axes[1], "sd_ratio", "sd / sd of the reference", 1.0, np.exp([-tolerance, tolerance])),
    ):
        for k, ((step, table), marker, colour) in enumerate(looked):
            own = table.reindex(names).astype(float)
            ax.errorbar(
                own[value].to_numpy(),
                rows + 0.7 * (0.5 - (k + 0.5) / len(tables)),
                xerr=2.0 * own[f"{value}_error"].to_numpy(),
                fmt=marker,
                ms=4,
                lw=1.4,
                color=colour,
                label=shown(step),
            )
        ax.axvspan(*limits, color="#eeeeee", zorder=0)
        ax.axvline(middle, color="#444444", lw=1)
        ax.set_xlabel(label)
        ax.grid(visible=False, axis="y")
    axes[0].locator_params(axis="x", nbins=6)
    low, high = axes[1].get_xlim()
    if low > 0.0 and high >= 2.5 * max(low, 1e-12):  # ratios differ much
        axes[1].set_xscale("log")
        short_log_axis(axes[1].xaxis)
    axes[1].tick_params(axis="y", length=0)
    axes[0].set_yticks(rows, [shown(name) for name in names])
    axes[0].set_ylim(-0.6, len(names) - 0.4)
    handles, labels = axes[0].get_legend_handles_labels()
    place = {"loc": "outside upper center", "ncols": min(len(tables), 3), "frameon": False, "fontsize": 9}
    figure.legend(handles, labels, **place)
    return figure
