"""Have chains converged, and to how many effective draws?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from xarray import DataTree

from pymc_austerity.diagnostics.scalars import ess, rhat, scalars, tail_ess


def convergence(idata: DataTree, var_names: list[str]) -> pd.DataFrame:
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
    rows = {name: _row(draws) for name, draws in scalars(idata, var_names).items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["rhat", "ess", "sd"])


def _row(draws: npt.NDArray[np.float64]) -> list[float]:
    moves = np.ptp(draws) > 0.0  # what rounding leaves of the sd of a constant is none
    sd = float(draws.std()) if moves or not np.all(np.isfinite(draws)) else 0.0
    if not sd > 0.0:
        return [np.nan, np.nan, sd]
    if len(draws) == 1:  # the halves of a single chain as two
        half = draws.shape[1] // 2
        draws = draws[:, : 2 * half].reshape(2, half)
    sizes = ess(draws), tail_ess(draws)
    # Where a whole chain stands still, there is no variance within it to compare with.
    stuck = np.any(np.ptp(draws, axis=1) == 0.0)
    return [np.inf if stuck else rhat(draws), float(np.fmin(*sizes)), sd]
