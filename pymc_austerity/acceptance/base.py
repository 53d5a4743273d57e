"""What a decision rule is to a kernel.

A rule has two faces. The user's is a small frozen object, validated when it is made. The kernel's is what
``bind(n_local)`` returns: a `Schedule` of numbers, and a pure function ``decide`` written in the subset of
Python that numba compiles, so that the same source runs interpreted and compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable


class Schedule(NamedTuple):
    """Stages of a sequential decision about the mean of N numbers.

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


Decide = Callable[[Schedule, int, int, int, float, float, float], bool]


class AcceptanceRule(Protocol):
    """A decision rule, as a user gives it to a step."""

    @property
    def decide(self) -> Decide:
        """``(schedule, stage, n, n_local, mean, m2, psi) -> bool``: is the evidence enough?

        `mean` is the mean of the n log ratios seen, `m2` the sum of their squared deviations from
        it. The move is accepted if ``mean > psi`` when the rule has decided; a tie rejects.
        """

    def bind(self, n_local: int) -> Schedule:
        """Return the stages for a population of `n_local` terms."""


@register_jitable
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
