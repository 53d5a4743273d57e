"""Have chains converged, and to how many effective draws?"""

from __future__ import annotations

import arviz_stats
import numpy as np
import pandas as pd
import xarray as xr

from pymc_austerity.diagnostics.scalars import SAMPLE, by_label, posterior_of


@np.errstate(over="ignore")
def convergence(idata: xr.DataTree, var_names: list[str]) -> pd.DataFrame:
    """R-hat, effective draws and sd of every scalar.

    Parameters
    ----------
    idata : DataTree
    var_names : list of str

    Returns
    -------
    DataFrame
        Columns ``rhat`` (rank-normalised, split), ``ess`` (the smaller of bulk and tail), ``sd``; one row for
        each scalar. R-hat of a single chain is that of its halves; constants have neither.
    """
    draws = posterior_of(idata, var_names)
    draws = draws.where(draws.map(np.isfinite).all(SAMPLE))
    # What rounding leaves of the sd of a constant is none.
    sd = draws.std(SAMPLE, skipna=False).where(draws.max(SAMPLE) != draws.min(SAMPLE), 0.0)
    if draws.sizes["chain"] == 1:
        half = draws.sizes["draw"] // 2
        draws = xr.concat(
            [draws.isel(draw=slice(k * half, (k + 1) * half)) for k in (0, 1)], "chain", join="override"
        )
    draws = draws.where(sd > 0.0)
    # Where a whole chain stands still, there is no variance within it to compare with.
    stuck = (draws.max("draw") == draws.min("draw")).any("chain")
    sizes = arviz_stats.ess(draws), arviz_stats.ess(draws, method="tail", prob=(0.05, 0.95))
    table = {"rhat": arviz_stats.rhat(draws).where(~stuck, np.inf), "ess": np.fmin(*sizes), "sd": sd}
    return pd.DataFrame({name: by_label(own) for name, own in table.items()})
