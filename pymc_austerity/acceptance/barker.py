r"""The minibatch Barker test of Seita, Pan, Chen & Canny (2017).

Rows are read until the noise of their estimate of the log ratio is less than that of a standard normal
variable. What the noise lacks of a logistic variable is drawn: a normal variable, and a correction X_corr.

Reading that stops as s^2 falls below 1 stops at a batch whose s^2 is small. For skewed terms s^2 and the
estimate D* of the log ratio are correlated, so the estimate is biased where reading stops. Rows that were
chosen without a look at them have no such bias. So a first batch may be a *pilot*, which only says how many
rows decide, and others decide. What is left is an error of skewed terms (supplement E of the paper). To first
order it can be corrected.

Let D* = D + e be the estimate of the log ratio D from n of N terms, s^2 its estimated variance, sigma^2 the
true one, k the third cumulant of e, and S the logistic function. The test adds a variable whose distribution
function G_v, at v = s^2, is that of N(0, 1 - v) + X_corr, and accepts with probability G_v(D*). As G_v of x
plus a N(0, v) variable has expectation S(x),

    G_v = exp(-v/2 d^2) S,    E f(D + e) = exp(sigma^2/2 d^2 + k/6 d^3) f(D),    d = d/dx,

for any smooth f. If s^2 = sigma^2 were known the test would accept with probability S + (k/6) S'''. But s^2
is correlated with e, and the derivative of G_v by v is -G_v''/2: that adds -Cov(e, s^2)/2 S'''. With terms
drawn with replacement Cov(e, s^2) = k = N^3 m_3 / n^2, where m_3 is the third central moment of the terms,
and the test errs by -(k/3) S'''(D). Without replacement, with f = n/N,

    k = N^3 m_3 / n^2 (1 - f)(1 - 2f),    Cov(e, s^2) = N^3 m_3 / n^2 (1 - f)^2,

so the error is -g S'''(D) with g = N^3 m_3 / n^2 (1 - f)(1/3 - f/6).

To add g S'''(D*) is not enough, as the noise of D* flattens it: at D = 0 and sigma = .9 its expectation is
-.069 g, where -.125 g is wanted. What has expectation S'''(D) is G_v'''(D*). So the test accepts with
probability

    G_v(D*) + g G_v'''(D*),    v = min(s^2, 1),

with g from the deciding rows, cut off at 0 and 1. As G_v is a sum of normal distribution functions of
variance 1 - v, its third derivative grows without bound as v comes near 1. It is taken at v = .7 there, which
loses up to a third of the correction.

All this is true to first order in the skewness of the mean. It leaves out that g is itself estimated from the
rows of D*, and that s^2 above 1 is cut off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
import scipy
from scipy.special import expit, ndtr

from pymc_austerity.acceptance.base import BarkerRule, RuleFunctions, Sample, logistic
from pymc_austerity.compilation import jitable
from pymc_austerity.target import Index, Vector
from pymc_austerity.validation import first_batch, require_real, require_switches, require_whole

# No standardised variable makes the bound of corollary 1 smaller than this over sqrt(n).
_SMALLEST_CONSTANT = 8.4
# The s^2 that a pilot aims at: an s^2 of the deciding rows that is off by 2/5 does not exceed 1.
AIM = 0.7
# Smallest variance of the normal part: below, its distribution function is a step.
_STEP = 1e-12
# V of the paper: a logistic variable is beyond it with probability 4e-9.
_REACH = 20.0
_SPACING = 0.25  # of the grid


@dataclass(frozen=True)
class Barker(BarkerRule):
    """Barker's test in which the noise of the subsample is part of the test's own randomness.

    Parameters
    ----------
    batch_size : int >= 2, optional
        Terms in the first batch, and added at each stage. Default: 100, or all of them if there are fewer.
    max_error : float > 0, optional
        Read on until the bound of corollary 1 on the distance of the batch mean from a normal variable is
        below this. Default: no such test.
    pilot : bool, default False
        The first batch only says how many rows decide: as many others as have s^2 = 0.7 by its variance, and
        no fewer than its own. Not together with `max_error`.
    skew_correction : bool, default False
        With `pilot` only: without the error that skewed terms make, to first order.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or does not go with another.

    Notes
    -----
    Algorithm 1 of Seita et al. (2017) with its errata. Barker's test accepts if D + X_log > 0, with D the log
    acceptance ratio and X_log logistic. The estimate D* of D from n terms has nearly normal noise with
    variance s^2, and X_log is the sum of a standard normal variable and a correction X_corr (equation
    12). So terms are read until s^2 = N^2 s_l^2 / n (1 - n / N) < 1, and the move is accepted if
    D* + X_nc + X_corr > 0, with X_nc ~ N(0, 1 - s^2). If all N terms are read it is the exact test. A
    batch in which all terms are equal decides nothing. The bound of corollary 1 is
    (6.4 E|X|^3 / s^3 + 2 E|X| / s) / sqrt(n), of standardised variables; central moments are taken about the
    mean of the first batch and enlarged by its distance from the mean, so they are never understated.

    With `pilot` n other rows decide in one go. If their own s^2 is above 1 it is taken as 1, which the sample
    statistic `clipped` counts. If fewer than n are left, all N are read and the test is exact. `n_used` has
    the rows of the pilot too. With `skew_correction` the acceptance probability is G(D*) + g G'''(D*), with G
    the distribution function of X_nc + X_corr and g from the third moment of the rows
    (`acceptance/barker.py` derives it). This takes the place of supplement E of the paper, whose
    table starts from a studentised mean, and is added to another test than algorithm 1.

    *Guarantee*: none at finite n. If batch means were exactly normal with the variance that the batch
    shows, acceptance probabilities would be Barker's up to 1e-6, the error of X_corr.

    *When it fails*: for skewed l_i, and where a few rows carry their variance: these are missed, s^2 is too
    small, and the test stops early. Stopping as s^2 falls below 1 favours samples whose variance is too
    small, and for skewed terms moves the estimate: for exponential terms, N = 10,000 and batches of 200 with
    s = 0.9, the acceptance probability at D = -1 is .016 too small. With `pilot` it is .002 too large, for
    twice the rows; at skewness 4 errors of .006 are left, and with `skew_correction` .002. In the mixture of
    Seita et al. posterior standard deviations are about 2 % too small with batches of 100; with a pilot, or
    with 200 or 1000, no consistent difference is seen (with 1000 they are 1.015 times the exact ones at one
    seed, z = 3.2, and .997 times at another; ``examples/barker_mixture.py --full``). At temperature 1 and
    with steps of the size of the posterior the l_i have a variance that takes most of the data: the test is
    made for high temperatures and small steps.

    Examples
    --------
    >>> from pymc_austerity.acceptance import Barker
    >>> rule = Barker(batch_size=200)
    >>> rule.bind(n_local=1000).ends
    array([ 200,  400,  600,  800, 1000])

    `MinibatchBarker` uses it: ``MinibatchBarker(batch_size=200)``.
    """

    batch_size: int | None = None
    max_error: float | None = None
    pilot: bool = False
    skew_correction: bool = False

    default_batch_size: ClassVar[int] = 100

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            require_whole(2, "One term has no variance.", batch_size=self.batch_size)
        if self.max_error is not None:
            require_real("max_error", self.max_error, "(0, inf)", "With None there is no such test.")
        require_switches(pilot=self.pilot, skew_correction=self.skew_correction)
        if self.pilot and self.max_error is not None:
            raise ValueError(
                f"max_error={self.max_error!r} reads on until a bound is met, and with pilot=True the first "
                "batch says once and for all how much is read. Leave out one of the two."
            )
        if self.skew_correction and not self.pilot:
            raise ValueError(
                "skew_correction=True needs pilot=True. Where reading stops as s^2 falls below 1, it makes "
                "the test err more: for gamma terms of shape 1/4 by -.016 instead of -.009."
            )

    @property
    def implied_batch_size(self) -> int:
        """The fewest terms with which `max_error` can be met, whatever the model; 0 without it."""
        return 0 if self.max_error is None else math.ceil((_SMALLEST_CONSTANT / self.max_error) ** 2)

    def bind(self, n_local: int) -> BarkerSchedule:
        """Batch ends for a population of `n_local` terms, and the distribution of the correction."""
        batch = first_batch(self.batch_size, self.default_batch_size, n_local)
        inner = np.arange(batch, n_local, batch)[: 1 if self.pilot else None]
        max_error = math.inf if self.max_error is None else self.max_error
        return BarkerSchedule(np.append(inner, n_local).astype(np.int64), 1, max_error, correction())

    def error_bound(self, n_local: int) -> float:
        """Error that an estimated variance makes, for normal batch means, and 1e-6 for the correction.

        With s^2 for sigma^2 the noise has variance 1 + sigma^2 - s^2 instead of 1. To first order this moves
        acceptance probabilities by up to ``|sigma^2 - s^2| / 2`` times the largest slope of the logistic
        density, 0.0963. Of n normal terms ``E|sigma^2 - s^2|`` is at most sigma^2 sqrt(2 / (n - 1)), and
        sigma^2 is taken to be at most 2 where reading stops.

        An approximation for batches of some tens or more: a batch of b terms with sigma^2 = 2 shows s^2 < 1
        with probability P(chi^2_{b-1} < (b - 1) / 2), 8e-6 for b = 100, 0.01 for 30, but 0.12 for 10.
        That the stage is chosen by its s^2 is neglected, as is that errors of either sign nearly cancel.

        After a pilot of b terms sigma^2 has mean 0.7 (b - 1) / (b - 3), and s^2 is cut at 1. The bound holds:
        0.7 (b - 1) / (b - 3) sqrt(2 / (b - 1)) + E max(sigma^2 - 1, 0) is below 2 sqrt(2 / (b - 1)), b >= 6.
        """
        batch = first_batch(self.batch_size, self.default_batch_size, n_local)
        return 1e-6 + 0.0963 * math.sqrt(2.0 / (batch - 1))

    @property
    def functions(self) -> RuleFunctions:
        """Read until the noise is small enough, then add what is missing of a logistic variable."""
        if not self.pilot:
            return RuleFunctions(nothing_yet, small_noise, accept_noisily)
        accept = accept_with_skewness if self.skew_correction else accept_noisily
        return RuleFunctions(nothing_yet, everything, accept, others_for, clipped)


class Correction(NamedTuple):
    """Distribution of X_corr."""

    values: Vector  # (K,): its values, increasing: the points of a regular grid that have mass
    cumulative: Vector  # (K,): their masses, cumulated; the last is exactly 1


class BarkerSchedule(NamedTuple):
    """Stages of the minibatch Barker test; `ends` and `block` as in `Schedule`."""

    ends: Index
    block: int
    max_error: float
    correction: Correction


# The test ---------------------------------------------------------------------------------------------------


@jitable
def nothing_yet(rng: np.random.Generator) -> float:
    """The randomness comes with the subsample, and after it."""
    return 0.0


@jitable
def small_noise(schedule: BarkerSchedule, stage: int, sample: Sample, psi: float, width: float) -> bool:
    """Is the noise of the subsample no more than a standard normal variable's?"""
    if sample.n == sample.n_local:
        return True
    if not 0.0 < noise_variance(sample) < 1.0:
        return False
    return schedule.max_error == math.inf or normal_distance(sample) <= schedule.max_error


@jitable
def accept_noisily(schedule: BarkerSchedule, sample: Sample, psi: float, rng: np.random.Generator) -> bool:
    """Add to the noisy log ratio what its noise lacks of a logistic variable."""
    log_ratio = sample.n_local * (sample.mean - psi)
    if sample.n == sample.n_local:
        return log_ratio + logistic(rng) > 0.0
    # After a pilot s^2 may be above 1, and is taken as 1.
    missing = math.sqrt(max(0.0, 1.0 - noise_variance(sample))) * rng.standard_normal()
    return log_ratio + missing + draw_correction(schedule.correction, rng) > 0.0


@jitable
def noise_variance(sample: Sample) -> float:
    """Variance s^2 of N times the mean of n terms drawn without replacement."""
    n, n_local = sample.n, sample.n_local
    return n_local * (sample.m2 / (n - 1)) * n_local / n * (1.0 - n / n_local)


@jitable
def normal_distance(sample: Sample) -> float:
    """Corollary 1, for standardised variables: distance of the batch mean from a normal variable."""
    n = sample.n
    sd = math.sqrt(sample.m2 / n)
    # Minkowski: a norm about the mean is at most that about the center plus their distance.
    apart = abs(sample.mean - sample.center)
    first: float = (sample.absolute / n + apart) / sd
    third: float = ((sample.cubed / n) ** (1.0 / 3.0) + apart) / sd
    return (6.4 * third * third * third + 2.0 * first) / math.sqrt(n)


# A pilot ----------------------------------------------------------------------------------------------------


@jitable
def everything(schedule: BarkerSchedule, stage: int, sample: Sample, psi: float, width: float) -> bool:
    """A pilot decides nothing, unless it is all there is."""
    return sample.n == sample.n_local


@jitable
def others_for(schedule: BarkerSchedule, sample: Sample) -> int:
    """The fewest rows that have s^2 <= 0.7 by the variance of the pilot, but no fewer than its own.

    s^2 = N^2 s_l^2 / n (1 - n / N) is 0.7 at n = N^2 s_l^2 / (0.7 + N s_l^2). If so many are not left, or all
    terms of the pilot are equal, the rest of all N is read, and the exact test decides.
    """
    n, n_local = sample.n, sample.n_local
    spread = n_local * (sample.m2 / (n - 1))
    needed = n_local * spread / (AIM + spread)
    if not 0.0 < needed <= n_local - n:  # NaN, too
        return 0
    others = max(n, math.ceil(needed))
    others = (others + schedule.block - 1) // schedule.block * schedule.block
    return others if others <= n_local - n else 0


@jitable
def clipped(schedule: BarkerSchedule, sample: Sample) -> bool:
    """Whether the rows that decide show an s^2 above 1, which is then taken as 1."""
    return sample.n < sample.n_local and noise_variance(sample) > 1.0


# The correction X_corr --------------------------------------------------------------------------------------


@cache
def correction() -> Correction:
    """Distribution of X_corr for which X_norm + X_corr is logistic, with X_norm ~ N(0, 1).

    It is discrete and symmetric about 0. Every call gives the same object.

    Minimises |M u - v| of equation 15 over u >= 0, where M_ij = Phi(x_i - y_j), v_i is the logistic function
    at x_i and u_j the mass at y_j (M has no cell width, so u is not a density; it is normalised). The paper
    instead adds lambda |u|^2, solves without the constraint and sets negative masses to 0, which costs 5e-4
    to 2e-3 in the distribution function and 2 to 13 % of the variance (lambda from 10 to 0.01).

    *Guarantee*: no exact X_corr exists, but the distribution function of X_norm + X_corr is within 1e-6 of
    the logistic one (measured: 8e-8), and the variance of X_corr within 1e-5 of pi^2 / 3 - 1.

    *When it fails*: X_corr has few values (about 50; 0 has probability 0.4), so the sum is smooth only
    through X_norm. With a variable of another shape or variance in place of X_norm, the error is up to the
    distance of the two.
    """
    n = math.ceil(_REACH / _SPACING)
    y = _SPACING * np.arange(n + 1)
    x = _SPACING * np.arange(1, 2 * n + 1)[:, None]
    # By symmetry x > 0 is enough. Half of a mass is at y and half at -y; 1/2 is taken off both sides. Rows
    # beyond V ask for a sum of 1.
    M = 0.5 * (ndtr(x - y) + ndtr(x + y) - 1.0)
    # Needs up to 15 n steps, as the columns are nearly dependent; the default is 3 n.
    half, _ = scipy.optimize.nnls(M, expit(x[:, 0]) - 0.5, maxiter=100 * n)
    masses = np.concatenate((0.5 * half[:0:-1], half[:1], 0.5 * half[1:]))
    values: Vector = _SPACING * np.arange(-n, n + 1, dtype=np.float64)
    cumulative = np.cumsum(masses[masses > 0.0])  # without the points of no mass, which are most of them
    return Correction(values[masses > 0.0], cumulative / cumulative[-1])


@jitable
def draw_correction(correction: Correction, rng: np.random.Generator) -> float:
    """Draw X_corr, by inversion."""
    # To the right: a uniform number equal to a cumulated mass belongs to the next value.
    return float(correction.values[np.searchsorted(correction.cumulative, rng.random(), side="right")])


# Skewed terms -----------------------------------------------------------------------------------------------


@jitable
def accept_with_skewness(
    schedule: BarkerSchedule, sample: Sample, psi: float, rng: np.random.Generator
) -> bool:
    """Accept with the probability for which skewed terms make no error to first order."""
    log_ratio = sample.n_local * (sample.mean - psi)
    if sample.n == sample.n_local:
        return log_ratio + logistic(rng) > 0.0
    missing = 1.0 - noise_variance(sample)
    return rng.random() < probability(schedule.correction, log_ratio, missing, skewness_error(sample))


@jitable
def probability(correction: Correction, x: float, missing: float, g: float) -> float:
    """G_v(x) + g G_v'''(x) with v = 1 - `missing`; may be below 0 and above 1."""
    sd, smooth_sd = math.sqrt(max(missing, _STEP)), math.sqrt(max(missing, 1.0 - AIM))
    value = third = below = 0.0
    for k in range(correction.values.shape[0]):
        mass = correction.cumulative[k] - below
        below = correction.cumulative[k]
        # X_corr is symmetric about 0.
        apart = x + correction.values[k]
        value += mass * 0.5 * math.erfc(-apart / sd * math.sqrt(0.5))
        z = apart / smooth_sd
        third += mass * (z * z - 1.0) * math.exp(-0.5 * z * z)
    return value + g * third / (math.sqrt(2.0 * math.pi) * smooth_sd**3)


@jitable
def skewness_error(sample: Sample) -> float:
    """The g for which the test errs by -g times the third derivative of the logistic function.

    N^3 m_3 / n^2 (1 - n / N) (1/3 - n / (6 N)), with the unbiased estimate of m_3 = E(l_i - E l_i)^3. Two
    terms have no skewness.
    """
    n, n_local = sample.n, sample.n_local
    if n < 3:
        return 0.0
    apart = sample.mean - sample.center
    cubes = sample.signed_cubed - apart * (3.0 * sample.m2 + n * apart * apart)
    third = n_local * (n_local * (n_local * (cubes * n / ((n - 1.0) * (n - 2.0)))))
    share = n / n_local
    return third / n / n * (1.0 - share) * (1.0 / 3.0 - share / 6.0)
