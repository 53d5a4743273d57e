"""Expressions that are affine in predictors, and their coefficients.

The coefficients are expressions of data. A choice by data between affine expressions is affine as well.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, cast

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import Expression, constant, data, node, ordered, predictor

_ZERO = constant(0.0)


class AffineParts(NamedTuple):
    """offset + the sum of coefficients times predictors."""

    offset: Expression
    coefficients: dict[int, Expression]


def affine_nodes(root: Expression) -> dict[Expression, AffineParts]:
    """All parts of an expression that move and are affine in its predictors."""
    found: dict[Expression, AffineParts] = {}
    for one in ordered(root):
        parts = _parts(one, found) if one.moves else None
        if parts is not None:
            found[one] = parts
    return found


def _parts(one: Expression, known: dict[Expression, AffineParts]) -> AffineParts | None:
    own = [known.get(arg) if arg.moves else AffineParts(arg, {}) for arg in one.args]
    parts = [part for part in own if part is not None]
    if len(parts) < len(own) or one.op not in _RULES:
        return None
    return _RULES[one.op](one, parts)


def _predictor(one: Expression, parts: list[AffineParts]) -> AffineParts:
    return AffineParts(_ZERO, {cast(int, one.value): constant(1.0)})


def _sum(one: Expression, parts: list[AffineParts]) -> AffineParts:
    first, factors = cast(tuple[float, tuple[float, ...]], one.value)
    scaled = [_scaled(part, constant(factor)) for part, factor in zip(parts, factors, strict=True)]
    offset = forms.add(constant(first), *(part.offset for part in scaled))
    names = dict.fromkeys(k for part in scaled for k in part.coefficients)
    return AffineParts(
        offset, {k: forms.add(*(p.coefficients[k] for p in scaled if k in p.coefficients)) for k in names}
    )


def _scaled(part: AffineParts, factor: Expression) -> AffineParts:
    coefficients = {k: forms.multiply(factor, one) for k, one in part.coefficients.items()}
    return AffineParts(forms.multiply(factor, part.offset), coefficients)


def _product(one: Expression, parts: list[AffineParts]) -> AffineParts | None:
    a, b = parts
    if a.coefficients and b.coefficients:
        return None
    return _scaled(a, b.offset) if a.coefficients else _scaled(b, a.offset)


def _select(one: Expression, parts: list[AffineParts]) -> AffineParts | None:
    condition, (_, yes, no) = one.args[0], parts
    if condition.moves:
        return None
    names = dict.fromkeys([*yes.coefficients, *no.coefficients])
    return AffineParts(
        forms.select(condition, yes.offset, no.offset),
        {
            k: forms.select(condition, yes.coefficients.get(k, _ZERO), no.coefficients.get(k, _ZERO))
            for k in names
        },
    )


_RULES: dict[str, Callable[[Expression, list[AffineParts]], AffineParts | None]] = {
    "predictor": _predictor,
    "sum": _sum,
    "product": _product,
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
