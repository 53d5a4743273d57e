"""Sample statistics by sampler, numbered, so that panels can be told apart whatever their names."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from pymc_austerity.diagnostics.samplers import aligned
from pymc_austerity.plots.style import shown


def sampler_statistics(idata: Any, base: str, *others: str) -> tuple[xr.Dataset, list[str]]:
    """Statistics with dims (sampler, chain, draw), and the name of each sampler."""
    stats = aligned(idata, base, *others)
    names = [str(name) for name in stats["sampler"].values]
    if 0 in stats.sizes.values():
        raise ValueError(f"idata must have at least one draw of {base}, got {dict(stats.sizes)}.")
    if np.isnan(stats[base].values).all():
        raise ValueError(f"{base} is NaN in all draws: no step recorded it.")
    return stats.assign_coords(sampler=np.arange(len(names))).transpose("sampler", "chain", "draw"), names


def title(name: str, text: str) -> str:
    """Title of a panel: long names are shortened, and the text follows below them."""
    return f"{shown(name)}\n{text}"
