"""Draws of the posterior, one scalar at a time, and what is known of every scalar."""

from collections.abc import Iterator, Sequence
from typing import Any

import arviz_stats
import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import xarray_sel_iter
from arviz_base.labels import BaseLabeller

from pymc_austerity.target import Array
from pymc_austerity.validation import nearest

SAMPLE = ("chain", "draw")


def ess(draws: Array) -> float:
    """Effective sample size (bulk) of draws of shape (chain, draw)."""
    return float(arviz_stats.ess(draws))


def mcse(draws: Array, method: str = "mean") -> float:
    """Monte Carlo standard error of the mean, or of the standard deviation (`method` "sd")."""
    return float(arviz_stats.mcse(draws, method=method))


def posterior_of(
    idata: Any, var_names: str | Sequence[str] | None = None, *, what: str = "idata"
) -> xr.Dataset:
    """The draws of some variables of the posterior, or of all; a `ValueError` for what is not in it."""
    if "posterior" not in getattr(idata, "children", {}):
        raise ValueError(f"{what} has no group posterior: give the result of pm.sample.")
    posterior: xr.Dataset = idata["posterior"].to_dataset()
    if var_names is None:
        return posterior
    names = [var_names] if isinstance(var_names, str) else list(var_names)
    if unknown := [name for name in names if name not in posterior]:
        raise ValueError(
            f"{', '.join(map(repr, unknown))} is not in the posterior of {what}, which has "
            f"{', '.join(map(repr, posterior.data_vars))}.{nearest(unknown[0], map(str, posterior))} Choose "
            "among these, or sample the others, too: without var_names=."
        )
    return posterior[names]


def scalars(
    idata: Any, var_names: str | Sequence[str] | None = None, *, what: str = "idata"
) -> dict[str, Array]:
    """Draws of every scalar of the posterior, of shape (chain, draw), by ArviZ's label."""
    found = _labelled(posterior_of(idata, var_names, what=what))
    return {label: np.asarray(own.transpose(*SAMPLE), dtype=np.float64) for label, own in found}


def by_label(table: xr.Dataset) -> pd.Series:
    """Numbers of every scalar, such as `arviz_stats.ess` finds of a posterior, by ArviZ's label."""
    return pd.Series({label: float(own) for label, own in _labelled(table)}, dtype=np.float64)


def _labelled(data: xr.Dataset) -> Iterator[tuple[str, xr.DataArray]]:
    labeller = BaseLabeller()
    for name, sel, isel in xarray_sel_iter(data, skip_dims=set(SAMPLE)):
        yield labeller.make_label_flat(name, sel, isel), data[name].isel(isel)
