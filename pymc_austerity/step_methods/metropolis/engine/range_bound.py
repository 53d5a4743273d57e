"""Bounds on the range of the log ratios, for rules that need one: from the user, or from the model.

No other rule imports this: families of likelihoods come with it.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.bounds.log_ratio_range import RangeCertificates, certify
from pymc_austerity.bounds.remainder import RemainderCertificate
from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import CompiledError, UnboundedError, warn
from pymc_austerity.kernels.log_ratio_range import certified_range, certified_remainder_range, exact_range
from pymc_austerity.mode.mode_fit import ModeFit
from pymc_austerity.model.structure.term_structure import TermStructure
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


def certificates_of(
    structure: TermStructure, point: PointType, mode_fit: ModeFit | None
) -> RangeCertificates | RemainderCertificate:
    """Certificates for all local terms, or those of their remainders, without what has size N."""
    if mode_fit is not None and mode_fit.expansion is not None:
        if mode_fit.certificate is None:
            raise _unbounded("Taylor remainders", mode_fit.no_certificate)
        return mode_fit.certificate
    try:
        return replace(certify(structure.linear_predictors, point), predictors=())
    except UnboundedError as error:
        raise _unbounded("log ratios", str(error)) from None


def _unbounded(what: str, reason: str) -> UnboundedError:
    return UnboundedError(
        f"No bound on the range of the {what} is known for this model: {reason.rstrip('.')}. Give "
        "range_bound, a function (q, q_new) -> float that bounds max_i l_i - min_i l_i (of the remainders, "
        'if there is a control_variate), or range_bound="exact", which evaluates all terms at each '
        "transition; or use AusterityMH, which needs no bound."
    )


def certified(certificates: RangeCertificates | RemainderCertificate, structure: TermStructure) -> RangeBound:
    """Use certificates, which may have been made in another process."""
    if isinstance(certificates, RemainderCertificate):
        return RangeBound(certified_remainder_range, lambda point: certificates, functions=("features",))
    if not any(len(rows) for rows in certificates.references):
        return RangeBound(certified_range, lambda point: certificates.certificates)
    predictors = structure.linear_predictors
    return RangeBound(certified_range, replace(certificates, predictors=predictors).at)


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
