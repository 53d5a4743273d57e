"""Sample statistics of subsampled steps, one column for each step that took part.

PyMC gives a statistic that several steps record a third axis, in the order of the steps, and says nowhere
which steps these are. Without a stamp (`stamp`) they are told by counting: the steps that record `psi` are
some of those that record any other of our statistics, so one with as many columns as `psi` is of the same
steps.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from pymc_austerity.diagnostics.scalars import SAMPLE

# What all steps of the package record, and no others do.
_OF_READING = ("n_used", "fraction_used")

STEPS_ATTRIBUTE = "pymc_austerity_steps"


def stamped_steps(idata: Any) -> list[dict[str, Any]] | None:
    """Records that `stamp` has written of the steps, in the order they move in; None without a stamp."""
    text = idata.attrs.get(STEPS_ATTRIBUTE)
    return None if text is None else list(json.loads(text))


def label(step: dict[str, Any]) -> str:
    """Name of a stamped step in tables, with its variables."""
    return f"{step['step']}({', '.join(step['vars'])})"


class NotRecordedError(ValueError):
    """A result does not hold what is asked of it: no step recorded it."""


def sample_stats_of(idata: Any, needed: str) -> xr.Dataset:
    """The group `sample_stats`, which must have the statistic `needed`.

    Raises
    ------
    NotRecordedError
        If it does not: then no subsampled step took part.
    """
    if not isinstance(idata, xr.DataTree):
        raise ValueError(f"idata must be the DataTree that pm.sample returns, got {type(idata).__name__}.")
    groups = idata.children
    if "sample_stats" not in groups:
        raise NotRecordedError(
            f"idata has no group sample_stats (it has {', '.join(groups) or 'no groups'}): give the result "
            "of pm.sample with a step of pymc_austerity."
        )
    stats: xr.Dataset = idata["sample_stats"].to_dataset()
    if missing := [d for d in SAMPLE if d not in stats.dims]:
        raise ValueError(
            f"sample_stats has no dimension {' and '.join(missing)}: keep both, as by isel(chain=[0])."
        )
    if needed not in stats:
        raise NotRecordedError(
            f"sample_stats has no {needed}: no subsampled step took part. Sample with a step of "
            "pymc_austerity that records it, such as pm.sample(step=AusterityMH())."
        )
    return stats


def columns(stats: xr.Dataset, name: str) -> xr.DataArray:
    """A statistic with the dimensions (chain, draw, sampler), the last of them new if there is one step."""
    found = stats[name]
    others = [d for d in found.dims if d not in SAMPLE]
    if len(others) > 1:
        raise ValueError(f"The statistic {name} has the dimensions {found.dims}; a step records one number.")
    found = found.rename({others[0]: "sampler"}) if others else found.expand_dims("sampler", -1)
    return found.reset_coords(drop=True).drop_vars("sampler", errors="ignore").transpose(*SAMPLE, "sampler")


def aligned(idata: Any, base: str, *names: str) -> xr.Dataset:
    """Statistics of the steps that record `base`, with the dimensions (chain, draw, sampler).

    One that a step does not record, or that cannot be told to be of these steps, is NaN.

    Raises
    ------
    NotRecordedError
        If `base` is not recorded.
    """
    stats = sample_stats_of(idata, base)
    width = columns(stats, base).sizes["sampler"]
    steps = stamped_steps(idata)
    ours = None if steps is None else [k for k, step in enumerate(steps) if base in step["stats"]]
    if ours is not None and len(ours) != width:
        raise NotRecordedError(
            f"The stamp of idata has {len(ours)} steps that record {base}, and sample_stats {width}: stamp "
            "it with the steps that were given to pm.sample."
        )
    labels = [f"step {k}" for k in range(width)] if width > 1 else ["step"]
    if steps is not None and ours is not None:
        labels = [label(steps[k]) for k in ours]
    result = {
        name: _of_steps(stats, base, name, width, steps, ours) for name in dict.fromkeys((base, *names))
    }
    return xr.Dataset(result).assign_coords(sampler=labels)


def _of_steps(
    stats: xr.Dataset,
    base: str,
    name: str,
    width: int,
    steps: list[dict[str, Any]] | None,
    ours: list[int] | None,
) -> xr.DataArray:
    """The columns of a statistic that belong to the `width` steps `ours`."""
    shape = (stats.sizes["chain"], stats.sizes["draw"], width)
    nothing = xr.DataArray(
        np.full(shape, np.nan), dims=(*SAMPLE, "sampler"), coords={d: stats[d] for d in SAMPLE}
    )
    if name not in stats:
        return nothing
    found = columns(stats, name).astype(float)
    if steps is not None and ours is not None:
        recorded = [k for k, step in enumerate(steps) if name in step["stats"]]
        if len(recorded) == found.sizes["sampler"]:
            for position, k in enumerate(ours):
                if k in recorded:
                    nothing[..., position] = found[..., recorded.index(k)]
            return nothing
    together = name in _OF_READING and base in _OF_READING
    deciding = columns(stats, "psi").sizes["sampler"] if "psi" in stats else 0
    same = width == found.sizes["sampler"] and (together or width == deciding)
    return found if same else nothing
