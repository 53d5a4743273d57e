"""The c_i of all rows: how large the derivatives of a term may become along unit vectors.

`remainder` has the derivation. Terms with one linear predictor have c_i = K_i |v_i|^(k + 1), with the K_i of
their family (`families`) or of the user; those with two are asked for c_i itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_austerity.bounds.chunks import chunks
from pymc_austerity.bounds.enclosure import Matrix
from pymc_austerity.bounds.families.base import GRID, TOLERANCE, Family, PairFamily
from pymc_austerity.bounds.families.recognise import recognise, recognise_pair
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.target import Index, LinearPredictor, Predictor, PredictorPair, Vector

# ``(low, high, positions) -> array``: upper bounds of |f_i^(order + 1)| from low_i to high_i.
Curvature = Callable[[Vector, Vector, Index], Any]


class ExpansionCoordinates(NamedTuple):
    """Coordinates w = W (q - m) about the center of an expansion, in which remainders are bounded.

    Attributes
    ----------
    order : int
        k, 1 or 2.
    center : ndarray (D,)
        m.
    directions, whitening : ndarray (D, d) and (d, D)
        V and W. Where d < D, all rows must be in the span of W.
    """

    order: int
    center: Vector
    directions: Matrix
    whitening: Matrix

    @property
    def typical_radius(self) -> float:
        """All but one in 10^4 draws of N(0, I) in d dimensions are within it."""
        return math.sqrt(self.directions.shape[1]) + 3.0


class Rows(NamedTuple):
    """Some rows of a term, as seen from the center of an expansion.

    Attributes
    ----------
    positions : ndarray of int (m,)
    values : ndarray (m,) or (m, 2)
        eta_i at the center, of one or of two predictors.
    directions : ndarray (m, d) or (m, 2, d)
        v_i.
    """

    positions: Index
    values: Matrix
    directions: Matrix


class DerivativeBounds(Protocol):
    """Bounds of derivatives of the f_i, from wherever."""

    def constants(self, rows: Rows, radii: Vector, order: int) -> Matrix:
        """The c_i of some rows, for |w| up to each radius: ndarray (R, m)."""


def constants_of_rows(
    predictor: Predictor,
    point: Mapping[str, Any],
    coordinates: ExpansionCoordinates,
    radii: Vector,
    curvature: Curvature | None = None,
) -> Iterator[tuple[Index, Matrix]]:
    """Positions of some rows, and their c_i at all radii, until all rows have come.

    Parameters
    ----------
    predictor : LinearPredictor or PredictorPair
    point : dict of str to array
        Values of the variables of other steps.
    coordinates : ExpansionCoordinates
    radii : ndarray (R,)
    curvature : callable, optional
        Gives the K_i of a term of no known family.

    Raises
    ------
    UnboundedError
        If nothing is known of the remainders of the term; the message names it.
    """
    bounds = derivative_bounds(predictor, point, curvature)
    for positions in chunks(predictor, np.arange(predictor.n_rows)):
        rows = rows_about_center(predictor, positions, coordinates)
        yield positions, bounds.constants(rows, radii, coordinates.order)


def rows_about_center(predictor: Predictor, positions: Index, coordinates: ExpansionCoordinates) -> Rows:
    """Values at the center, and directions, of some rows, which must be in the span of the coordinates."""
    rows = predictor.rows(positions)  # (m, D + 1), or (m, 2, D + 1)
    if not np.all(np.isfinite(rows)):
        raise UnboundedError(f"Some rows of the design of the term {predictor.name!r} are not finite.")
    x, values = rows[..., :-1], rows[..., :-1] @ coordinates.center + rows[..., -1]
    v = x @ coordinates.directions
    length = np.linalg.norm(v, axis=-1)
    column = np.linalg.norm(coordinates.whitening, axis=0)
    if np.any(np.abs(v @ coordinates.whitening - x) > TOLERANCE * length[..., None] * column):
        raise UnboundedError(
            f"Some rows of the term {predictor.name!r} are not in the span of the whitening."
        )
    return Rows(positions, values, v)


def derivative_bounds(
    predictor: Predictor, point: Mapping[str, Any], curvature: Curvature | None
) -> DerivativeBounds:
    """Who knows bounds of the derivatives of a term: its family, or the user."""
    if isinstance(predictor, PredictorPair):
        if curvature is not None:
            raise ValueError(
                f"curvature[{predictor.name!r}] bounds a derivative by one linear predictor, but the term "
                f"{predictor.name!r} has two."
            )
        return BoundsOfPairFamily(predictor, _family_of_pair(predictor, point), point)
    if curvature is not None:
        _refuse_others(predictor)
        return BoundsOfUser(predictor, curvature)
    return BoundsOfFamily(predictor, _smooth_family(predictor, point), point)


def family_of(predictor: Predictor, point: Mapping[str, Any]) -> Family | PairFamily:
    """What is known of the remainders of a term.

    Raises
    ------
    UnboundedError
        If nothing is; the message names the term.
    """
    if isinstance(predictor, PredictorPair):
        return _family_of_pair(predictor, point)
    return _smooth_family(predictor, point)


@dataclass(frozen=True)
class BoundsOfFamily:
    """Bounds for a term with one predictor, from its family."""

    predictor: LinearPredictor
    family: Family
    point: Mapping[str, Any]

    def constants(self, rows: Rows, radii: Vector, order: int) -> Matrix:
        """c_i = K_i |v_i|^(k + 1)."""
        assert self.family.curvature is not None  # for mypy
        identify = self.family.curvature_constants or self.family.identify
        some, which = self.predictor.alike(rows.positions, self.point)
        constants = identify(GRID, self.predictor.slopes(GRID, some, self.point))
        if constants is None:
            raise _unlike_others(self.predictor, self.family)
        of_all = constants[which]
        largest = [self.family.curvature(of_all, *_reach(rows, radius), order) for radius in radii]
        return _along_unit_vectors(np.stack(largest), rows, order)


@dataclass(frozen=True)
class BoundsOfUser:
    """Bounds for a term with one predictor, from a function of the user."""

    predictor: LinearPredictor
    curvature: Curvature

    def constants(self, rows: Rows, radii: Vector, order: int) -> Matrix:
        """c_i = K_i |v_i|^(k + 1)."""
        largest = [self._largest_between(*_reach(rows, radius), rows.positions) for radius in radii]
        return _along_unit_vectors(np.stack(largest), rows, order)

    def _largest_between(self, low: Vector, high: Vector, positions: Index) -> Vector:
        size = np.asarray(self.curvature(low, high, positions), dtype=np.float64)
        if size.shape != low.shape or not np.all(size >= 0.0):
            raise ValueError(
                f"curvature[{self.predictor.name!r}] must return a number >= 0 (or infinity) for each of the "
                f"{len(low)} rows it is asked for, got {size!r}."
            )
        return size


@dataclass(frozen=True)
class BoundsOfPairFamily:
    """Bounds for a term with two predictors, from its family."""

    pair: PredictorPair
    family: PairFamily
    point: Mapping[str, Any]

    def constants(self, rows: Rows, radii: Vector, order: int) -> Matrix:
        """c_i, as the family knows it."""
        constants = self.family.identify(lambda values: self.pair.slopes(values, rows.positions, self.point))
        if constants is None:
            raise _unlike_others(self.pair, self.family)
        values, v = rows.values, rows.directions
        return np.stack([self.family.norms(constants, values, v, radius, order) for radius in radii])


def _reach(rows: Rows, radius: float) -> tuple[Vector, Vector]:
    """The least and the largest eta_i for |w| up to a radius; those of rows of zeros do not matter."""
    length = np.linalg.norm(rows.directions, axis=1)
    reach = np.where(length > 0.0, length, 1.0) * radius
    return rows.values - reach, rows.values + reach


def _along_unit_vectors(largest: Matrix, rows: Rows, order: int) -> Matrix:
    """c_i from K_i, at each radius. Rows of zeros have no remainder, though their K_i may be infinite."""
    length = np.linalg.norm(rows.directions, axis=1)
    some = length > 0.0
    c = np.zeros(largest.shape)
    c[:, some] = largest[:, some] * length[some] ** (order + 1)
    return c


def _family_of_pair(pair: PredictorPair, point: Mapping[str, Any]) -> PairFamily:
    """The family of a term of two predictors, the same whatever other steps do."""
    _refuse_others(pair)
    return recognise_pair(pair, point)


def _smooth_family(predictor: LinearPredictor, point: Mapping[str, Any]) -> Family:
    """The family of a term that has curvature, the same whatever other steps do."""
    _refuse_others(predictor)
    family, _, _ = recognise(predictor, point)
    if family.curvature is None:
        raise UnboundedError(
            f"The remainders of the term {predictor.name!r} have no known bound: the slope of {family.name} "
            "terms is not smooth, or it is constant."
        )
    return family


def _refuse_others(predictor: Predictor) -> None:
    if predictor.others or not predictor.offset_fixed:
        names = ", ".join(map(repr, predictor.others)) or "in its linear predictor"
        raise UnboundedError(
            f"The term {predictor.name!r} depends on variables of other steps ({names}), so that its "
            "expansion changes with them. Let one step move all of these variables."
        )


def _unlike_others(predictor: Predictor, family: Family | PairFamily) -> UnboundedError:
    return UnboundedError(
        f"Some rows of the term {predictor.name!r} are not {family.name} terms as others are."
    )
