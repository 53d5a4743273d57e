"""Colours and panels that all plots share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_austerity.plots.optional import optional

APPROXIMATE, EXACT, LIMIT = "#c1440e", "#444444", "#2a6f97"
"""What was computed from subsamples; what is exact; bounds and targets."""

CYCLE = ("#c1440e", "#2a6f97", "#e9a03b", "#4c956c", "#7b4b94", "#8c8c8c")
"""For lines without such a meaning: distinct also in grey and to most unwhiten-blind eyes."""

_LONGEST = 44


def colours(n: int) -> list[str]:
    """`n` colours, repeated from the seventh on."""
    return [CYCLE[k % len(CYCLE)] for k in range(n)]


def looks(choices: Sequence[str], n: int) -> list[str]:
    """One of `choices` for each of `n` colours: the next where colours begin again."""
    return [choices[k // len(CYCLE) % len(choices)] for k in range(n)]


def panels(ax: Any, n: int) -> list[Any]:
    """`n` axes: those of the user, or of a new figure, side by side."""
    if ax is None:
        _, axes = optional("matplotlib.pyplot").subplots(
            1, n, figsize=(5.2 * n if n > 1 else 6.4, 4.0), layout="constrained", squeeze=False
        )
        return list(axes[0])
    given = list(np.ravel(np.asarray(ax, dtype=object)))
    if len(given) != n:
        raise ValueError(f"ax must be {n} matplotlib axes, got {len(given)}.")
    return given


def tidy(axes: Sequence[Any]) -> None:
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


def few_digits(value: float) -> str:
    """A number for a title: thousands grouped, no more digits than can be read."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share of the data for a title."""
    return f"{100 * share:.3g} %"


def short_log_axis(axis: Any) -> None:
    """Plain numbers at 1, 2, 5, 10, ... on a logarithmic axis of matplotlib of less than two decades.

    There matplotlib labels all multiples, one over the other.
    """
    low, high = axis.get_view_interval()
    if axis.get_scale() != "log" or not 0.0 < low < high < 100.0 * low:
        return
    ticker = optional("matplotlib.ticker")
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(ticker.NullFormatter())
