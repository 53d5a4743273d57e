"""Bounds of rows with one predictor, looked up in tables.

Many rows are f(eta; data) = sum over k of g_k(data) h_k(eta) + a function that is affine in eta. Then

    |f^(g)| <= sum over k of |g_k| |h_k^(g)|,

and sup |h_k^(g)| over an interval is at most its largest bound over the cells of a grid that the interval
touches. The cells are bounded once: exactly where h_k is an elementary function of b eta + c, as in most
regressions, else by interval jets. The largest of 2^l neighbours is kept for each l, so that a row takes two
look-ups, whatever the length of its interval.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.affine import is_affine
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.linear import linear
from pymc_austerity.bounds.expressions.node import Expression, constant, ordered, predictor
from pymc_austerity.bounds.jets.codes import FUNCTIONS
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.derivative_norms import Effort, derivative_norms, expansion_order
from pymc_austerity.bounds.jets.ranges import largest_derivative
from pymc_austerity.bounds.jets.tape import tape_of
from pymc_austerity.target import Array, Vector

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
