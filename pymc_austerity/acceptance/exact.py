"""The Metropolis-Hastings test on all the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.acceptance.base import Decide, Schedule


@dataclass(frozen=True)
class Exact:
    """Decide from all N local terms.

    Notes
    -----
    *Guarantee*: the ordinary Metropolis-Hastings test, in one stage. No random numbers are spent on
    drawing a subsample.

    *When it fails*: it does not; it costs O(N) for each transition.
    """

    def bind(self, n_local: int) -> Schedule:
        """One stage of all the terms."""
        return Schedule(np.array([n_local], dtype=np.int64), np.array([0.0]))

    @property
    def decide(self) -> Decide:
        """Always decided, since the only stage sees everything."""
        return all_seen


@register_jitable
def all_seen(
    schedule: Schedule, stage: int, n: int, n_local: int, mean: float, m2: float, psi: float
) -> bool:
    """Has every term been seen?"""
    return n == n_local
