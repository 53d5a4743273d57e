"""What the families of local terms have in common.

A *family* is a form of the slope f_i'(eta) with constants for each row. `identify` finds these from values of
f_i' on a grid, and verifies the form at all other points of the grid, for every row; how the model was
written does not matter. That the form goes on between and beyond the points of the grid is assumed.

Constants may change with variables of other steps by a common factor (the scale of all rows), which is a
*parameter* of a certificate; the ratios between rows go into its clouds of points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from pymc_austerity.bounds.enclosure import Cloud, Matrix
from pymc_austerity.target import Vector

# Relative error at which two numbers agree; intervals are widened by as much.
TOLERANCE = 1e-6
# Rounding of a probability that is computed as one minus another, or of a difference of slopes.
ROUNDING = 1e-15
# Beyond this an exponential may overflow, or be lost in a sum with one.
_FAR = 30.0


def _both_signs(*positive: float) -> Vector:
    return np.array([*(-x for x in reversed(positive)), 0.0, *positive])


# Points at which all rows are verified, and those at which a sample is verified.
GRID = _both_signs(1e-8, 1e-4, 1e-2, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0, 1e4, 1e8)
FINE_GRID = np.union1d(
    GRID, _both_signs(1e-6, 1e-3, 0.03, 0.2, 0.7, 1.5, 2.0, 5.0, 7.0, 15.0, 20.0, 30.0, 50.0, 300.0, 1e3, 1e6)
)


class RangeCertificate(NamedTuple):
    """All that is needed to bound the log ratios of one term; a few arrays, none as long as the data.

    Attributes
    ----------
    code : int
        Which `interval` is meant.
    parameters : ndarray
        Common factors of the first two constants; the least and the largest of the first constant.
    first, second : Cloud
        Points in D + 1 dimensions, made from the rows (x_i, o_i) and the constants.
    """

    code: int
    parameters: Vector
    first: Cloud
    second: Cloud


@dataclass(frozen=True)
class Family:
    """One form of the slopes.

    Attributes
    ----------
    name : str
    code : int
        Number of the interval function.
    identify : callable
        ``(eta (K,), slopes (K, m)) -> ndarray (m, n)``: the constants of m rows, or None.
    points : callable
        ``(rows (m, D + 1), constants (m, n)) -> (first, second)``: the points of the two clouds.
    needs_offset : bool
        Whether the o_i matter, and must therefore be fixed.
    n_factors : int
        So many constants, the first, may change by a common factor. `interval` finds the factors in the
        first parameters, and the extremes of the first constant over all rows in the last two.
    curvature : callable, optional
        ``(constants (m, n), low (m,), high (m,), order) -> ndarray (m,)``: upper bounds of the derivative
        |f_i^(order + 1)| from low_i to high_i, for order 1 or 2. None if f_i is not smooth enough.
    curvature_constants : callable, optional
        `identify` for the constants that `curvature` takes; None if they are the same.
    """

    name: str
    code: int
    identify: Callable[[Vector, Matrix], Matrix | None]
    points: Callable[[Matrix, Matrix], tuple[Matrix, Matrix]]
    needs_offset: bool
    n_factors: int
    curvature: Callable[[Matrix, Vector, Vector, int], Vector] | None = None
    curvature_constants: Callable[[Vector, Matrix], Matrix | None] | None = None


@dataclass(frozen=True)
class PairFamily:
    """One form of terms with two linear predictors.

    Attributes
    ----------
    name : str
    identify : callable
        ``(slopes) -> ndarray (m, n)``: the constants of m rows, or None. ``slopes(values (2, K)) -> ndarray
        (2, K, m)`` has the derivatives of all m rows by both predictors, at K values of these.
    norms : callable
        ``(constants (m, n), values (m, 2), v (m, 2, d), radius, order) -> ndarray (m,)``: upper bounds of
        the size of the derivatives of order `order` + 1 by w, along unit vectors, for |w| <= radius. The
        predictors are values_i + v_i w.
    """

    name: str
    identify: Callable[[Callable[[Matrix], Matrix]], Matrix | None]
    norms: Callable[[Matrix, Matrix, Matrix, float, int], Vector]


def value_at(eta: Vector, slopes: Matrix, where: float) -> Vector:
    """Slopes of all rows at one point of the grid."""
    row: Vector = slopes[int(np.argmin(np.abs(eta - where)))]
    return row


def agree(
    eta: Vector,
    slopes: Matrix,
    expected: Matrix,
    probability: Matrix | float | None = None,
    size: Matrix | None = None,
) -> bool:
    """Are all slopes as expected, up to `TOLERANCE` of the larger of themselves and those near zero?

    With `size`, up to `TOLERANCE` of that, and rounding: where slopes near zero are far larger than those
    that the data are about.

    Models of events are written in many ways, which differ in rounding: with `probability`, that of
    what was observed, slopes may differ, and not be finite, where it is lost in rounding.
    """
    near = np.abs(eta) <= 1.0
    if not np.all(np.isfinite(slopes[near])):
        return False
    scale = np.abs(slopes[near]).max(axis=0)
    with np.errstate(all="ignore"):
        if size is None:
            allowed = TOLERANCE * np.maximum(np.abs(expected), scale)
        else:
            allowed = TOLERANCE * size + ROUNDING * scale
        if probability is None:
            return bool(np.all(np.abs(slopes - expected) <= allowed))
        lost = np.minimum(ROUNDING / probability, 1.0)
        close = np.abs(slopes - expected) <= allowed + np.abs(expected) * lost
        excused = ~np.isfinite(slopes) & ((lost > 0.1) | (np.abs(eta) > _FAR)[:, None])
    return bool(np.all(close | excused))


def largest_between(
    size: Callable[[Vector], Vector], peaks: Sequence[float], low: Vector, high: Vector
) -> Vector:
    """The largest value from low to high of a function with no local maxima but those at `peaks`.

    It is at a peak between low and high, or at the end that is next to a peak outside: in either case at
    the point of the interval that is nearest to some peak.
    """
    largest: Vector = np.stack([size(np.clip(peak, low, high)) for peak in peaks]).max(axis=0)
    return largest


@register_jitable
def step_between(q_new: Vector, q: Vector) -> Vector:
    """(q_new - q, 0): its product with (x, o) is the change of eta."""
    u = np.zeros(q.shape[0] + 1)
    for j in range(q.shape[0]):
        u[j] = q_new[j] - q[j]
    return u


@register_jitable
def with_one(q: Vector) -> Vector:
    """(q, 1): its product with (x, o) is eta."""
    u = np.ones(q.shape[0] + 1)
    for j in range(q.shape[0]):  # an assignment to a slice takes numba seconds to compile
        u[j] = q[j]
    return u


def without_offset(rows: Matrix, factor: Vector) -> Matrix:
    """Points factor_i (x_i, 0)."""
    points = rows * factor[:, None]
    points[:, -1] = 0.0
    return points
