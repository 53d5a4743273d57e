"""Panels of arviz-plots, one for each value of some dimensions."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import xarray as xr

from pymc_austerity.plots.optional import optional

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


def panel_plot[**P, R](
    visuals: Sequence[str], dimension: str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Document the parameters that all panel plots share, where a docstring says `panel_parameters`.

    Parameters
    ----------
    visuals : sequence of str
        Names of the visuals of the plot.
    dimension : str, optional
        The dimension that given panels must have.
    """
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


def panels_of(
    data: xr.Dataset,
    facet: Sequence[str],
    *,
    visuals: Visuals,
    plot_collection: Any,
    backend: str | None,
    pc_kwargs: Mapping[str, Any],
    n_panels: int,
    col_wrap: int = 3,
    panel: tuple[float, float] = (4.8, 3.4),
    above: float = 0.0,
) -> Panels:
    """Panels in the user's collection, or in a new one: of a size in inches, with room `above` them."""
    if plot_collection is not None:
        return Panels(plot_collection, visuals)
    azp = optional("arviz_plots")
    backend = backend or _default_backend()
    if backend == "matplotlib":
        optional("matplotlib.pyplot")
    given = dict(pc_kwargs)
    col_wrap = given.pop("col_wrap", col_wrap)
    columns, rows = min(n_panels, col_wrap), math.ceil(n_panels / col_wrap)
    figure = {"figsize": (max(columns * panel[0], 6.0), rows * panel[1] + above), "figsize_units": "inches"}
    if backend == "matplotlib":
        figure["layout"] = "constrained"
    figure |= given.pop("figure_kwargs", {})
    new = azp.PlotCollection.wrap(
        data, cols=list(facet), col_wrap=col_wrap, backend=backend, figure_kwargs=figure, **given
    )
    return Panels(new, visuals)


def _default_backend() -> str:
    """The backend that ArviZ is set to."""
    return str(optional("arviz_base").rcParams["plot.backend"])


class Panels:
    """The panels of a plot, and what the user wants to see in them.

    Parameters
    ----------
    collection : PlotCollection
    visuals : mapping or None
        Of some visuals the keywords, or False where they are not wanted.
    """

    def __init__(self, collection: Any, visuals: Visuals) -> None:
        self.collection = collection
        self._visuals = visuals or {}

    @property
    def backend(self) -> str:
        """Plotting library of the panels."""
        return str(self.collection.backend)

    def shows(self, name: str) -> bool:
        """Whether the user has not switched a visual off."""
        return self._visuals.get(name, True) is not False

    def keywords(self, name: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Keywords of a visual: those of the user, where they are given."""
        given = self._visuals.get(name, True)
        return dict(defaults) | (dict(given) if isinstance(given, Mapping) else {})

    def draw(self, name: str, function: Any, **defaults: Any) -> None:
        """Map a visual to all panels, unless it is switched off."""
        if self.shows(name):
            self.collection.map(function, name, **self.keywords(name, defaults))

    def draw_title(self, text: Any, **defaults: Any) -> None:
        """Write a title over each panel, from a DataArray or Dataset of strings."""
        self.draw("title", _title, text=text, **defaults)

    def draw_legend(self, dimension: str, **keywords: Any) -> None:
        """Add the legend of a dimension, if it is wanted and has colours."""
        if self.shows("legend") and "color" in self.collection.aes_set:
            self.collection.add_legend(dimension, **keywords)


def check_visuals(visuals: Visuals, known: Sequence[str]) -> None:
    """Refuse names of visuals that this plot does not have."""
    for name in visuals or {}:
        if name not in known:
            raise ValueError(f"visuals must be named {', '.join(known)}, got {name!r}.")


def _title(da: Any, target: Any, *, text: Any, **keywords: Any) -> Any:
    """Title of a panel from a DataArray of strings."""
    return optional("arviz_plots").visuals.labelled_title(da, target, text=str(text.item()), **keywords)
