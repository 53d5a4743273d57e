"""Differences of several steps from the reference in one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pymc_austerity.plots.optional import optional
from pymc_austerity.plots.style import colours, looks, shown, tidy

# Scalars, and error bars in all.
_ROWS, _BARS = 12, 48


def most_different(tables: Sequence[pd.DataFrame]) -> list[str]:
    """Labels of the scalars with the most significant difference in any of the tables, the worst first."""
    columns = ["z_shift", "z_sd"]
    worst = pd.concat([t[columns].abs().max(axis=1) for t in tables], axis=1).max(axis=1)
    rows = max(3, min(_ROWS, _BARS // len(tables)))
    return [str(name) for name in worst.sort_values(ascending=False, kind="stable").index[:rows]]


def plot_forest(tables: Mapping[str, pd.DataFrame], names: Sequence[str], tolerance: float) -> Any:
    """Shifts and sd ratios of the scalars `names`, with two standard errors to either side.

    Parameters
    ----------
    tables : dict of str to DataFrame
        `Judgement.table` of each step.
    names : sequence of str
    tolerance : float
        Half the width of the grey band.

    Returns
    -------
    matplotlib Figure
    """
    height = 1.3 + 0.12 * len(names) * max(len(tables), 2) + 0.2 * np.ceil(len(tables) / 3)
    figure, axes = optional("matplotlib.pyplot").subplots(
        1, 2, figsize=(8.5, height), sharey=True, layout="constrained"
    )
    rows = np.arange(len(names))[::-1]
    markers = looks("os^Dv", len(tables))
    for k, ((step, table), unwhiten) in enumerate(zip(tables.items(), colours(len(tables)), strict=True)):
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
                color=unwhiten,
                label=shown(step) if ax is axes[0] else None,
            )
    for ax, middle, low, high in (
        (axes[0], 0.0, -tolerance, tolerance),
        (axes[1], 1.0, np.exp(-tolerance), np.exp(tolerance)),
    ):
        ax.axvspan(low, high, color="#eeeeee", zorder=0)
        ax.axvline(middle, color="#444444", lw=1)
    axes[0].locator_params(axis="x", nbins=6)
    _scale_of_ratios(axes[1])
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


def _scale_of_ratios(ax: Any) -> None:
    """A logarithmic axis with plain numbers, where ratios differ much."""
    low, high = ax.get_xlim()
    if low <= 0.0 or high / max(low, 1e-12) < 2.5:
        return
    ticker = optional("matplotlib.ticker")
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(ticker.LogLocator(base=10, subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0), numticks=8))
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_locator(ticker.NullLocator())
