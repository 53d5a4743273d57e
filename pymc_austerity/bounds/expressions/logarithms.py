"""Logarithms of positive values, without computing the value where the logarithm is known."""

import math
from collections.abc import Callable

from pymc_austerity.bounds.expressions.conditions import zero
from pymc_austerity.bounds.expressions.factors import Factors
from pymc_austerity.bounds.expressions.linear import ONE, ZERO, Terms, is_constant, linear, number, single
from pymc_austerity.bounds.expressions.node import Expression, Range, constant, node
from pymc_austerity.bounds.expressions.order import order_key
from pymc_austerity.bounds.expressions.products import LOGARITHM, built, exp, exp_of, multiply
from pymc_austerity.bounds.expressions.ranges import NEGATIVE, POSITIVE, monotone
from pymc_austerity.bounds.expressions.sums import add, as_sum, combined, scale, subtract
from pymc_austerity.bounds.expressions.trees import chosen, over_cases


def log_of(x: float) -> float:
    """The logarithm; minus infinity at zero, and below, so that it is monotone."""
    return math.log(x) if x > 0.0 else -math.inf


def log1p_of(x: float) -> float:
    """log(1 + x)."""
    return math.log1p(x) if x > -1.0 else -math.inf


def softplus_of(x: float) -> float:
    """log(1 + exp(x))."""
    return math.log1p(exp_of(x)) if x < 30.0 else x + exp_of(-x)


def log1mexp_of(x: float) -> float:
    """log(1 - exp(x)) for negative x."""
    if x >= 0.0:
        return -math.inf
    return math.log(-math.expm1(x)) if x > -0.69 else math.log1p(-exp_of(x))


def _unary(
    op: str, function: Callable[[float], float], x: Expression, within: Range | None = None
) -> Expression:
    if is_constant(x):
        return constant(function(number(x)))
    return node(op, (x,), range=monotone(function, x.range, within or Range(-math.inf, math.inf)))


def softplus_node(x: Expression) -> Expression:
    """log(1 + exp(x)) as it stands."""
    return _unary("softplus", softplus_of, x, POSITIVE)


def log_node(x: Expression) -> Expression:
    """log(x) as it stands."""
    return _unary("log", log_of, x)


def _log_of_data(x: Expression) -> Expression:
    """The logarithm of what does not move: minus infinity, as a case of its own, where that is zero."""
    at_zero = zero(x) if x.range.low >= 0.0 else ZERO
    return log_node(x) if is_constant(at_zero) else chosen(at_zero, constant(-math.inf), log_node(x))


# Logarithms of operations that have one.
KNOWN: dict[str, Callable[[Expression], Expression]] = {
    "exp": lambda x: x.args[0],
    "power": lambda x: multiply(x.args[1], log(x.args[0])),
    "sigmoid": lambda x: scale(-1.0, softplus_node(scale(-1.0, x.args[0]))),
}


def structural(x: Expression) -> Expression | None:
    """The logarithm of a positive expression if its structure tells it; of data, always."""
    if not x.moves:
        return log_node(x) if x.range.is_positive else None
    if x.op in KNOWN:
        return KNOWN[x.op](x)
    if x.op in ("product", "square", "reciprocal"):
        return _log_of_product(x, must_know=True)
    if x.op == "sum":
        return _log_of_product(x, must_know=True) if single(x)[1] is not x else _log_of_sum(x)
    if x.op == "select" and x.args[0].moves:
        return _log_of_select(x)
    return None


def _log_of_select(x: Expression) -> Expression | None:
    condition, a, b = x.args
    log_a, log_b = structural(a), structural(b)
    return None if log_a is None or log_b is None else chosen(condition, log_a, log_b)


def _log_of_product(x: Expression, *, must_know: bool) -> Expression | None:
    """The sum of the logarithms of the factors; those that are not positive stay together."""
    f = Factors()
    f.take(x)
    rest, parts, is_known = Factors(), list(f.exponents), bool(f.exponents)
    for factor, e in f.powers.items():
        log = structural(factor) if factor.range.is_positive or factor is x else None
        is_known = is_known or (log is not None and factor.moves)
        if log is None and factor.range.is_positive:
            log = log_node(factor)
        if log is None:
            rest.powers[factor] = e
        else:
            parts.append((e, log))
    rest.number, size = math.copysign(1.0, f.number), abs(f.number)
    left = built(rest)
    # What may be negative is asked for its logarithm as a whole, and only then known to be positive.
    log_of_rest = None if left is ONE or left is x else structural(left)
    is_known = is_known or log_of_rest is not None
    if must_know and (not is_known or (left is not ONE and log_of_rest is None)):
        return None
    parts.append((log_of(size), ONE))
    if log_of_rest is None and not left.moves:
        return add(combined(parts), _log_of_data(left))
    return combined([*parts, (1.0, log_node(left) if log_of_rest is None else log_of_rest)])


def _difference_of_sigmoids(a: Expression, b: Expression) -> Expression:
    """log(sigmoid(a) - sigmoid(b)), in one logarithm of a - b."""
    parts = [(-1.0, softplus(scale(-1.0, a))), (-1.0, softplus(b)), (1.0, log1mexp(subtract(b, a)))]
    return combined(parts)


type _OfTwo = Callable[[Expression, Expression], Expression]

# Logarithms of f(a) - f(b), for operations f that have one.
OF_DIFFERENCE: dict[str, _OfTwo] = {"sigmoid": _difference_of_sigmoids}
# Other ways to write log(1 - exp(x)).
OF_COMPLEMENT: list[Callable[[Expression], Expression | None]] = []


def _log_of_difference(added: float, terms: Terms) -> Expression | None:
    """The logarithm of c (f(a) - f(b)), if it is one."""
    if len(terms) != 2 or added != 0.0:
        return None
    (f, c), (g, d) = sorted(terms.items(), key=lambda pair: -pair[1])
    if c != -d or f.op != g.op or f.op not in OF_DIFFERENCE:
        return None
    return add(constant(math.log(c)), OF_DIFFERENCE[f.op](*f.args, *g.args))


def _log_of_sum(x: Expression) -> Expression | None:
    """The logarithm of a sum of which at least one positive term has a known logarithm."""
    added, terms = linear(x)
    special = _log_of_difference(added, terms)
    if special is not None:
        return special
    still = as_sum(added, {term: c for term, c in terms.items() if not term.moves})
    parts = [(c, term) for term, c in terms.items() if term.moves]
    parts += (
        [] if still is ZERO else [(-1.0, scale(-1.0, still)) if still.range.is_negative else (1.0, still)]
    )
    logs: dict[bool, list[Expression]] = {True: [], False: []}
    rest: list[tuple[float, Expression]] = []
    for c, term in parts:
        # What may be negative has no logarithm, though a formula for one may be found.
        log = structural(term) if term.range.is_positive else None
        if log is None:
            rest.append((c, term))
        else:
            logs[c > 0.0].append(combined([(1.0, log), (math.log(abs(c)), ONE)]))
    return _log_of_parts(logs[True], logs[False], rest)


def _log_of_parts(
    ups: list[Expression], downs: list[Expression], rest: list[tuple[float, Expression]]
) -> Expression | None:
    if not ups or (rest and downs):
        return None
    top = log_sum_exp(ups)
    if rest:
        others = combined(rest)
        if others.range.low < 0.0:
            return None
        return add(top, log1p_node(multiply(others, exp(scale(-1.0, top)))))
    if downs:
        return add(top, log1mexp(subtract(log_sum_exp(downs), top)))
    return top


def log_sum_exp(logs: list[Expression]) -> Expression:
    """log(sum exp): terms that all exponents share come out, the rest is a chain of softplus."""
    if len(logs) == 1:
        return logs[0]
    first, *others = [linear(log)[1] for log in logs]
    shared = {term: c for term, c in first.items() if all(other.get(term) == c for other in others)}
    common = as_sum(0.0, shared)
    last, *chain = sorted((subtract(log, common) for log in logs), key=order_key, reverse=True)
    for log in chain:
        last = add(log, softplus(subtract(last, log)))
    return add(common, last)


def log1p_node(x: Expression) -> Expression:
    """log(1 + x) as it stands."""
    return _unary("log1p", log1p_of, x)


@over_cases
def log(x: Expression) -> Expression:
    """The logarithm of an expression."""
    if not x.moves:
        return _log_of_data(x)
    known = structural(x)
    if known is None:
        known = _log_of_product(x, must_know=False)
    return log_node(x) if known is None else known


@over_cases
def log1p(x: Expression) -> Expression:
    """log(1 + x)."""
    known = structural(add(ONE, x)) if x.moves else None
    return log1p_node(x) if known is None else known


@over_cases
def softplus(x: Expression) -> Expression:
    """log(1 + exp(x))."""
    if x.op == "log" and x.moves:
        return log1p(x.args[0])
    return softplus_node(x)


@over_cases
def log1mexp(x: Expression) -> Expression:
    """log(1 - exp(x))."""
    if x.moves:
        left = add(ONE, scale(-1.0, exp(x)))
        if left.op != "sum" or single(left)[1] is not left:
            return log(left)
        for rule in OF_COMPLEMENT:
            found = rule(x)
            if found is not None:
                return found
    return _unary("log1mexp", log1mexp_of, x, NEGATIVE)


@over_cases
def logaddexp(a: Expression, b: Expression) -> Expression:
    """log(exp(a) + exp(b))."""
    for one, other in ((a, b), (b, a)):
        if is_constant(one) and number(one) == -math.inf:
            return other
    return log_sum_exp([a, b]) if a is not b else add(a, constant(math.log(2.0)))


def _of_factor(x: Expression) -> Expression | None:
    """Summand of an exponent that stands for a factor; None if its logarithm would have to be computed."""
    found = structural(x) if x.range.is_positive and x.op != "power" else None
    if found is None or any(term.op in ("log1p", "log") and term.moves for term in linear(found)[1]):
        return None
    return found


LOGARITHM.append(_of_factor)
