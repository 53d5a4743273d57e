"""Expressions made again by the constructors, with some of their parts replaced."""

from collections.abc import Callable

from pymc_austerity.bounds.expressions import conditions, logarithms, products, selects, special
from pymc_austerity.bounds.expressions.linear import linear
from pymc_austerity.bounds.expressions.node import Expression, constant, ordered
from pymc_austerity.bounds.expressions.powers import power
from pymc_austerity.bounds.expressions.products import exp, multiply, to_the_power
from pymc_austerity.bounds.expressions.sums import add, scale

_MAKE: dict[str, Callable[..., Expression]] = {
    "product": multiply,
    "square": lambda x: to_the_power(x, 2.0),
    "reciprocal": lambda x: to_the_power(x, -1.0),
    "power": power,
    "exp": exp,
    "sigmoid": products.sigmoid,
    "log": logarithms.log,
    "log1p": logarithms.log1p,
    "softplus": logarithms.softplus,
    "log1mexp": logarithms.log1mexp,
    "positive": conditions.positive,
    "nonnegative": conditions.nonnegative,
    "zero": conditions.zero,
    "not": conditions.negated,
    "and": conditions.both,
    "or": conditions.either,
    "select": selects.select,
    "rising": special.rising,
    "rising_exp": special.rising_exp,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfcx": special.erfcx,
    "log_ndtr": special.log_ndtr,
    "log_ndtr_between": special.log_ndtr_between,
    "gammaln": special.gammaln,
    "digamma": special.digamma,
    "sin": special.sin,
    "cos": special.cos,
    "arctan": special.arctan,
}


def _made_again(x: Expression, args: tuple[Expression, ...]) -> Expression:
    if x.op == "sum":
        added, terms = linear(x)
        return add(constant(added), *(scale(c, arg) for c, arg in zip(terms.values(), args, strict=True)))
    return _MAKE[x.op](*args)


def rebuilt(root: Expression, replaced: Callable[[Expression], Expression | None]) -> Expression:
    """The expression with every part for which `replaced` gives another one replaced by it."""
    made: dict[Expression, Expression] = {}
    for x in ordered(root):
        args = tuple(made[arg] for arg in x.args)
        other = replaced(x)
        if other is None:
            is_same = all(a is b for a, b in zip(args, x.args, strict=True))
            other = x if is_same else _made_again(x, args)
        made[x] = other
    return made[root]
