"""Are batch means near enough to normal for the t-test?"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats
from scipy.special import ndtri

from pymc_austerity.diagnostics.batch_means import (
    HEAVY,
    acceptance_errors,
    missed_rows,
    normal_scores,
    quantiles,
    shapiro,
    share_near,
    tail_index,
)
from pymc_austerity.diagnostics.log_ratios import TOP, log_ratios_of
from pymc_austerity.diagnostics.reasons import Findings, Verdict, other_rule, reason_for
from pymc_austerity.target import Array
from pymc_austerity.validation import is_real, is_whole

# Share of the moves, or of the decisions, from which on it matters that they are not normal.
_SOME = 0.1
# Share of the decisions from which on missed rows alone are an alarm.
_MOST = 0.5
_DEFAULT_EPSILON = 0.01
_WIDTH = 100


@dataclass(frozen=True, eq=False)
class Normality:
    """Verdict of `normality`.

    Attributes
    ----------
    verdict : "normal enough", "doubtful" or "not normal"
    reason : str
    table : DataFrame
        One row for each move: ``skewness`` of the log ratios, ``error_shift`` (what it predicts for a test
        near the threshold), ``near`` (share of the decisions that are near, at most), ``error`` (predicted,
        for all decisions), ``acceptance_error`` (what the test makes of the acceptance probability even if
        batch means are normal: `design.acceptance_error`; NaN for other rules, and for more than 2000
        stages), ``top_1``, ``top_10`` and ``top_100`` (shares of the variance), ``tail_index`` (of Hill),
        ``shapiro_pvalue`` (of the batch means), ``verdict``.
    qq : Dataset
        With the dimensions ``pair`` and ``quantile``: ``observed``, the sorted studentised batch means, and
        ``theoretical``, the quantiles of Student's t that they would have.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_austerity.diagnostics import from_log_ratios, normality
    >>> found = normality(from_log_ratios(np.random.default_rng(1).normal(size=(3, 5000)), random_seed=1))
    >>> found.verdict
    'normal enough'
    >>> found.table["top_100"].round(3).tolist()
    [0.151, 0.149, 0.14]
    """

    verdict: Verdict
    reason: str
    table: pd.DataFrame
    qq: xr.Dataset

    def __repr__(self) -> str:
        return textwrap.fill(self.reason, _WIDTH, break_on_hyphens=False)


def normality(idata: Any, *, batch_size: int | None = None, epsilon: float | None = None) -> Normality:
    r"""Judge whether batch means are normal enough for the t-test.

    This says nothing of the posterior, which a large epsilon makes too wide all the same. Whether a step can
    be trusted is measured beside a reference (`compare`).

    Parameters
    ----------
    idata : DataTree
        With the group ``log_ratios``: the result of `probe`, or of `from_log_ratios`.
    batch_size : int >= 2, optional
        Terms in the first batch of the test. Default: that of the group. (The batch means that were drawn,
        and with them ``qq`` and the test of normality, remain those of the group.)
    epsilon : float in (0, 0.5], optional
        Tolerance of the test. Default: that of the group, or 0.01 where the step has none.

    Returns
    -------
    Normality
        With ``verdict``, ``reason``, ``table`` and ``qq``.

    Raises
    ------
    ValueError
        If there is no group ``log_ratios``, or a parameter is out of its range.

    Notes
    -----
    For log ratios of skewness g, the studentised mean of m of them exceeds G = Phi^-1(1 - epsilon) with a
    probability that differs from epsilon by about (Edgeworth's expansion)

        shift = \|g\| (2 G^2 + 1) phi(G) / (6 sqrt(m)),

    on one side up and on the other down. Rows that carry the share s of the variance and are missing in a
    batch make the standard error too small by sqrt(1 - s), which adds Phi(-G sqrt(1 - s)) - epsilon. Rows
    count as missed if the top 1, 10 or 100 of them (by their distance from the mean) carry 20 % more of the
    variance than they would under a normal distribution, and a batch holds less than five of them on average.
    Of 1000 normal numbers the top 100 carry 44 %, and no batch of 500 misses them: that is no alarm.

    Both are errors at the threshold. At most the share 1 - exp(-4 G noise) of the decisions is near to it,
    with noise the standard error of the sum of the log ratios after the first batch. Without a control
    variate this share is 1; the remainders of a good one have so little noise that few decisions depend on
    them. The product is the predicted ``error``. A move *alarms* if half of the decisions or more are near,
    and rows are missed or the tail index is below 3 with a shift above epsilon / 2 (without a third moment it
    may be far larger). It is *not normal* if it alarms or its error is above epsilon (then the test errs more
    than twice as often as it says), *doubtful* above epsilon / 2. The verdict is

    * *not normal* if a tenth of the moves alarm, or are so with half of the decisions near; if a log ratio
      is not finite; or if the mean error of the moves is above epsilon, by more than two standard errors of
      that mean;
    * *doubtful* if the mean error is above epsilon / 2, by as much;
    * *normal enough* otherwise.

    Hill's index of the tails is that of the 100 largest terms, or of a hundredth of them if that is less. A
    Shapiro-Wilk test of the studentised batch means (of their normal scores, level 0.001 for all moves
    together) does not change the verdict, but is told with it: with enough batches every test finds what does
    not matter.

    Normal batch means are not enough: with a large epsilon the posterior is wrong all the same. So the reason
    also tells the mean of \|Delta\|, the error of the acceptance probabilities of these moves. Six times that
    is how much too large the posterior sds were in one model (`docs/explanation/design.md`): a heuristic.

    *Guarantee*: none. All N terms of a few moves were looked at, so there is no sampling error in skewness
    and shares, but other moves have others. On 20 normal populations there was no false alarm.

    *When it fails*: Edgeworth's expansion is one for small shifts; a shift of 0.1 means "large". It is that
    of one look at the first batch: later looks have more data, and there are several. Moves that matter and
    are seldom proposed may not be among the pairs. The verdict is about Student's t: `MHSubLhd` does not rely
    on normal batch means, and of `MinibatchBarker`, which does, it speaks only by analogy.

    References
    ----------
    .. [1] Hall, P. (1987). Edgeworth expansion for Student's t statistic under minimal moment conditions.
       Annals of Probability 15.
    .. [2] Hill, B. M. (1975). A simple general approach to inference about the tail of a distribution. Annals
       of Statistics 3.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_austerity.diagnostics import from_log_ratios, normality
    >>> rng = np.random.default_rng(1)
    >>> normality(from_log_ratios(rng.normal(size=(5, 20_000)), random_seed=1)).verdict
    'normal enough'
    >>> normality(from_log_ratios(rng.lognormal(0.0, 2.0, (5, 20_000)), random_seed=1)).verdict
    'not normal'
    """
    group = log_ratios_of(idata)
    n, epsilon, m = _settings(group, batch_size, epsilon)
    found = _findings(group, n, m, epsilon)
    reason = reason_for(found) + other_rule(group)
    return Normality(found.verdict, reason, found.table, quantiles(group))


def _findings(group: xr.Dataset, n: int, m: int, epsilon: float) -> Findings:
    """Predicted errors of a test of m of the n terms, move by move, and the verdict on all moves."""
    bound = -float(ndtri(epsilon))
    factor = (2.0 * bound**2 + 1.0) * float(stats.norm.pdf(bound)) / (6.0 * math.sqrt(m))
    shift = factor * np.abs(group["skewness"].values)
    top = group["top_share"].values
    missed = missed_rows(top, n, m)
    share = np.where(missed, top, 0.0).max(axis=1)
    too_small = stats.norm.cdf(-bound * np.sqrt(np.maximum(1.0 - share, 0.0))) - epsilon
    near = share_near(group, n, m, bound)
    error = near * np.minimum(shift + too_small, 0.5)
    infinite = group["n_infinite"].values > 0
    tails = np.array([tail_index(terms, n) for terms in group["top_terms"].values])
    far = (tails < HEAVY) & (shift + too_small > epsilon / 2.0) & (near >= _MOST)
    alarm = infinite | far | (missed.any(axis=1) & (near >= _MOST))
    scores = normal_scores(group["batch_t"].values, int(group.attrs["batch_size"]))
    table = pd.DataFrame(
        {
            "skewness": group["skewness"].values,
            "error_shift": shift,
            "near": near,
            "error": error,
            "acceptance_error": acceptance_errors(group, n, m, epsilon),
            **{f"top_{k}": top[:, j] for j, k in enumerate(TOP)},
            "tail_index": tails,
            "shapiro_pvalue": [shapiro(row) for row in scores],
            "verdict": [_verdict(e, 0.0, epsilon, bool(a)) for e, a in zip(error, alarm, strict=True)],
        },
        index=pd.Index(group["pair"].values, name="pair"),
    )
    mean, spread = _mean_and_error(error)
    bad = alarm | ((error > epsilon) & (near >= _MOST))
    verdict = _verdict(mean, spread, epsilon, bool(np.any(infinite)) or float(bad.mean()) >= _SOME)
    return Findings(verdict, table, missed, far, infinite, epsilon, n, m)


def _settings(group: xr.Dataset, batch_size: Any, epsilon: Any) -> tuple[int, float, int]:
    """N, epsilon and m, checked."""
    n = int(group.attrs["n_local"])
    own = float(group.attrs["epsilon"])
    if epsilon is None:
        epsilon = own if own > 0.0 else _DEFAULT_EPSILON  # NaN is not
    if not is_real(epsilon) or not 0.0 < epsilon <= 0.5:
        raise ValueError(f"epsilon must be in (0, 0.5], got {epsilon!r}. With 0 everything is read.")
    m = int(group.attrs["batch_size"]) if batch_size is None else batch_size
    if not is_whole(m) or not 2 <= m < n:
        raise ValueError(f"batch_size must be an integer from 2 to less than the {n:,} terms, got {m!r}.")
    return n, float(epsilon), int(m)


def _verdict(error: float, spread: float, epsilon: float, alarm: bool) -> Verdict:
    least = error - 2.0 * spread
    if alarm or least > epsilon:
        return "not normal"
    return "doubtful" if least > epsilon / 2.0 else "normal enough"


def _mean_and_error(values: Array) -> tuple[float, float]:
    """Mean of some moves, and its standard error; what is not known is left out."""
    known = values[np.isfinite(values)]
    if not len(known):
        return math.nan, 0.0
    spread = float(np.std(known, ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else 0.0
    return float(np.mean(known)), spread
