"""Expressions that are affine or quadratic in predictors, and their coefficients.

The coefficients are expressions of all else, as of data. A choice by data between affine expressions is
affine as well.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, cast

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.linear import ONE, ZERO
from pymc_austerity.bounds.expressions.node import Expression, constant, data, node, ordered, predictor

# Coefficients by monomials, which are the numbers of their predictors in order: () is 1, (0, 0) a square.
Polynomial = dict[tuple[int, ...], Expression]


class AffineParts(NamedTuple):
    """offset + the sum of coefficients times predictors."""

    offset: Expression
    coefficients: dict[int, Expression]


def affine_nodes(root: Expression) -> dict[Expression, AffineParts]:
    """All parts of an expression that move and are affine in its predictors."""
    return {
        one: AffineParts(found.get((), ZERO), {key[0]: own for key, own in found.items() if key})
        for one, found in _polynomials(root, 1, lambda one: one.moves).items()
    }


def by_powers(root: Expression) -> tuple[Expression, Expression, Expression] | None:
    """Coefficients of 1, t and t^2, t being predictor 0; None if that is not all there is."""
    found = _polynomials(root, 2, lambda one: 0 in leaves(one, "predictor")).get(root)
    return None if found is None else (found.get((), ZERO), found.get((0,), ZERO), found.get((0, 0), ZERO))


def _polynomials(
    root: Expression, degree: int, moves: Callable[[Expression], bool]
) -> dict[Expression, Polynomial]:
    """All parts of an expression that move, and are polynomials of a degree at most in what moves."""
    found: dict[Expression, Polynomial] = {}
    for one in ordered(root):
        if one.op in _RULES and moves(one):
            own: list[Polynomial | None] = [found.get(arg) if moves(arg) else {(): arg} for arg in one.args]
            parts = [part for part in own if part is not None]
            result = _RULES[one.op](one, parts, degree) if len(parts) == len(own) else None
            if result is not None:
                found[one] = result
    return found


def _sum(one: Expression, parts: list[Polynomial], degree: int) -> Polynomial:
    first, factors = cast(tuple[float, tuple[float, ...]], one.value)
    terms: dict[tuple[int, ...], list[Expression]] = {(): [constant(first)]}
    for factor, part in zip(factors, parts, strict=True):
        for key, own in part.items():
            terms.setdefault(key, []).append(forms.multiply(constant(factor), own))
    return {key: forms.add(*own) for key, own in terms.items()}


def _product(one: Expression, parts: list[Polynomial], degree: int) -> Polynomial | None:
    a, b = parts if one.op == "product" else parts * 2
    if max(map(len, a)) + max(map(len, b)) > degree:
        return None
    terms: dict[tuple[int, ...], list[Expression]] = {}
    for key, own in a.items():
        for other, factor in b.items():
            terms.setdefault(tuple(sorted(key + other)), []).append(forms.multiply(own, factor))
    return {key: forms.add(*own) for key, own in terms.items()}


def _select(one: Expression, parts: list[Polynomial], degree: int) -> Polynomial | None:
    condition, yes, no = parts
    if condition.keys() != {()}:
        return None
    return {
        key: forms.select(condition[()], yes.get(key, ZERO), no.get(key, ZERO))
        for key in dict.fromkeys([*yes, *no])
    }


_RULES: dict[str, Callable[[Expression, list[Polynomial], int], Polynomial | None]] = {
    "predictor": lambda one, parts, degree: {(cast(int, one.value),): ONE},
    "sum": _sum,
    "product": _product,
    "square": _product,
    "select": _select,
}


def leaves(root: Expression, op: str, cut: Collection[Expression] = ()) -> list[int]:
    """Numbers of the predictors, or of the columns of data, in an expression above a cut."""
    return sorted({cast(int, one.value) for one in ordered(root, cut) if one.op == op and one not in cut})


def replaced_by(root: Expression, places: Mapping[Expression, int]) -> Expression:
    """An expression with predictors, by their new numbers, in the place of some of its parts."""
    found = {one: predictor(k) for one, k in places.items()}
    for one in ordered(root, found):
        if one not in found:  # its range stays: what is in it has not changed
            found[one] = node(one.op, tuple(found[arg] for arg in one.args), one.value, one.range)
    return found[root]


def renumbered(root: Expression, columns: Sequence[int]) -> Expression:
    """An expression with the columns of data numbered by their places in `columns`."""
    found: dict[Expression, Expression] = {}
    for one in ordered(root):
        if one.op == "data":
            low, high, nonzero = one.range
            found[one] = data(columns.index(cast(int, one.value)), low, high, nonzero=nonzero)
        else:
            found[one] = node(one.op, tuple(found[arg] for arg in one.args), one.value, one.range)
    return found[root]
