"""The value of an expression, in many digits."""

from collections.abc import Callable, Sequence

import mpmath

from pymc_austerity.bounds.expressions.node import Expression, ordered

# More than any cancellation of the expressions tested takes away.
mpmath.mp.dps = 60

Number = mpmath.mpf


def _times(a: Number, b: Number) -> Number:
    return mpmath.mpf(0) if a == 0 or b == 0 else a * b


def _sum(x: Expression, *args: Number) -> Number:
    added, coefficients = x.value
    return sum((mpmath.mpf(c) * arg for c, arg in zip(coefficients, args, strict=True)), mpmath.mpf(added))


def _log(x: Number) -> Number:
    return mpmath.log(x) if x != 0 else -mpmath.inf


def _log_ndtr(x: Number) -> Number:
    return mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)


def log_ndtr_between(s: Number, w: Number) -> Number:
    """log(Phi(s + w) - Phi(s)), in the lower tail."""
    low = min(s, -s - w)
    with mpmath.workdps(mpmath.mp.dps + int(max(0, -mpmath.log10(w)))):
        below, above = (mpmath.erfc(-x / mpmath.sqrt(2)) for x in (low, low + w))
        return mpmath.log((above - below) / 2)


OPERATIONS: dict[str, Callable] = {
    "product": _times,
    "square": lambda a: a * a,
    "power": lambda a, e: a**e,
    "exp": mpmath.exp,
    "log": _log,
    "log1p": lambda a: _log(1 + a),
    "reciprocal": lambda a: 1 / a,
    "sigmoid": lambda a: 1 / (1 + mpmath.exp(-a)),
    "softplus": lambda a: mpmath.log(1 + mpmath.exp(a)),
    "log1mexp": lambda a: _log(1 - mpmath.exp(a)),
    "gammaln": mpmath.loggamma,
    "digamma": mpmath.digamma,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "erfcx": lambda a: mpmath.erfc(a) * mpmath.exp(a * a),
    "log_ndtr": _log_ndtr,
    "log_ndtr_between": log_ndtr_between,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "arctan": mpmath.atan,
    "rising": lambda x, y: mpmath.loggamma(x + y) - mpmath.loggamma(x),
    "rising_exp": lambda x, y: mpmath.loggamma(mpmath.exp(x) + y) - mpmath.loggamma(mpmath.exp(x)),
    "positive": lambda a: mpmath.mpf(a > 0),
    "nonnegative": lambda a: mpmath.mpf(a >= 0),
    "zero": lambda a: mpmath.mpf(a == 0),
    "not": lambda a: mpmath.mpf(a == 0),
    "and": lambda a, b: mpmath.mpf(a != 0 and b != 0),
    "or": lambda a, b: mpmath.mpf(a != 0 or b != 0),
}


def values(root: Expression, predictors: Sequence[float], data: Sequence[float]) -> dict[Expression, Number]:
    """The values of all nodes that are needed, at numbers of predictors and columns of data."""
    found: dict[Expression, Number] = {}

    def value(x: Expression) -> Number:
        if x not in found:
            found[x] = _value(x)
        return found[x]

    def _value(x: Expression) -> Number:
        leaves = {"predictor": predictors, "data": data}
        if x.op in leaves:
            return mpmath.mpf(leaves[x.op][x.value])
        if x.op == "constant":
            return mpmath.mpf(x.value)
        if x.op == "select":
            condition, a, b = x.args
            return value(a if value(condition) != 0 else b)
        args = [value(arg) for arg in x.args]
        return _sum(x, *args) if x.op == "sum" else OPERATIONS[x.op](*args)

    value(root)
    return found


def evaluate(root: Expression, predictors: Sequence[float], data: Sequence[float] = ()) -> float:
    """The value of an expression."""
    return values(root, predictors, data)[root]


def size(root: Expression) -> int:
    """How many nodes it has."""
    return sum(1 for _ in ordered(root))


def operations(root: Expression) -> list[str]:
    """The operations of moving nodes other than sums, products and selects, in alphabetical order."""
    plain = {"sum", "product", "select", "predictor"}
    return sorted(x.op for x in ordered(root) if x.moves and x.op not in plain)
