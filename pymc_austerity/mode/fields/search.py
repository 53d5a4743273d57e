"""The search for the maximum of log p^ by theta."""

import math
from collections.abc import Callable, Iterable

import numpy as np

from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.mode.fields.maps import Coordinates
from pymc_austerity.target import Matrix, Vector

# Differences for derivatives of log p^.
_STEP = 1e-3
# Newton steps after each pass over the rows; the step at which they end, in posterior deviations.
_STEPS, EXACTLY, ROUGHLY = 12, 0.01, 0.3
# So far away a log density that changes by less is flat.
_FAR, _FLAT = 1e3, 1e-2


def maximum(
    log_density: Callable[[Vector], float],
    zeta: Vector,
    covariance: Matrix | None,
    near: float,
    most: int | None = None,
) -> tuple[Vector, Matrix, bool]:
    """The maximum, or a place `near` so many deviations of it or `most` steps away, and the covariance there.

    Second derivatives are those of `covariance`, with which an earlier search has ended, as long as steps
    with them get shorter fast. The last result is whether another search should still begin with them.
    """
    q = len(zeta)
    steps = np.eye(q) * _STEP

    def value(zeta: Vector) -> float:
        found = -log_density(zeta)
        return found if np.isfinite(found) else 1e300

    def gradient(zeta: Vector) -> Vector:
        return np.array([(value(zeta + s) - value(zeta - s)) / (2.0 * _STEP) for s in steps])

    def hessian(zeta: Vector) -> Matrix:
        middle, far = value(zeta), 10.0 * steps
        sides = np.array([value(zeta + s) + value(zeta - s) - 2.0 * middle for s in far])
        found = np.diag(sides)
        for j, k in zip(*np.triu_indices(q, 1), strict=True):
            s = far[j] + far[k]
            both = value(zeta + s) + value(zeta - s) - 2.0 * middle
            found[j, k] = found[k, j] = 0.5 * (both - sides[j] - sides[k])
        return found / (10.0 * _STEP) ** 2

    last, h = math.inf, None if covariance is None else np.linalg.inv(covariance)
    for _ in range(_STEPS if most is None else most):
        g = gradient(zeta)
        h = hessian(zeta) if h is None else h
        lam, vectors = np.linalg.eigh(h)
        lam = np.maximum(np.abs(lam), 0.1)
        move = -vectors @ ((vectors.T @ g) / lam)
        size = math.sqrt(max(float(-g @ move), 0.0))
        if size < near:
            break
        move *= min(1.0, 1.5 / max(np.abs(move).max(), 1e-300))
        start, t = value(zeta), 1.0
        while t > 1e-3 and not value(zeta + t * move) < start + 1e-9:
            t /= 2.0
        if t <= 1e-3:
            break
        zeta = zeta + t * move
        if t < 1.0 or size > min(1.0, 0.5 * last):  # the second derivatives are those of another place
            h = None
        last = size
    return zeta, (vectors / lam) @ vectors.T, h is not None


def require_curvature(log_density: Callable[[Vector], float], zeta: Vector, names: list[str]) -> None:
    """Refuse numbers without a proper prior on which no row depends; `names` are their variables."""
    height = log_density(zeta)
    for name, far in zip(names, _FAR * np.eye(len(zeta)), strict=True):
        with np.errstate(all="ignore"):
            changes = [abs(log_density(one) - height) for one in (zeta + far, zeta - far)]
        if max(changes) < _FLAT:
            raise NoNormalApproximationError(
                f"{name!r} has no proper prior, and the rows do not depend on it. Give it a prior."
            )


def without_prior(coordinates: Iterable[Coordinates]) -> list[Coordinates]:
    """Effects without a proper prior."""
    return [one for one in coordinates if not np.any(one.precision.coefficients)]


def without_maximum(coordinates: Iterable[Coordinates]) -> NoNormalApproximationError:
    """The error that there is no mode."""
    names = [one.innovation.variable for one in without_prior(coordinates)]
    why = "The expansion of a field has no maximum at its scales."
    if names:
        why = (
            f"There is no mode along {' and '.join(map(repr, names))}, without a proper prior: the rows "
            "separate the responses perfectly, or tell it from no other variable. Give it a proper prior."
        )
    return NoNormalApproximationError(why, along=names)
