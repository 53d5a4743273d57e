"""What the families of local terms have in common.

A *family* is a form of the slope f_i'(eta) with constants for each row. `identify` finds these from values of
f_i' on a grid, and verifies the form at all other points of the grid, for every row; how the model was
written does not matter. That the form goes on between and beyond the points of the grid is assumed.

Constants may change with variables of other steps by a common factor (the scale of all rows), which is a
*factor* of a certificate; the ratios between rows go into its enclosures of points.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_austerity.bounds.families.range_certificate import RangeCertificate
from pymc_austerity.target import Matrix, Vector

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


@dataclass(frozen=True)
class Family:
    """One form of the slopes, and how log ratios of terms of this form are bounded."""

    name: str
    # callable: ``(eta (K,), slopes (K, m)) -> ndarray (m, n)``: the constants of m rows, or None
    identify: Callable[[Vector, Matrix], Matrix | None]
    certificate: type[RangeCertificate]  # How log ratios are bounded, from the constants of all rows


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
