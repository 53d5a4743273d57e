"""An expression seen as a sum: a number, and terms with their coefficients."""

import math
from typing import cast

from pymc_austerity.bounds.expressions.node import Expression, constant

type Terms = dict[Expression, float]

ONE = constant(1.0)
ZERO = constant(0.0)

# Coefficients that should be the same, or a small fraction, but for rounding.
_ROUNDING = 1e-14
_FRACTIONS = 24


def number(x: Expression) -> float:
    """The number of a constant."""
    return cast(float, x.value)


def is_constant(x: Expression) -> bool:
    """Whether an expression is the same number for all rows."""
    return x.op == "constant"


def linear(x: Expression) -> tuple[float, Terms]:
    """The constant that is added, and the coefficients of the terms."""
    if is_constant(x):
        return number(x), {}
    if x.op != "sum":
        return 0.0, {x: 1.0}
    added, coefficients = cast(tuple[float, tuple[float, ...]], x.value)
    return added, dict(zip(x.args, coefficients, strict=True))


def single(x: Expression) -> tuple[float, Expression]:
    """A coefficient and a term, if there is only one and no constant; else one and the expression."""
    added, terms = linear(x)
    if added == 0.0 and len(terms) == 1:
        ((term, coefficient),) = terms.items()
        return coefficient, term
    return 1.0, x


def snapped(value: float) -> float:
    """A number, or the small fraction that it is up to rounding."""
    near = round(value * _FRACTIONS) / _FRACTIONS if abs(value) < 1e6 else value
    return near if abs(near - value) <= _ROUNDING * abs(value) else value


def plus(a: float, b: float) -> float:
    """A sum of coefficients, zero if these cancel up to rounding."""
    together = a + b
    if not math.isfinite(together):
        return together
    return 0.0 if abs(together) <= _ROUNDING * max(abs(a), abs(b)) else snapped(together)


def same(a: float, b: float) -> bool:
    """Whether two coefficients are equal up to rounding."""
    return a == b or abs(a - b) <= _ROUNDING * max(abs(a), abs(b))


def accumulated(terms: Terms, more: Terms, factor: float = 1.0) -> Terms:
    """Like terms collected; what cancels is left out."""
    found = dict(terms)
    for term, coefficient in more.items():
        found[term] = plus(found.get(term, 0.0), snapped(coefficient * factor))
    return {term: coefficient for term, coefficient in found.items() if coefficient != 0.0}
