"""Guards: where a row is minus infinity because a parameter is not allowed.

Densities check their parameters: cutpoints that are not in order, or a scale below zero, have density zero.
Such a check is a select with minus infinity for one of its branches. Where its condition is that an affine
value is above zero it is taken out of the expression: bounds are asked for in regions where it holds, and
the predictors of the rest may be fewer.
"""

import math
from collections.abc import Callable, Collection

from pymc_austerity.bounds.expressions.affine import is_affine
from pymc_austerity.bounds.expressions.linear import ONE, is_constant, linear, number
from pymc_austerity.bounds.expressions.node import Expression, Range, ordered
from pymc_austerity.bounds.expressions.rebuild import rebuilt
from pymc_austerity.bounds.expressions.selects import select
from pymc_austerity.bounds.expressions.sums import scale


def without_guards(root: Expression) -> tuple[Expression, tuple[Expression, ...]]:
    """An expression that is the same where all guards are above zero, and these guards.

    Guards of one case that the data decide are one in the other case.
    """
    found: dict[Expression, Expression] = {}
    guards: dict[Expression, None] = {}
    with_guards: set[Expression] = set()
    for one in ordered(root):
        if _guard(one) or not with_guards.isdisjoint(one.args):
            with_guards.add(one)
    outermost = {one for one in with_guards if _guard(one) or (one.op == "select" and not one.args[0].moves)}
    for x in (one for one in ordered(root, outermost) if one in outermost):
        if own := _guard(x):
            found[x], more = without_guards(own[1])
            more = (own[0], *more)
        else:
            condition, *branches = x.args
            (yes, first), (no, second) = map(without_guards, branches)
            found[x], more = select(condition, yes, no), tuple(_of_cases(condition, first, second))
        guards |= dict.fromkeys(more)
    return rebuilt(root, found.get), tuple(guards)


def _of_cases(
    condition: Expression, yes: Collection[Expression], no: Collection[Expression]
) -> dict[Expression, None]:
    """The guards of two cases that the data decide: those of both, and of each what is one in the other."""
    found = [one if one in no else select(condition, one, ONE) for one in yes]
    return dict.fromkeys(found + [select(condition, ONE, one) for one in no if one not in yes])


def guards_of_all(root: Expression) -> frozenset[Expression]:
    """Guards without which all of an expression is minus infinity, as those of a summand are."""
    found = _guard(root)
    if found is not None:
        return guards_of_all(found[1]) | {found[0]}
    if root.op == "select" and not root.args[0].moves:  # in every case that the data decide
        return frozenset(_of_cases(root.args[0], *map(guards_of_all, root.args[1:])))
    terms = linear(root)[1] if root.op == "sum" else {}
    return frozenset(guard for term, c in terms.items() if c > 0.0 for guard in guards_of_all(term))


def _guard(x: Expression) -> tuple[Expression, Expression] | None:
    """Number that has to be above zero, and the expression where it is; None for all other expressions."""
    if x.op != "select" or x.args[0].op not in ("positive", "nonnegative"):
        return None
    condition, yes, no = x.args
    (value,) = condition.args
    if not value.moves or not is_affine(value):
        return None
    if _is_minus_infinity(no):
        return value, yes
    return (scale(-1.0, value), no) if _is_minus_infinity(yes) else None


def _is_minus_infinity(x: Expression) -> bool:
    return is_constant(x) and number(x) == -math.inf


# What has to be positive, from the arguments of an operation that is not defined elsewhere.
_POSITIVE: dict[str, Callable[..., Range]] = {
    **dict.fromkeys(("log", "power", "gammaln", "digamma", "rising"), lambda r, *_: r),
    "log1p": lambda r: Range(1.0 + r.low, 1.0 + r.high),
    "log1mexp": lambda r: Range(-r.high, -r.low, r.nonzero),
    "reciprocal": lambda r: Range(-r.high, -r.low, r.nonzero) if r.is_negative else r,
    "log_ndtr_between": lambda s, w: w,
}


def is_defined_everywhere(root: Expression) -> bool:
    """Whether no operation leaves its domain at any state, its ends included, as far as ranges tell."""
    return not with_domain(root)


def with_domain(root: Expression) -> frozenset[Expression]:
    """Operations that may leave their domain, its ends included, as far as ranges tell."""
    moving = (one for one in ordered(root) if one.moves and one.op in _POSITIVE)
    return frozenset(
        one for one in moving if not _POSITIVE[one.op](*(arg.range for arg in one.args)).is_positive
    )
