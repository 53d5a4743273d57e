"""Draws of the posterior, one scalar at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import arviz_stats
import numpy as np
from arviz_base import xarray_sel_iter
from arviz_base.labels import BaseLabeller

from pymc_austerity.target import Array

# It has no types.
_STATS: Any = arviz_stats


def ess(draws: Array) -> float:
    """Effective sample size (bulk) of draws of shape (chain, draw)."""
    return float(_STATS.ess(draws))


def tail_ess(draws: Array) -> float:
    """Effective sample size of the 5 % and 95 % quantiles, the smaller of both."""
    return float(_STATS.ess(draws, method="tail", prob=(0.05, 0.95)))


def rhat(draws: Array, method: str = "rank") -> float:
    """Split R-hat, rank-normalised unless `method` is "split"."""
    return float(_STATS.rhat(draws, method=method))


def mcse(draws: Array, method: str = "mean") -> float:
    """Monte Carlo standard error of the mean, or of the standard deviation (`method` "sd")."""
    return float(_STATS.mcse(draws, method=method))


def scalars(
    idata: Any, var_names: str | Sequence[str] | None = None, *, what: str = "idata"
) -> dict[str, Array]:
    """Draws of every scalar of the posterior, of shape (chain, draw), by ArviZ's label.

    Raises
    ------
    ValueError
        If there is no posterior, or a variable is not in it.
    """
    if "posterior" not in getattr(idata, "children", {}):
        raise ValueError(f"{what} has no group posterior: give the result of pm.sample.")
    posterior = idata["posterior"].to_dataset()
    names = [var_names] if isinstance(var_names, str) else var_names
    unknown = [] if names is None else [name for name in names if name not in posterior]
    if unknown:
        raise ValueError(
            f"{', '.join(map(repr, unknown))} is not in the posterior of {what}, which has "
            f"{', '.join(map(repr, posterior.data_vars))}."
        )
    labeller, result = BaseLabeller(), {}
    wanted = posterior if names is None else posterior[list(names)]
    for name, sel, isel in xarray_sel_iter(wanted, skip_dims={"chain", "draw"}):
        draws = wanted[name].isel(isel).transpose("chain", "draw")
        result[labeller.make_label_flat(name, sel, isel)] = np.asarray(draws, dtype=np.float64)
    return result
