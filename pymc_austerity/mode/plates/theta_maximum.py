"""The maximum of the Laplace marginal of theta for one expansion, in coordinates in which it is round."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_austerity import work
from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.kernels.plates.outer import Outer
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.mode.newton import Density, NoMaximumError, maximise
from pymc_austerity.mode.plates.effects_excess import EffectsExcess
from pymc_austerity.mode.plates.outer_density import log_scales
from pymc_austerity.mode.plates.shared_map import SharedMap, no_map, shared_map
from pymc_austerity.mode.plates.theta_density import (
    SharedTerms,
    likelihood_with_slopes,
    marginal,
    quadratic_derivatives,
)
from pymc_austerity.target import Index, Matrix, Vector

# What may be the matter, and what to do about it.
WHY_NO_MODE = (
    "Give proper priors, to the scale of the effects too, and to coefficients where the data separate the "
    "responses perfectly. If all are proper, the data may say nothing of the "
    "level of the effects, as where all outcomes are zero and there is no intercept: it and their scale then "
    "drift into the tails of their priors. Add an intercept, or give the scale a prior with a lighter tail."
)
# Logarithms of a scale that are far below all that data can tell.
_FAR_BELOW = (-30.0, -60.0)
_FALLS = 1e-6
# Length of the last Newton step, in standard deviations.
_NEAR = 1e-3
# Operations for a group, and for a second derivative.
_OF_GROUP, _OF_SQUARE = 100.0, 20.0


class ThetaMaximum(NamedTuple):
    """A maximum, in coordinates zeta."""

    map: SharedMap
    # zeta, theta (q,)
    zeta: Vector
    theta: Vector
    precision: Matrix  # (q, q): minus the Hessian by zeta
    slopes: Matrix  # (q, q): d theta / d zeta
    density: Density  # callable: the log density of zeta that has this maximum, with gradient and Hessian


class InnerCoordinates(NamedTuple):
    """Coordinates of inner effects, and the locations of their priors as functions of theta."""

    coordinates: list[Index]
    locations: Callable[[Vector], list[Vector]]


def mapped_coordinates(
    inner: list[Index], locations: Callable[[Vector], list[Vector]], outer: Index
) -> InnerCoordinates:
    """Inner effects without those of outer groups, which are integrated out."""
    kept = [one if not np.isin(one, outer).any() else one[:0] for one in inner]

    def at(theta: Vector) -> list[Vector]:
        return [found[: len(one)] for found, one in zip(locations(theta), kept, strict=True)]

    return InnerCoordinates(kept, at)


def maximum_at(
    name: str,
    shared: SharedTerms,
    sums: GroupSums,
    inner: InnerCoordinates,
    outer: Outer,
    excess: EffectsExcess,
    start: Vector,
) -> ThetaMaximum:
    """Search from theta = `start`; `name` is that of the likelihood, for the error.

    Raises
    ------
    NoNormalApproximationError
        If there is no maximum.
    """
    own = _map_at(shared, sums, inner, start)

    def theta_of(zeta: Vector) -> Vector:
        return own.to_theta(zeta, shared.inner_scales(zeta) ** 2)

    def density(zeta: Vector) -> tuple[float, Vector, Matrix]:
        work.spend(_OF_GROUP * len(sums.effects) + _OF_SQUARE * len(zeta) ** 2, "The fit of a plate")
        theta = theta_of(zeta)
        at = shared(theta)
        found = own.density(marginal(at, sums, theta, excess), zeta, at)
        if len(outer.columns):  # neither log S_h nor v is a function of coordinates that the map changes
            found = found.plus(log_scales(outer, sums, at))
        return found.value, found.gradient, found.hessian

    try:
        with np.errstate(all="ignore"):  # far out scales overflow, and the search turns back
            found = maximise(density, own.to_zeta(start, shared.inner_scales(start) ** 2), near=_NEAR)
    except NoMaximumError as error:
        raise NoNormalApproximationError(
            f"The shared variables of the groups of {name!r} have no mode: {error.reason}. {WHY_NO_MODE}"
        ) from None
    zeta = found.mode
    theta = theta_of(zeta)
    return ThetaMaximum(own, zeta, theta, found.precision, own.slopes_at(zeta, shared(theta)), density)


def _map_at(shared: SharedTerms, sums: GroupSums, inner: InnerCoordinates, theta: Vector) -> SharedMap:
    at = shared(theta)
    if not any(len(one) for one in inner.coordinates):
        return no_map()
    n = len(sums.linear)
    information, square = np.zeros((len(theta), len(theta))), np.ix_(sums.linear, sums.linear)
    d = theta[sums.linear] - sums.center
    if at.factor:
        _, _, hessian = likelihood_with_slopes(at, sums, d)
    else:
        _, _, hessian = quadratic_derivatives(sums, d, at.log_square.value, at.log_precision.value)
    information[square] = -hessian[:n, :n]
    own = np.concatenate(inner.coordinates)
    others = np.setdiff1d(sums.linear, own)
    prior = np.ix_(others, others)
    information[prior] -= at.prior.hessian[prior]
    return shared_map(at, inner.coordinates, inner.locations(theta), information, theta)


def require_mass(name: str, shared: SharedTerms, theta: Vector, hyper: Index) -> None:
    """Refuse a prior of the effects' scale that has infinite mass near zero, where data do not outweigh it.

    Parameters
    ----------
    name : str
        Of the likelihood, for the error.
    shared : SharedTerms
    theta : ndarray (q,)
    hyper : ndarray of int
        Coordinates of theta that are no coefficients.

    Raises
    ------
    NoNormalApproximationError
        The likelihood tends to that without effects as their scale goes to zero, and not to zero.
    """
    for k in hyper:
        near, far = (shared(theta + step * (np.arange(len(theta)) == k)) for step in _FAR_BELOW)
        fall = near.log_square.value - far.log_square.value
        mass = far.prior.value - near.prior.value
        if 0.0 < fall < np.inf and np.isfinite(mass) and mass >= -_FALLS * fall:
            raise NoNormalApproximationError(
                f"The posterior of the groups of {name!r} is improper: as {shared.name_of(int(k))} falls, "
                "the scale of the effects goes to zero, and the prior gives that infinite mass (1/tau does). "
                "Give the scale a proper prior, such as pm.HalfNormal."
            )
