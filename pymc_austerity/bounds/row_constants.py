"""The c_i of all rows: how large the derivatives of a term may become along unit vectors.

`remainder` has the derivation. Terms with one linear predictor have c_i = K_i |v_i|^(k + 1), with the K_i of
their family (`certificate.FAMILIES`) or of the user; those with two are asked for c_i itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from pymc_austerity.bounds.enclosure import Matrix
from pymc_austerity.bounds.families import normal_location_scale as location_scale
from pymc_austerity.bounds.families.base import GRID, TOLERANCE, Family, PairFamily
from pymc_austerity.bounds.log_ratio_range import SAMPLE, chunks, recognise
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.target import Index, LinearPredictor, Predictor, PredictorPair, Vector

# ``(low, high, positions) -> array``: upper bounds of |f_i^(order + 1)| from low_i to high_i.
Curvature = Callable[[Vector, Vector, Index], Any]

# Forms of terms with two predictors, and the rows that they are found on.
_PAIR_FAMILIES = (location_scale.NORMAL,)
_SAMPLE = 2000


def constants_of_rows(
    predictor: Predictor,
    point: Mapping[str, Any],
    centre: Vector,
    directions: Matrix,
    whitening: Matrix,
    radii: Vector,
    order: int,
    curvature: Curvature | None = None,
) -> Iterator[tuple[Index, Matrix]]:
    """Positions of some rows, and their c_i at all radii, until all rows have come.

    Parameters are as of `certify_remainders`; `curvature` gives the K_i of terms of no known family.
    """
    if isinstance(predictor, PredictorPair):
        bounded = _of_pair(predictor, point, order, curvature)
    elif curvature is None:
        bounded = _of_one(_of_family(predictor, point, order), order)
    else:
        bounded = _of_one(_of_user(predictor, curvature), order)
    for positions in chunks(predictor, np.arange(predictor.n_rows)):
        bounds = bounded(positions)
        rows = predictor.rows(positions)  # (m, D + 1), or (m, 2, D + 1)
        if not np.all(np.isfinite(rows)):
            raise UnboundedError(f"Some rows of the design of the term {predictor.name!r} are not finite.")
        x, values = rows[..., :-1], rows[..., :-1] @ centre + rows[..., -1]
        v = x @ directions
        length = np.linalg.norm(v, axis=-1)
        column = np.linalg.norm(whitening, axis=0)
        if np.any(np.abs(v @ whitening - x) > TOLERANCE * length[..., None] * column):
            raise UnboundedError(
                f"Some rows of the term {predictor.name!r} are not in the span of the whitening."
            )
        yield positions, np.stack([bounds(values, v, radius) for radius in radii])


def family_of(predictor: Predictor, point: Mapping[str, Any]) -> Family | PairFamily:
    """What is known of the remainders of a term.

    Raises
    ------
    UnboundedError
        If nothing is; the message names the term.
    """
    if isinstance(predictor, PredictorPair):
        return _pair_family(predictor, point)
    return _smooth_family(predictor, point)


def _of_one(known: Any, order: int) -> Any:
    """c_i of some rows up to a radius, from the K_i of one predictor."""

    def bounded(positions: Index) -> Any:
        largest_between = known(positions)

        def bounds(eta: Vector, v: Matrix, radius: float) -> Vector:
            length = np.linalg.norm(v, axis=1)
            some = length > 0.0  # the others have no remainder, though their K_i may be infinite
            reach = np.where(some, length, 1.0) * radius
            c = np.zeros(len(eta))
            c[some] = largest_between(eta - reach, eta + reach)[some] * length[some] ** (order + 1)
            return c

        return bounds

    return bounded


def _of_pair(pair: PredictorPair, point: Mapping[str, Any], order: int, curvature: Curvature | None) -> Any:
    """The same of two predictors."""
    if curvature is not None:
        raise ValueError(
            f"curvature[{pair.name!r}] bounds a derivative by one linear predictor, but the term "
            f"{pair.name!r} has two."
        )
    family = _pair_family(pair, point)

    def bounded(positions: Index) -> Any:
        constants = family.identify(lambda values: pair.slopes(values, positions, point))
        if constants is None:
            raise UnboundedError(
                f"Some rows of the term {pair.name!r} are not {family.name} terms as others are."
            )
        return lambda values, v, radius: family.norms(constants, values, v, radius, order)

    return bounded


def _pair_family(pair: PredictorPair, point: Mapping[str, Any]) -> PairFamily:
    """The family of a term of two predictors."""
    _refuse_others(pair)
    sample = np.unique(np.linspace(0, pair.n_rows - 1, min(pair.n_rows, _SAMPLE)).astype(np.int64))
    for family in _PAIR_FAMILIES:
        if family.identify(lambda values: pair.slopes(values, sample, point)) is not None:
            return family
    known = ", ".join(family.name for family in _PAIR_FAMILIES)
    raise UnboundedError(
        f"The term {pair.name!r} depends on the step's variables by two linear predictors, but its slopes "
        f"are of no form that is known to have a bound ({known})."
    )


def _of_family(predictor: LinearPredictor, point: Mapping[str, Any], order: int) -> Any:
    """K_i of some rows between some predictors, from the family of the term."""
    family = _smooth_family(predictor, point)
    identify = family.curvature_constants or family.identify
    assert family.curvature is not None  # for mypy

    def known(positions: Index) -> Any:
        some, which = predictor.alike(positions, point)
        constants = identify(GRID, predictor.slopes(GRID, some, point))
        if constants is None:
            raise UnboundedError(
                f"Some rows of the term {predictor.name!r} are not {family.name} terms as others are."
            )
        of_all = constants[which]
        return lambda low, high: family.curvature(of_all, low, high, order)  # type: ignore[misc]

    return known


def _of_user(predictor: LinearPredictor, curvature: Curvature) -> Any:
    """The same from a function of the user."""
    _refuse_others(predictor)

    def known(positions: Index) -> Any:
        def largest_between(low: Vector, high: Vector) -> Vector:
            size = np.asarray(curvature(low, high, positions), dtype=np.float64)
            if size.shape != low.shape or not np.all(size >= 0.0):
                raise ValueError(
                    f"curvature[{predictor.name!r}] must return a number >= 0 (or infinity) for each of the "
                    f"{len(low)} rows it is asked for, got {size!r}."
                )
            return size

        return largest_between

    return known


def _refuse_others(predictor: Predictor) -> None:
    if predictor.others or not predictor.offset_fixed:
        names = ", ".join(map(repr, predictor.others)) or "in its linear predictor"
        raise UnboundedError(
            f"The term {predictor.name!r} depends on variables of other steps ({names}), so that its "
            "expansion changes with them. Let one step move all of these variables."
        )


def _smooth_family(predictor: LinearPredictor, point: Mapping[str, Any]) -> Family:
    """The family of a term that has curvature, and the same whatever other steps do."""
    _refuse_others(predictor)
    sample = np.unique(np.linspace(0, predictor.n_rows - 1, min(predictor.n_rows, SAMPLE)).astype(np.int64))
    family, _ = recognise(predictor, sample, point)
    if family.curvature is None:
        raise UnboundedError(
            f"The remainders of the term {predictor.name!r} have no known bound: the slope of {family.name} "
            "terms is not smooth, or it is constant."
        )
    return family
