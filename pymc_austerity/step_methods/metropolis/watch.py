"""What is watched while a chain runs, and told if it is not as it should be.

- `FitWatch`, in the second half of tuning: do moves behave as the expansion at the mode predicts?
- `DriftWatch`, in the third and the fourth quarter of tuning: is the chain still on its way, or running away?
- `MixingWatch`, in all draws after tuning: are they worth as many independent ones as was announced?

A step has a list of watches, which is part of its sampling state: a chain that is resumed is judged as if it
had not been interrupted. `look` shows them each draw. A watch that has seen the last draw of its phase leaves
the list, and what it finds wrong is a warning.
"""

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
from pymc.step_methods.state import equal_dataclass_values

from pymc_austerity.exceptions import warn
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.mode.mode_fit import ADVICE, ModeReport
from pymc_austerity.target import Vector


class Expected(NamedTuple):
    """What a step says of itself, with which its chain is compared."""

    report: ModeReport | None  # of the search for the mode
    # Share of moves that are independent draws of the fitted distribution, times the acceptance rate for no
    # change.
    independent_moves: float
    reads_all: bool  # whether the decision rule reads all rows anyway
    needs_range: bool  # whether it depends on a bound of the range
    n_others: int  # rows that are sampled from
    n_transitions: int  # of a draw
    efficiency: float  # effective draws for each draw, as they were announced
    is_field: bool  # whether effects of groups are moved as a field
    value_name: Callable[[int], str]  # from a coordinate to the name of its value variable
    name: Callable[[int], str]  # from a coordinate to the name of its variable in the model


class Watch:
    """One thing that is looked at in the draws of a phase, and judged when the phase is over."""

    of_tuning: ClassVar[bool] = True  # or of the draws after tuning

    def __init__(self, n_draws: int) -> None:
        self.n_draws, self.n_seen = n_draws, 0

    def __eq__(self, other: object) -> bool:
        """Whether two watches have seen the same: PyMC compares sampling states so."""
        return type(self) is type(other) and bool(equal_dataclass_values(vars(self), vars(other)))

    def add(self, outcome: Outcome, n_transitions: int) -> None:
        """Take a draw into account, the `n_seen`-th; of draws after tuning several at once, up to that."""
        raise NotImplementedError

    def verdict(self, expected: Expected) -> str:
        """What is wrong with the chain, as a warning says it; empty if nothing is."""
        raise NotImplementedError


def look(
    watches: list[Watch],
    outcome: Outcome,
    n_transitions: int,
    *,
    tunes: bool,
    expected: Callable[[], Expected],
) -> None:
    """Show draws of `n_transitions` to the watches of their phase; one that is over warns, and goes.

    An outcome of several draws has them one below another. While tuning there is one.
    """
    n_draws = 1 if outcome.q.ndim == 1 else len(outcome.q)
    for watch in list(watches):
        if tunes and not watch.of_tuning:
            continue
        watch.n_seen += n_draws
        watch.add(outcome, n_transitions)
        if watch.n_seen == watch.n_draws:
            watches.remove(watch)
            if message := watch.verdict(expected()):
                warn(message)


def n_tuning(watches: list[Watch]) -> int:
    """Draws of the tuning phase, if it is watched and not over; else 0."""
    return max((watch.n_draws for watch in watches if watch.of_tuning), default=0)


# Does the posterior fit its expansion? ------------------------------------------------------

_WIDE = " (the bound on the range of the remainders is wide; AusterityMH needs none)"
# Seen and predicted figures may differ by these factors, and sums of remainders below this do not matter.
_ACCEPTANCE_FACTOR, _SPREAD_FACTOR, _SMALL_SPREAD = 0.5, 3.0, 0.3
# Decisions that read all rows.
_MANY_EXHAUSTED = 0.3
# An acceptance rate that is too low, whatever was predicted.
_STUCK = 0.05
# Transitions in the second half of tuning that a verdict needs.
_ENOUGH_TUNING = 100


class FitWatch(Watch):
    """Notice a posterior that a Taylor polynomial, or a normal proposal, does not fit."""

    def __init__(self, n_draws: int) -> None:
        super().__init__(n_draws)
        # Sums of acceptance rates and of shares of decisions that read everything, over so many draws.
        self.accepted, self.exhausted, self.n_counted = 0.0, 0.0, 0
        # Sum of squared means of sampled remainders, over those draws that have one.
        self.squares, self.n_estimated = 0.0, 0

    def add(self, outcome: Outcome, n_transitions: int) -> None:
        """Add a draw of the second half of tuning."""
        if 2 * self.n_seen <= self.n_draws:
            return
        self.n_counted += 1
        self.accepted += outcome.n_accepted / n_transitions
        self.exhausted += outcome.n_exhausted / n_transitions
        # Less what the sampling of rows adds.
        square = outcome.log_ratio_mean**2 - outcome.log_ratio_se**2
        if math.isfinite(square):
            self.n_estimated += 1
            self.squares += square

    def verdict(self, expected: Expected) -> str:
        """Compare what was seen with what was predicted when the center was found."""
        n, report = self.n_counted, expected.report
        if n < _ENOUGH_TUNING or report is None:
            return ""
        acceptance, exhausted = self.accepted / n, self.exhausted / n
        spread = 0.0
        if 2 * self.n_estimated > n:  # TunaMH estimates no sum but those of moves that are far away
            # A difference of two sums.
            spread = expected.n_others * math.sqrt(max(self.squares / self.n_estimated, 0.0) / 2.0)
        found = []
        if exhausted > _MANY_EXHAUSTED and not expected.reads_all:
            found.append(f"{exhausted:.0%} of the decisions read all rows{_WIDE * expected.needs_range}")
        if spread > _SPREAD_FACTOR * max(report.remainder_sd, _SMALL_SPREAD):
            told = f"predicted were {report.remainder_sd:.2g} near the center"
            found.append(f"sums of remainders vary by {spread:.2g}, {told}")
        predicted = expected.independent_moves * report.acceptance
        if acceptance < max(_STUCK, _ACCEPTANCE_FACTOR * predicted):
            # Of moves that depend on the state nothing was predicted.
            said = f", predicted was {predicted:.2f} or more" if expected.independent_moves else ""
            found.append(f"the acceptance rate is {acceptance:.2f}{said}")
        if not found:
            return ""
        return f"The posterior is not as its expansion at the mode predicts: {'; '.join(found)}. {ADVICE}"


# Is the chain where it belongs? -------------------------------------------------------------

# Shift of the mean between the last two quarters of tuning, in units of the standard deviation within
# one. A straight drift gives 3.5; a settled chain with some 5 effective draws in a quarter stays below 2.5.
_LIMIT = 2.5
# A random walk in D dimensions takes about this times D transitions for such a number of effective draws.
# In shorter quarters only what is almost a straight line is called a drift.
_TRANSITIONS_PER_DIMENSION = 20
_LIMIT_IN_SHORT_QUARTERS = 2.75
# Draws in a quarter that a verdict needs.
_FEWEST_OF_DRIFT = 10
# A chain that runs away moves ever faster: its spread in the last quarter is so many times that in the third.
# In quarters of fewer draws a proposal that learns may do that. And as it grows exponentially, its distance
# from zero is about its spread in either quarter; where a chain that was stuck goes on, it is not.
_RUNAWAY, _FEWEST_OF_RUNAWAY = 12.0, 50
_NEAREST, _FARTHEST = 0.25, 2.0


class DriftWatch(Watch):
    """Notice a chain of `n_dim` coordinates that runs away, or is still on its way when tuning ends."""

    def __init__(self, n_draws: int, n_dim: int) -> None:
        super().__init__(n_draws)
        # Of the third and the fourth quarter: draws, means and sums of squared deviations of q.
        self.counts = np.zeros(2, dtype=np.int64)
        self.mean, self.m2 = np.zeros((2, n_dim)), np.zeros((2, n_dim))

    def add(self, outcome: Outcome, n_transitions: int) -> None:
        """Add a draw of the second half of tuning."""
        k = 4 * (self.n_seen - 1) // self.n_draws - 2
        if k >= 0:
            self.counts[k] += 1
            delta = outcome.q - self.mean[k]
            self.mean[k] += delta / self.counts[k]
            self.m2[k] += delta * (outcome.q - self.mean[k])

    def shift(self) -> Vector:
        """Shift between the quarters in standard deviations, for each coordinate."""
        spread = np.sqrt(self.m2.sum(axis=0) / max(int(self.counts.sum()) - 2, 1))
        moved = np.abs(self.mean[1] - self.mean[0])
        return np.divide(moved, spread, out=np.zeros_like(moved), where=spread > 0)

    def drifting(self, n_transitions: int) -> npt.NDArray[np.int64]:
        """Coordinates that moved too far during the second half of tuning, worst first."""
        shortest = int(self.counts.min())
        if shortest < _FEWEST_OF_DRIFT:
            return np.empty(0, dtype=np.int64)
        enough = shortest * n_transitions >= _TRANSITIONS_PER_DIMENSION * self.mean.shape[1]
        size = self.shift()
        order = np.argsort(-size)
        return order[size[order] > (_LIMIT if enough else _LIMIT_IN_SHORT_QUARTERS)]

    def running_away(self) -> npt.NDArray[np.int64]:
        """Coordinates in which the chain moved ever faster."""
        if self.counts.min() < _FEWEST_OF_RUNAWAY:
            return np.empty(0, dtype=np.int64)
        spread, distance = np.sqrt(self.m2 / self.counts[:, None]), np.abs(self.mean)
        grows = np.all((_NEAREST * spread < distance) & (distance < _FARTHEST * spread), axis=0)
        return np.flatnonzero(grows & (spread[1] > _RUNAWAY * spread[0]))

    def verdict(self, expected: Expected) -> str:
        """Tell in which variables the chain runs away, or else is still on its way."""

        def names(coordinates: npt.NDArray[np.int64]) -> str:
            return ", ".join(dict.fromkeys(expected.value_name(int(k)) for k in coordinates))

        if len(fleeing := self.running_away()):
            return (
                f"The chain runs away in {names(fleeing)}: while tuning it moved ever faster. The posterior "
                "may not exist, as with a flat prior and responses that a covariate separates perfectly. "
                "find_mode(model) says so if there is no mode. Give the variable a proper prior."
            )
        if len(moving := self.drifting(expected.n_transitions)):
            return (
                f"Tuning ended while the chain was still drifting in {names(moving)}. The mean moved by "
                "more than two standard deviations from the third to the last quarter of tuning. Tune for "
                "longer, and start near the mode: pm.sample(initvals=find_mode(model))."
            )
        return ""


# Does the chain mix as was announced? -------------------------------------------------------

# Batches at most; where there are so many, each two of them become one.
_BATCHES = 64
_FEWEST_BATCHES = 8
# Draws after tuning that a verdict needs.
_ENOUGH_DRAWS = 500
# Less than this share of what was announced is told.
_SHARE = 0.1

_SLOW = (
    "Its decisions are what they were, but the posterior is not explored yet: make many more draws, or use "
    "pm.NUTS."
)
# The coordinates of a field are the same, however its effects are written.
_OF_A_BLOCK = (
    " If a scale is near 0, as where groups do not differ, the model mixes better with effects that are "
    "written non-centred; if the chain began far outside of the posterior, with another start."
)
_OF_A_FIELD = " If the chain began far outside of the posterior, another start mends that."
_UNTUNED = (
    "It had no tuning draws (tune=0), so it started from PyMC's initial point or from initvals, and may "
    "still be on its way. Without initvals tune=100 lets it start near the mode."
)


class MixingWatch(Watch):
    """Notice a chain that mixes far worse, in its first `n_dim` coordinates, than was announced."""

    of_tuning = False

    def __init__(self, n_draws: int, n_dim: int, *, has_tuned: bool) -> None:
        super().__init__(n_draws)
        self.has_tuned = has_tuned
        self.length, self.n_full = 1, 0  # draws of a batch, and batches that are full
        # The first draw; sums of differences from it in each batch, and of their squares in all.
        self.first, self.square = np.zeros(n_dim), np.zeros(n_dim)
        self.sums = np.zeros((_BATCHES, n_dim))

    def add(self, outcome: Outcome, n_transitions: int) -> None:
        """Add draws to the batch that is not full yet, and to those after it."""
        draws = np.atleast_2d(outcome.q)[:, : len(self.first)]
        n_before = self.n_seen - len(draws)
        if n_before == 0:
            self.first[:] = draws[0]
        changes = draws - self.first
        self.square += (changes**2).sum(axis=0)
        while len(changes):
            n = self.length - n_before % self.length
            own, changes = changes[:n], changes[n:]
            self.sums[self.n_full] += own.sum(axis=0)
            n_before += len(own)
            self.n_full += len(own) == n
            if self.n_full == _BATCHES:
                half = _BATCHES // 2
                self.sums[:half] = self.sums[::2] + self.sums[1::2]
                self.sums[half:] = 0.0
                self.length, self.n_full = 2 * self.length, half

    def efficiency(self) -> Vector:
        """Effective draws for each draw, by the variance of batch means; one in all where nothing moved.

        Means of batches that are shorter than the chain remembers vary too little. So neighbours are joined,
        down to a few long batches, and the length that shows fewest effective draws counts.
        """
        n, length, sums = self.n_seen, self.length, self.sums[: self.n_full]
        variance = self.square / n - (self.sums.sum(axis=0) / n) ** 2
        lowest = np.full(len(variance), np.inf)
        while len(sums) >= _FEWEST_BATCHES:
            with np.errstate(all="ignore"):
                found = variance * length / sums.var(axis=0, ddof=1)
            lowest = np.fmin(lowest, found)
            pairs = len(sums) // 2
            sums, length = sums[: 2 * pairs].reshape(pairs, 2, -1).sum(axis=1), 2 * length
        return np.where(np.isfinite(lowest), lowest, 1.0 / n)

    def verdict(self, expected: Expected) -> str:
        """Tell that effective draws are less than a tenth of those announced."""
        n = self.n_seen
        if n < _ENOUGH_DRAWS:
            return ""
        seen = self.efficiency()
        worst = int(np.argmin(seen))
        if not seen[worst] < _SHARE * expected.efficiency:
            return ""
        slow = _SLOW + (_OF_A_FIELD if expected.is_field else _OF_A_BLOCK)
        return (
            f"The chain mixes far worse than was announced: its {n:,} draws are worth about "
            f"{seen[worst] * n:,.0f} independent ones of {expected.name(worst)}, and "
            f"{expected.efficiency * n:,.0f} were expected. {slow if self.has_tuned else _UNTUNED}"
        )
