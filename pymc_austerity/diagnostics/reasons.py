"""The reason for a verdict on normality, in words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr

from pymc_austerity.diagnostics.batch_law import HEAVY
from pymc_austerity.diagnostics.log_ratios import TOP

# Share of the decisions below which it is said that few are near the threshold.
_FEW = 0.1
# Error of acceptance probabilities from which on posterior standard deviations are visibly too large.
_LARGE = 0.01
# Level of the normality test, for all moves together.
_LEVEL = 0.001


def reason_for(
    verdict: str,
    table: pd.DataFrame,
    missed: np.ndarray,
    far: np.ndarray,
    infinite: np.ndarray,
    epsilon: float,
    n: int,
    m: int,
) -> str:
    """One sentence for the verdict, and what else is to be known."""
    causes = []
    total, error = len(table), float(table["error"].mean())
    same = not table["top_1"].notna().any()
    if np.any(infinite):
        causes.append(
            f"in {np.sum(infinite)} of {total} moves some terms are not finite, and a subsample that misses "
            "them accepts what is impossible"
        )
    if verdict == "unsafe" and np.any(missed):
        j = int(np.flatnonzero(missed.any(axis=0))[-1])
        share = float(np.median(table[f"top_{TOP[j]}"][missed[:, j]]))
        rows = f"top {TOP[j]} of {n:,} rows carry" if TOP[j] > 1 else f"largest of {n:,} rows carries"
        causes.append(
            f"the {rows} {100 * share:.0f} % of the variance in {missed.any(axis=1).sum()} of {total} moves, "
            f"and a batch of {m:,} holds {TOP[j] * m / n:.2g} of them on average"
        )
    elif verdict == "unsafe" and np.any(far):
        j = int(np.flatnonzero(far)[np.argmax(table["top_10"].to_numpy()[far])])
        causes.append(
            f"in {far.sum()} of {total} moves a few rows lie far from the others (tail index "
            f"{table['tail_index'].iloc[j]:.1f}; the top 10 of {n:,} carry "
            f"{100 * table['top_10'].iloc[j]:.0f} % of the variance), and batches that miss them decide "
            "otherwise"
        )
    if same and not causes:
        causes.append("all log ratios of a move are equal, and the test reads on")
    elif verdict == "safe":
        causes.append(
            f"a test of {m:,} terms is predicted to err {error:.2g} more often than it says, in the mean of "
            f"{total} moves (epsilon is {epsilon:g}), and the top 100 of {n:,} rows carry at most "
            f"{100 * table['top_100'].max():.2g} % of the variance"
        )
    elif not causes or error > epsilon:
        if not causes:
            causes.append(f"the log ratios are skewed (skewness {_largest(table['skewness']):.2g})")
        causes.append(
            f"a test of {m:,} terms is predicted to err {error:.2g} more often than it says in the mean of "
            f"{total} moves, and {table['error'].max():.2g} in the worst (epsilon is {epsilon:g})"
        )
    text = f"The t-test is {verdict} here, because {'; and '.join(causes)}."
    near = float(table["near"].mean())
    if near < _FEW and not same:
        text += f" At most {100 * near:.2g} % of the decisions are near enough to the threshold for an error."
    rejected = int((table["shapiro_pvalue"] < _LEVEL / total).sum())
    if rejected:
        text += f" Batch means are visibly not normal in {rejected} of {total} moves (Shapiro-Wilk)."
    heavy = float(table["tail_index"].median())
    if heavy < HEAVY:
        text += f" The log ratios have heavy tails (index {heavy:.1f})."
    delta = float(table["acceptance_error"].abs().mean())  # of those that are known
    if np.isfinite(delta):
        begins = " But with" if verdict == "safe" and delta > _LARGE else " With"
        text += (
            f"{begins} normal batch means too, epsilon = {epsilon:g} changes the acceptance probability by "
            f"{delta:.2g}, in the mean of these moves."
        )
    return text


def other_rule(group: xr.Dataset) -> str:
    """A word for steps that do not use the t-test."""
    rule = group.attrs.get("rule", "TTest")
    return "" if rule == "TTest" else f" ({group.attrs['step']} decides by {rule}, not by a t-test.)"


def _largest(values: pd.Series) -> float:
    return float(values.iloc[int(np.nanargmax(np.abs(values.to_numpy())))])
