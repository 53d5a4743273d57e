"""How much is computed for the bound of a row: more where it pays.

Efforts are tried on a sample of the rows, until twice the cost gains little. In a pass over all rows the
dearest effort that pays is made only for rows whose bound is much larger than what the derivatives are at
the center, as these bound it from below.

*Bounds of rows with one predictor, looked up in tables.* Many rows are f(eta; data) = sum over k of g_k(data)
h_k(eta) + a function that is affine in eta. Then

    |f^(g)| <= sum over k of |g_k| |h_k^(g)|,

and sup |h_k^(g)| over an interval is at most its largest bound over the cells of a grid that the interval
touches. The cells are bounded once: exactly where h_k is an elementary function of b eta + c, as in most
regressions, else by interval jets. The largest of 2^l neighbours is kept for each l, so that a row takes two
look-ups, whatever the length of its interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import NamedTuple, Self

import numpy as np

from pymc_austerity import work
from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.affine import is_affine
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.linear import linear
from pymc_austerity.bounds.expressions.node import Expression, constant, ordered, predictor
from pymc_austerity.bounds.jets.codes import FUNCTIONS
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.derivative_norms import Effort, derivative_norms, expansion_order
from pymc_austerity.bounds.jets.ranges import largest_derivative
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.bounds.row_function import RowFunction, evenly_spaced
from pymc_austerity.target import Array, Index, Mask, Matrix, Vector

# Cells of a grid, and the largest power of two of them that is kept together.
_CELLS, _LEVELS = 8192, 9
_WHOLE = Effort(0, (1,))
# Tables for one term, at most.
_MOST_PARTS = 6
_ROUNDING = 1e-14


class Separated(NamedTuple):
    """A product g(data) h(eta)."""

    # coefficient, function: g and h
    coefficient: Expression
    function: Expression


def separated(expression: Expression) -> list[Separated] | None:
    """The products of which a function is the sum, but for what is affine; None if it is no such sum."""
    found: list[Separated] = []
    for term, factor in linear(expression)[1].items():
        own = _separated(term)
        if own is None:
            return None
        found += [one._replace(coefficient=forms.multiply(constant(factor), one.coefficient)) for one in own]
    merged: dict[Expression, Expression] = {}
    for coefficient, function in found:
        merged[function] = forms.add(coefficient, merged[function]) if function in merged else coefficient
    return [Separated(coefficient, function) for function, coefficient in merged.items()]


def _separated(term: Expression) -> list[Separated] | None:
    if is_affine(term):
        return []
    if term.op == "product" and not term.args[0].moves:
        return _times(term.args[0], separated(term.args[1]))
    if term.op == "select" and not term.args[0].moves:
        condition, yes, no = term.args
        one, zero = constant(1.0), constant(0.0)
        first = _times(forms.select(condition, one, zero), separated(yes))
        second = _times(forms.select(condition, zero, one), separated(no))
        return None if first is None or second is None else first + second
    if any(one.op == "data" for one in ordered(term)):
        return None
    return [Separated(constant(1.0), term)]


def _times(factor: Expression, parts: list[Separated] | None) -> list[Separated] | None:
    if parts is None:
        return None
    return [one._replace(coefficient=forms.multiply(factor, one.coefficient)) for one in parts]


def _is_one_in_each_row(expression: Expression) -> bool:
    """Is no more than one of the products other than zero in any row? Nothing is lost by their sizes then."""
    terms = [term for term in linear(expression)[1] if not is_affine(term)]
    if len(terms) != 1:
        return not terms
    (term,) = terms
    if term.op == "product" and not term.args[0].moves:
        return _is_one_in_each_row(term.args[1])
    if term.op == "select" and not term.args[0].moves:
        return all(_is_one_in_each_row(branch) for branch in term.args[1:])
    return True


class Elementary(NamedTuple):
    """An elementary function of an affine form, phi(b eta + c)."""

    code: int  # Which phi
    # slope, shift: b and c
    slope: float
    shift: float

    @classmethod
    def of(cls, function: Expression) -> Self | None:
        """The record of a function of predictor 0 of this form; None for other functions."""
        if function.op not in FUNCTIONS or len(function.args) != 1:
            return None
        shift, terms = linear(function.args[0])
        if set(terms) != {predictor(0)}:
            return None
        return cls(FUNCTIONS.index(function.op), terms[predictor(0)], shift)

    def bounds(self, degree: int, centers: Vector, half: Array | float) -> Array:
        """The largest |h^(g)| over centers +- half."""
        arguments, reach = self.slope * centers + self.shift, np.abs(self.slope * half)
        rounding = _ROUNDING * (np.abs(arguments) + np.abs(self.slope * centers) + abs(self.shift) + reach)
        low, high = arguments - reach - rounding, arguments + reach + rounding
        found = largest_derivative(self.code, low, high, degree)
        return found * abs(self.slope) ** degree * (1.0 + _ROUNDING)


class Table(NamedTuple):
    """Bounds of |h^(g)| on a grid."""

    # low, width: where the grid begins, and the width of a cell
    low: float
    width: float
    largest: Array  # (levels, cells): over cells k, ..., k + 2^l - 1, as far as these exist
    everywhere: float  # Over all numbers; may be infinite


def table_of(function: Expression, degree: int, low: float, high: float) -> Table:
    """A table for a function of predictor 0 alone, from `low` to `high`."""
    width = (high - low) / _CELLS
    centers: Vector = low + width * (np.arange(_CELLS, dtype=np.float64) + 0.5)
    # Cells overlap, so that rounding leaves nothing between them.
    half = 0.5 * width * (1.0 + 1e-6) + 1e-12 * max(abs(low), abs(high))
    cells = _bounds(function, degree, centers, half, Effort(expansion_order(degree), (1,)))
    levels = [cells]
    for level in range(1, _LEVELS):
        shifted = np.concatenate([levels[-1][2 ** (level - 1) :], np.zeros(2 ** (level - 1))])
        levels.append(np.maximum(levels[-1], shifted))
    everywhere = _bounds(function, degree, np.zeros(1), math.inf, _WHOLE)
    return Table(low, width, np.array(levels), float(everywhere[0]))


def _bounds(function: Expression, degree: int, centers: Array, half: float, effort: Effort) -> Vector:
    elementary = Elementary.of(function)
    if elementary is not None:
        return elementary.bounds(degree, centers, half)
    tape = tape_of(function, 1, degree + effort.extra)
    one, nothing = np.ones((len(centers), 1, 1)), np.empty((0, len(centers)))
    return derivative_norms(tape, centers[:, None], one, nothing, half, degree, effort)


class TabulatedBounds:
    """sup |f^(g)| of rows over intervals of their predictor.

    Parameters
    ----------
    degree : int
        g.
    parts : list of (Expression, Table or Elementary)
        Coefficients g_k, and what is known of h_k.
    """

    def __init__(self, degree: int, parts: list[tuple[Expression, Table | Elementary]]) -> None:
        self._degree, self._parts = degree, parts

    @classmethod
    def of(cls, expression: Expression, degree: int, low: float, high: float) -> Self | None:
        """Tables for predictors from `low` to `high`; None if the function is not separable."""
        parts = separated(expression)
        if parts is None or len(parts) > _MOST_PARTS or not -math.inf < low < high < math.inf:
            return None
        return cls(degree, [(one.coefficient, table_of(one.function, degree, low, high)) for one in parts])

    @classmethod
    def without_table(cls, expression: Expression, degree: int) -> Self | None:
        """Bounds for rows that are a multiple of one known elementary function each; else None."""
        parts = separated(expression)
        if not parts or not _is_one_in_each_row(expression):
            return None
        found = [(one.coefficient, Elementary.of(one.function)) for one in parts]
        known = [(coefficient, function) for coefficient, function in found if function is not None]
        return cls(degree, [*known]) if len(known) == len(found) else None

    def __call__(self, eta: Vector, length: Vector, radii: Vector, data: Array) -> Array:
        """Bounds of m rows on eta_i +- radius times length_i: (R, m), infinite where the tables end."""
        result = np.zeros((len(radii), len(length)))
        for coefficient, part in self._parts:
            size = np.ascontiguousarray(
                np.broadcast_to(np.abs(evaluate(coefficient, [], data)), len(eta)), dtype=np.float64
            )
            if isinstance(part, Elementary):
                _add_some(part.bounds(self._degree, eta, np.outer(radii, length)), size, result)
            else:
                _look_up(part, eta, length, radii, size, result)
        return result


@entry
def _add_some(bounds: Array, size: Vector, result: Array) -> None:
    """Add multiples of bounds; zero times a bound adds nothing, even where the bound is infinite."""
    for k in range(bounds.shape[0]):
        for i in range(bounds.shape[1]):
            if size[i] > 0.0:
                result[k, i] += size[i] * bounds[k, i]


@entry
def _look_up(table: Table, eta: Vector, length: Vector, radii: Vector, size: Vector, result: Array) -> None:
    """Add the largest bound over the cells from eta - reach to eta + reach, times a number for each row."""
    levels, n = table.largest.shape
    for i in range(eta.shape[0]):
        if size[i] == 0.0:
            continue
        for k in range(radii.shape[0]):
            reach = radii[k] * length[i]
            first = (eta[i] - reach - table.low) / table.width
            last = (eta[i] + reach - table.low) / table.width
            # One cell more on either side, for the rounding of these.
            if not (first >= 1.0 and last < n - 1.0):
                result[k, i] += size[i] * table.everywhere
                continue
            a, b = int(first - 1e-6), int(last + 1e-6)
            level = 0
            cells = 1
            while level < levels - 1 and 2 * cells <= b - a + 1:
                level, cells = level + 1, 2 * cells
            found = table.largest[level, b - cells + 1]
            while a <= b - cells:
                found = max(found, table.largest[level, a])
                a += cells
            result[k, i] += size[i] * found


# ``positions -> (predictors (m, p), directions (m, p, d), data (n_data, m))``.
Sample = Callable[[Index], tuple[Matrix, Matrix, Matrix]]

# An effort that costs twice as much must lower the sum of the bounds to so much of it; less is enough where
# it is cheap, with one predictor, and more is asked at the larger radii, which few moves reach.
# Here and below the last of some numbers is for all larger numbers of predictors.
_WORTH = (0.9995, 0.85)
_WORTH_FAR = (0.95, 0.25)
# Rows whose bound is below so many times its value at the center are done.
_DONE = (1.0005, 1.1, 1.2)
_DONE_FAR = (1.2, 2.0)
_SAMPLE = (1000, 300, 200)
# Products of coefficients in a pass over all rows, at most: some 15 seconds. With few predictors one
# expansion may take a minute.
_MOST_PRODUCTS, _MOST_WITH_FEW = 5e9, 2e10
_FEW = 4
# Operations for one of them.
_OF_PRODUCT = 3.0
# The same for one row: a millisecond, and less where that is enough.
_MOST_FOR_A_ROW = (2e4, 1e5, 4e5)
# Doublings of the number of parts that are tried without a gain.
_PATIENCE = 3
# Nearly no box at all.
_POINT = 1e-9
# If more than this share of the sample is loose at first, the dearer effort is made for all rows at once.
_MOSTLY = 0.5
# A radius at which more than this share of the sample has infinite bounds is given up.
_HOPELESS = 0.5
# Rows for which tables are worth while.
_MANY_ROWS = 20_000
# Tables reach so many times the range of the sample beyond it. They may be so many times as loose.
_BEYOND, _TABLE, _TABLE_FAR = 1.0, 1.01, 1.05


def _for[T](n_predictors: int, values: tuple[T, ...]) -> T:
    """The value for so many predictors."""
    return values[min(n_predictors, len(values)) - 1]


@lru_cache(maxsize=64)
def _tape(expression: Expression, n_predictors: int, order: int) -> Tape:
    return tape_of(expression, n_predictors, order)


class RowBounds:
    """Bounds c_i of some rows at all radii.

    Parameters
    ----------
    function : RowFunction
    degree : int
        Order of the derivatives.
    radii : ndarray (R,)
    efforts : list of list of Effort
        For each radius, one for all rows and, where it pays, one for those that are loose then.
    looseness : float
        The sum of the bounds at the first radius over that at the center, on a sample.
    table : TabulatedBounds, optional
        For nearly all rows.
    exact : TabulatedBounds, optional
        For all others, in place of jets.
    """

    def __init__(
        self,
        function: RowFunction,
        degree: int,
        radii: Vector,
        efforts: list[list[Effort]],
        looseness: float,
        table: TabulatedBounds | None,
        exact: TabulatedBounds | None = None,
    ) -> None:
        self._function, self._degree, self._radii = function, degree, radii
        self.efforts, self.looseness, self._table, self._exact = efforts, looseness, table, exact

    def __call__(self, eta: Matrix, directions: Matrix, data: Matrix) -> Matrix:
        """c_i, of shape (R, m)."""
        if self._table is None:
            bounds = self._one_by_one(slice(None), eta, directions, data)
        else:
            bounds = looked_up(self._table, self._degree, self._radii, eta, directions, data)
            # Rows beyond the tables are few.
            beyond = np.isinf(bounds[:-1]).any(axis=0)
            if beyond.any():
                bounds[:, beyond] = self._one_by_one(beyond, eta, directions, data)
        # What holds up to a radius holds up to all smaller ones.
        for k in range(len(bounds) - 1, 0, -1):
            np.minimum(bounds[k - 1], bounds[k], out=bounds[k - 1])
        return bounds

    def _one_by_one(self, which: Mask | slice, eta: Matrix, directions: Matrix, data: Matrix) -> Matrix:
        """Bounds of some rows without tables of many: ndarray (R, m), a line for each radius."""
        some = eta[which], directions[which], data[:, which]
        if self._exact is not None:
            return looked_up(self._exact, self._degree, self._radii, *some)
        return self._by_jets(*some)

    def _by_jets(self, eta: Matrix, directions: Matrix, data: Matrix) -> Matrix:
        """Bounds of some rows by interval jets: ndarray (R, m), infinite where none was found."""
        rows = _Rows(self._function, self._degree, eta, directions, data)
        bounds = np.full((len(self._radii), len(eta)), np.inf)
        for k, (radius, efforts) in enumerate(zip(self._radii, self.efforts, strict=True)):
            if efforts:
                bounds[k] = rows.refined(radius, efforts, far=k > 0)
        return bounds


def looked_up(
    table: TabulatedBounds, degree: int, radii: Vector, eta: Matrix, directions: Matrix, data: Matrix
) -> Matrix:
    """c_i = K_i |v_i|^g from tables, of shape (R, m)."""
    v = directions[:, 0]
    length = np.sqrt(np.einsum("md,md->m", v, v)) * (1.0 + 1e-12)
    moves = length > 0.0
    some = slice(None) if moves.all() else moves  # mostly without copies
    own = np.ascontiguousarray(eta[some, 0]), length[some]
    bounds = np.zeros((len(radii), len(length)))
    bounds[:, some] = table(*own, radii, data[:, some]) * own[1] ** degree
    return bounds


def row_bounds(function: RowFunction, degree: int, radii: Vector, sample: Sample) -> RowBounds:
    """Choose efforts on a sample of the rows."""
    n = function.n_rows
    positions = evenly_spaced(n, _for(function.n_predictors, _SAMPLE))
    rows = _Rows(function, degree, *sample(positions))
    exact = rows.without_jets
    if exact is not None:
        return rows.exactly(exact, radii)
    share = n / len(positions)
    efforts = [_efforts(rows, radius, share, far=k > 0) for k, radius in enumerate(radii)]
    bounds = np.stack(
        [rows.refined(r, own, far=k > 0) for k, (r, own) in enumerate(zip(radii, efforts, strict=True))]
    )
    looseness = 1.0
    if rows.at_center.any():
        with np.errstate(all="ignore"):
            looseness = float(bounds[0].sum() / rows.at_center.sum())
    efforts = [
        [] if np.isinf(own).mean() > _HOPELESS else effort
        for own, effort in zip(bounds, efforts, strict=True)
    ]
    table = rows.table(radii, bounds)
    return RowBounds(function, degree, radii, efforts, looseness, table)


def _efforts(rows: _Rows, radius: float, share: float, *, far: bool) -> list[Effort]:
    """The efforts that pay for `share` times as many rows.

    Without an expansion first, then with one, then the box is cut in two, again and again, along the
    coordinate that gains the most.
    """
    p = rows.n_predictors
    whole = Effort(0, (1,) * p)
    if not np.isfinite(radius):
        return [whole]
    worth = _for(p, _WORTH_FAR if far else _WORTH)
    tried, best = [whole, Effort(expansion_order(rows.degree), (1,) * p)], 0
    most = _MOST_PRODUCTS if p > _FEW else _MOST_WITH_FEW
    if share * rows.n_rows * rows.products(tried[1]) > most:
        return [whole]
    bounds = rows.bounds(radius, whole)
    totals, first_loose = [bounds.sum()], rows.loose(bounds, far=far).mean()
    bounds = rows.improved(bounds, radius, tried[1], far=far)
    totals.append(bounds.sum())
    while True:
        last = len(tried) - 1
        if not totals[last] > worth ** (last - best) * totals[best]:
            best = last
        loose = rows.loose(bounds, far=far)
        for_a_row = 2.0 * rows.products(tried[last])
        too_dear = for_a_row > _for(p, _MOST_FOR_A_ROW) or share * loose.sum() * for_a_row > _MOST_PRODUCTS
        if not loose.any() or last - best >= _PATIENCE or too_dear:
            if best and first_loose > _MOSTLY:
                return [tried[best]]
            return [whole, tried[best]] if best else [whole]
        candidates = [_cut(tried[last], axis) for axis in range(p)]
        found = [rows.improved(bounds, radius, candidate, far=far) for candidate in candidates]
        axis = min(range(p), key=lambda axis: _size(found[axis]))
        tried.append(candidates[axis])
        bounds = found[axis]
        totals.append(bounds.sum())


def _size(bounds: Vector) -> tuple[int, float]:
    """Number of infinite bounds, and the sum of the others."""
    return int(np.isinf(bounds).sum()), float(bounds[np.isfinite(bounds)].sum())


def _cut(effort: Effort, axis: int) -> Effort:
    """Twice as many parts along one coordinate."""
    parts = tuple(2 * n if k == axis else n for k, n in enumerate(effort.parts))
    return effort._replace(parts=parts)


class _Rows:
    """Some rows, whose derivatives are bounded with more and more effort."""

    def __init__(
        self, function: RowFunction, degree: int, eta: Matrix, directions: Matrix, data: Matrix
    ) -> None:
        self._function, self.degree = function, degree
        self._eta, self._directions, self._data = eta, directions, data
        self.n_predictors, self.n_rows = function.n_predictors, len(eta)

    @cached_property
    def at_center(self) -> Vector:
        """The derivatives at the center alone, which no bound is below."""
        return self.bounds(_POINT, Effort(0, (1,) * self.n_predictors))

    @property
    def _may_tabulate(self) -> bool:
        """Are there derivatives by one predictor, of which an affine part has none?"""
        return self.n_predictors == 1 and self.degree > 1

    @cached_property
    def without_jets(self) -> TabulatedBounds | None:
        """Bounds that are exact, if they are known."""
        if not self._may_tabulate:
            return None
        return TabulatedBounds.without_table(self._function.expression, self.degree)

    def exactly(self, exact: TabulatedBounds, radii: Vector) -> RowBounds:
        """Bounds of all rows by exact derivatives; from a table if the rows are many."""
        own = self._looked_up(exact, np.append(radii, 0.0))
        looseness = (
            float(own[0].sum() / own[-1].sum()) if own[-1].any() and np.isfinite(own[-1]).all() else 1.0
        )
        table = self.table(radii, own[:-1])
        return RowBounds(self._function, self.degree, radii, [], looseness, table, exact)

    def table(self, radii: Vector, bounds: Matrix) -> TabulatedBounds | None:
        """Tables for these rows and others like them, if rows are many and tables about as good as bounds."""
        if not self._may_tabulate or self._function.n_rows < _MANY_ROWS:
            return None
        finite = radii[np.isfinite(radii)]
        eta, length = self._eta[:, 0], np.linalg.norm(self._directions[:, 0], axis=1)
        reach = _BEYOND * max(np.ptp(eta), 1.0) + 2.0 * finite.max(initial=0.0) * length.max()
        found = TabulatedBounds.of(
            self._function.expression, self.degree, float(eta.min() - reach), float(eta.max() + reach)
        )
        if found is None:
            return None
        ours = self._looked_up(found, radii)
        with np.errstate(invalid="ignore"):
            worse = ours.sum(axis=1) > np.where(radii > radii[0], _TABLE_FAR, _TABLE) * bounds.sum(axis=1)
        return None if worse.any() else found

    def _looked_up(self, table: TabulatedBounds, radii: Vector) -> Matrix:
        return looked_up(table, self.degree, radii, self._eta, self._directions, self._data)

    def loose(self, bounds: Vector, *, far: bool) -> Mask:
        """Rows whose bounds are far above the derivatives at the center."""
        times = _for(self.n_predictors, _DONE_FAR if far else _DONE)
        return ~(bounds <= times * self.at_center)

    def improved(self, bounds: Vector, radius: float, effort: Effort, *, far: bool) -> Vector:
        """Better bounds of those rows that are loose."""
        loose, result = self.loose(bounds, far=far), bounds.copy()
        if loose.any():
            result[loose] = np.minimum(bounds[loose], self.bounds(radius, effort, loose))
        return result

    def refined(self, radius: float, efforts: list[Effort], *, far: bool) -> Vector:
        """Bounds of all the rows: by the first effort, and by the last for rows that are loose."""
        bounds = self.bounds(radius, efforts[0])
        return bounds if len(efforts) == 1 else self.improved(bounds, radius, efforts[-1], far=far)

    def products(self, effort: Effort) -> float:
        """Products of coefficients for one row."""
        tape = _tape(self._function.expression, self.n_predictors, self.degree + effort.extra)
        return (2.0 if effort.extra else 1.0) * len(tape.weights) * math.prod(effort.parts)

    def bounds(self, radius: float, effort: Effort, which: Mask | slice = slice(None)) -> Vector:
        """Bounds of some of the rows by one effort."""
        work.spend(_OF_PRODUCT * len(self._eta[which]) * self.products(effort), "Bounds")
        tape = _tape(self._function.expression, self.n_predictors, self.degree + effort.extra)
        eta, directions, data = self._eta[which], self._directions[which], self._data[:, which]
        return derivative_norms(tape, eta, directions, data, radius, self.degree, effort)
