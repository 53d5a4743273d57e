"""The reason for a verdict on normality: which causes and remarks apply, and their words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from pymc_austerity.diagnostics.batch_means import HEAVY
from pymc_austerity.diagnostics.log_ratios import TOP

Verdict = Literal["normal enough", "doubtful", "not normal"]
Flags = npt.NDArray[np.bool_]

# Share of the decisions below which it is said that few are near the threshold.
_FEW = 0.1
# Error of acceptance probabilities from which on posterior standard deviations are visibly too large; and, by
# a heuristic that was seen in one model, how many times it they are.
_LARGE, _TIMES = 0.01, 6.0
# Level of the normality test, for all moves together.
_LEVEL = 0.001


@dataclass(frozen=True, eq=False)
class Findings:
    """Summaries of the log ratios of some moves, from which a verdict is made.

    Attributes
    ----------
    verdict : "normal enough", "doubtful" or "not normal"
    table : DataFrame
        One row for each move, as in `Normality.table`.
    missed : ndarray of bool, shape (moves, len(TOP))
        Whether batches miss the top 1, 10 or 100 rows, and these carry much of the variance.
    far, infinite : ndarray of bool, shape (moves,)
        Whether a few rows lie far from the others; whether some log ratios are not finite.
    epsilon : float
        Tolerance of the test.
    n_local, batch_size : int
        Terms in all, and in a batch.
    """

    verdict: Verdict
    table: pd.DataFrame
    missed: Flags
    far: Flags
    infinite: Flags
    epsilon: float
    n_local: int
    batch_size: int

    @property
    def n_moves(self) -> int:
        """Number of moves."""
        return len(self.table)

    @property
    def mean_error(self) -> float:
        """Predicted excess of errors over epsilon, in the mean of the moves."""
        return float(self.table["error"].mean())

    @property
    def all_equal(self) -> bool:
        """Whether all log ratios of each move are equal: no row has a share of the variance."""
        return not bool(self.table["top_1"].notna().any())

    @property
    def share_near(self) -> float:
        """Share of the decisions that are near the threshold, at most."""
        return float(self.table["near"].mean())

    @property
    def n_not_normal(self) -> int:
        """Moves whose batch means a Shapiro-Wilk test rejects."""
        return int((self.table["shapiro_pvalue"] < _LEVEL / self.n_moves).sum())

    @property
    def tail_index(self) -> float:
        """Median of Hill's index over the moves."""
        return float(self.table["tail_index"].median())

    @property
    def acceptance_error(self) -> float:
        """Mean absolute error of the acceptance probabilities with normal batch means; NaN if not known."""
        return float(self.table["acceptance_error"].abs().mean())


# What says a cause or a remark in words.
Words = Callable[[Findings], str]


def causes_of(found: Findings) -> list[Words]:
    """Causes of the verdict, the most serious first; at least one."""
    causes: list[Words] = [not_finite] if found.infinite.any() else []
    if found.verdict == "not normal":
        if found.missed.any():
            causes.append(missed_rows)
        elif found.far.any():
            causes.append(far_rows)
    if found.all_equal and not causes:
        return [all_equal]
    if found.verdict == "normal enough":
        return [*causes, rare_errors]
    if not causes:
        return [skewed, frequent_errors]
    return [*causes, frequent_errors] if found.mean_error > found.epsilon else causes


def remarks_of(found: Findings) -> list[Words]:
    """Remarks on a verdict, besides its causes."""
    holds = {
        few_near: found.share_near < _FEW and not found.all_equal,
        not_normal: found.n_not_normal > 0,
        heavy_tails: found.tail_index < HEAVY,
        epsilon_alone: bool(np.isfinite(found.acceptance_error)),
    }
    return [remark for remark, does_hold in holds.items() if does_hold]


def reason_for(found: Findings) -> str:
    """One sentence for the verdict, and one for each remark."""
    causes = "; and ".join(cause(found) for cause in causes_of(found))
    remarks = [remark(found) for remark in remarks_of(found)]
    return " ".join([f"{_OPENINGS[found.verdict]}, because {causes}.", *remarks])


def other_rule(group: xr.Dataset) -> str:
    """A sentence for steps that do not use the t-test; empty for those that do."""
    rule = group.attrs.get("rule", "TTest")
    return "" if rule == "TTest" else f" ({group.attrs['step']} decides by {rule}, not by a t-test.)"


# Of normality alone: whether the posterior is right is measured beside a reference (`compare`).
_OPENINGS: dict[Verdict, str] = {
    "normal enough": "Batch means are normal enough for the t-test to err as seldom as it says",
    "doubtful": "It is doubtful whether batch means are normal enough for the t-test",
    "not normal": "Batch means are not normal enough for the t-test",
}

# The words of causes -----------------------------------------------------------------------------


def not_finite(found: Findings) -> str:
    """Terms that are not finite."""
    return (
        f"in {found.infinite.sum()} of {found.n_moves} moves some terms are not finite, and a subsample that "
        "misses them accepts what is impossible"
    )


def missed_rows(found: Findings) -> str:
    """Rows that carry much of the variance, and that batches miss."""
    j = int(np.flatnonzero(found.missed.any(axis=0))[-1])
    top, n, m = TOP[j], found.n_local, found.batch_size
    share = float(np.median(found.table[f"top_{top}"][found.missed[:, j]]))
    rows = f"top {top} of {n:,} rows carry" if top > 1 else f"largest of {n:,} rows carries"
    return (
        f"the {rows} {100 * share:.0f} % of the variance in {found.missed.any(axis=1).sum()} of "
        f"{found.n_moves} moves, and a batch of {m:,} holds {top * m / n:.2g} of them on average"
    )


def far_rows(found: Findings) -> str:
    """A few rows that lie far from the others."""
    j = int(np.flatnonzero(found.far)[np.argmax(found.table["top_10"].to_numpy()[found.far])])
    worst = found.table.iloc[j]
    return (
        f"in {found.far.sum()} of {found.n_moves} moves a few rows lie far from the others (tail index "
        f"{worst['tail_index']:.1f}; the top 10 of {found.n_local:,} carry {100 * worst['top_10']:.0f} % of "
        "the variance), and batches that miss them decide otherwise"
    )


def all_equal(found: Findings) -> str:
    """Log ratios that are all equal."""
    return "all log ratios of a move are equal, and the test reads on"


def rare_errors(found: Findings) -> str:
    """A test that errs about as seldom as it says."""
    return (
        f"a test of {found.batch_size:,} terms is predicted to err {found.mean_error:.2g} more often than it "
        f"says, in the mean of {found.n_moves} moves (epsilon is {found.epsilon:g}), and the top 100 of "
        f"{found.n_local:,} rows carry at most {100 * found.table['top_100'].max():.2g} % of the variance"
    )


def skewed(found: Findings) -> str:
    """Log ratios that are skewed."""
    skewness = found.table["skewness"].to_numpy()
    return f"the log ratios are skewed (skewness {skewness[np.nanargmax(np.abs(skewness))]:.2g})"


def frequent_errors(found: Findings) -> str:
    """A test that errs more often than it says."""
    return (
        f"a test of {found.batch_size:,} terms is predicted to err {found.mean_error:.2g} more often than it "
        f"says in the mean of {found.n_moves} moves, and {found.table['error'].max():.2g} in the worst "
        f"(epsilon is {found.epsilon:g})"
    )


# The words of remarks ----------------------------------------------------------------------------


def few_near(found: Findings) -> str:
    """Few decisions that could be wrong."""
    return (
        f"At most {100 * found.share_near:.2g} % of the decisions are near enough to the threshold for an "
        "error."
    )


def not_normal(found: Findings) -> str:
    """Batch means that a test of normality rejects."""
    return (
        f"Batch means are visibly not normal in {found.n_not_normal} of {found.n_moves} moves (Shapiro-Wilk)."
    )


def heavy_tails(found: Findings) -> str:
    """Log ratios with heavy tails."""
    return f"The log ratios have heavy tails (index {found.tail_index:.1f})."


def epsilon_alone(found: Findings) -> str:
    """The error that epsilon makes with normal batch means."""
    error = found.acceptance_error
    begins = "But with" if found.verdict == "normal enough" and error > _LARGE else "With"
    text = (
        f"{begins} normal batch means too, epsilon = {found.epsilon:g} changes the acceptance probability by "
        f"{error:.2g}, in the mean of these moves."
    )
    if error <= _LARGE:
        return text
    return (
        f"{text} By a heuristic of the design theory (six times that) posterior sds are then too large by "
        f"some {100 * _TIMES * error:.0f} %; compare measures it."
    )
