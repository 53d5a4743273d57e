"""Products taken apart into a number, factors with exponents, and exponentials."""

import math
from collections.abc import Callable

from pymc_austerity.bounds.expressions.affine import is_affine
from pymc_austerity.bounds.expressions.linear import Terms, is_constant, linear, number, plus, same
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.expressions.sums import combined, scale


def power_of(x: float, e: float) -> float:
    """Raise x to the power of e: infinite where it overflows, not a number where it is not real."""
    if x < 0.0 and not e.is_integer():
        return math.nan
    try:
        return float(x**e)
    except (ZeroDivisionError, OverflowError):
        return math.inf


class Factors:
    """A product taken apart.

    Attributes
    ----------
    number : float
    powers : dict
        Exponents of the factors.
    exponents : list of (float, Expression)
        What the exponential is of.
    """

    def __init__(self) -> None:
        self.number = 1.0
        self.powers: Terms = {}
        self.exponents: list[tuple[float, Expression]] = []

    def take(self, x: Expression, e: float = 1.0) -> None:
        """Multiply by x to the power of e."""
        _TAKE.get(x.op, _take_factor)(self, x, e)

    def exponential(self) -> Expression:
        """The argument of the product's exponential factor."""
        return combined(self.exponents)


def _take_constant(f: Factors, x: Expression, e: float) -> None:
    f.number *= power_of(number(x), e)


def _take_factor(f: Factors, x: Expression, e: float) -> None:
    f.powers[x] = plus(f.powers.get(x, 0.0), e)
    if f.powers[x] == 0.0:
        del f.powers[x]


def _take_sum(f: Factors, x: Expression, e: float) -> None:
    """A factor of the sum comes out; a sign only if its power is a number."""
    factor = _content(x) if e == round(e) else abs(_content(x))
    whole = scale(1.0 / factor, x)
    f.number *= power_of(factor, e)
    if whole.op == "sum":
        _take_factor(f, whole, e)
    else:
        f.take(whole, e)


def _content(x: Expression) -> float:
    """Number to divide a sum by: the first coefficient of an affine form, or of equal ones, else its sign."""
    added, terms = linear(x)
    first = terms[x.args[0]]
    has_one_size = added == 0.0 and all(same(abs(c), abs(first)) for c in terms.values())
    if has_one_size or (x.moves and is_affine(x)):
        return first
    return math.copysign(1.0, first)


def _take_product(f: Factors, x: Expression, e: float) -> None:
    if e != round(e) and not all(arg.range.is_positive for arg in x.args):
        _take_factor(f, x, e)
        return
    for arg in x.args:
        f.take(arg, e)


def _take_square(f: Factors, x: Expression, e: float) -> None:
    (inner,) = x.args
    if e != round(e) and not inner.range.is_positive:
        _take_factor(f, x, e)
        return
    f.take(inner, 2.0 * e)


def _take_reciprocal(f: Factors, x: Expression, e: float) -> None:
    f.take(x.args[0], -e)


def _take_power(f: Factors, x: Expression, e: float) -> None:
    base, exponent = x.args
    if is_constant(exponent):
        f.take(base, e * number(exponent))
    else:
        _take_factor(f, x, e)


def _take_exp(f: Factors, x: Expression, e: float) -> None:
    if x.moves:
        f.exponents.append((e, x.args[0]))
    else:
        _take_factor(f, x, e)


_TAKE: dict[str, Callable[[Factors, Expression, float], None]] = {
    "constant": _take_constant,
    "sum": _take_sum,
    "product": _take_product,
    "square": _take_square,
    "reciprocal": _take_reciprocal,
    "power": _take_power,
    "exp": _take_exp,
}
