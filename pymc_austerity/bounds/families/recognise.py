"""Find the family of a term: the first whose form the slopes of its rows have."""

from collections.abc import Mapping
from typing import Any

from pymc_austerity.bounds.common_factors import constants_are_equal, moved_nearby
from pymc_austerity.bounds.families import FAMILIES, affine
from pymc_austerity.bounds.families.base import FINE_GRID, Family
from pymc_austerity.bounds.row_function import evenly_spaced
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.target import Index, LinearPredictor, Matrix

# Rows that a family is found on.
_SAMPLE = 20_000


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
        moved = predictor.slopes(FINE_GRID, sample, moved_nearby(predictor, point))
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
