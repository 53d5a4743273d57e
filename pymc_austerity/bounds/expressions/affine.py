"""Which expressions are affine in the predictors, with coefficients that do not move."""

from pymc_austerity.bounds.expressions.linear import linear
from pymc_austerity.bounds.expressions.node import Expression


def is_affine(x: Expression) -> bool:
    """Whether an expression is a sum of predictors times coefficients that do not move."""
    return not x.moves or all(_is_affine_term(term) for term in linear(x)[1])


def _is_affine_term(term: Expression) -> bool:
    if term.op == "product":
        return not term.args[0].moves and is_affine(term.args[1])
    return not term.moves or term.op == "predictor"
