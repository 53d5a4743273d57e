"""The compiled transitions between sub-models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pymc.initial_point import PointType

from pymc_austerity.kernels.jumps import counted_full_transitions, counted_transitions, selected_range
from pymc_austerity.kernels.metropolis import Outcome
from pymc_austerity.step_methods.metropolis.engine.base import RangeBound
from pymc_austerity.step_methods.metropolis.engine.sequential import Engine


class JumpEngine(Engine):
    """`Engine` whose transitions are counted by their kind, and whose proposal has the tally."""

    _of_all_terms: ClassVar[Callable[..., Outcome]] = staticmethod(counted_full_transitions)
    _of_samples: ClassVar[Callable[..., Outcome]] = staticmethod(counted_transitions)


def of_coefficients(range_bound: RangeBound, n_coefficients: int) -> RangeBound:
    """A bound by certificates of the full model, for states with indicators."""

    def at(point: PointType) -> Any:
        return range_bound.at(point), n_coefficients

    return RangeBound(selected_range, at)
