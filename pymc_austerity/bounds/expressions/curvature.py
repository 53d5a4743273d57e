"""Which expressions are concave in their predictors, whatever these are and for all rows.

By the rules of disciplined convex programming (Grant, Boyd & Ye 2006): a sum of concave terms is concave, a
convex term times a number that is not positive is, and so is an increasing concave function of what is
concave. What is not concave by these rules may still be.
"""

from pymc_austerity.bounds.expressions.affine import is_affine
from pymc_austerity.bounds.expressions.linear import linear
from pymc_austerity.bounds.expressions.node import Expression

# Both increase, where they are defined.
_CONVEX = {"exp", "softplus"}
_CONCAVE = {"log", "log1p", "log_ndtr"}


def is_concave(x: Expression) -> bool:
    """Whether the rules show an expression to be concave in the predictors."""
    return _is_curved(x, upward=False)


def _is_curved(x: Expression, *, upward: bool) -> bool:
    """Whether the rules show an expression to be convex, or else to be concave."""
    if is_affine(x):
        return True
    if x.op == "sum":
        return all(_is_curved(term, upward=upward is (by > 0.0)) for term, by in linear(x)[1].items())
    if x.op == "product" and not x.args[0].moves:
        factor, term = x.args
        if factor.range.low >= 0.0:
            return _is_curved(term, upward=upward)
        return factor.range.high <= 0.0 and _is_curved(term, upward=not upward)
    if x.op == "select" and not x.args[0].moves:
        return all(_is_curved(branch, upward=upward) for branch in x.args[1:])
    if x.op == "log_ndtr_between":  # concave in both
        return not upward and all(map(is_affine, x.args))
    if x.op == "square":
        return upward and is_affine(x.args[0])
    return x.op in (_CONVEX if upward else _CONCAVE) and _is_curved(x.args[0], upward=upward)
