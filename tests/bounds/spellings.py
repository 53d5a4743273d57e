"""Log-densities of rows, spelled as PyMC's graphs spell them."""

import math
from itertools import pairwise

from pymc_austerity.bounds.expressions.forms import (
    add,
    both,
    divide,
    either,
    equal,
    erfc,
    erfcx,
    exp,
    gammaln,
    greater,
    is_infinite,
    less,
    less_equal,
    log,
    log1p,
    maximum,
    multiply,
    negative,
    power,
    select,
    sigmoid,
    sign,
    sqrt,
    square,
    subtract,
)
from pymc_austerity.bounds.expressions.node import Expression, constant, data, predictor

ETA, ZETA, XI = predictor(0), predictor(1), predictor(2)
ZERO, ONE, TWO, NEVER = constant(0.0), constant(1.0), constant(2.0), constant(-math.inf)
ROOT_2 = constant(math.sqrt(2.0))
Y = data(0, -5.0, 5.0)
COUNT = data(1, 0.0, 30.0)
BINARY = data(2, 0.0, 1.0)
CLASS = data(3, 0.0, 4.0)
SHARE = data(4, 0.01, 0.99)
TIME = data(5, 0.01, 9.0)


def logpow(x: Expression, m: Expression) -> Expression:
    """m log(x) as PyMC writes it."""
    guard = both(equal(log(x), NEVER), less_equal(m, ZERO))
    return select(guard, select(equal(m, ZERO), ZERO, NEVER), multiply(m, log(x)))


def binomln(n: Expression, k: Expression) -> Expression:
    return subtract(subtract(gammaln(add(n, ONE)), gammaln(add(k, ONE))), gammaln(add(subtract(n, k), ONE)))


def logsumexp(*xs: Expression) -> Expression:
    """With the largest subtracted, as the rewritten graph has it."""
    largest = xs[0]
    for x in xs[1:]:
        largest = maximum(largest, x)
    shift = select(is_infinite(largest), ZERO, largest)
    return add(shift, log(add(*(exp(subtract(x, shift)) for x in xs))))


def bernoulli(p: Expression) -> Expression:
    inside = select(BINARY, log(p), log(subtract(ONE, p)))
    return select(either(less(BINARY, ZERO), greater(BINARY, ONE)), NEVER, inside)


def negative_binomial(n: Expression, p: Expression) -> Expression:
    mu = multiply(n, exp(subtract(log(subtract(ONE, p)), log(p))))
    poisson = subtract(subtract(logpow(mu, COUNT), mu), gammaln(add(COUNT, ONE)))
    many = binomln(subtract(add(COUNT, n), ONE), COUNT)
    proper = add(many, logpow(subtract(ONE, p), COUNT), logpow(p, n))
    return select(less(COUNT, ZERO), NEVER, select(greater(n, constant(1e10)), poisson, proper))


def normal(mu: Expression, sigma: Expression) -> Expression:
    z2 = power(divide(subtract(Y, mu), sigma), TWO)
    return subtract(subtract(multiply(constant(-0.5), z2), log(sqrt(constant(2.0 * math.pi)))), log(sigma))


def normal_cdf(z: Expression) -> Expression:
    """log Phi(z) as PyMC writes it."""
    low = subtract(log(divide(erfcx(divide(negative(z), ROOT_2)), TWO)), divide(square(z), TWO))
    return select(less(z, constant(-1.0)), low, log1p(divide(negative(erfc(divide(z, ROOT_2))), TWO)))


def student(nu: Expression, mu: Expression, sigma: Expression) -> Expression:
    lam = multiply(power(sigma, constant(-2.0)), sign(sigma))
    half = divide(add(nu, ONE), TWO)
    inside = divide(multiply(lam, power(subtract(Y, mu), TWO)), nu)
    scale = multiply(constant(0.5), log(divide(lam, multiply(nu, constant(math.pi)))))
    top = subtract(add(gammaln(half), scale), gammaln(divide(nu, TWO)))
    return subtract(top, multiply(half, log1p(inside)))


def betaln(a: Expression, b: Expression) -> Expression:
    return subtract(add(gammaln(a), gammaln(b)), gammaln(add(a, b)))


def beta(a: Expression, b: Expression) -> Expression:
    first = select(equal(a, ONE), ZERO, multiply(subtract(a, ONE), log(SHARE)))
    second = select(equal(b, ONE), ZERO, multiply(subtract(b, ONE), log1p(negative(SHARE))))
    return subtract(add(first, second), betaln(a, b))


def weibull(alpha: Expression, scale: Expression) -> Expression:
    z = divide(TIME, scale)
    slope = multiply(subtract(alpha, ONE), log(z))
    return subtract(add(subtract(log(alpha), log(scale)), slope), power(z, alpha))


def picked(xs: list[Expression]) -> Expression:
    """The element of the row's class."""
    found = xs[-1]
    for k, x in reversed(list(enumerate(xs[:-1]))):
        found = select(equal(CLASS, constant(float(k))), x, found)
    return found


def ordered_probabilities() -> list[Expression]:
    below = [ZERO, *(sigmoid(subtract(predictor(k), ETA)) for k in (1, 2, 3, 4)), ONE]
    return [subtract(b, a) for a, b in pairwise(below)]


def poisson_rows(mu: Expression) -> Expression:
    inside = subtract(subtract(logpow(mu, COUNT), gammaln(add(COUNT, ONE))), mu)
    inside = select(less(COUNT, ZERO), NEVER, inside)
    return select(multiply(equal(mu, ZERO), equal(COUNT, ZERO)), ZERO, inside)


def zero_inflated(psi: Expression, mu: Expression) -> Expression:
    at_zero = select(equal(COUNT, ZERO), ZERO, NEVER)
    return logsumexp(add(log(subtract(ONE, psi)), at_zero), add(log(psi), poisson_rows(mu)))
