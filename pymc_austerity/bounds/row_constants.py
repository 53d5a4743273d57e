"""The c_i of all rows: how large the derivatives of a term may become along unit vectors.

`remainder` has the derivation. They come from interval jets of the row function (`jets`), or, for a term
with one linear predictor, from K_i of the user: c_i = K_i |v_i|^(k + 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity import work
from pymc_austerity.bounds.jets.efforts import RowBounds, row_bounds
from pymc_austerity.bounds.row_function import RowFunction, chunks
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.target import Index, Matrix, Vector

# ``(low, high, positions) -> array``: upper bounds of |f_i^(order + 1)| from low_i to high_i.
Curvature = Callable[[Vector, Vector, Index], Any]

# Rounding of a row that is whitened, and recovered; and by how much constants are enlarged for it.
_TOLERANCE = 1e-6
INFLATION = 1.0 + 1e-6


class ExpansionCoordinates(NamedTuple):
    """Coordinates w = W (q - m) about the center of an expansion, in which remainders are bounded."""

    order: int  # k, 0 to 2
    center: Vector  # (D,): m
    # directions, whitening (D, d) and (d, D): V and W. Where d < D, all rows must be in the span of W.
    directions: Matrix
    whitening: Matrix

    @property
    def of_rows(self) -> Matrix:
        """Matrix by which a row (x, o) is multiplied to get (x V, x m + o)."""
        last = np.append(self.center, 1.0)[:, None]
        return np.hstack([np.vstack([self.directions, np.zeros(self.directions.shape[1])]), last])

    @property
    def is_whole(self) -> bool:
        """Whether all rows are in their span, because V W = I."""
        if self.directions.shape[0] != self.directions.shape[1]:
            return False
        lost = self.whitening @ (self.directions @ self.whitening - np.eye(len(self.center)))
        column = np.linalg.norm(self.whitening, axis=0)
        return bool(np.all(np.linalg.norm(lost, axis=0) <= _TOLERANCE * column))

    @property
    def typical_radius(self) -> float:
        """Radius within which all but one in 10^4 draws of N(0, I) in d dimensions are."""
        return math.sqrt(self.directions.shape[1]) + 3.0


class BoundedTerm(NamedTuple):
    """A term with bounds of its derivatives."""

    term: RowFunction
    bounds: BoundsByJets | BoundsOfUser
    coordinates: ExpansionCoordinates

    def constants(self, first: int = 0) -> Iterator[tuple[Index, Matrix]]:
        """Positions of some rows, and their c_i at all radii, until all from `first` on have come."""
        for positions in chunks(self.term, self.term.n_rows, first):
            values, directions = rows_about_center(self.term, positions, self.coordinates)
            yield positions, self.bounds.constants(positions, values, directions)


def bounded_term(
    term: RowFunction,
    coordinates: ExpansionCoordinates,
    radii: Vector,
    curvature: Curvature | None = None,
) -> BoundedTerm:
    """Find bounds of the derivatives of a term, at increasing `radii`.

    Rows may be an opaque function of one predictor where the user's `curvature` gives K_i. Raises
    UnboundedError if the term contains variables of other steps.
    """
    if term.others or not term.offset_fixed:
        names = ", ".join(map(repr, term.others)) or "in its linear predictor"
        raise UnboundedError(
            f"The term {term.name!r} depends on variables of other steps ({names}), so that its "
            "expansion changes with them. Let one step move all of these variables."
        )
    if curvature is not None:
        return BoundedTerm(term, BoundsOfUser(term.name, curvature, radii, coordinates.order), coordinates)
    return BoundedTerm(term, BoundsByJets(term, coordinates, radii), coordinates)


def rows_about_center(
    term: RowFunction, positions: Index, coordinates: ExpansionCoordinates
) -> tuple[Matrix, Matrix]:
    """Predictors at the center (m, p), and V_i (m, p, d), of m rows in the span of the coordinates."""
    rows = term.rows(positions)
    rows = rows.reshape(len(positions), -1, rows.shape[-1])  # (m, p, D + 1)
    if not np.all(np.isfinite(rows)):
        raise UnboundedError(f"Some rows of the design of the term {term.name!r} are not finite.")
    work.spend(work.OF_FLOP * rows.size * coordinates.directions.shape[1], "Bounds")
    # One product of matrices: v in all columns but the last, predictors there.
    seen = (rows.reshape(-1, rows.shape[-1]) @ coordinates.of_rows).reshape(*rows.shape[:2], -1)
    x, v, values = rows[..., :-1], seen[..., :-1], seen[..., -1]
    if not coordinates.is_whole:
        length, column = np.linalg.norm(v, axis=-1), np.linalg.norm(coordinates.whitening, axis=0)
        if np.any(np.abs(v @ coordinates.whitening - x) > _TOLERANCE * length[..., None] * column):
            raise UnboundedError(f"Some rows of the term {term.name!r} are not in the span of the whitening.")
    return values, v


class BoundsByJets:
    """Bounds from interval jets of the row function."""

    def __init__(self, term: RowFunction, coordinates: ExpansionCoordinates, radii: Vector) -> None:
        self._term, self._coordinates, self._radii = term, coordinates, radii

        def sample(positions: Index) -> tuple[Matrix, Matrix, Matrix]:
            return *rows_about_center(term, positions, coordinates), term.data(positions)

        self._bounds: RowBounds = row_bounds(term, coordinates.order + 1, radii, sample)

    @property
    def description(self) -> str:
        """The term that is bounded, its number of predictors, and how loose the bounds are, in words."""
        p, loose = self._term.n_predictors, self._bounds.looseness
        size = "close to" if loose < 1.05 else f"{loose:.2g} times"
        size = f"{size} the values at the mode" if np.isfinite(loose) else "not finite near the mode"
        predictors = f"{p} predictor{'s' if p != 1 else ''}"
        return f"{self._term.name!r}, a function of {predictors} of each row, by interval arithmetic, {size}"

    def constants(self, positions: Index, values: Matrix, directions: Matrix) -> Matrix:
        """The c_i of m rows, for |w| up to each radius (R, m); infinite where a guard may not hold.

        Rows of zeros have no remainder, though their derivatives may be infinite.
        """
        c = self._bounds(values, directions, self._term.data(positions))
        perhaps = np.flatnonzero(directions[:, 0, 0] == 0.0)
        c[:, perhaps[np.all(directions[perhaps] == 0.0, axis=(1, 2))]] = 0.0
        if self._term.guards is not None:
            c[np.logical_not(self._are_allowed(self._term.guards(positions)))] = np.inf
        return c

    def _are_allowed(self, guards: Matrix) -> npt.NDArray[np.bool_]:
        """Whether all guards of rows are above zero for |w| up to each radius: ndarray of bool (R, m)."""
        x, offsets = guards[..., :-1], guards[..., -1]
        least = x @ self._coordinates.center + offsets
        length = np.linalg.norm(x @ self._coordinates.directions, axis=-1) * (1.0 + _TOLERANCE)
        with np.errstate(invalid="ignore"):  # zero times infinity: a guard that does not move
            reach = np.where(length > 0.0, length * self._radii[:, None, None], 0.0)
        allowed: npt.NDArray[np.bool_] = np.all(least - reach > 0.0, axis=-1)
        return allowed


class BoundsOfUser:
    """Bounds for a term with one predictor, from a function of the user; the order of the expansion is k."""

    def __init__(self, name: str, curvature: Curvature, radii: Vector, order: int) -> None:
        self._name, self._curvature, self._radii, self._order = name, curvature, radii, order
        self.description = f"{name!r}: curvature given"

    def constants(self, positions: Index, values: Matrix, directions: Matrix) -> Matrix:
        """c_i = K_i |v_i|^(k + 1). Rows of zeros have no remainder, though their K_i may be infinite."""
        if values.shape[1] != 1:
            raise ValueError(
                f"curvature[{self._name!r}] bounds a derivative by one linear predictor, but the term "
                f"{self._name!r} has {values.shape[1]}."
            )
        length, values = np.linalg.norm(directions[:, 0], axis=1), values[:, 0]
        some = length > 0.0
        c = np.zeros((len(self._radii), len(values)))
        for k, radius in enumerate(self._radii):
            reach = np.where(some, length, 1.0) * radius
            largest = self._largest_between(values - reach, values + reach, positions)
            c[k, some] = largest[some] * length[some] ** (self._order + 1)
        return c

    def _largest_between(self, low: Vector, high: Vector, positions: Index) -> Vector:
        size = np.asarray(self._curvature(low, high, positions), dtype=np.float64)
        if size.shape != low.shape or not np.all(size >= 0.0):
            raise ValueError(
                f"curvature[{self._name!r}] must return a number >= 0 (or infinity) for each of the "
                f"{len(low)} rows it is asked for, got {size!r}."
            )
        return size
