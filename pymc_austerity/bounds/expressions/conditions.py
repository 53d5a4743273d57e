"""Conditions: signs of differences, decided by ranges where these suffice."""

import math
from collections.abc import Callable, Mapping

from pymc_austerity.bounds.expressions.linear import ONE, ZERO, is_constant, linear, number
from pymc_austerity.bounds.expressions.node import Expression, constant, node
from pymc_austerity.bounds.expressions.products import LOGARITHM, factors_of, multiply
from pymc_austerity.bounds.expressions.ranges import BOOLEAN
from pymc_austerity.bounds.expressions.sums import combined, scale, subtract
from pymc_austerity.bounds.expressions.trees import decided_by_range, over_cases

SIGNS = ("positive", "nonnegative", "zero")
CONDITIONS = (*SIGNS, "not", "and", "or")
# Functions that increase strictly.
_INCREASING = ("exp", "log", "sigmoid", "softplus", "log_ndtr", "erf")


def _number_of(truth: bool) -> Expression:
    return ONE if truth else ZERO


def _sign(op: str, x: Expression) -> Expression:
    """A condition on the sign; factors that have a sign of their own are left out."""
    decided = decided_by_range(op, x.range)
    if decided is not None:
        return _number_of(decided)
    added, terms = linear(x)
    if op == "zero":
        x = scale(math.copysign(1.0, next(iter(terms.values()))), x)
        added, terms = linear(x)
    if added == 0.0 and len(terms) == 1:
        ((term, c),) = terms.items()
        x = scale(math.copysign(1.0, c), _without_positive(term))
    simpler = _of_arguments(added, terms)
    if simpler is not None:
        return _sign(op, simpler)
    return node(op, (x,), range=BOOLEAN)


def _of_arguments(added: float, terms: Mapping[Expression, float]) -> Expression | None:
    """The difference of arguments that has the sign of f(a) - f(b), or of f(a) - c, for an increasing f."""
    moving = list(terms.items())
    if len(moving) == 2 and added == 0.0:
        (one, c), (two, d) = moving
        if one.op == two.op and one.op in _INCREASING and c == -d:
            return scale(math.copysign(1.0, c), subtract(one.args[0], two.args[0]))
        logs = [LOGARITHM[0](term) for term in (one, two)] if c == -d else []
        if logs and logs[0] is not None and logs[1] is not None:
            apart, tails = linear(scale(math.copysign(1.0, c), subtract(logs[0], logs[1])))
            return _of_arguments(apart, tails) if {term.op for term in tails} == {"log_ndtr"} else None
    if len(moving) == 1 and added != 0.0:
        ((one, c),) = moving
        if one.op == "exp" and added / c < 0.0:
            return scale(math.copysign(1.0, c), subtract(one.args[0], constant(math.log(-added / c))))
    return None


def _without_positive(term: Expression) -> Expression:
    """A product without its positive factors; the product itself if it has none or no others."""
    left = [factor for factor in factors_of(term) if not factor.range.is_positive]
    return multiply(*left) if left and left != [term] else term


@over_cases
def positive(x: Expression) -> Expression:
    """Whether x > 0."""
    return _sign("positive", x)


@over_cases
def nonnegative(x: Expression) -> Expression:
    """Whether x >= 0."""
    return _sign("nonnegative", x)


@over_cases
def zero(x: Expression) -> Expression:
    """Whether x == 0."""
    return _sign("zero", x)


def _is_condition(x: Expression) -> bool:
    is_select = x.op == "select" and all(_is_condition(branch) for branch in x.args[1:])
    return x.op in CONDITIONS or x in (ONE, ZERO) or is_select


def truth(x: Expression) -> Expression:
    """A number as a condition: whether it is not zero."""
    if is_constant(x):
        return _number_of(number(x) != 0.0)
    if x.op == "select" and not x.moves and all(is_constant(branch) for branch in x.args[1:]):
        yes, no = (number(branch) != 0.0 for branch in x.args[1:])
        return _number_of(yes) if yes is no else (x.args[0] if yes else negated(x.args[0]))
    if _is_condition(x):
        return x
    return negated(zero(x))


@over_cases
def negated(a: Expression) -> Expression:
    """Condition that holds where another one does not."""
    a = truth(a)
    if is_constant(a):
        return _number_of(number(a) == 0.0)
    return a.args[0] if a.op == "not" else node("not", (a,), range=BOOLEAN)


def _joined(op: str, absorbing: Expression, a: Expression, b: Expression) -> Expression:
    a, b = truth(a), truth(b)
    if absorbing in (a, b):
        return absorbing
    if is_constant(a) or a is b:
        return b
    return a if is_constant(b) else node(op, (a, b), range=BOOLEAN)


@over_cases
def both(a: Expression, b: Expression) -> Expression:
    """Condition that holds where two conditions hold."""
    return _joined("and", ZERO, a, b)


@over_cases
def either(a: Expression, b: Expression) -> Expression:
    """Condition that holds where at least one of two conditions holds."""
    return _joined("or", ONE, a, b)


# Logarithms, and what is zero where they are minus infinity.
_ZERO_WHERE_INFINITE: dict[str, Callable[..., Expression]] = {
    "log": lambda x: x,
    "log1p": lambda x: combined([(1.0, ONE), (1.0, x)]),
    "log1mexp": lambda x: x,
    "log_ndtr_between": lambda s, w: w,
}


def _is_at(x: Expression, infinity: float) -> Expression:
    """Where a value is infinite: a logarithm at zero. Data that are infinite have a case of their own."""
    if x.moves and x.op in _ZERO_WHERE_INFINITE and infinity < 0.0:
        return zero(_ZERO_WHERE_INFINITE[x.op](*x.args))
    found = ZERO
    for term, c in linear(x)[1].items() if x.op == "sum" else ():
        found = either(found, _is_at(term, math.copysign(1.0, c) * infinity))
    return found


def _infinite(test: Callable[[Expression], Expression], a: Expression, b: Expression) -> Expression:
    """The sign of b - a where one may be infinite."""
    if a is b:
        return test(ZERO)
    if is_constant(a) and math.isinf(number(a)):
        return _against_infinity(test, b, number(a), -1.0)
    if is_constant(b) and math.isinf(number(b)):
        return _against_infinity(test, a, number(b), 1.0)
    return test(subtract(b, a))


def _against_infinity(
    test: Callable[[Expression], Expression], x: Expression, infinity: float, side: float
) -> Expression:
    """The sign of (infinity - x) times side."""
    if is_constant(x) and number(x) == infinity:
        return test(ZERO)
    is_at, elsewhere = _is_at(x, infinity), test(scale(side * math.copysign(1.0, infinity), ONE))
    return either(both(is_at, test(ZERO)), both(negated(is_at), elsewhere))


@over_cases
def less(a: Expression, b: Expression) -> Expression:
    """A < b."""
    return _infinite(positive, a, b)


@over_cases
def less_equal(a: Expression, b: Expression) -> Expression:
    """A <= b."""
    return _infinite(nonnegative, a, b)


def greater(a: Expression, b: Expression) -> Expression:
    """A > b."""
    return less(b, a)


def greater_equal(a: Expression, b: Expression) -> Expression:
    """A >= b."""
    return less_equal(b, a)


@over_cases
def equal(a: Expression, b: Expression) -> Expression:
    """A == b."""
    return _infinite(zero, a, b)


def not_equal(a: Expression, b: Expression) -> Expression:
    """A != b."""
    return negated(equal(a, b))


def is_infinite(a: Expression) -> Expression:
    """Whether an expression is infinite, as a condition."""
    if math.isfinite(a.range.low) and math.isfinite(a.range.high):
        return ZERO
    return either(equal(a, constant(math.inf)), equal(a, constant(-math.inf)))


def is_nan(a: Expression) -> Expression:
    """Never: a row of data that is not a number is not finite, and neither is its bound."""
    return ZERO
