"""Panels of arviz-plots, one for each value of some dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from pymc_austerity.plots.optional import optional


def collection(
    data: xr.Dataset,
    facet: Sequence[str],
    *,
    plot_collection: Any,
    backend: str | None,
    pc_kwargs: Mapping[str, Any],
    n_panels: int,
    col_wrap: int = 3,
    panel: tuple[float, float] = (4.8, 3.4),
    above: float = 0.0,
) -> Any:
    """The `PlotCollection` of the user, or a new one: panels of a size in inches, and room `above` them."""
    if plot_collection is not None:
        return plot_collection
    azp = optional("arviz_plots")
    backend = backend or azp_backend()
    if backend == "matplotlib":
        optional("matplotlib.pyplot")
    given = dict(pc_kwargs)
    col_wrap = given.pop("col_wrap", col_wrap)
    columns, rows = min(n_panels, col_wrap), math.ceil(n_panels / col_wrap)
    figure = {"figsize": (max(columns * panel[0], 6.0), rows * panel[1] + above), "figsize_units": "inches"}
    if backend == "matplotlib":
        figure["layout"] = "constrained"
    figure |= given.pop("figure_kwargs", {})
    return azp.PlotCollection.wrap(
        data, cols=list(facet), col_wrap=col_wrap, backend=backend, figure_kwargs=figure, **given
    )


def azp_backend() -> str:
    """The backend that ArviZ is set to."""
    return str(optional("arviz_base").rcParams["plot.backend"])


def draw(
    pc: Any,
    visuals: Mapping[str, Mapping[str, Any] | bool] | None,
    name: str,
    function: Any,
    **defaults: Any,
) -> None:
    """Map a visual to all panels, unless the user switched it off; the user's keywords win."""
    given = (visuals or {}).get(name, True)
    if given is False:
        return
    pc.map(function, name, **(defaults | (dict(given) if isinstance(given, Mapping) else {})))


def check_visuals(visuals: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    """Refuse names of visuals that this plot does not have."""
    for name in visuals or {}:
        if name not in known:
            raise ValueError(f"visuals must be named {', '.join(known)}, got {name!r}.")


def titled(da: Any, target: Any, *, text: Any, **keywords: Any) -> Any:
    """Title of a panel from a DataArray of strings."""
    return optional("arviz_plots").visuals.labelled_title(da, target, text=str(text.item()), **keywords)
