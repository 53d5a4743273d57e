"""Powers with exponents that may be numbers, data, or move."""

import math

from pymc_austerity.bounds.expressions.linear import ONE, is_constant, number
from pymc_austerity.bounds.expressions.logarithms import log, structural
from pymc_austerity.bounds.expressions.node import Expression, node
from pymc_austerity.bounds.expressions.products import exp, multiply, to_the_power
from pymc_austerity.bounds.expressions.ranges import NOT_NEGATIVE, POSITIVE
from pymc_austerity.bounds.expressions.trees import over_cases


@over_cases
def power(a: Expression, b: Expression) -> Expression:
    """A to the power of b; a positive where b is not an integer."""
    if is_constant(b) and math.isfinite(number(b)):
        return ONE if number(b) == 0.0 else to_the_power(a, number(b))
    if b.moves or (structural(a) is not None and a.moves):
        return exp(multiply(b, log(a)))
    if a.range.low < 0.0:  # the sign is that of an odd power
        return node("power", (a, b))
    return node("power", (a, b), range=POSITIVE if a.range.is_positive else NOT_NEGATIVE)
