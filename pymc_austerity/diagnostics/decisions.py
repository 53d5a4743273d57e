"""How close the decisions of a run were."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import ndtr

from pymc_austerity.diagnostics.samplers import aligned, stamped_steps
from pymc_austerity.diagnostics.scalars import SAMPLE
from pymc_austerity.validation import is_real

# Rules whose decision is random given the mean: there is no right one to miss.
_RANDOM_RULES = ("Barker", "ExactBarker")


def decisions(idata: Any, *, near_tie: float = 3.0) -> xr.Dataset:
    r"""Estimate how likely the last decision of each draw was to be wrong.

    Parameters
    ----------
    idata : DataTree
        Result of `pymc.sample` with at least one subsampled Metropolis step.
    near_tie : float > 0, default 3.0
        A decision is a near tie if mean and threshold were less than so many standard errors apart when it
        was made. Three standard errors are an estimated error of 0.00135.

    Returns
    -------
    Dataset
        With the dimensions ``chain``, ``draw`` and ``sampler`` (the subsampled Metropolis steps, named by
        `stamp` where there is one):

        * ``z``: (mean - psi) / standard error; infinite where all terms were read.
        * ``error_estimate``: Phi(-\|z\|); 0 where all terms were read.
        * ``near_tie``: whether \|z\| is below `near_tie`.
        * ``exhausted``: share of the transitions of the draw that read all N.

        NaN (and no near tie) where the data were not looked at, because the prior alone rejects or a
        `Surrogate` stays where it is, and where a step makes no such decision: `TunaMH`, and Barker's rule if
        the stamp names it.

    Raises
    ------
    ValueError
        If there are no sample statistics, or no step recorded ``psi``; if `near_tie` is not positive.

    Notes
    -----
    A move is accepted if mean_i l_i > psi. The test stopped with an estimate of the mean and its standard
    error, of which the probability is estimated that the mean of all N is on the other side.

    *Guarantee*: none. It is what the sample itself says, and three things are not in it. It relies on a
    normal distribution of the batch mean: where rare rows were missed, the standard error is too small and
    the estimate with it (`normality` looks for that). It is taken at the stage that stopped, beyond the bound
    of the test, so that it is always below epsilon. A test that looks several times and stops at the first
    clear difference errs more often than its last look says where means are near the threshold: four times as
    often for log ratios as of a random walk with steps of the size of the posterior (S from 1 to 2.4, in 20
    stages at epsilon = 0.05). It errs less often where log ratios are far larger than 1 (`design.error` has
    the whole sequence). And decisions near a tie, which err the most, matter the least: the acceptance
    probability averages over u, and errors to both sides cancel (`design.acceptance_error`).

    *When it fails*: for Barker's rule without a stamp: its decisions are random, and there is no error in
    being near a tie. With several transitions in a draw only the last is looked at.

    Examples
    --------
    >>> import numpy as np
    >>> from arviz import from_dict
    >>> from pymc_austerity.diagnostics import decisions
    >>> stats = {"log_ratio_mean": [0.3, 0.1], "psi": [0.1, 0.0], "log_ratio_se": [0.1, 0.0]}
    >>> stats = {name: np.array([values]) for name, values in {**stats, "exhausted": [0, 1]}.items()}
    >>> found = decisions(from_dict({"sample_stats": stats}))
    >>> found.error_estimate.values.ravel().round(4)
    array([0.0228, 0.    ])
    >>> found.near_tie.values.ravel()
    array([ True, False])
    """
    if not is_real(near_tie) or not 0.0 < near_tie < np.inf:
        raise ValueError(f"near_tie must be a positive number of standard errors, got {near_tie!r}.")
    stats = aligned(idata, "psi", "log_ratio_mean", "log_ratio_se", "exhausted")
    apart, error = stats["log_ratio_mean"] - stats["psi"], stats["log_ratio_se"]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = apart / error
    # Nothing is left to err about when all was read; a tie is a rejection then.
    z = z.where(error != 0.0, np.copysign(np.inf, apart.where(apart != 0.0, -1.0)))
    # An infinite threshold: decided without the data, or a surrogate that stayed where it was.
    z = z.where(apart.notnull() & np.isfinite(stats["psi"]))
    rules = [step.get("rule") for step in stamped_steps(idata, "psi") or ()]
    if rules:
        is_random = [isinstance(rule, dict) and rule.get("name") in _RANDOM_RULES for rule in rules]
        z = z.where(~xr.DataArray(is_random, coords={"sampler": z["sampler"]}))
    return xr.Dataset(
        {
            "z": z,
            "error_estimate": xr.apply_ufunc(ndtr, -abs(z)),
            "near_tie": abs(z) < near_tie,
            "exhausted": stats["exhausted"],
        },
        attrs={"near_tie": float(near_tie)},
    )


def decision_summary(idata: Any, *, near_tie: float = 3.0) -> pd.DataFrame:
    """Summarise `decisions`: one row for each step.

    Parameters
    ----------
    idata, near_tie
        As in `decisions`.

    Returns
    -------
    DataFrame
        Columns ``decisions`` (how many were estimated), ``mean_error`` and ``max_error`` of the estimates,
        ``near_ties`` (share of the decisions) and ``exhausted`` (share of the transitions that read all N).

    Raises
    ------
    ValueError
        As `decisions`.

    Notes
    -----
    *Guarantee*: none; see `decisions` for what the estimates leave out.

    *When it fails*: as `decisions`.

    Examples
    --------
    >>> import numpy as np
    >>> from arviz import from_dict
    >>> from pymc_austerity.diagnostics import decision_summary
    >>> stats = {"log_ratio_mean": [0.3, 0.1], "psi": [0.1, 0.0], "log_ratio_se": [0.1, 0.0]}
    >>> stats = {name: np.array([values]) for name, values in {**stats, "exhausted": [0, 1]}.items()}
    >>> decision_summary(from_dict({"sample_stats": stats})).round(4)
          decisions  mean_error  max_error  near_ties  exhausted
    step          2      0.0114     0.0228        0.5        0.5
    """
    found = decisions(idata, near_tie=near_tie)
    known = found["z"].notnull()
    number = known.sum(SAMPLE)
    table = {
        "decisions": number,
        "mean_error": found["error_estimate"].mean(SAMPLE),
        "max_error": found["error_estimate"].max(SAMPLE),
        "near_ties": found["near_tie"].sum(SAMPLE) / number.where(number > 0),
        "exhausted": found["exhausted"].mean(SAMPLE),
    }
    return pd.DataFrame({k: v.values for k, v in table.items()}, index=list(found["sampler"].values))
