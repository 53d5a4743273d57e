"""A comparison as one HTML page that needs no other file."""

from __future__ import annotations

import base64
import io
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, get_args

import numpy as np
import pandas as pd
import xarray as xr
from xarray import DataTree

from pymc_austerity.diagnostics.result import scalars
from pymc_austerity.plots import (
    plot_agreement,
    plot_batch_mean_qq,
    plot_batch_sizes,
    plot_data_usage,
    plot_risk,
)
from pymc_austerity.plots.style import colours, looks, optional, short_log_axis, shown, tidy
from pymc_austerity.report.probe import Probed
from pymc_austerity.report.render import words
from pymc_austerity.report.results import Judgement, Results, Verdict
from pymc_austerity.report.run import Run

logger = logging.getLogger(__name__)

_DPI = 90
# Panels of posterior densities for each step, and of quantile plots.
_PANELS, _PAIRS = 6, 6
# Scalars of the first figure, and error bars in all.
_ROWS, _BARS = 12, 48
# Figures of more base64 text in all are left out, so that a page stays under 3 MB.
_MOST = 2_600_000


def as_html(comparison: Results) -> str:
    """Render the page; every text from outside is escaped.

    Figures are drawn where the template asks for them: what comes late is left out of a page that is full.
    """
    jinja2 = optional("jinja2")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    source = resources.files(__package__).joinpath("template.html").read_text(encoding="utf-8")
    text: str = environment.from_string(source).render(
        comparison=comparison, words=words, album=Album(comparison), verdicts=get_args(Verdict)
    )
    return text


# An image: PNG in base64, empty if there is none; pixels on the page; what it shows, in words.
Figure = dict[str, Any]


class Album:
    """Draws the figures of a comparison one after the other, until the page is full."""

    def __init__(self, comparison: Results) -> None:
        self._comparison = comparison
        self._pyplot = optional("matplotlib.pyplot")
        self._size = 0

    def overview(self) -> list[Figure]:
        """Shifts and ratios of all steps at one sight."""
        tables = {run.name: j.table for run, j, _ in self._comparison.results if j.table is not None}
        if not tables:
            return []
        names, tolerance = most_different(list(tables.values())), self._comparison.tolerance
        return [
            self._draw(
                lambda: plot_forest(tables, names, tolerance),
                f"Shifts of posterior means and ratios of posterior standard deviations of {len(names)} "
                f"scalars for {', '.join(tables)}, with Monte Carlo errors. The numbers are in the tables of "
                "the steps.",
                "Difference from the reference of the scalars that differ most, with two Monte Carlo "
                f"standard errors to either side. Grey: the tolerance, {tolerance:g} posterior sd.",
            )
        ]

    def costs(self) -> list[Figure]:
        """Risk against data touched."""
        reference = self._comparison.reference
        touched = {"n_used", "n_steps"}  # what says how much data a run has touched
        runs = {n: i for n, i in self._comparison.runs.items() if touched & set(i["sample_stats"])}
        if reference is None or not runs:
            return []
        truth = DataTree.from_dict({"posterior": reference["posterior"].to_dataset()})
        return [
            self._draw(
                lambda: _legend_outside(plot_risk(runs, truth, var_names=list(self._comparison.var_names))),
                f"Lines of the risk of posterior means against the data touched, for {', '.join(runs)}.",
                "Error of the posterior means that a chain estimates, after so much data. A line that levels "
                "off has reached the bias of its step; below the dotted line the reference is not precise "
                "enough to tell.",
            )
        ]

    def posterior(self, run: Run, judgement: Judgement) -> list[Figure]:
        """The marginals that differ most."""
        reference = self._comparison.reference
        if judgement.table is None or run.idata is None or reference is None:
            return []
        names = list(judgement.table.index[:_PANELS])
        own, other = (_only(i, self._comparison.var_names, names) for i in (run.idata, reference))
        return [
            self._draw(
                lambda: plot_agreement(
                    own,
                    other,
                    names=(shown(run.name), shown(self._comparison.reference_name)),
                    backend="matplotlib",
                    col_wrap=3,
                ),
                f"Marginal posterior densities of {', '.join(names)} by {run.name} and by the reference; "
                "shifts and ratios of standard deviations are in the table.",
                f"Marginal densities of the {len(names)} scalars that differ most, of all "
                f"{len(judgement.table)}.",
            )
        ]

    def data(self, run: Run) -> list[Figure]:
        """Data used over time, and batch sizes."""
        idata = run.idata
        if idata is None or "fraction_used" not in idata["sample_stats"]:
            return []
        share = f"On average {words.share_of(run)} of the data."
        return [
            self._draw(
                lambda: plot_data_usage(idata, backend="matplotlib"),
                f"Share of the data that {run.name} read for a transition, over its draws. {share}",
                f"Share of the data read for a transition, in blocks of draws. {share}",
            ),
            self._draw(
                lambda: plot_batch_sizes(idata, backend="matplotlib"),
                f"Histogram of the number of local terms that {run.name} read for a transition. {share}",
                "How many local terms transitions read.",
            ),
        ]

    def normality(self, run: Run, probe: Probed) -> list[Figure]:
        """Quantiles of batch means against those of a normal distribution."""
        if probe.log_ratios is None:
            return []
        ratios = probe.log_ratios["log_ratios"]
        few = ratios.to_dataset().isel(pair=slice(_PAIRS))
        tree = DataTree.from_dict({"log_ratios": few})
        return [
            self._draw(
                lambda: plot_batch_mean_qq(
                    tree, backend="matplotlib", visuals={"figure_title": False}, col_wrap=3
                ),
                f"Quantiles of studentised batch means of {run.name} against those of Student's t at "
                f"{few.sizes['pair']} proposed moves. Verdict: {probe.verdict}.",
                f"Studentised batch means at {few.sizes['pair']} of {ratios.sizes['pair']} "
                "probed moves. Points above the band on the right, or below it on the left: the t-test errs "
                "more often than epsilon says.",
            )
        ]

    def _draw(self, function: Callable[[], Any], alt: str, caption: str) -> Figure:
        """Draw a figure, whatever it is made with; say so if it cannot be drawn."""
        if self._size > _MOST:
            return {"data": "", "caption": f"Left out to keep the page small: {caption}"}
        before = set(self._pyplot.get_fignums())
        buffer = io.BytesIO()
        try:
            # The style of the user may be one for a dark page.
            with warnings.catch_warnings(), self._pyplot.style.context("default"), self._pyplot.ioff():
                warnings.simplefilter("ignore")  # of layouts and the like: what matters is in the tables
                drawn = function()
                if hasattr(drawn, "viz"):  # a PlotCollection
                    drawn = drawn.viz["figure"].item()
                figure = drawn if hasattr(drawn, "savefig") else drawn.figure
                figure.savefig(buffer, dpi=_DPI, format="png", bbox_inches="tight", pad_inches=0.1)
        # A plot that fails must not take the tables, of hours of sampling, with it. The page says so.
        except Exception as error:
            logger.warning("A figure could not be drawn", exc_info=True)
            told = f"This figure could not be drawn ({type(error).__name__}: {error})."
            return {"data": "", "caption": told}
        finally:
            for number in set(self._pyplot.get_fignums()) - before:
                self._pyplot.close(number)
        png = buffer.getvalue()
        width, height = (int.from_bytes(png[k : k + 4], "big") for k in (16, 20))
        data = base64.b64encode(png).decode("ascii")
        self._size += len(data)
        return {"data": data, "width": width, "height": height, "alt": alt, "caption": caption}


def _legend_outside(axes: Any) -> Any:
    """Axes with the legend put beside them: several lines leave no room within."""
    axes.figure.set_figwidth(9.5)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, fontsize=9)
    return axes


def _only(idata: DataTree, var_names: Sequence[str], labels: Sequence[str]) -> DataTree:
    """Some scalars of a posterior, each as a variable of its own."""
    draws = scalars(idata, list(var_names))
    # Titles are made of the names.
    chosen = {label.replace("$", r"\$"): (("chain", "draw"), draws[label]) for label in labels}
    size = next(iter(draws.values())).shape
    coords = {"chain": np.arange(size[0]), "draw": np.arange(size[1])}
    return DataTree.from_dict({"posterior": xr.Dataset(chosen, coords)})


def most_different(tables: Sequence[pd.DataFrame]) -> list[str]:
    """Labels of the scalars with the most significant difference in any of the tables, the worst first."""
    columns = ["z_shift", "z_sd"]
    worst = pd.concat([t[columns].abs().max(axis=1) for t in tables], axis=1).max(axis=1)
    rows = max(3, min(_ROWS, _BARS // len(tables)))
    return [str(name) for name in worst.sort_values(ascending=False, kind="stable").index[:rows]]


def plot_forest(tables: Mapping[str, pd.DataFrame], names: Sequence[str], tolerance: float) -> Any:
    """Shifts and sd ratios of some scalars, from `Judgement.table` of each step, as a matplotlib Figure."""
    height = 1.3 + 0.12 * len(names) * max(len(tables), 2) + 0.2 * np.ceil(len(tables) / 3)
    figure, axes = optional("matplotlib.pyplot").subplots(
        1, 2, figsize=(8.5, height), sharey=True, layout="constrained"
    )
    rows = np.arange(len(names))[::-1]
    markers = looks("os^Dv", len(tables))
    for k, ((step, table), colour) in enumerate(zip(tables.items(), colours(len(tables)), strict=True)):
        at = rows + 0.7 * (0.5 - (k + 0.5) / len(tables))
        own = table.reindex(names)
        for ax, value in zip(axes, ("shift", "sd_ratio"), strict=True):
            ax.errorbar(
                own[value].to_numpy(dtype=float),
                at,
                xerr=2.0 * own[f"{value}_error"].to_numpy(dtype=float),
                fmt=markers[k],
                ms=4,
                lw=1.4,
                color=colour,
                label=shown(step) if ax is axes[0] else None,
            )
    for ax, middle, low, high in (
        (axes[0], 0.0, -tolerance, tolerance),
        (axes[1], 1.0, np.exp(-tolerance), np.exp(tolerance)),
    ):
        ax.axvspan(low, high, color="#eeeeee", zorder=0)
        ax.axvline(middle, color="#444444", lw=1)
    axes[0].locator_params(axis="x", nbins=6)
    low, high = axes[1].get_xlim()
    if low > 0.0 and high >= 2.5 * max(low, 1e-12):  # ratios differ much
        axes[1].set_xscale("log")
        short_log_axis(axes[1].xaxis)
    axes[1].tick_params(axis="y", length=0)
    axes[0].set_yticks(rows, [shown(name) for name in names])
    axes[0].set_ylim(-0.6, len(names) - 0.4)
    axes[0].set_xlabel("shift of the mean (posterior sd)")
    axes[1].set_xlabel("sd / sd of the reference")
    tidy(axes)
    for ax in axes:
        ax.grid(visible=False, axis="y")
    figure.legend(loc="outside upper center", ncols=min(len(tables), 3), frameon=False, fontsize=9)
    return figure
