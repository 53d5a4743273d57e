"""Colours, axes and panels that all plots share; their libraries are imported when a plot is drawn."""

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_austerity.extras import imported

APPROXIMATE, EXACT, LIMIT = "#c1440e", "#444444", "#2a6f97"
"""What was computed from subsamples; what is exact; bounds and targets."""

CYCLE = ("#c1440e", "#2a6f97", "#e9a03b", "#4c956c", "#7b4b94", "#8c8c8c")
"""For lines without such a meaning: distinct also in grey and to most colour-blind eyes."""

_LONGEST = 44  # letters of a name

Visuals = Mapping[str, Mapping[str, Any] | bool] | None

_MARK = "panel_parameters"
_PARAMETERS = """\
visuals : mapping, default None
    {keywords}
plot_collection : PlotCollection, default None
    {panels}
backend : str, default None
    Plotting library, as ArviZ names it; None for that in ``arviz.rcParams["plot.backend"]``.
**pc_kwargs
    Given to ``arviz_plots.PlotCollection.wrap``."""


def optional(name: str) -> Any:
    """Import `name`, or say which extra installs it."""
    return imported(name, "Plots", "plots")


def colours(n: int) -> list[str]:
    """`n` colours, repeated from the seventh on."""
    return [CYCLE[k % len(CYCLE)] for k in range(n)]


def looks(choices: Sequence[str], n: int) -> list[str]:
    """One of `choices` for each of `n` colours: the next where colours begin again."""
    return [choices[k // len(CYCLE) % len(choices)] for k in range(n)]


def panels(ax: Any, n: int) -> Any:
    """`n` axes, in an array: those of the user, or of a new figure, side by side."""
    if ax is None:
        _, ax = optional("matplotlib.pyplot").subplots(
            1, n, figsize=(5.2 * n if n > 1 else 6.4, 4.0), layout="constrained"
        )
    axes = np.ravel(np.asarray(ax, dtype=object))
    if len(axes) != n:
        raise ValueError(f"ax must be {n} matplotlib axes, got {len(axes)}.")
    tidy(axes)
    return axes


def tidy(axes: Iterable[Any]) -> None:
    """Light grid behind the data, no frame on the sides without ticks."""
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, which="major", color="#e4e4e4", linewidth=0.7)
        ax.set_axisbelow(True)


def shown(name: str) -> str:
    """A name as matplotlib shows it as it is: no mathematics, no hidden label, and not too long."""
    text = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 4]} ..."
    # Labels that begin with an underscore are left out of legends.
    return (f" {text}" if text.startswith("_") else text).replace("$", "\\$")


def percent(share: float) -> str:
    """A share of the data for a title."""
    return f"{100 * share:.3g} %"


def short_log_axis(axis: Any) -> None:
    """Plain numbers at 1, 2, 5, 10, ... on a logarithmic axis of matplotlib of less than two decades."""
    # There matplotlib labels all multiples, one over the other.
    low, high = axis.get_view_interval()
    if axis.get_scale() != "log" or not 0.0 < low < high < 100.0 * low:
        return
    ticker = optional("matplotlib.ticker")
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def panel_plot[**P, R](
    visuals: Sequence[str], dimension: str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Document the parameters that all panel plots share, where a docstring says `panel_parameters`."""
    names = f"Keywords, or False, for {', '.join(f'`{name}`' for name in visuals)}."
    text = _PARAMETERS.format(
        keywords=textwrap.fill(names, 102, subsequent_indent="    "),
        panels="Panels to draw into" + (f", with the dimension `{dimension}`." if dimension else "."),
    )

    def documented(function: Callable[P, R]) -> Callable[P, R]:
        if function.__doc__ is not None:  # python -OO has none
            function.__doc__ = function.__doc__.replace(f"    {_MARK}", textwrap.indent(text, "    "), 1)
        return function

    return documented


class Panels:
    """The panels of a plot, and what the user wants to see in them, of the visuals `known`."""

    def __init__(
        self,
        known: Sequence[str],
        visuals: Visuals,
        plot_collection: Any,
        backend: str | None,
        pc_kwargs: Mapping[str, Any],
    ) -> None:
        for name in visuals or {}:
            if name not in known:
                raise ValueError(f"visuals must be named {', '.join(known)}, got {name!r}.")
        self.collection, self._visuals = plot_collection, visuals or {}
        self._backend, self._given = backend, pc_kwargs

    def lay_out(
        self,
        data: xr.Dataset,
        facet: Sequence[str],
        n_panels: int,
        *,
        col_wrap: int = 3,
        panel: tuple[float, float] = (4.8, 3.4),
        above: float = 0.0,
        **defaults: Any,
    ) -> None:
        """Make panels of a size in inches, with room `above` them, unless the user has given some."""
        if self.collection is not None:
            return
        azp = optional("arviz_plots")
        backend = self._backend or str(optional("arviz_base").rcParams["plot.backend"])
        given = defaults | dict(self._given)
        col_wrap = given.pop("col_wrap", col_wrap)
        columns, rows = min(n_panels, col_wrap), math.ceil(n_panels / col_wrap)
        size = max(columns * panel[0], 6.0), rows * panel[1] + above
        figure: dict[str, Any] = {"figsize": size, "figsize_units": "inches"}
        if backend == "matplotlib":
            optional("matplotlib.pyplot")
            figure["layout"] = "constrained"
        figure |= given.pop("figure_kwargs", {})
        self.collection = azp.PlotCollection.wrap(
            data, cols=list(facet), col_wrap=col_wrap, backend=backend, figure_kwargs=figure, **given
        )

    def wanted(self, name: str, **defaults: Any) -> dict[str, Any] | None:
        """Keywords of a visual, those of the user where they are given; None if it is switched off."""
        given = self._visuals.get(name, True)
        if given is False:
            return None
        return defaults | (dict(given) if isinstance(given, Mapping) else {})

    def draw(self, name: str, function: Any, **defaults: Any) -> None:
        """Map a visual to all panels, unless it is switched off."""
        if (keywords := self.wanted(name, **defaults)) is not None:
            self.collection.map(function, name, **keywords)

    def draw_words(self, panel: Any, titles: Any, size: int, *, small: bool = False, **axes: str) -> None:
        """Write a title over each panel, and labels `xlabel` and `ylabel` along all axes."""
        # Where every panel may have a colour of its own, words have it, too.
        whole: dict[str, Any] = {"data": panel} if small else {"ignore_aes": "all", "data": panel}
        self.draw("title", _title, text=titles, size=size, **whole)
        if small:
            whole["size"] = 9
        visuals = optional("arviz_plots").visuals
        for name, text in axes.items():
            self.draw(name, getattr(visuals, f"labelled_{name[0]}"), text=text, **whole)

    def draw_legend(self, dimension: str, **defaults: Any) -> None:
        """Add the legend of a dimension, if it is wanted and has colours."""
        keywords = self.wanted("legend", **defaults)
        if keywords is not None and "color" in self.collection.aes_set:
            self.collection.add_legend(dimension, **keywords)


def _title(da: Any, target: Any, *, text: Any, **keywords: Any) -> Any:
    """Title of a panel from a DataArray of strings."""
    return optional("arviz_plots").visuals.labelled_title(da, target, text=str(text.item()), **keywords)
