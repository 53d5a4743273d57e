"""The figures of a page, as PNG images within it."""

from __future__ import annotations

import base64
import io
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from xarray import DataTree

from pymc_austerity.diagnostics.scalars import scalars
from pymc_austerity.plots import (
    plot_agreement,
    plot_batch_mean_qq,
    plot_batch_sizes,
    plot_data_usage,
    plot_risk,
)
from pymc_austerity.plots.optional import optional
from pymc_austerity.plots.style import shown
from pymc_austerity.report.judgement import Judgement
from pymc_austerity.report.probing.of_run import Probed
from pymc_austerity.report.render.forest import most_different, plot_forest
from pymc_austerity.report.render.words import share_of
from pymc_austerity.report.results import Results
from pymc_austerity.report.run import Run

logger = logging.getLogger(__name__)

_DPI = 90
# Panels of posterior densities for each step, and of quantile plots.
_PANELS, _PAIRS = 6, 6
# Figures of more base64 text in all are left out, so that a page stays under 3 MB.
_MOST = 2_600_000


@dataclass(frozen=True)
class Figure:
    """An image, or why there is none.

    Attributes
    ----------
    data : str
        PNG in base64; empty if there is none.
    width, height : int
        Pixels on the page.
    alt, caption : str
    """

    data: str
    width: int
    height: int
    alt: str
    caption: str


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
        runs = {n: i for n, i in self._comparison.runs.items() if _touched(i)}
        if reference is None or not runs:
            return []
        truth = DataTree(children={"posterior": DataTree(reference.children["posterior"].to_dataset())})
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
        share = f"On average {share_of(run)} of the data."
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
        ratios = probe.log_ratios
        few = ratios["log_ratios"].to_dataset().isel(pair=slice(_PAIRS))
        tree = DataTree(children={"log_ratios": DataTree(few)})
        return [
            self._draw(
                lambda: plot_batch_mean_qq(
                    tree, backend="matplotlib", visuals={"figure_title": False}, col_wrap=3
                ),
                f"Quantiles of studentised batch means of {run.name} against those of Student's t at "
                f"{few.sizes['pair']} proposed moves. Verdict: {probe.verdict}.",
                f"Studentised batch means at {few.sizes['pair']} of {ratios['log_ratios'].sizes['pair']} "
                "probed moves. Points above the band on the right, or below it on the left: the t-test errs "
                "more often than epsilon says.",
            )
        ]

    def _draw(self, function: Callable[[], Any], alt: str, caption: str) -> Figure:
        """Draw a figure, whatever it is made with; say so if it cannot be drawn."""
        if self._size > _MOST:
            return Figure("", 0, 0, alt, f"Left out to keep the page small: {caption}")
        before = set(self._pyplot.get_fignums())
        buffer = io.BytesIO()
        try:
            # The style of the user may be one for a dark page.
            with warnings.catch_warnings(), self._pyplot.style.context("default"), self._pyplot.ioff():
                warnings.simplefilter("ignore")  # of layouts and the like: what matters is in the tables
                drawn = function()
                figure = _figure_of(drawn)
                figure.savefig(buffer, dpi=_DPI, format="png", bbox_inches="tight", pad_inches=0.1)
        # A plot that fails must not take the tables, of hours of sampling, with it. The page says so.
        except Exception as error:
            logger.warning("A figure could not be drawn", exc_info=True)
            return Figure("", 0, 0, alt, f"This figure could not be drawn ({type(error).__name__}: {error}).")
        finally:
            for number in set(self._pyplot.get_fignums()) - before:
                self._pyplot.close(number)
        png = buffer.getvalue()
        width, height = (int.from_bytes(png[k : k + 4], "big") for k in (16, 20))
        data = base64.b64encode(png).decode("ascii")
        self._size += len(data)
        return Figure(data, width, height, alt, caption)


def _figure_of(drawn: Any) -> Any:
    """The matplotlib figure of an Axes, of a Figure, or of a PlotCollection."""
    if hasattr(drawn, "viz"):
        return drawn.viz["figure"].item()
    return drawn if hasattr(drawn, "savefig") else drawn.figure


def _legend_outside(axes: Any) -> Any:
    """The same Axes with the legend beside it: several lines leave no room within."""
    axes.figure.set_figwidth(9.5)
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False, fontsize=9)
    return axes


def _touched(idata: DataTree) -> bool:
    """Whether a run says how much data it has touched."""
    stats = idata["sample_stats"]
    return "n_used" in stats or "n_steps" in stats


def _only(idata: DataTree, var_names: Sequence[str], labels: Sequence[str]) -> DataTree:
    """Some scalars of a posterior, each as a variable of its own."""
    draws = scalars(idata, list(var_names))
    # Titles are made of the names.
    chosen = {label.replace("$", r"\$"): (("chain", "draw"), draws[label]) for label in labels}
    size = next(iter(draws.values())).shape
    coords = {"chain": np.arange(size[0]), "draw": np.arange(size[1])}
    return DataTree(children={"posterior": DataTree(xr.Dataset(chosen, coords))})
