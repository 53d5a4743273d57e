"""All log ratios of some moves, and whether means of their batches are normal enough for the t-test."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy
import xarray as xr
from scipy.special import ndtri

from pymc_austerity.design.acceptance import decision_errors
from pymc_austerity.exceptions import warn
from pymc_austerity.target import Array, Mask
from pymc_austerity.validation import is_real, is_whole, require_whole

GROUP = "log_ratios"
# Sizes of the sets of rows whose share of the variance is noted, and how many of the largest terms.
TOP = (1, 10, 100)
_N_TOP = 101


def from_log_ratios(
    log_ratios: Sequence[npt.ArrayLike],
    global_log_ratios: npt.ArrayLike = 0.0,
    *,
    batch_size: int = 500,
    epsilon: float = 0.01,
    n_batches: int = 500,
    random_seed: Any = None,
) -> xr.DataTree:
    """Summarise all log ratios of some proposed moves, for `normality` and the design of the test.

    `probe` does this for a step and a model. Use this function for log ratios from elsewhere.

    Parameters
    ----------
    log_ratios : sequence of array_like of shape (N,)
        l_i(q_new) - l_i(q) of all N terms, of one move after the other.
    global_log_ratios : array_like of shape (n_pairs,), default 0.0
        Of each move: everything else of the log acceptance ratio.
    batch_size : int >= 2, default 500
        Terms in a batch, less than N.
    epsilon : float in [0, 0.5], default 0.01
        Tolerance of the test, noted for `normality`.
    n_batches : int >= 3, default 500
        Batches that are drawn for each move.
    random_seed : int, sequence of int or numpy.random.Generator, optional

    Returns
    -------
    DataTree
        With the group ``log_ratios``: see `probe`.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or moves have different numbers of terms.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_austerity.diagnostics import from_log_ratios
    >>> rng = np.random.default_rng(1)
    >>> tree = from_log_ratios(rng.normal(1e-5, 1e-3, (5, 20_000)), batch_size=500, random_seed=1)
    >>> tree["log_ratios"].sd.values.round(5)
    array([0.00099, 0.00099, 0.001  , 0.001  , 0.00099])
    """
    values = [np.asarray(row, dtype=np.float64) for row in log_ratios]
    if not values or any(row.ndim != 1 or row.shape != values[0].shape for row in values):
        raise ValueError(
            "log_ratios must be one or more vectors of one length, got shapes "
            f"{', '.join(str(row.shape) for row in values) or 'of nothing'}."
        )
    check_batches(batch_size, n_batches, len(values[0]))
    if not is_real(epsilon) or not 0.0 <= epsilon <= 0.5:
        raise ValueError(f"epsilon must be in [0, 0.5], got {epsilon!r}.")
    rng = np.random.default_rng(random_seed)
    rows = [summarise(row, batch_size, n_batches, rng) for row in values]
    base = np.broadcast_to(np.asarray(global_log_ratios, dtype=np.float64), (len(values),))
    attrs = {"n_local": len(values[0]), "batch_size": int(batch_size), "epsilon": float(epsilon)}
    return group_of(rows, base, attrs)


def check_batches(batch_size: Any, n_batches: Any, n_local: int) -> None:
    """Raise `ValueError` naming what is out of its range."""
    if not is_whole(batch_size) or not 2 <= batch_size < n_local:
        raise ValueError(
            f"batch_size must be an integer from 2 to less than the {n_local:,} terms, got {batch_size!r}."
        )
    require_whole(3, n_batches=n_batches)


def summarise(values: Array, batch_size: int, n_batches: int, rng: np.random.Generator) -> xr.Dataset:
    """Summary of the N log ratios of one move. Those that are not finite are counted, and left out."""
    n_all = len(values)
    finite = np.isfinite(values)
    if not np.all(finite):
        values = values[finite]
    n = len(values)
    mean, sd, skewness = math.nan, math.nan, math.nan
    top_share, top_terms = np.full(len(TOP), math.nan), np.full(min(_N_TOP, n_all), math.nan)
    batch_means, batch_t = np.full((2, n_batches), math.nan)
    if n > batch_size:
        mean = float(np.mean(values))
        deviation = values - mean
        squares = deviation * deviation
        total = float(np.sum(squares))
        # What rounding leaves of equal numbers is no variance.
        if np.sqrt(total / n) <= 1e-12 * float(np.max(np.abs(values))):
            total, deviation, squares = 0.0, np.zeros(n), np.zeros(n)
        sd = math.sqrt(total / n)
        skewness = float(np.mean(squares * deviation)) / sd**3 if sd > 0.0 else 0.0
        largest = np.sort(np.partition(squares, max(n - _N_TOP, 0))[-min(_N_TOP, n) :])[::-1]
        top_terms[: len(largest)] = np.sqrt(largest)
        if total > 0.0:
            top_share = np.array([float(np.sum(largest[:k])) / total for k in TOP])
        for k in range(n_batches):
            batch = deviation[rng.choice(n, batch_size, replace=False, shuffle=False)]
            difference, s = float(np.mean(batch)), float(np.std(batch, ddof=1))
            error = s * math.sqrt((1.0 - (batch_size - 1.0) / (n - 1.0)) / batch_size)
            batch_means[k] = mean + difference
            if error > 0.0:
                batch_t[k] = difference / error
    return xr.Dataset(
        {
            "n_infinite": n_all - n,
            "mean": mean,
            "sd": sd,
            "skewness": skewness,
            "top_share": ("k", top_share),
            "top_terms": ("rank", top_terms),
            "batch_means": ("batch", batch_means),
            "batch_t": ("batch", batch_t),
        }
    )


def group_of(rows: Sequence[xr.Dataset], base: npt.ArrayLike, attrs: Mapping[str, Any]) -> xr.DataTree:
    """The group of several moves; `base` is what the sum of the log ratios of each is added to."""
    group = xr.concat(rows, "pair")
    if np.any(group["n_infinite"]):
        warn(
            "Some log ratios are not finite; moments are those of the others. A subsample that misses such a "
            "term accepts moves that are impossible."
        )
    group["global"] = ("pair", np.asarray(base, dtype=np.float64))
    group["mu"] = group["mean"] + group["global"] / attrs["n_local"]
    counted = {dim: np.arange(n) for dim, n in group.sizes.items()}
    coords = counted | {"k": list(TOP), "rank": counted["rank"] + 1}
    return xr.DataTree.from_dict({GROUP: group.assign_coords(coords).assign_attrs(attrs)})


def log_ratios_of(idata: Any) -> xr.Dataset:
    """The group `log_ratios`; a `ValueError` if there is none."""
    groups = getattr(idata, "children", {})
    if GROUP not in groups:
        raise ValueError(
            f"There is no group {GROUP} (but {', '.join(groups) or 'no groups'}): give the result of "
            "probe(model, step), or add it to your own by idata.update(probe(model, step))."
        )
    dataset: xr.Dataset = idata[GROUP].to_dataset()
    return dataset


# Are means of batches normal enough? --------------------------------------------------------------

Verdict = Literal["normal enough", "doubtful", "not normal"]

# Share of the moves, or of the decisions, from which on it matters that they are not normal.
_SOME = 0.1
# Shares of the decisions near the threshold: from here on missed rows alone are an alarm, and below few are.
_MOST, _FEW = 0.5, 0.1
_DEFAULT_EPSILON = 0.01
_WIDTH = 100
# Share of the variance in a few rows that is too much, beyond what they have under a normal distribution.
_TOP_SHARE = 0.2
# Rows of which a batch holds so many on average are seen: it misses all of them with probability 0.007.
_SEEN = 5.0
# Stages beyond which errors of acceptance probabilities are not computed, as that takes seconds.
_STAGES = 2000
# Below this tail index the third moment has no limit, and shifts predicted from it are too small.
_HEAVY = 3.0
# Error of acceptance probabilities from which on posterior standard deviations are visibly too large; and, by
# a heuristic that was seen in one model, how many times it they are.
_LARGE, _TIMES = 0.01, 6.0
# Level of the normality test, for all moves together.
_LEVEL = 0.001


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
    is how much too large the posterior sds were in one model (:doc:`/explanation/design`): a heuristic.

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
    n = int(group.attrs["n_local"])
    if epsilon is None:
        own = float(group.attrs["epsilon"])
        epsilon = own if own > 0.0 else _DEFAULT_EPSILON  # NaN is not
    if not is_real(epsilon) or not 0.0 < epsilon <= 0.5:
        raise ValueError(f"epsilon must be in (0, 0.5], got {epsilon!r}. With 0 everything is read.")
    m = int(group.attrs["batch_size"]) if batch_size is None else batch_size
    check_batches(m, group.sizes["batch"], n)
    table = _judged(group, n, m, epsilon)
    bad = (table["verdict"] == "not normal") & ((table["near"] >= _MOST) | table["infinite"])
    known = table["error"].dropna()
    # By more than two standard errors of the mean of the moves.
    spread = float(np.std(known, ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else 0.0
    least = float(np.mean(known)) - 2.0 * spread if len(known) else math.nan
    verdict = _verdict(least, epsilon, bool(table["infinite"].any()) or float(bad.mean()) >= _SOME)
    reason, rule = reason_for(verdict, table, epsilon, n, m), group.attrs.get("rule")
    if rule not in (None, "TTest"):
        reason += f" ({group.attrs['step']} decides by {rule}, not by a t-test.)"
    return Normality(verdict, reason, table.drop(columns=list(_CAUSES)), _quantiles(group))


# What the log ratios tell of every move -----------------------------------------------------------

# Columns for the reason alone: the most rows that batches miss though they carry much of the variance (0 if
# none), whether a few rows lie far from the others, and whether some log ratios are not finite.
_CAUSES = ("missed", "far", "infinite")


def _judged(group: xr.Dataset, n: int, m: int, epsilon: float) -> pd.DataFrame:
    """`Normality.table` and `_CAUSES`: errors of a test of m of the n terms that log ratios predict."""
    bound = -float(ndtri(epsilon))
    factor = (2.0 * bound**2 + 1.0) * float(scipy.stats.norm.pdf(bound)) / (6.0 * math.sqrt(m))
    shift = factor * np.abs(group["skewness"].values)
    top = group["top_share"].values
    missed = are_missed(top, n, m)
    share = np.where(missed, top, 0.0).max(axis=1)
    too_small = scipy.stats.norm.cdf(-bound * np.sqrt(np.maximum(1.0 - share, 0.0))) - epsilon
    near = _share_near(group, n, m, bound)
    error = near * np.minimum(shift + too_small, 0.5)
    infinite = group["n_infinite"].values > 0
    tails = np.array([_tail_index(terms, n) for terms in group["top_terms"].values])
    far = (tails < _HEAVY) & (shift + too_small > epsilon / 2.0) & (near >= _MOST)
    alarm = infinite | far | (missed.any(axis=1) & (near >= _MOST))
    return pd.DataFrame(
        {
            "skewness": group["skewness"].values,
            "error_shift": shift,
            "near": near,
            "error": error,
            "acceptance_error": _acceptance_errors(group, n, m, epsilon),
            **{f"top_{k}": top[:, j] for j, k in enumerate(TOP)},
            "tail_index": tails,
            "shapiro_pvalue": _shapiro_pvalues(group),
            "verdict": [_verdict(e, epsilon, bool(a)) for e, a in zip(error, alarm, strict=True)],
            "missed": (missed * TOP).max(axis=1),
            "far": far,
            "infinite": infinite,
        },
        index=pd.Index(group["pair"].values, name="pair"),
    )


def _verdict(error: float, epsilon: float, alarm: bool) -> Verdict:
    if alarm or error > epsilon:
        return "not normal"
    return "doubtful" if error > epsilon / 2.0 else "normal enough"


def are_missed(top: Array, n: int, m: int) -> Mask:
    """Whether the largest rows carry too much and are missed, for each move and each number of rows."""
    k = np.minimum(np.array(TOP), n)
    z = -ndtri(k / (2.0 * n))
    normal = 2.0 * z * scipy.stats.norm.pdf(z) + k / n  # what they carry under a normal distribution
    return np.asarray((top > _TOP_SHARE + normal) & (k * m / n < _SEEN))


def _tail_index(terms: Array, n: int) -> float:
    """Hill's estimate of the tail index from the largest distances from the mean."""
    k = min(len(terms) - 1, max(n // 100, 10))
    if k < 2 or not np.all(terms[: k + 1] > 0.0):
        return math.nan
    mean = float(np.mean(np.log(terms[:k] / terms[k])))
    return 1.0 / mean if mean > 0.0 else math.inf


def _share_near(group: xr.Dataset, n: int, m: int, bound: float) -> Array:
    """Largest share of the decisions, whatever the mean, that can come near to the threshold.

    Near are those u for which log u is within 2 G standard errors of the sum of the log ratios, estimated
    from the first batch: a stretch of 4 G standard errors, which log u meets with a probability of at most
    this.
    """
    noise = n * group["sd"].values * math.sqrt((1.0 / m - 1.0 / n) * n / (n - 1.0))
    return np.asarray(-np.expm1(-4.0 * max(bound, 1.0) * noise))


def _acceptance_errors(group: xr.Dataset, n: int, m: int, epsilon: float) -> Array:
    """Error of the acceptance probability of each move if batch means are normal; NaN if not known."""
    mu, sd = group["mu"].values, group["sd"].values
    found = np.full(len(mu), math.nan)
    known = np.isfinite(sd) & ~np.isnan(mu)
    if group.attrs.get("rule", "TTest") == "TTest" and n <= _STAGES * m and np.any(known):
        boundary = float(group.attrs.get("boundary", 0.5))
        found[known] = decision_errors(mu[known], sd[known], n, m, epsilon, boundary).signed
    return found


def _shapiro_pvalues(group: xr.Dataset) -> list[float]:
    """P-values of Shapiro and Wilk's test of the batch means of each move; NaN where there are too few."""
    levels = scipy.stats.t.cdf(group["batch_t"].values, int(group.attrs["batch_size"]) - 1)
    pvalues = []
    for scores in ndtri(np.clip(levels, 1e-300, 1.0 - 1e-16)):
        known = scores[np.isfinite(scores)][:5000]  # beyond, p-values of the test are not reliable
        is_constant = len(known) < 3 or np.ptp(scores[np.isfinite(scores)]) == 0.0
        pvalues.append(math.nan if is_constant else float(scipy.stats.shapiro(known).pvalue))
    return pvalues


def _quantiles(group: xr.Dataset) -> xr.Dataset:
    """Sorted studentised means beside the quantiles of Student's t; those that are NaN come last."""
    observed = np.sort(group["batch_t"].values, axis=1)
    known = np.isfinite(observed)
    levels = (np.arange(observed.shape[1]) + 0.5) / np.maximum(known.sum(axis=1, keepdims=True), 1)
    theoretical = scipy.stats.t.ppf(levels, int(group.attrs["batch_size"]) - 1)
    dims = ("pair", "quantile")
    return xr.Dataset(
        {"observed": (dims, observed), "theoretical": (dims, np.where(known, theoretical, math.nan))},
        coords={"pair": group["pair"].values, "quantile": np.arange(observed.shape[1])},
    )


# The verdict in words ------------------------------------------------------------------------------

# Of normality alone: whether the posterior is right is measured beside a reference (`compare`).
_OPENINGS: dict[Verdict, str] = {
    "normal enough": "Batch means are normal enough for the t-test to err as seldom as it says",
    "doubtful": "It is doubtful whether batch means are normal enough for the t-test",
    "not normal": "Batch means are not normal enough for the t-test",
}


def reason_for(verdict: Verdict, table: pd.DataFrame, epsilon: float, n: int, m: int) -> str:
    """One sentence for the verdict, with its causes, the most serious first; and one for each remark."""
    n_moves, mean_error = len(table), float(table["error"].mean())
    far, n_infinite, top = table[table["far"]], table["infinite"].sum(), int(table["missed"].max())
    causes = []
    if n_infinite:
        causes.append(
            f"in {n_infinite} of {n_moves} moves some terms are not finite, and a subsample that "
            "misses them accepts what is impossible"
        )
    if verdict == "not normal" and top:
        share = table[f"top_{top}"][table["missed"] == top].median()
        rows = f"top {top} of {n:,} rows carry" if top > 1 else f"largest of {n:,} rows carries"
        causes.append(
            f"the {rows} {100 * share:.0f} % of the variance in {(table['missed'] > 0).sum()} of "
            f"{n_moves} moves, and a batch of {m:,} holds {top * m / n:.2g} of them on average"
        )
    elif verdict == "not normal" and len(far):
        worst = far.iloc[far["top_10"].argmax()]
        causes.append(
            f"in {len(far)} of {n_moves} moves a few rows lie far from the others (tail index "
            f"{worst['tail_index']:.1f}; the top 10 of {n:,} carry {100 * worst['top_10']:.0f} % of the "
            "variance), and batches that miss them decide otherwise"
        )
    errs = f"a test of {m:,} terms is predicted to err {mean_error:.2g} more often than it says"
    frequent = (
        f"{errs} in the mean of {n_moves} moves, and {table['error'].max():.2g} in the worst (epsilon is "
        f"{epsilon:g})"
    )
    if table["top_1"].isna().all() and not causes:
        causes = ["all log ratios of a move are equal, and the test reads on"]
    elif verdict == "normal enough":
        causes.append(
            f"{errs}, in the mean of {n_moves} moves (epsilon is {epsilon:g}), and the top 100 of "
            f"{n:,} rows carry at most {100 * table['top_100'].max():.2g} % of the variance"
        )
    elif not causes:
        most = table["skewness"][table["skewness"].abs().idxmax()]
        causes = [f"the log ratios are skewed (skewness {most:.2g})", frequent]
    elif mean_error > epsilon:
        causes.append(frequent)
    return " ".join(
        [f"{_OPENINGS[verdict]}, because {'; and '.join(causes)}.", *_remarks(verdict, table, epsilon)]
    )


def _remarks(verdict: Verdict, table: pd.DataFrame, epsilon: float) -> list[str]:
    """What is to be said besides the causes of the verdict."""
    remarks = []
    share_near, tail_index = float(table["near"].mean()), float(table["tail_index"].median())
    if share_near < _FEW and table["top_1"].notna().any():
        remarks.append(
            f"At most {100 * share_near:.2g} % of the decisions are near enough to the threshold for an "
            "error."
        )
    if n_not_normal := int((table["shapiro_pvalue"] < _LEVEL / len(table)).sum()):
        remarks.append(
            f"Batch means are visibly not normal in {n_not_normal} of {len(table)} moves (Shapiro-Wilk)."
        )
    if tail_index < _HEAVY:
        remarks.append(f"The log ratios have heavy tails (index {tail_index:.1f}).")
    error = float(table["acceptance_error"].abs().mean())
    if np.isfinite(error):
        begins = "But with" if verdict == "normal enough" and error > _LARGE else "With"
        remarks.append(
            f"{begins} normal batch means too, epsilon = {epsilon:g} changes the acceptance "
            f"probability by {error:.2g}, in the mean of these moves."
        )
    if error > _LARGE:
        remarks.append(
            "By a heuristic of the design theory (six times that) posterior sds are then too large by some "
            f"{100 * _TIMES * error:.0f} %; compare measures it."
        )
    return remarks
