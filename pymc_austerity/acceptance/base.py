"""What a decision rule is to a kernel, and the two rules that read all the data.

A rule has two faces. The user's is a small frozen object, validated when it is made. The kernel's is what
``bind(n_local)`` returns, a `Schedule` of numbers, and pure functions written in the subset of Python
that numba compiles, so that the same source runs interpreted and compiled:

* `draw`: the random number against which the log acceptance ratio is held, log u for Metropolis's rule;
* `decide`: is what was read of the log ratios enough;
* `accept`: the decision.

A rule may have two more. `others` makes a pilot of what was read: it says how many rows that were not read
decide instead. `clipped` says whether a decision took the variance for smaller than it was.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, Vector
from pymc_austerity.validation import first_batch


class Schedule(NamedTuple):
    """Stages of a sequential decision about the mean of N numbers.

    A rule that needs more numbers returns a NamedTuple of its own, which has `ends` and `block` too.
    """

    ends: Index  # (J,): size of the subsample at the end of each stage; increasing, and the last is N
    bounds: Vector  # (J,): one number for each stage, whose meaning belongs to the rule
    block: int = 1  # terms are drawn in blocks of so many neighbours; divides all ends but the last


class Sample(NamedTuple):
    """Statistics of the log ratios l_i that were read."""

    n: int  # how many were read
    n_local: int  # how many there are
    mean: float
    m2: float  # sum of the squared deviations from the mean
    low: float  # the smallest
    high: float  # the largest
    center: float  # mean of the first batch
    absolute: float  # sum of |l_i - center|
    cubed: float  # sum of |l_i - center|^3
    signed_cubed: float  # sum of (l_i - center)^3


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
    """The functions of a decision rule."""

    draw: Draw  # ``(rng) -> float``; psi = (draw - [global log ratio] - log_hastings) / N
    # ``(schedule, stage, sample, psi, width) -> bool``: is the evidence enough? `width` bounds the range of
    # all N log ratios, for rules that say they need it.
    decide: Decide
    accept: Accept  # ``(schedule, sample, psi, rng) -> bool``, called once, after the last row is read
    # ``(schedule, sample) -> int``, called after `decide` has said no. Above 0: so many rows that were not
    # read, drawn at random, make a sample of their own, which is handed to `accept`. They have to be there,
    # and fill whole blocks. 0: read on.
    others: Others = no_others
    # ``(schedule, sample) -> bool``: did `accept` take the variance for smaller than `sample` shows? It is
    # counted in the sample statistic `clipped`.
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
    """The rule with a `batch_size` for `n_local` terms, if it has one; `ValueError` if it is larger.

    `default` takes the place of the rule's own `default_batch_size`.
    """
    chosen = getattr(rule, "batch_size", None)
    if chosen is None and not hasattr(rule, "default_batch_size"):
        return rule
    if default is None:
        default = getattr(rule, "default_batch_size", n_local)
    size = first_batch(chosen, default, n_local)
    return rule if chosen == size else replace(cast(Any, rule), batch_size=size)


def growing_ends(first: int, growth: float, n_local: int) -> list[int]:
    """Sizes of a subsample that grows by a factor, and by at least one term, up to those below `n_local`."""
    ends, n = [], first
    while n < n_local:
        ends.append(n)
        n = max(n + 1, math.ceil(growth * n))
    return ends


class MetropolisRule:
    """A rule that decides as Metropolis's, or nearly so."""

    def target_accept(self, n_dim: int) -> float:
        """Acceptance rate for Metropolis's rule."""
        return 0.44 if n_dim <= 2 else 0.234  # Roberts & Rosenthal (2001)


class BarkerRule:
    """A rule that decides as Barker's, or nearly so."""

    def target_accept(self, n_dim: int) -> float:
        """Acceptance rate for Barker's rule."""
        for largest, rate in ((1, 0.27), (2, 0.23), (4, 0.21), (10, 0.19), (20, 0.17)):
            if n_dim <= largest:
                return rate
        return 0.16  # The rate tends to 0.158 (Agrawal et al. 2023)


@jitable
def log_uniform(rng: np.random.Generator) -> float:
    """Metropolis's rule: log u, u ~ U(0, 1)."""
    u = rng.random()
    return math.log(u) if u > 0.0 else -math.inf


@jitable
def logistic(rng: np.random.Generator) -> float:
    """Draw from the logistic distribution by inversion."""
    u = rng.random()
    return math.log(u / (1.0 - u)) if u > 0.0 else -math.inf


@jitable
def all_seen(schedule: Schedule, stage: int, sample: Sample, psi: float, width: float) -> bool:
    """Has every term been seen?"""
    return sample.n == sample.n_local


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


# Decisions from all the data: Metropolis's test, and Barker's ----------------------------------------------


class _OfAllTerms:
    """A rule that reads all N local terms, in one stage."""

    def bind(self, n_local: int) -> Schedule:
        """One stage of all the terms."""
        return Schedule(np.array([n_local], dtype=np.int64), np.array([0.0]))

    def error_bound(self, n_local: int) -> float:
        """Error of acceptance probabilities: 0, since all terms are read."""
        return 0.0


@dataclass(frozen=True)
class Exact(MetropolisRule, _OfAllTerms):
    """Metropolis's test on all N local terms: accept if log u < log ratio.

    Notes
    -----
    *Guarantee*: the ordinary Metropolis-Hastings algorithm. Steps keep the sum of the l_i at the current
    state, so a transition evaluates every term once, at the proposed state.

    *When it fails*: it does not; it costs O(N) for each transition. Where the terms depend on variables that
    other steps have moved since, the current state is evaluated too.

    Examples
    --------
    >>> from pymc_austerity.acceptance import Exact
    >>> Exact().error_bound(n_local=10_000)
    0.0

    It is what a step uses that is told nothing else: ``MetropolisHastings(acceptance=Exact())``.
    """

    @property
    def functions(self) -> RuleFunctions:
        """Decided when everything is seen."""
        return RuleFunctions(log_uniform, all_seen, above)


@dataclass(frozen=True)
class ExactBarker(BarkerRule, _OfAllTerms):
    """Barker's test on all N local terms: accept with probability 1 / (1 + exp(-log ratio)).

    Notes
    -----
    Barker (1965); equations 9-10 of Seita et al. (2017): accept if the log ratio exceeds a logistic random
    number.

    *Guarantee*: detailed balance holds exactly. For one proposal Barker's test accepts less often than
    Metropolis's, at least half as often.

    *When it fails*: it does not; it costs O(N) for each transition, as `Exact`.

    Examples
    --------
    >>> from pymc_austerity.acceptance import ExactBarker
    >>> ExactBarker().target_accept(n_dim=10)
    0.19

    Give it to a step: ``MetropolisHastings(acceptance=ExactBarker())``.
    """

    @property
    def functions(self) -> RuleFunctions:
        """Decided when everything is seen."""
        return RuleFunctions(logistic, all_seen, above)
