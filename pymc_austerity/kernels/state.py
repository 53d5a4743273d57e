"""Where a state is, in the coordinates in which bounds are stated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.extending import overload

from pymc_austerity.target import Vector


def features_at(target: Any, q: Vector, args: tuple[Any, ...]) -> Vector:
    """phi(q), if terms are expanded in features of the state; else q itself.

    Which of both is known when a kernel is compiled: a target has `features`, like `FeatureTarget`, or not.
    """
    if hasattr(target, "features"):
        phi: Vector = target.features(q, args)
        return phi
    return q


@overload(features_at, strict=False)
def _features_at(target: Any, q: Any, args: Any) -> Callable[..., Any]:
    if "features" in target.fields:
        return lambda target, q, args: target.features(q, args)
    return lambda target, q, args: q
