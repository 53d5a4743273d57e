"""`range_bound=` of a step: where the bound on the range of the log ratios comes from."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable
from pymc.initial_point import PointType

from pymc_austerity.bounds.certificate import RangeCertificates, certify
from pymc_austerity.exceptions import SubsamplingWarning
from pymc_austerity.kernels.ranges import RangeOf, certified_range, exact_range, no_range
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.predictor import linear_predictors


class RangeBound(NamedTuple):
    """A bound on the range of the log ratios, ready for a kernel.

    Attributes
    ----------
    function : callable
        See `kernels.ranges`.
    at : callable
        ``(point) -> bound``: the first argument of `function`, for the present values of other variables.
    compilable : bool, default True
        Whether `function` is known to compile.
    """

    function: RangeOf
    at: Callable[[PointType], Any]
    compilable: bool = True


def _nothing(point: PointType) -> int:
    return 0


NO_RANGE = RangeBound(no_range, _nothing)


def range_bound_of(given: Any, q: np.ndarray) -> RangeBound:
    """Make sense of what a user gave as `range_bound`: "exact", or a function.

    Raises
    ------
    ValueError
        If it is neither, or the function returns anything but a finite number that is not negative.
    """
    if isinstance(given, str) and given == "exact":
        warnings.warn(
            'range_bound="exact" evaluates all terms at each transition to find the range of their log '
            "ratios. `n_used` counts those of the decision only.",
            SubsamplingWarning,
            stacklevel=5,
        )
        return RangeBound(exact_range, _nothing)
    if callable(given) and not isinstance(given, type):
        return _from_function(given, q)
    raise ValueError(f'range_bound must be "exact" or a function (q, q_new) -> float, got {given!r}.')


def certificates_of(factorisation: Factorisation, point: PointType) -> RangeCertificates:
    """Certificates for all local terms, in one pass over the data.

    Raises
    ------
    ValueError
        If none is known for a term.
    """
    try:
        return certify(linear_predictors(factorisation), point)
    except ValueError as error:
        raise ValueError(
            f"No bound on the range of the log ratios is known for this model: {error}. Give range_bound, a "
            'function (q, q_new) -> float that bounds max_i l_i - min_i l_i, or range_bound="exact", which '
            "evaluates all terms at each transition; or use AusterityMH, which needs no bound."
        ) from None


def certified(certificates: RangeCertificates, factorisation: Factorisation) -> RangeBound:
    """Use certificates, which may have been made in another process."""
    if not any(len(rows) for rows in certificates.references):
        return RangeBound(certified_range, lambda point: certificates.certificates)
    return RangeBound(certified_range, replace(certificates, predictors=linear_predictors(factorisation)).at)


def _from_function(function: Callable[..., Any], q: np.ndarray) -> RangeBound:
    value = function(q.copy(), q.copy())
    if not isinstance(value, int | float | np.number) or not 0.0 <= value < math.inf:
        raise ValueError(
            "range_bound must return a finite number >= 0 that bounds max_i l_i - min_i l_i; it returned "
            f"{value!r} for q_new = q."
        )
    if inspect.isfunction(function):
        function = register_jitable(function)

    @register_jitable
    def range_of(bound: Any, q_new: np.ndarray, q: np.ndarray, args: Any, n_local: int, target: Any) -> float:
        width = function(q.copy(), q_new.copy())
        if not 0.0 <= width < math.inf:
            raise ValueError(
                "range_bound must return a finite number >= 0 that bounds max_i l_i - min_i l_i; it returned "
                "{0!r}.",
                width,
            )
        return width

    return RangeBound(range_of, _nothing, compilable=False)
