"""Find the family of a term: the first whose form the slopes of its rows have."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_austerity.bounds.families import FAMILIES, affine
from pymc_austerity.bounds.families.base import FINE_GRID, TOLERANCE, Family
from pymc_austerity.bounds.row_function import evenly_spaced
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.target import Index, LinearPredictor, Matrix

# Rows that a family is found on.
_SAMPLE = 20_000
_SEED = 2014
# Distance to which variables of other steps are moved to see whether constants change.
NEAR = 0.3


def recognise(predictor: LinearPredictor, point: Mapping[str, Any]) -> tuple[Family, Index, Matrix]:
    """Find the family of a term with one linear predictor.

    Returns
    -------
    family : Family
    sample : ndarray of int (m,)
        The rows that it was found on.
    constants : ndarray (m, n)
        Those of the sample.

    Raises
    ------
    UnboundedError
        If the term is of no known form, or its predictor contains more than the family can do without.
    """
    sample = evenly_spaced(predictor.n_rows, _SAMPLE)
    slopes = predictor.slopes(FINE_GRID, sample, point)
    moved = slopes
    if predictor.others:
        moved = predictor.slopes(FINE_GRID, sample, with_others_moved(predictor, point, NEAR))
    moving = []
    for family in [affine.FAMILY] if predictor.is_affine else FAMILIES:
        constants = family.identify(FINE_GRID, slopes)
        if constants is None:
            continue
        fixed = family.certificate.n_factors == 0
        if fixed and not constants_are_equal(constants, family.identify(FINE_GRID, moved)):
            continue
        if not family.certificate.needs_offset or predictor.offset_fixed:
            return family, sample, constants
        moving.append(family.name)
    if moving:
        raise UnboundedError(
            f"The linear predictor of the term {predictor.name!r} contains variables of other steps; the "
            f"bound for {moving[-1]} terms needs all of it. Let one step move all of these variables."
        )
    known = ", ".join(family.name for family in FAMILIES)
    raise UnboundedError(
        f"The term {predictor.name!r} depends on the step's variables by a linear predictor, but its slope "
        f"is of no form that is known to have a bound ({known})."
    )


def constants_are_equal(constants: Matrix, others: Matrix | None, tolerance: float = TOLERANCE) -> bool:
    """Are the constants of each row equal, relative to the largest of the row?"""
    if others is None:
        return False
    scale = np.maximum(np.abs(constants), np.abs(others)).max(axis=1, keepdims=True)
    return bool(np.all(np.abs(constants - others) <= tolerance * scale))


def with_others_moved(
    predictor: LinearPredictor, point: Mapping[str, Any], distance: float
) -> dict[str, Any]:
    """The point with other values of the variables of other steps, all larger or all smaller."""
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
