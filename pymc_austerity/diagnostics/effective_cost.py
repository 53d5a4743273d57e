"""What an effective draw has cost, in local terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import arviz_stats
import numpy as np
import pandas as pd
import xarray as xr

from pymc_austerity.diagnostics.data_usage import n_local
from pymc_austerity.diagnostics.samplers import NotRecordedError, aligned, stamped_steps
from pymc_austerity.diagnostics.scalars import SAMPLE, by_label, posterior_of
from pymc_austerity.exceptions import warn
from pymc_austerity.validation import is_whole


def effective_cost(
    idata: Any,
    *,
    var_names: str | Sequence[str] | None = None,
    steps_per_draw: int | Sequence[int] | None = None,
) -> pd.DataFrame:
    """Local terms that were evaluated for each effective draw, scalar by scalar.

    Parameters
    ----------
    idata : DataTree
        Result of `pymc.sample` with at least one step of this package.
    var_names : str or list of str, optional
        Default: all of the posterior.
    steps_per_draw : int or sequence of int, optional
        Transitions for each draw; one number for each subsampled step, or one for all. Default: those of the
        stamp (`stamp`); without a stamp 1, if nothing contradicts it.

    Returns
    -------
    DataFrame
        One row for each scalar:

        * ``ess``: effective sample size (bulk) of all chains.
        * ``terms_per_effective_draw``: local terms evaluated by all subsampled steps, over ``ess``.
        * ``passes_per_effective_draw``: the same in passes over the data: the terms of each step are counted
          in its N.

        NaN for a constant.

    Raises
    ------
    ValueError
        If there are no sample statistics, no step recorded ``n_used``, or a variable is unknown; if
        `steps_per_draw` is not a positive integer, contradicts the stamp, or is needed: statistics that are
        means of several transitions, and neither a stamp nor `steps_per_draw`.

    Warns
    -----
    SubsamplingWarning
        If draws were left out: those between are taken to have cost as much.

    Notes
    -----
    The draws after tuning are counted. Not counted are tuning, passes over the data when a step was built
    (its mode, its bounds), what other steps, such as `pymc.NUTS`, evaluated, and the N terms that
    ``MHSubLhd(range_bound="exact")`` evaluates in each transition for the range. A term that is counted was
    evaluated at two states; of `MetropolisHastings` without a control variate, which keeps the sum of the
    last state, at one.

    *Guarantee*: but for these the count is exact. The effective sample size is an estimate, off by some 10 %
    for a few hundred effective draws.

    *When it fails*: a cheap chain that has the wrong distribution is cheap: look at `agreement` too. For
    `SCIR` and `MinibatchCategoricalGibbs` statistics cannot show that they are means of several transitions:
    stamp the result, or give `steps_per_draw`.

    Examples
    --------
    >>> import numpy as np
    >>> from arviz import from_dict
    >>> from pymc_austerity.diagnostics import effective_cost
    >>> rng = np.random.default_rng(1)
    >>> stats = {"n_used": np.full((4, 1000), 500.0), "fraction_used": np.full((4, 1000), 0.05)}
    >>> idata = from_dict({"posterior": {"mu": rng.normal(size=(4, 1000))}, "sample_stats": stats})
    >>> effective_cost(idata).round(3)
             ess  terms_per_effective_draw  passes_per_effective_draw
    mu  4039.147                   495.154                       0.05
    """
    stats = aligned(idata, "n_used", "fraction_used", "accepted", "acceptance_rate", "exhausted")
    terms = stats["n_used"].sum(SAMPLE) * transitions_per_draw(idata, stats, steps_per_draw)
    passes = (terms / n_local(idata, stats)).sum()  # a step that has read nothing counts nothing
    draws = posterior_of(idata, var_names)
    known = (draws.max(SAMPLE) > draws.min(SAMPLE)) & draws.map(np.isfinite).all(SAMPLE)
    size = by_label(arviz_stats.ess(draws.where(known)))
    return pd.DataFrame(
        {
            "ess": size,
            "terms_per_effective_draw": float(terms.sum()) / size,
            "passes_per_effective_draw": float(passes) / size,
        }
    )


def transitions_per_draw(idata: Any, stats: xr.Dataset, given: int | Sequence[int] | None) -> xr.DataArray:
    """Transitions for each draw that was kept, of every step."""
    return _transitions(idata, stats, given) * _thinning(stats)


def _thinning(stats: xr.Dataset) -> float:
    """Draws that were made for each one that is there."""
    draws = stats["draw"].values
    apart = np.diff(draws)
    if not apart.size or not np.all(apart > 1):
        return 1.0
    every = float(np.mean(apart))
    warn(
        f"Of {every:.3g} draws idata has one: those between are taken to have cost as much as those that are "
        "there."
    )
    return every


def _transitions(idata: Any, stats: xr.Dataset, given: int | Sequence[int] | None) -> xr.DataArray:
    """Transitions for each draw, of every step."""
    samplers = stats["sampler"]
    steps = stamped_steps(idata)
    # By position: two steps of one class may move the same variables, and then have one name.
    noted = None if steps is None else [s.get("steps_per_draw", 1) for s in steps if "n_used" in s["stats"]]
    if given is not None:
        numbers = list(given) if isinstance(given, Sequence) else [given] * len(samplers)
        if len(numbers) != len(samplers) or not all(is_whole(n) and n >= 1 for n in numbers):
            raise ValueError(
                f"steps_per_draw must be a positive integer, or one for each of the {len(samplers)} "
                f"subsampled steps, got {given!r}."
            )
        if noted is not None and noted != numbers:
            raise ValueError(f"steps_per_draw={given!r} contradicts the stamp of idata, which has {noted}.")
        return xr.DataArray(numbers, coords={"sampler": samplers})
    if noted is not None:
        return xr.DataArray(noted, coords={"sampler": samplers})
    counts = [stats[name].values for name in ("n_used", "acceptance_rate", "exhausted")]
    if any(np.any(np.mod(x[np.isfinite(x)], 1.0)) for x in counts):
        raise NotRecordedError(
            "Each draw was made of several transitions, for its statistics are means; how many is not "
            "recorded. Give steps_per_draw=, or stamp the result: stamp(idata, step)."
        )
    return xr.ones_like(samplers, dtype=int)
