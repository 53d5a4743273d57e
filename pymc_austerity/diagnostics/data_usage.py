"""How much of the data the steps of a run have read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pymc_austerity.diagnostics.samplers import aligned, stamped_steps


def data_usage_summary(idata: Any) -> pd.DataFrame:
    """Summarise how many local terms each subsampled step has read for a decision.

    Parameters
    ----------
    idata : DataTree
        Result of `pymc.sample` with at least one step of this package.

    Returns
    -------
    DataFrame
        One row for each step, named by `stamp` where there is one. Columns, over all chains and draws:

        * ``n_local``: N, the number of local terms (NaN if no draw has read any).
        * ``n_used``: mean number of terms read in a transition; ``median``, ``q95`` and ``max`` of the
          draws (each the mean over its transitions).
        * ``fraction_used``: mean of n_used / N: passes over the data. It may be above 1 on a plate, where a
          sweep has two moves, with outer groups three, with a crossed factor four: each may read all N.
        * ``n_stages``: mean number of stages of the test.
        * ``exhausted``: share of the transitions that read all N.
        * ``acceptance_rate``: share of moves accepted.

        What a step does not record, or what cannot be told to be of this step, is NaN.

    Raises
    ------
    ValueError
        If there are no sample statistics, or no step recorded ``n_used``.

    Notes
    -----
    A term that a subsampled step reads is evaluated at two states; `MetropolisHastings` without a control
    variate keeps the sum of the last state, and evaluates its N terms at one. The rows of a control variate's
    stratum are counted. Tuning draws are not part of the group, and passes over the data when a step is built
    are not counted.

    Examples
    --------
    >>> import numpy as np
    >>> from arviz import from_dict
    >>> from pymc_austerity.diagnostics import data_usage_summary
    >>> used = np.array([[500.0, 500.0, 1000.0, 2000.0]])
    >>> idata = from_dict({"sample_stats": {"n_used": used, "fraction_used": used / 10_000}})
    >>> data_usage_summary(idata)[["n_local", "n_used", "median", "max", "fraction_used"]]
          n_local  n_used  median     max  fraction_used
    step  10000.0  1000.0   750.0  2000.0            0.1
    """
    names = ("fraction_used", "n_stages", "exhausted", "acceptance_rate", "accepted")
    stats = aligned(idata, "n_used", *names)
    rates = stats["acceptance_rate"].fillna(stats["accepted"])
    draws = ("chain", "draw")
    used = stats["n_used"]
    table = {
        "n_local": n_local(idata, stats),
        "n_used": used.mean(draws),
        "median": used.median(draws),
        "q95": used.quantile(0.95, draws).drop_vars("quantile"),
        "max": used.max(draws),
        "fraction_used": stats["fraction_used"].mean(draws),
        "n_stages": stats["n_stages"].mean(draws),
        "exhausted": stats["exhausted"].mean(draws),
        "acceptance_rate": rates.mean(draws),
    }
    return pd.DataFrame({k: v.values for k, v in table.items()}, index=list(stats["sampler"].values))


def n_local(idata: Any, stats: xr.Dataset) -> xr.DataArray:
    """N of each step, from how many terms are which share of them.

    Steps that move single elements record shares of the terms of these. Their N is in the stamp; without one,
    the mean number of terms of an element is returned.
    """
    read = stats["fraction_used"] > 0.0
    used = stats["n_used"].where(read).sum(("chain", "draw"))
    share = stats["fraction_used"].where(read).sum(("chain", "draw"))
    found: xr.DataArray = (used / share.where(share > 0.0)).round()
    steps = [step for step in stamped_steps(idata) or () if "n_used" in step["stats"]]
    by_element = [step["n_local"] if step.get("elementwise") else np.nan for step in steps]
    if not np.any(np.isfinite(by_element)):
        return found
    stamped = xr.DataArray(by_element, coords={"sampler": stats["sampler"]})
    return stamped.where(np.isfinite(stamped), found)
