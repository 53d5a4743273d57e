"""What a decision rule is to a kernel.

A rule has two faces. The user's is a small frozen object, validated when it is made. The kernel's is what
``bind(n_local)`` returns, a `Schedule` of numbers, and pure functions written in the subset of Python
that numba compiles, so that the same source runs interpreted and compiled:

* `draw`: the random number against which the log acceptance ratio is held, log u for Metropolis's rule;
* `decide`: is what was read of the log ratios enough;
* `accept`: the decision.

A rule may have two more. `others` makes a pilot of what was read: it says how many rows that were not read
decide instead. `clipped` says whether a decision took the variance for smaller than it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from pymc_austerity.compilation import jitable
from pymc_austerity.validation import first_batch


class Schedule(NamedTuple):
    """Stages of a sequential decision about the mean of N numbers.

    A rule that needs more numbers returns a NamedTuple of its own, which has `ends` and `block` too.

    Attributes
    ----------
    ends : ndarray of int, shape (J,)
        Size of the subsample at the end of each stage; increasing, and the last is N.
    bounds : ndarray of float, shape (J,)
        One number for each stage, whose meaning belongs to the rule.
    block : int, default 1
        Terms are drawn in blocks of so many neighbours; divides all ends but the last.
    """

    ends: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.float64]
    block: int = 1


class Sample(NamedTuple):
    """Statistics of the log ratios l_i that were read.

    Attributes
    ----------
    n, n_local : int
        How many were read, and how many there are.
    mean, m2 : float
        Their mean, and the sum of their squared deviations from it.
    low, high : float
        The smallest and the largest.
    center : float
        Mean of the first batch.
    absolute, cubed, signed_cubed : float
        Sums of |l_i - center|, of |l_i - center|^3 and of (l_i - center)^3.
    """

    n: int
    n_local: int
    mean: float
    m2: float
    low: float
    high: float
    center: float
    absolute: float
    cubed: float
    signed_cubed: float


@jitable
def nothing_read(n_local: int) -> Sample:
    """No log ratio was read, of `n_local`."""
    return Sample(0, n_local, 0.0, 0.0, math.inf, -math.inf, 0.0, 0.0, 0.0, 0.0)


Draw = Callable[[np.random.Generator], float]
Decide = Callable[[Any, int, Sample, float, float], bool]
Accept = Callable[[Any, Sample, float, np.random.Generator], bool]
Others = Callable[[Any, Sample], int]
Clipped = Callable[[Any, Sample], bool]


@jitable
def no_others(schedule: Any, sample: Sample) -> int:
    """Number of rows to read anew: 0, for there is no pilot, and what was read counts."""
    return 0


@jitable
def never_clipped(schedule: Any, sample: Sample) -> bool:
    """False: the estimated variance is used as it is."""
    return False


class RuleFunctions(NamedTuple):
    """The functions of a decision rule.

    Attributes
    ----------
    draw : callable
        ``(rng) -> float``; psi = (draw - [global log ratio] - log_hastings) / N.
    decide : callable
        ``(schedule, stage, sample, psi, width) -> bool``: is the evidence enough? `width` bounds the range of
        all N log ratios, for rules that say they need it.
    accept : callable
        ``(schedule, sample, psi, rng) -> bool``, called once, after the last row is read.
    others : callable, default `no_others`
        ``(schedule, sample) -> int``, called after `decide` has said no. Above 0: so many rows that were not
        read, drawn at random, make a sample of their own, which is handed to `accept`. They have to be there,
        and fill whole blocks. 0: read on.
    clipped : callable, default `never_clipped`
        ``(schedule, sample) -> bool``: did `accept` take the variance for smaller than `sample` shows? It is
        counted in the sample statistic `clipped`.
    """

    draw: Draw
    decide: Decide
    accept: Accept
    others: Others = no_others
    clipped: Clipped = never_clipped


class AcceptanceRule(Protocol):
    """A decision rule, as a user gives it to a step.

    A rule may also have attributes `needs_range` (True if `decide` needs `width`) and `uniform` (True if its
    guarantee holds only for uniform draws, not for blocks of neighbours). If it has a `batch_size`, steps
    refuse one above the number of terms; a dataclass may leave it None and have a `default_batch_size`.
    """

    @property
    def functions(self) -> RuleFunctions:
        """The functions of the rule, for the kernel."""

    def bind(self, n_local: int) -> Any:
        """Return the stages for a population of `n_local` terms: a `Schedule`, or a tuple like it."""

    def target_accept(self, n_dim: int) -> float:
        """Acceptance rate at which a random walk in `n_dim` dimensions mixes best under this rule."""

    def error_bound(self, n_local: int) -> float:
        """Promise: acceptance probabilities differ from those of the exact test by at most this.

        Rules without a guarantee at finite n promise it for normal batch means only.
        """


def with_batch_size[R: AcceptanceRule](rule: R, n_local: int, default: int | None = None) -> R:
    """The rule with a `batch_size` for `n_local` terms, if it has one.

    Parameters
    ----------
    rule : AcceptanceRule
    n_local : int
    default : int, optional
        Instead of the rule's own `default_batch_size`.

    Raises
    ------
    ValueError
        If it has one that is larger.
    """
    chosen = getattr(rule, "batch_size", None)
    if chosen is None and not hasattr(rule, "default_batch_size"):
        return rule
    if default is None:
        default = getattr(rule, "default_batch_size", n_local)
    size = first_batch(chosen, default, n_local)
    return rule if chosen == size else replace(cast(Any, rule), batch_size=size)


def metropolis_target_accept(n_dim: int) -> float:
    """Acceptance rate to aim at with Metropolis's rule (Roberts & Rosenthal 2001)."""
    return 0.44 if n_dim <= 2 else 0.234


@jitable
def log_uniform(rng: np.random.Generator) -> float:
    """Metropolis's rule: log u, u ~ U(0, 1)."""
    u = rng.random()
    return math.log(u) if u > 0.0 else -math.inf


@jitable
def above(schedule: Any, sample: Sample, psi: float, rng: np.random.Generator) -> bool:
    """Accept if the mean is above psi; a tie rejects."""
    return sample.mean > psi


@jitable
def standard_error(n: int, n_local: int, m2: float) -> float:
    """Standard error of the mean of n terms drawn without replacement from n_local.

    Equation 4 of Korattikara et al. (2014), s_l / sqrt(n) * sqrt(1 - (n - 1) / (N - 1)), with s_l^2 the
    unbiased variance m2 / (n - 1). It overstates the variance by N / (N - 1) (the exact factor is
    1 - n / N), which is harmless.
    """
    if n < 2:
        return math.nan
    variance = m2 / (n - 1) / n * (1.0 - (n - 1.0) / (n_local - 1.0))
    return math.sqrt(variance)
