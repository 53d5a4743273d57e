"""How much of the data steps have read, what an effective draw has cost, and how close decisions were."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy.special import ndtr

from pymc_austerity.diagnostics.result import SAMPLE, NotRecordedError, aligned, by_label, posterior_of
from pymc_austerity.exceptions import warn
from pymc_austerity.validation import is_real, is_whole


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
        * ``fraction_used``: mean of n_used / N: passes over the data. It may be above 1 where effects of
          groups are moved: a sweep has several moves, each of which may read all N.
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
    used = stats["n_used"]
    table = {
        "n_local": n_local(stats),
        "n_used": used.mean(SAMPLE),
        "median": used.median(SAMPLE),
        "q95": used.quantile(0.95, SAMPLE).drop_vars("quantile"),
        "max": used.max(SAMPLE),
        "fraction_used": stats["fraction_used"].mean(SAMPLE),
        "n_stages": stats["n_stages"].mean(SAMPLE),
        "exhausted": stats["exhausted"].mean(SAMPLE),
        "acceptance_rate": rates.mean(SAMPLE),
    }
    return xr.Dataset(table).to_dataframe().rename_axis(None)


def n_local(stats: xr.Dataset) -> xr.DataArray:
    """N of each step, from how many terms are which share of them.

    Steps that move single elements record shares of the terms of these. Their N is in the stamp; without one,
    the mean number of terms of an element is returned.
    """
    read = stats["fraction_used"] > 0.0
    used = stats["n_used"].where(read).sum(SAMPLE)
    share = stats["fraction_used"].where(read).sum(SAMPLE)
    found: xr.DataArray = (used / share.where(share > 0.0)).round()
    by_element = [step["n_local"] if step.get("elementwise") else np.nan for step in stats.attrs["steps"]]
    return found.copy(data=np.where(np.isnan(by_element), found, by_element))


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
    import arviz_stats  # takes half a second

    read, n = terms_read(idata, steps_per_draw)
    terms = read.sum(SAMPLE)
    passes = (terms / n).sum()  # a step that has read nothing counts nothing
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


def terms_read(idata: Any, steps_per_draw: int | Sequence[int] | None) -> tuple[xr.DataArray, xr.DataArray]:
    """Terms that were read for each draw that was kept (chain, draw, sampler), and N of each step."""
    stats = aligned(idata, "n_used", "fraction_used", "accepted", "acceptance_rate", "exhausted")
    terms = stats["n_used"] * xr.DataArray(_transitions(stats, steps_per_draw), dims="sampler")
    apart = np.diff(stats["draw"].values)
    if apart.size and np.all(apart > 1):
        every = float(np.mean(apart))
        warn(
            f"Of {every:.3g} draws idata has one: those between are taken to have cost as much as those that "
            "are there."
        )
        terms = terms * every
    return terms, n_local(stats)


def _transitions(stats: xr.Dataset, given: int | Sequence[int] | None) -> list[int]:
    """Transitions for each draw, of every step."""
    steps = stats.attrs["steps"]
    noted = [step.get("steps_per_draw", 1) for step in steps] if all(steps) else None
    if given is not None:
        numbers = list(given) if isinstance(given, Sequence) else [given] * len(steps)
        if len(numbers) != len(steps) or not all(is_whole(n) and n >= 1 for n in numbers):
            raise ValueError(
                f"steps_per_draw must be a positive integer, or one for each of the {len(steps)} "
                f"subsampled steps, got {given!r}."
            )
        if noted is not None and noted != numbers:
            raise ValueError(f"steps_per_draw={given!r} contradicts the stamp of idata, which has {noted}.")
        return numbers
    if noted is not None:
        return noted
    counts = [stats[name].values for name in ("n_used", "acceptance_rate", "exhausted")]
    if any(np.any(np.mod(x[np.isfinite(x)], 1.0)) for x in counts):
        raise NotRecordedError(
            "Each draw was made of several transitions, for its statistics are means; how many is not "
            "recorded. Give steps_per_draw=, or stamp the result: stamp(idata, step)."
        )
    return [1] * len(steps)


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
    rules = [step.get("rule") for step in stats.attrs["steps"]]
    is_random = [isinstance(rule, dict) and rule.get("name") in _RANDOM_RULES for rule in rules]
    z = z.where(~xr.DataArray(is_random, dims="sampler"))
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
    return xr.Dataset(table).to_dataframe().rename_axis(None)
