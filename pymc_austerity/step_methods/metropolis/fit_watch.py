"""Notice a posterior that a Taylor polynomial, or a normal proposal, does not fit."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.exceptions import warn
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.mode.mode_fit import ADVICE

# Seen and predicted figures may differ by these factors, and sums of remainders below this do not matter.
_ACCEPTANCE_FACTOR, _SPREAD_FACTOR, _SMALL_SPREAD = 0.5, 3.0, 0.3
# Decisions that read all rows.
_MANY_EXHAUSTED = 0.3
# An acceptance rate that is too low, whatever was predicted.
_STUCK = 0.05
# Transitions in the second half of tuning that a verdict needs.
_ENOUGH = 100


class Fit(NamedTuple):
    """Sums over the transitions in the second half of tuning.

    Attributes
    ----------
    counts : ndarray of int, shape (4,)
        Draws seen, draws of tuning, draws in the first two sums and in the third.
    sums : ndarray of float, shape (3,)
        Acceptance rates, shares of decisions that read everything, and squared sums of sampled remainders.
    """

    counts: npt.NDArray[np.int64]
    sums: npt.NDArray[np.float64]


def start(n_tune: int) -> Fit:
    """Begin to watch a chain that tunes for `n_tune` draws."""
    return Fit(np.array([0, n_tune, 0, 0]), np.zeros(3))


def watch(fit: Fit, outcome: Outcome, n_transitions: int, n_others: int) -> bool:
    """Add a draw of the tuning phase. Was it the last?"""
    fit.counts[0] += 1
    if 2 * fit.counts[0] > fit.counts[1]:
        fit.counts[2] += 1
        fit.sums[0] += outcome.n_accepted / n_transitions
        fit.sums[1] += outcome.n_exhausted / n_transitions
        # Less what the sampling of rows adds.
        square = n_others**2 * (outcome.log_ratio_mean**2 - outcome.log_ratio_se**2)
        if math.isfinite(square):
            fit.counts[3] += 1
            fit.sums[2] += square
    return bool(fit.counts[0] == fit.counts[1])


def warn_if_unlike(fit: Fit, report: Any, independent: float, *, reads_all: bool, needs_range: bool) -> None:
    """Compare what was seen with what was predicted when the center was found.

    Parameters
    ----------
    fit : Fit
    report : ModeReport
    independent : float
        Share of moves that are independent draws of the fitted distribution, times the acceptance rate for no
        change.
    reads_all : bool
        Whether the decision rule reads all rows anyway.
    needs_range : bool
        Whether it depends on a bound of the range.
    """
    n = int(fit.counts[2])
    if n < _ENOUGH:
        return
    acceptance, exhausted = fit.sums[:2] / n
    seen = 0.0
    if 2 * fit.counts[3] > n:  # TunaMH estimates no sum but those of moves that are far away
        seen = math.sqrt(max(fit.sums[2] / int(fit.counts[3]), 0.0) / 2.0)  # a difference of two sums
    found = []
    if exhausted > _MANY_EXHAUSTED and not reads_all:
        why = " (the bound on the range of the remainders is wide; AusterityMH needs none)"
        found.append(f"{exhausted:.0%} of the decisions read all rows{why if needs_range else ''}")
    if seen > _SPREAD_FACTOR * max(report.remainder_sd, _SMALL_SPREAD):
        found.append(
            f"sums of remainders vary by {seen:.2g}, predicted were {report.remainder_sd:.2g} near the center"
        )
    predicted = independent * report.acceptance
    if acceptance < max(_STUCK, _ACCEPTANCE_FACTOR * predicted):
        # Of moves that depend on the state nothing was predicted.
        said = f", predicted was {predicted:.2f} or more" if independent else ""
        found.append(f"the acceptance rate is {acceptance:.2f}{said}")
    if found:
        warn(
            "The posterior is not as its expansion at the mode predicts: " + "; ".join(found) + f". {ADVICE}"
        )
