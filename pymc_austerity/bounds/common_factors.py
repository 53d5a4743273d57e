"""Common factors of the constants of all rows, which change with the variables of other steps.

The scale of normal errors, say, may be a variable of another step. Constants of rows then change by a factor
that all rows have in common, and what is certified of the ratios between rows stays true. The factor is read
off a *reference* row, one for each constant. That all rows change in proportion is verified at other values
of these variables, near and far.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_austerity.bounds.families.base import GRID, TOLERANCE, Family
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.target import Index, LinearPredictor, Matrix, Vector

_SEED = 2014
# Distances to which variables of other steps are moved to see whether rows change in proportion.
_NEAR, _FAR, _FAR_TOLERANCE = 0.3, (3.0, -3.0, 10.0, -10.0), 1e-4


def constants_are_equal(constants: Matrix, others: Matrix | None, tolerance: float = TOLERANCE) -> bool:
    """Are the constants of each row equal, relative to the largest of the row?"""
    if others is None:
        return False
    scale = np.maximum(np.abs(constants), np.abs(others)).max(axis=1, keepdims=True)
    return bool(np.all(np.abs(constants - others) <= tolerance * scale))


def moved_nearby(predictor: LinearPredictor, point: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the other variables that differ from those at `point`."""
    return _moved(predictor, point, _NEAR)


def verification_points(predictor: LinearPredictor, point: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`point`; if there are other variables, also values of these near by and then far away."""
    distances = (_NEAR, *_FAR) if predictor.others else ()
    return [dict(point), *(_moved(predictor, point, distance) for distance in distances)]


def _moved(predictor: LinearPredictor, point: Mapping[str, Any], distance: float) -> dict[str, Any]:
    """Other values of the other variables, all larger or all smaller."""
    rng = np.random.default_rng(_SEED)
    moved = dict(point)
    for name in predictor.others:
        value = np.asarray(point[name])
        if value.dtype.kind != "f":
            raise UnboundedError(
                f"The term {predictor.name!r} depends on {name!r}, a discrete variable of another step, so "
                "that no bound is known to hold for all of its values."
            )
        moved[name] = value + distance * np.abs(rng.standard_normal(value.shape))
    return moved


def reference_rows(predictor: LinearPredictor, family: Family, sample: Index, constants: Matrix) -> Index:
    """Rows of a sample that stand for the common factor of each constant; none if nothing changes."""
    if not predictor.others:
        return np.empty(0, dtype=np.int64)
    largest = np.abs(constants[:, : family.certificate.n_factors]).argmax(axis=0)
    return sample[largest]


def factors_at(
    predictor: LinearPredictor, family: Family, references: Index, point: Mapping[str, Any]
) -> Vector:
    """Constants of the reference rows; ones if there are none, and not numbers if the form is not found."""
    n_factors = family.certificate.n_factors
    if not len(references):
        return np.ones(n_factors)
    constants = family.identify(GRID, predictor.slopes(GRID, references, point))
    if constants is None:
        return np.full(n_factors, np.nan)
    factors = np.diagonal(constants).copy()
    factors[factors == 0.0] = 1.0  # constants that are zero in all rows
    return factors


def without_factors(constants: Matrix, factors: Vector) -> Matrix:
    """Constants of rows, the first divided by their common factors."""
    result = constants.copy()
    result[:, : len(factors)] /= factors
    return result


def proportional_constants(
    predictor: LinearPredictor,
    family: Family,
    positions: Index,
    points: Sequence[Mapping[str, Any]],
    factors: Sequence[Vector],
) -> Matrix:
    """Constants of some rows over the common factors, if these are the same at all `verification_points`.

    Far away the form may not be recognised, for rounding: `factors_at` then gives no numbers, and the range
    is infinite. Raises UnboundedError if a row is not of the family, or does not change in proportion with
    others.
    """
    found = []
    for k, (point, factor) in enumerate(zip(points, factors, strict=True)):
        is_near = k < 2
        constants = family.identify(GRID, predictor.slopes(GRID, positions, point))
        if constants is not None and np.all(np.isfinite(factor)):
            tolerance = TOLERANCE if is_near else _FAR_TOLERANCE
            found.append((without_factors(constants, factor), tolerance))
        elif is_near:
            raise UnboundedError(
                f"Some rows of the term {predictor.name!r} are not {family.name} terms as others are."
            )
    here = found[0][0]
    if not all(constants_are_equal(here, constants, tolerance) for constants, tolerance in found):
        names = ", ".join(map(repr, predictor.others))
        raise UnboundedError(
            f"The rows of the term {predictor.name!r} do not change in proportion with the variables of "
            f"other steps ({names}), so that their bounds would have to be computed anew for every row."
        )
    return here
