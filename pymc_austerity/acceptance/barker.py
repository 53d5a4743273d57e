"""The minibatch Barker test of Seita, Pan, Chen & Canny (2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.acceptance.barker_correction import Correction, correction, draw_correction
from pymc_austerity.acceptance.barker_noise import noise_variance, normal_distance
from pymc_austerity.acceptance.barker_pilot import clipped, everything, others_for
from pymc_austerity.acceptance.barker_skewness import accept_with_skewness
from pymc_austerity.acceptance.base import RuleFunctions, Sample
from pymc_austerity.acceptance.exact import barker_target_accept, logistic
from pymc_austerity.compilation import jitable
from pymc_austerity.validation import first_batch, is_real, is_whole

# No standardised variable makes the bound of corollary 1 smaller than this over sqrt(n).
_SMALLEST_CONSTANT = 8.4


@dataclass(frozen=True)
class Barker:
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
    (`acceptance/barker_skewness.py` derives it). This takes the place of supplement E of the paper, whose
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
        if self.batch_size is not None and not (is_whole(self.batch_size) and self.batch_size >= 2):
            raise ValueError(
                f"batch_size must be an integer of at least 2, got {self.batch_size!r}: one term has no "
                "variance."
            )
        if self.max_error is not None and not (is_real(self.max_error) and 0.0 < self.max_error < math.inf):
            raise ValueError(f"max_error must be a positive number or None, got {self.max_error!r}.")
        for name, given in (("pilot", self.pilot), ("skew_correction", self.skew_correction)):
            if not isinstance(given, bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {given!r}.")
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

    def target_accept(self, n_dim: int) -> float:
        """Acceptance rate for Barker's rule."""
        return barker_target_accept(n_dim)

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


class BarkerSchedule(NamedTuple):
    """Stages of the minibatch Barker test; `ends` and `block` as in `Schedule`."""

    ends: npt.NDArray[np.int64]
    block: int
    max_error: float
    correction: Correction


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
