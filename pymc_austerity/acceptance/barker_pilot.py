"""Barker's minibatch test after a pilot: a first batch says how many rows decide, and others decide.

If batches are added until s^2 < 1, the batch that stops the reading is one whose s^2 is small. For skewed
terms s^2 and the estimate D* of the log ratio are correlated, so the estimate is biased where reading stops.
Rows that were chosen without a look at them have no such bias.
"""

from __future__ import annotations

import math
from typing import Any

from pymc_austerity.acceptance.barker_noise import noise_variance
from pymc_austerity.acceptance.base import Sample
from pymc_austerity.compilation import jitable

# The s^2 that a pilot aims at: an s^2 of the deciding rows that is off by 2/5 does not exceed 1.
AIM = 0.7


@jitable
def everything(schedule: Any, stage: int, sample: Sample, psi: float, width: float) -> bool:
    """A pilot decides nothing, unless it is all there is."""
    return sample.n == sample.n_local


@jitable
def others_for(schedule: Any, sample: Sample) -> int:
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
def clipped(schedule: Any, sample: Sample) -> bool:
    """Whether the rows that decide show an s^2 above 1, which is then taken as 1."""
    return sample.n < sample.n_local and noise_variance(sample) > 1.0
