"""Canonical sums: a number and terms with coefficients; like terms collect, and terms that cancel vanish."""

import math
from collections.abc import Callable

from pymc_austerity.bounds.expressions.linear import (
    ZERO,
    Terms,
    accumulated,
    is_constant,
    linear,
    plus,
    snapped,
)
from pymc_austerity.bounds.expressions.node import Expression, constant, node
from pymc_austerity.bounds.expressions.order import order_key
from pymc_austerity.bounds.expressions.ranges import BOOLEAN, scaled, total
from pymc_austerity.bounds.expressions.trees import chosen, over_cases

type Sum = tuple[float, Terms]

# What makes a sum simpler: each returns the simpler sum, or None. Other files add theirs.
SIMPLER: list[Callable[[float, Terms], Sum | None]] = []


def _simplified(added: float, terms: Terms) -> Sum:
    rules = list(SIMPLER)
    while rules:
        found = rules.pop(0)(added, terms)
        if found is not None:
            (added, terms), rules = found, list(SIMPLER)
    return added, terms


def as_sum(added: float, terms: Terms) -> Expression:
    """The expression of a number and terms with their coefficients."""
    if math.isfinite(added) and any(term.moves for term in terms):
        added, terms = _simplified(added, terms)
    return sum_node(added, terms)


def sum_node(added: float, terms: Terms) -> Expression:
    """A sum as it stands, its terms in order."""
    # An infinite number swallows what is added to it.
    if not terms or not math.isfinite(added):
        return constant(added)
    added += 0.0  # no negative zero
    args = tuple(sorted(terms, key=order_key))
    coefficients = tuple(terms[arg] for arg in args)
    if added == 0.0 and coefficients == (1.0,):
        return args[0]
    parts = [scaled(arg.range, c) for arg, c in zip(args, coefficients, strict=True)]
    return node("sum", args, (added, coefficients), total(added, parts))


def combined(pairs: list[tuple[float, Expression]]) -> Expression:
    """The sum of expressions times numbers."""
    added = 0.0
    terms: Terms = {}
    for factor, x in pairs:
        more, its_terms = linear(x)
        added = plus(added, more * factor)
        terms = accumulated(terms, its_terms, factor)
    return as_sum(added, terms)


@over_cases
def add(*xs: Expression) -> Expression:
    """The sum of expressions."""
    return combined([(1.0, x) for x in xs])


@over_cases
def subtract(a: Expression, b: Expression) -> Expression:
    """The difference a - b."""
    return combined([(1.0, a), (-1.0, b)])


def scale(factor: float, x: Expression) -> Expression:
    """A number times an expression."""
    if factor == 1.0:
        return x
    if factor == 0.0:
        return ZERO
    return over_cases(lambda one: _scaled(factor, one))(x)


def _scaled(factor: float, x: Expression) -> Expression:
    """A simplified sum stays simplified: the rules need not be asked again, at any depth."""
    if math.isinf(factor) and not is_constant(x):
        return _infinite(factor, x)
    added, terms = linear(x)
    return sum_node(added * factor, {term: snapped(c * factor) for term, c in terms.items()})


def _infinite(factor: float, x: Expression) -> Expression:
    """An infinite number times an expression: with its sign, and not a number where that is zero."""
    if x.range.is_positive or x.range.is_negative:
        return constant(factor if x.range.is_positive else -factor)
    below = constant(-factor if x.range.low < 0.0 else math.nan)
    is_zero, is_positive = (node(op, (x,), range=BOOLEAN) for op in ("zero", "positive"))
    return chosen(is_positive, constant(factor), chosen(is_zero, constant(math.nan), below))


def negative(a: Expression) -> Expression:
    """The expression -a."""
    return scale(-1.0, a)
