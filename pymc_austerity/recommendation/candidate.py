"""`Choice`: a step that is not yet made, and why it was chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pymc_austerity.recommendation.nuts import NUTS
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.recommendation import Recommendation

EXACT_GUARANTEE = "exact: the posterior is the stationary distribution, up to rounding"


@dataclass(frozen=True)
class Choice:
    """A step that is not yet made, and why it was chosen.

    Attributes
    ----------
    why : Recommendation
    make : callable
        ``() -> step``; this compiles.
    is_of_search : bool
        Whether what the search for the evidence had to tell is about this step.
    is_exact : bool
    """

    why: Recommendation
    make: Callable[[], SubsampledStep | NUTS]
    is_of_search: bool = False
    is_exact: bool = True
