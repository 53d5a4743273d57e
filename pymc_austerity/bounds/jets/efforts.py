"""How much is computed for the bound of a row: more where it pays.

Efforts are tried on a sample of the rows. One is worth its cost if no dearer one makes the sum of the bounds
smaller by a tenth. In a pass over all rows dearer efforts are only made for rows whose bound is still much
larger than what the derivatives are at the center, as these bound it from below.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np

from pymc_austerity.bounds.chunks import evenly_spaced
from pymc_austerity.bounds.enclosure import Matrix
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.jets.derivative_norms import Effort, derivative_norms
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.target import Index, Vector

# ``positions -> (predictors (m, p), directions (m, p, d), data (n_data, m))``.
Sample = Callable[[Index], tuple[Matrix, Matrix, Matrix]]

# By the number of predictors, cheapest first. With one predictor all of them are cheap.
_EFFORTS = {
    1: (Effort(0, 1), Effort(2, 1), Effort(2, 4), Effort(2, 16), Effort(2, 64)),
    2: (Effort(0, 1), Effort(2, 1), Effort(2, 2), Effort(2, 4)),
    3: (Effort(0, 1), Effort(2, 1), Effort(2, 2), Effort(2, 4)),
    4: (Effort(0, 1), Effort(1, 1), Effort(1, 2), Effort(1, 3)),
}
# A dearer effort must lower the sum of the bounds to so much of it; at the larger radii, which few moves
# reach, to half.
_WORTH, _WORTH_FAR = {1: 0.9995, 2: 0.9, 3: 0.9, 4: 0.9}, 0.5
# Rows whose bound is below so many times its value at the center are done.
_DONE, _DONE_FAR = {1: 1.0005, 2: 1.1, 3: 1.2, 4: 1.2}, 2.0
_SAMPLE = {1: 2000, 2: 1000, 3: 300, 4: 300}
# Products of coefficients in a pass over all rows, at most: a minute or so.
_MOST_PRODUCTS = 3e10
# Nearly no box at all.
_POINT = 1e-9


@lru_cache(maxsize=64)
def _tape(expression: Expression, n_predictors: int, order: int) -> Tape:
    return tape_of(expression, n_predictors, order)


class RowBounds:
    """Bounds c_i of some rows at all radii.

    Parameters
    ----------
    function : RowFunction
    degree : int
        Order of the derivatives, 2 or 3.
    radii : ndarray (R,)
    levels : list of int
        For each radius, the dearest effort.
    looseness : float
        The sum of the bounds at the first radius over that at the center, on a sample.
    """

    def __init__(
        self, function: RowFunction, degree: int, radii: Vector, levels: list[int], looseness: float
    ) -> None:
        self._function, self._degree, self._radii = function, degree, radii
        self._levels, self.looseness = levels, looseness

    def __call__(self, eta: Matrix, directions: Matrix, data: Matrix) -> Matrix:
        """c_i, of shape (R, m)."""
        rows = _Rows(self._function, self._degree, eta, directions, data)
        bounds = np.stack(
            [
                rows.refined(radius, level, _done(rows, far=k > 0))
                for k, (radius, level) in enumerate(zip(self._radii, self._levels, strict=True))
            ]
        )
        # What holds up to a radius holds up to all smaller ones.
        smallest: Matrix = np.minimum.accumulate(bounds[::-1], axis=0)[::-1]
        return smallest


def row_bounds(function: RowFunction, degree: int, radii: Vector, sample: Sample) -> RowBounds:
    """Choose efforts on a sample of the rows."""
    p, n = function.n_predictors, function.n_rows
    positions = evenly_spaced(n, _SAMPLE[p])
    rows = _Rows(function, degree, *sample(positions))
    share = n / len(positions)
    levels = [_level(rows, radius, share, far=k > 0) for k, radius in enumerate(radii)]
    with np.errstate(all="ignore"):
        looseness = rows.refined(radii[0], levels[0], _done(rows, far=False)).sum() / rows.at_center.sum()
    return RowBounds(function, degree, radii, levels, float(looseness) if rows.at_center.any() else 1.0)


def _level(rows: _Rows, radius: float, share: float, *, far: bool) -> int:
    """The cheapest effort than which no dearer one is much better; cost is for `share` times as many rows."""
    if not np.isfinite(radius):
        return 0
    p = rows.n_predictors
    bounds, total = rows.bounds(radius, 0), []
    for level in range(len(_EFFORTS[p])):
        if level:
            loose = rows.loose(bounds, _done(rows, far=far))
            if not loose.any() or share * loose.sum() * rows.products(level) > _MOST_PRODUCTS:
                break
            bounds[loose] = np.minimum(bounds[loose], rows.bounds(radius, level, loose))
        total.append(float(bounds.sum()))
    best = min(total)
    if not np.isfinite(best):
        return len(total) - 1
    worth = _WORTH_FAR if far else _WORTH[p]
    return next(level for level, one in enumerate(total) if worth * one <= best)


def _done(rows: _Rows, *, far: bool) -> float:
    """Bounds below so many times the derivatives at the center are tight enough."""
    return _DONE_FAR if far else _DONE[rows.n_predictors]


class _Rows:
    """Some rows, whose derivatives are bounded with more and more effort."""

    def __init__(
        self, function: RowFunction, degree: int, eta: Matrix, directions: Matrix, data: Matrix
    ) -> None:
        self._function, self._degree = function, degree
        self._eta, self._directions, self._data = eta, directions, data
        self.n_predictors = function.n_predictors

    @cached_property
    def at_center(self) -> Vector:
        """The derivatives at the center alone, which no bound is below."""
        return self._norms(_POINT, Effort(0, 1), slice(None))

    def bounds(self, radius: float, level: int, which: Index | slice = slice(None)) -> Vector:
        """Bounds of some of the rows by one effort."""
        return self._norms(radius, _EFFORTS[self.n_predictors][level], which)

    def loose(self, bounds: Vector, times: float) -> Index:
        """Rows whose bounds are far above the derivatives at the center."""
        return ~(bounds <= times * self.at_center)

    def refined(self, radius: float, level: int, times: float) -> Vector:
        """Bounds of all the rows, by efforts up to a level, for rows that are loose."""
        bounds = self.bounds(radius, 0)
        for dearer in range(1, level + 1):
            loose = self.loose(bounds, times)
            if not loose.any():
                break
            bounds[loose] = np.minimum(bounds[loose], self.bounds(radius, dearer, loose))
        return bounds

    def products(self, level: int) -> float:
        """Products of coefficients for one row."""
        effort = _EFFORTS[self.n_predictors][level]
        tape = _tape(self._function.expression, self.n_predictors, self._degree + effort.extra)
        return 2.0 * len(tape.weights) * effort.parts**self.n_predictors

    def _norms(self, radius: float, effort: Effort, which: Index | slice) -> Vector:
        tape = _tape(self._function.expression, self.n_predictors, self._degree + effort.extra)
        eta, directions, data = self._eta[which], self._directions[which], self._data[:, which]
        return derivative_norms(tape, eta, directions, data, radius, self._degree, effort)
