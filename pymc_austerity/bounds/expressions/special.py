"""Gamma functions and normal distribution functions."""

import math
from collections.abc import Callable

from scipy import special

from pymc_austerity.bounds.expressions.evaluate import log_of_share
from pymc_austerity.bounds.expressions.factors import Factors
from pymc_austerity.bounds.expressions.linear import ONE, ZERO, Terms, is_constant, linear, number, same
from pymc_austerity.bounds.expressions.logarithms import KNOWN, OF_COMPLEMENT, OF_DIFFERENCE, log, structural
from pymc_austerity.bounds.expressions.node import EVERYWHERE, Expression, Range, constant, node
from pymc_austerity.bounds.expressions.order import order_key
from pymc_austerity.bounds.expressions.products import built, divide, exp, multiply, to_the_power
from pymc_austerity.bounds.expressions.ranges import NEGATIVE, POSITIVE, monotone
from pymc_austerity.bounds.expressions.rules import with_change
from pymc_austerity.bounds.expressions.sums import SIMPLER, Sum, add, combined, scale, subtract
from pymc_austerity.bounds.expressions.trees import over_cases

_ROOT_2 = math.sqrt(2.0)
_LOG_2 = math.log(2.0)


type _RangeOf = Callable[[Range], Range]


def _monotone(function: Callable[[float], float], within: Range = EVERYWHERE) -> _RangeOf:
    return lambda r: monotone(lambda v: float(function(v)), r, within)


def _digamma_range(r: Range) -> Range:
    return _monotone(special.digamma)(r) if r.is_positive else EVERYWHERE


def _gammaln_range(r: Range) -> Range:
    """Never below its smallest value, -0.1215; growing beyond 1.47."""
    if r.low < 1.47:
        return Range(-0.1215, math.inf) if r.low >= 0.0 else EVERYWHERE
    return _monotone(special.gammaln)(r)


_FUNCTIONS: dict[str, tuple[Callable[[float], float], _RangeOf]] = {
    "erf": (special.erf, _monotone(special.erf, Range(-1.0, 1.0))),
    "erfc": (special.erfc, _monotone(special.erfc, Range(0.0, 2.0, True))),
    "erfcx": (special.erfcx, _monotone(special.erfcx, POSITIVE)),
    "log_ndtr": (special.log_ndtr, _monotone(special.log_ndtr, NEGATIVE)),
    "gammaln": (special.gammaln, _gammaln_range),
    "digamma": (special.digamma, _digamma_range),
    "sin": (math.sin, lambda r: Range(-1.0, 1.0)),
    "cos": (math.cos, lambda r: Range(-1.0, 1.0)),
    "arctan": (math.atan, _monotone(math.atan)),
}


def _constructor(op: str) -> Callable[..., Expression]:
    function, range_of = _FUNCTIONS[op]

    def made(x: Expression) -> Expression:
        if is_constant(x):
            return constant(float(function(number(x))))
        return node(op, (x,), range=range_of(x.range))

    made.__name__, made.__doc__ = op, f"{op}(x)."
    return over_cases(made)


erf = _constructor("erf")
erfc = _constructor("erfc")
erfcx = _constructor("erfcx")
log_ndtr = _constructor("log_ndtr")
gammaln = _constructor("gammaln")
digamma = _constructor("digamma")
sin = _constructor("sin")
cos = _constructor("cos")
arctan = _constructor("arctan")


def _rising_range(x: Expression, y: Expression) -> Range:
    """Above -0.122 and growing in both where x + y is beyond the smallest value of the gamma function."""
    if x.range.low >= 1.47:
        return Range(0.0, math.inf)
    return EVERYWHERE


@over_cases
def rising(x: Expression, y: Expression) -> Expression:
    """gammaln(x + y) - gammaln(x) for y >= 0 that does not move."""
    if not x.moves:
        return subtract(gammaln(add(x, y)), gammaln(x))
    if y in (ZERO, ONE):
        return log(x) if y is ONE else ZERO
    log_x = structural(x) if x.range.is_positive and _may_be_whole(y) else None
    if log_x is not None:  # the logarithm is nearly the variable that moves, and bounds by it are tighter
        return node("rising_exp", (log_x, y), range=_rising_range(x, y))
    return node("rising", (x, y), range=_rising_range(x, y))


def _may_be_whole(y: Expression) -> bool:
    return not is_constant(y) or number(y) == round(number(y))


def rising_exp(log_x: Expression, y: Expression) -> Expression:
    """The rising factorial of exp(log_x)."""
    return rising(exp(log_x), y)


def rising_factorials(added: float, terms: Terms) -> Sum | None:
    """gammaln(x + d) - gammaln(x) as one function of x."""
    moving = [(term, c) for term, c in terms.items() if term.op == "gammaln" and term.moves]
    for upper, c in moving:
        for lower, d in moving:
            if c * d < 0.0 and (same(c, -d) or min(abs(c), abs(d)) >= 1.0):
                step = subtract(upper.args[0], lower.args[0])
                if not step.moves and step.range.low >= 0.0:
                    much = math.copysign(min(abs(c), abs(d)), c)
                    change = rising(lower.args[0], step)
                    return with_change(added, terms, [(-much, upper), (much, lower), (much, change)])
    return None


def error_functions(added: float, terms: Terms) -> Sum | None:
    """1 + erf(x) is erfc(-x), 1 - erf(x) is erfc(x), 2 - erfc(x) is erfc(-x)."""
    for term, c in terms.items():
        whole = _COMPLEMENTS.get(term.op, 0.0) * c if term.moves else 0.0
        if whole != 0.0 and (same(added, -whole) or (term.op == "erf" and same(added, whole))):
            side = -1.0 if term.op == "erfc" or same(added, c) else 1.0
            change = erfc(scale(side, term.args[0]))
            return with_change(
                added,
                terms,
                [(-added, constant(1.0)), (-c, term), (abs(c) if added > 0 else -abs(c), change)],
            )
    return None


def shares(added: float, terms: Terms) -> Sum | None:
    """Probabilities of what follows one another add up: Phi(a) - Phi(b) + Phi(b), and Phi(a) + Phi(-a)."""
    for term, c in terms.items():
        if term.op != "exp" or not term.moves:
            continue
        (log_p,) = term.args
        pairs = []
        if log_p.op == "log_ndtr":
            pairs = [(log_ndtr(scale(-1.0, log_p.args[0])), ZERO)]
        elif log_p.op == "log_ndtr_between":
            below, above = log_p.args[0], _factored(*log_p.args)
            pairs = [(log_ndtr(below), log_ndtr(above))]
            pairs += [(log_ndtr(scale(-1.0, above)), log_ndtr(scale(-1.0, below)))]
        for log_q, log_both in pairs:
            other = exp(log_q)
            if other is not term and terms.get(other) == c:
                return with_change(added, terms, [(-c, term), (-c, other), (c, exp(log_both))])
    return None


_COMPLEMENTS = {"erf": 1.0, "erfc": 2.0}


def _log_erfc(x: Expression) -> Expression:
    return combined([(1.0, log_ndtr(scale(-_ROOT_2, x.args[0]))), (_LOG_2, constant(1.0))])


def _log_erfcx(x: Expression) -> Expression:
    return combined([(1.0, _log_erfc(x)), (1.0, to_the_power(x.args[0], 2.0))])


@over_cases
def log_ndtr_between(s: Expression, w: Expression) -> Expression:
    """log(Phi(s + w) - Phi(s)) for w > 0, of s and -s - w always by the same."""
    if is_constant(s) and is_constant(w):
        return constant(float(log_of_share(number(s), number(w))))
    above = _factored(s, w)
    middle, moving = linear(_factored(s, above))
    first = moving[min(moving, key=order_key)] if moving else middle
    args = (s, w) if first >= 0.0 else (scale(-1.0, above), w)
    return node("log_ndtr_between", args, range=NEGATIVE)


def _factored(a: Expression, b: Expression) -> Expression:
    """The sum of two, of which factors that both have are taken out: (x - m) / scale + (m - y) / scale."""
    first, second, common = Factors(), Factors(), Factors()
    first.take(a)
    second.take(b)
    common.powers = {x: e for x, e in first.powers.items() if x.moves and second.powers.get(x) == e}
    if first.exponential() is second.exponential():
        common.exponents = first.exponents
    factor = built(common)
    return multiply(factor, add(divide(a, factor), divide(b, factor)))


def _difference_of_erf(a: Expression, b: Expression) -> Expression:
    """log(erf(a) - erf(b)) by normal distribution functions."""
    a, b = scale(_ROOT_2, a), scale(_ROOT_2, b)
    return combined([(1.0, log_ndtr_between(b, _factored(a, scale(-1.0, b)))), (_LOG_2, ONE)])


def _difference_of_ndtr(x: Expression) -> Expression | None:
    """log(1 - Phi(b) / Phi(a)), from the difference of the logarithms of both."""
    added, terms = linear(x)
    if added != 0.0 or sorted(terms.values()) != [-1.0, 1.0] or any(t.op != "log_ndtr" for t in terms):
        return None
    top, bottom = sorted(terms, key=lambda term: terms[term])
    (a,), (b,) = top.args, bottom.args
    return subtract(log_ndtr_between(b, _factored(a, scale(-1.0, b))), top)


KNOWN["erfc"] = _log_erfc
KNOWN["erfcx"] = _log_erfcx
OF_DIFFERENCE["erf"] = _difference_of_erf
OF_COMPLEMENT.append(_difference_of_ndtr)
SIMPLER.extend([rising_factorials, error_functions, shares])
