"""One of two values, by a condition; and the functions that are selects: |x|, the larger, the sign."""

from collections.abc import Callable

from pymc_austerity.bounds.expressions.conditions import (
    CONDITIONS,
    both,
    either,
    negated,
    nonnegative,
    positive,
    truth,
)
from pymc_austerity.bounds.expressions.linear import ONE, ZERO, is_constant, linear, number
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.expressions.products import factors_of
from pymc_austerity.bounds.expressions.sums import scale, subtract
from pymc_austerity.bounds.expressions.trees import chosen, over_cases


def select(condition: Expression, a: Expression, b: Expression) -> Expression:
    """A where the condition holds, else b."""
    condition = truth(condition)
    if a is b:
        return a
    if is_constant(condition):
        return a if number(condition) != 0.0 else b
    if condition.op == "zero" and a is ZERO and vanishes_with(b, condition.args[0]):
        return b
    if _is_condition(a) and _is_condition(b) and (a.op in CONDITIONS or b.op in CONDITIONS):
        return either(both(condition, a), both(negated(condition), b))
    return _SELECT.get(condition.op, _by_sign)(condition, a, b)


def vanishes_with(x: Expression, factor: Expression) -> bool:
    """Whether a sum is zero where a factor of all its terms is."""
    added, terms = linear(x)
    return added == 0.0 and all(factor in factors_of(term) for term in terms)


def _is_condition(x: Expression) -> bool:
    return x.op in CONDITIONS or x in (ONE, ZERO)


def _by_sign(condition: Expression, a: Expression, b: Expression) -> Expression:
    return _by_moving(condition, a, b) if condition.moves else chosen(condition, a, b)


@over_cases
def _by_moving(condition: Expression, a: Expression, b: Expression) -> Expression:
    if condition.op not in CONDITIONS[:3]:
        return select(condition, a, b)
    if a.op == "select" and a.args[0] is condition:
        a = a.args[1]
    if b.op == "select" and b.args[0] is condition:
        b = b.args[2]
    return chosen(condition, a, b)


def _by_not(condition: Expression, a: Expression, b: Expression) -> Expression:
    return select(condition.args[0], b, a)


def _by_both(condition: Expression, a: Expression, b: Expression) -> Expression:
    first, second = condition.args
    return select(first, select(second, a, b), b)


def _by_either(condition: Expression, a: Expression, b: Expression) -> Expression:
    first, second = condition.args
    return select(first, a, select(second, a, b))


_SELECT: dict[str, Callable[[Expression, Expression, Expression], Expression]] = {
    "not": _by_not,
    "and": _by_both,
    "or": _by_either,
}


@over_cases
def absolute(x: Expression) -> Expression:
    """The absolute value |x| of an expression."""
    return select(nonnegative(x), x, scale(-1.0, x))


@over_cases
def sign(x: Expression) -> Expression:
    """The sign of an expression: 1, 0 or -1."""
    return select(positive(x), ONE, select(nonnegative(x), ZERO, scale(-1.0, ONE)))


@over_cases
def maximum(a: Expression, b: Expression) -> Expression:
    """The larger one of two expressions."""
    return select(nonnegative(subtract(a, b)), a, b)


@over_cases
def minimum(a: Expression, b: Expression) -> Expression:
    """The smaller one of two expressions."""
    return select(nonnegative(subtract(a, b)), b, a)
