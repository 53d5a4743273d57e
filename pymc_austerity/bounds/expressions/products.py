"""Canonical products: a number, powers of factors, and one exponential.

A product is taken apart into factors with exponents; what is left is put together in one way. A factor that
is positive and of which the logarithm is known goes into the exponential where it is divided by or stands
beside a square, so that (u exp(a))^2 / (1 + exp(b)) is one square of one product.
"""

import math
from collections.abc import Callable
from functools import reduce

from pymc_austerity.bounds.expressions.affine import is_affine
from pymc_austerity.bounds.expressions.factors import Factors, power_of
from pymc_austerity.bounds.expressions.linear import ONE, ZERO, is_constant, linear, number, single
from pymc_austerity.bounds.expressions.node import Expression, Range, constant, node
from pymc_austerity.bounds.expressions.order import order_key
from pymc_austerity.bounds.expressions.ranges import NOT_NEGATIVE, POSITIVE, inverse, monotone, squared, times
from pymc_austerity.bounds.expressions.sums import add, as_sum, combined, scale
from pymc_austerity.bounds.expressions.trees import over_cases

# The logarithm of a positive expression that has one; `logarithms` sets it.
LOGARITHM: list[Callable[[Expression], Expression | None]] = []


def exp_of(x: float) -> float:
    """The exponential, infinite where it overflows."""
    return math.exp(x) if x < 709.0 else math.inf


def sigmoid_of(x: float) -> float:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + exp_of(-x))


def _into_exponential(f: Factors, chosen: Callable[[Expression, float], bool]) -> bool:
    """Factors with a known logarithm that are chosen go into the exponential; whether there was one."""
    done = False
    for factor, e in list(f.powers.items()):
        log = LOGARITHM[0](factor) if factor.moves and chosen(factor, e) else None
        if log is not None:
            del f.powers[factor]
            f.exponents.append((e, log))
            done = True
    return done


def _out_of_exponential(f: Factors) -> Expression:
    """The exponential without what is the logarithm of a factor; these factors are taken."""
    added, terms = linear(f.exponential())
    rest = dict(terms)
    for term, c in terms.items():
        if term.op == "log" and (term.moves or c in (1.0, -1.0)):
            del rest[term]
            f.take(term.args[0], c)
    return as_sum(added, rest)


def _parts_of_exponential(f: Factors, exponent: Expression) -> list[Expression]:
    """The exponential as factors: sigmoids, and what is left of it."""
    if is_constant(exponent):
        f.number *= exp_of(number(exponent))
        return []
    added, terms = linear(exponent)
    alone = len(terms) == 1 and added == 0.0
    rest, parts = dict(terms), []
    for term, c in terms.items():
        if term.op == "softplus" and c == -1.0:
            del rest[term]
            parts.append(sigmoid_node(scale(-1.0, term.args[0])))
        elif alone and c == 1.0 and term.op in _FROM_LOG:
            return [_FROM_LOG[term.op](term.args[0])]
    left = as_sum(added, rest)
    if is_constant(left):
        f.number *= exp_of(number(left))
        return parts
    return [*parts, exp_node(left)]


_FROM_LOG: dict[str, Callable[[Expression], Expression]] = {
    "softplus": lambda x: add(ONE, exp(x)),
    "log1mexp": lambda x: add(ONE, scale(-1.0, exp(x))),
    "log1p": lambda x: add(ONE, x),
}


def exp_node(x: Expression) -> Expression:
    """exp(x) as it stands."""
    return node("exp", (x,), range=monotone(exp_of, x.range, POSITIVE))


def sigmoid_node(x: Expression) -> Expression:
    """1 / (1 + exp(-x)) as it stands."""
    if is_constant(x):
        return constant(sigmoid_of(number(x)))
    return node("sigmoid", (x,), range=monotone(sigmoid_of, x.range, Range(0.0, 1.0, True)))


def square_node(x: Expression) -> Expression:
    """The square as it stands."""
    return node("square", (x,), range=squared(x.range))


def _product_node(a: Expression, b: Expression) -> Expression:
    found = times(a.range, b.range)
    return node("product", (a, b), range=found)


def _power_node(base: Expression, e: float) -> Expression:
    """A factor to the power of a number."""
    if e == 1.0:
        return base
    if e == 2.0:
        return square_node(base)
    if e < 0.0:
        below = _power_node(base, -e)
        return node("reciprocal", (below,), range=inverse(below.range))
    if e == round(e) and not base.range.is_positive:
        half = _power_node(base, e // 2.0)
        even = square_node(half) if e >= 2.0 else half
        return even if e % 2.0 == 0.0 else _product_node(base, even)
    within = POSITIVE if base.range.is_positive else NOT_NEGATIVE
    known = base.range if base.range.low >= 0.0 else NOT_NEGATIVE
    return node("power", (base, constant(e)), range=monotone(lambda x: power_of(x, e), known, within))


def factors_of(term: Expression) -> list[Expression]:
    """The factors of a product."""
    if term.op != "product":
        return [term]
    return [factor for arg in term.args for factor in factors_of(arg)]


def _joined(parts: list[Expression]) -> Expression:
    ordered = sorted(parts, key=order_key)
    return reduce(_product_node, ordered) if ordered else ONE


def _moving(f: Factors) -> Expression:
    """The factors that move, put together."""
    is_divided = _into_exponential(f, lambda _, e: e < 0.0 or e != round(e))
    moving = {x: e for x, e in f.powers.items() if x.moves}
    with_square = any(e > 0.0 and e % 2.0 == 0.0 and LOGARITHM[0](x) is None for x, e in moving.items())
    if is_divided or with_square:
        _into_exponential(f, lambda x, e: True)
    exponent = _out_of_exponential(f)
    moving = {x: f.powers.pop(x) for x in list(f.powers) if x.moves}
    even = [x for x, e in moving.items() if e > 0.0 and e % 2.0 == 0.0 and not x.range.is_positive]
    if even and exponent.moves:
        inside = [_power_node(x, moving.pop(x) / 2.0) for x in even]
        inside += [exp_node(scale(0.5, exponent))]
        return _joined([square_node(_joined(inside)), *(_power_node(x, e) for x, e in moving.items())])
    parts = [_power_node(x, e) for x, e in moving.items()]
    return _joined(_mirrored([*parts, *_parts_of_exponential(f, exponent)]))


def _mirrored(parts: list[Expression]) -> list[Expression]:
    """exp(a) sigmoid(-a) is sigmoid(a)."""
    for power in parts:
        for other in parts:
            if power.op == "exp" and other.op == "sigmoid" and other.args[0] is scale(-1.0, power.args[0]):
                rest = [x for x in parts if x is not power and x is not other]
                return [*rest, sigmoid_node(power.args[0])]
    return parts


def _distributed(still: Expression, moving: Expression) -> Expression:
    """A fixed factor times an affine expression, as a sum of terms."""
    a, ones = linear(still)
    b, others = linear(moving)
    pairs = [(a * b, ONE)]
    pairs += [(b * c, x) for x, c in ones.items()] + [(a * c, x) for x, c in others.items()]
    pairs += [(c * d, _term(x, y)) for x, c in ones.items() for y, d in others.items()]
    return combined([(c, x) for c, x in pairs if c != 0.0])


def _term(still: Expression, term: Expression) -> Expression:
    if term.op == "product":
        return _term(multiply(still, term.args[0]), term.args[1])
    return _product_node(still, term) if term.moves else multiply(still, term)


def built(f: Factors) -> Expression:
    """The product of the factors, as one expression."""
    if f.number == 0.0:
        return ZERO
    moving = _moving(f)
    still = _joined([_power_node(x, e) for x, e in f.powers.items()])
    if is_constant(still):
        return scale(f.number * number(still), moving)
    if not moving.moves:
        return scale(f.number, still if moving is ONE else _product_node(still, moving))
    if is_affine(moving):
        return scale(f.number, _distributed(still, moving))
    c, core = single(moving)
    return scale(f.number * c, _product_node(still, core))


@over_cases
def multiply(*xs: Expression) -> Expression:
    """The product; zero times what may be infinite is zero, as in PyTensor."""
    if ZERO in xs:
        return ZERO
    f = Factors()
    for x in xs:
        f.take(x)
    return built(f)


@over_cases
def _to_the_power(x: Expression, e: Expression) -> Expression:
    f = Factors()
    f.take(x, number(e))
    return built(f)


def to_the_power(x: Expression, e: float) -> Expression:
    """The power of which the exponent is a number."""
    return _to_the_power(x, constant(e))


@over_cases
def exp(x: Expression) -> Expression:
    """The exponential of an expression."""
    if not x.moves:
        return constant(exp_of(number(x))) if is_constant(x) else exp_node(x)
    f = Factors()
    f.exponents.append((1.0, x))
    return built(f)


@over_cases
def divide(a: Expression, b: Expression) -> Expression:
    """A / b."""
    f = Factors()
    f.take(a)
    f.take(b, -1.0)
    return built(f)


@over_cases
def sigmoid(x: Expression) -> Expression:
    """1 / (1 + exp(-x))."""
    if x.op == "log":
        return divide(x.args[0], add(ONE, x.args[0]))
    return sigmoid_node(x)
