"""Constructors of scalar expressions in stable form: the spelling of a model does not matter.

log(sigmoid(x)) is -softplus(-x), log(exp(a) + exp(b)) is a + softplus(b - a), a value that is added and
subtracted vanishes, conditions that the data decide come first, and cases that are the same function are
merged by `finished`. What the constructors return is made of these operations:

- 'constant', 'predictor', 'data';
- 'sum' with value (c_0, (c_1, ...)): c_0 + sum c_j a_j; 'product' of two; 'square';
- 'power' (a, e), a positive and e that does not move;
- 'exp', 'log', 'log1p', 'reciprocal', 'sigmoid', 'softplus', 'log1mexp' (log(1 - exp(x)));
- 'gammaln', 'digamma', 'erf', 'erfc', 'erfcx', 'log_ndtr', 'sin', 'cos', 'arctan';
- 'rising' (x, y): gammaln(x + y) - gammaln(x), y not negative, not moving; 'rising_exp' the same at exp(x);
- 'log_ndtr_between' (s, w): log(Phi(s + w) - Phi(s)), w positive;
- 'select' (condition, a, b), with conditions 'positive', 'nonnegative', 'zero', 'not', 'and', 'or'.
"""

import math

from pymc_austerity.bounds.expressions.cases import finished
from pymc_austerity.bounds.expressions.conditions import (
    both,
    either,
    equal,
    greater,
    greater_equal,
    is_infinite,
    is_nan,
    less,
    less_equal,
    negated,
    not_equal,
)
from pymc_austerity.bounds.expressions.linear import ONE
from pymc_austerity.bounds.expressions.logarithms import log, log1mexp, log1p, logaddexp, softplus
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.expressions.powers import power
from pymc_austerity.bounds.expressions.products import divide, exp, multiply, sigmoid, to_the_power
from pymc_austerity.bounds.expressions.selects import absolute, maximum, minimum, select, sign
from pymc_austerity.bounds.expressions.special import (
    arctan,
    cos,
    digamma,
    erf,
    erfc,
    erfcx,
    gammaln,
    log_ndtr,
    log_ndtr_between,
    rising,
    sin,
)
from pymc_austerity.bounds.expressions.sums import add, negative, scale, subtract

__all__ = [
    "absolute",
    "add",
    "arctan",
    "both",
    "cos",
    "cosh",
    "digamma",
    "divide",
    "either",
    "equal",
    "erf",
    "erfc",
    "erfcx",
    "exp",
    "expm1",
    "finished",
    "gammaln",
    "greater",
    "greater_equal",
    "is_infinite",
    "is_nan",
    "less",
    "less_equal",
    "log",
    "log1mexp",
    "log1p",
    "log2",
    "log10",
    "log_ndtr",
    "log_ndtr_between",
    "logaddexp",
    "maximum",
    "minimum",
    "multiply",
    "negated",
    "negative",
    "not_equal",
    "power",
    "reciprocal",
    "rising",
    "select",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "square",
    "subtract",
    "tanh",
]


def square(a: Expression) -> Expression:
    """The square of an expression."""
    return to_the_power(a, 2.0)


def sqrt(a: Expression) -> Expression:
    """The square root of an expression."""
    return to_the_power(a, 0.5)


def reciprocal(a: Expression) -> Expression:
    """The reciprocal 1 / a of an expression."""
    return to_the_power(a, -1.0)


def expm1(a: Expression) -> Expression:
    """exp(a) - 1, as a sum, in which it may cancel."""
    return subtract(exp(a), ONE)


def log2(a: Expression) -> Expression:
    """The logarithm to base 2."""
    return scale(1.0 / math.log(2.0), log(a))


def log10(a: Expression) -> Expression:
    """The logarithm to base 10."""
    return scale(1.0 / math.log(10.0), log(a))


def tanh(a: Expression) -> Expression:
    """The hyperbolic tangent of an expression."""
    return subtract(scale(2.0, sigmoid(scale(2.0, a))), ONE)


def sinh(a: Expression) -> Expression:
    """The hyperbolic sine of an expression."""
    return scale(0.5, subtract(exp(a), exp(negative(a))))


def cosh(a: Expression) -> Expression:
    """The hyperbolic cosine of an expression."""
    return scale(0.5, add(exp(a), exp(negative(a))))
