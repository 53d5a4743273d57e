"""Bounds on the range of the log ratios, for rules that need one: from the user, or from the model."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_austerity.bounds.remainder import RemainderCertificate
from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import CompiledError, warn
from pymc_austerity.kernels.log_ratio_range import certified_range, exact_range
from pymc_austerity.step_methods.metropolis.engine.base import RangeBound, nothing


def range_bound_of(given: Any, q: np.ndarray) -> RangeBound:
    """Make sense of what a user gave as `range_bound`: "exact", or a function."""
    if isinstance(given, str) and given == "exact":
        warn(
            'range_bound="exact" evaluates all terms at each transition to find the range of their log '
            "ratios. `n_used` counts those of the decision only."
        )
        return RangeBound(exact_range, nothing)
    if callable(given) and not isinstance(given, type):
        return _from_function(given, q)
    raise ValueError(f'range_bound must be "exact" or a function (q, q_new) -> float, got {given!r}.')


def certified(certificate: RemainderCertificate) -> RangeBound:
    """Use a certificate, which may have been made in another process."""
    return RangeBound(certified_range, lambda point: certificate, functions=("features",))


class RangeFunctionError(CompiledError):
    """A function of the user returned what cannot be a range."""

    sentence = (
        "range_bound must return a finite number >= 0 that bounds max_i l_i - min_i l_i; it returned {0}."
    )


def _from_function(function: Callable[..., Any], q: np.ndarray) -> RangeBound:
    value = function(q.copy(), q.copy())
    if not isinstance(value, int | float | np.number) or not 0.0 <= value < math.inf:
        raise RangeFunctionError(f"{value!r} for q_new = q")
    if inspect.isfunction(function):
        function = jitable(function)

    @jitable
    def range_of(bound: Any, q_new: np.ndarray, q: np.ndarray, args: Any, rows: Any, target: Any) -> float:
        width = function(q.copy(), q_new.copy())
        if not 0.0 <= width < math.inf:
            raise RangeFunctionError(width)
        return width

    return RangeBound(range_of, nothing, compilable=False)
