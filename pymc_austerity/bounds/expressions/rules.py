"""What makes a sum simpler: complements of sigmoids, and the better side of a softplus."""

from pymc_austerity.bounds.expressions.affine import is_affine
from pymc_austerity.bounds.expressions.linear import ONE, Terms, accumulated, linear, plus, same
from pymc_austerity.bounds.expressions.logarithms import softplus_node
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.expressions.products import factors_of, multiply, sigmoid_node
from pymc_austerity.bounds.expressions.sums import SIMPLER, Sum, scale


def _rest(term: Expression, factor: Expression) -> Expression:
    others = factors_of(term)
    others.remove(factor)
    return multiply(*others) if others else ONE


def with_change(added: float, terms: Terms, changes: list[tuple[float, Expression]]) -> Sum:
    """A sum after expressions times numbers are added."""
    for factor, x in changes:
        more, its_terms = linear(x)
        added = plus(added, more * factor)
        terms = accumulated(terms, its_terms, factor)
    return added, terms


def _coefficient(added: float, terms: Terms, x: Expression) -> float:
    return added if x is ONE else terms.get(x, 0.0)


def complements(added: float, terms: Terms) -> Sum | None:
    """R sigmoid(x) + R sigmoid(-x) is R, and R - R sigmoid(x) is R sigmoid(-x)."""
    for term, c in terms.items():
        for factor in factors_of(term):
            if factor.op == "sigmoid" and factor.moves:
                found = _complement(added, terms, term, c, factor)
                if found is not None:
                    return found
    return None


def _complement(added: float, terms: Terms, term: Expression, c: float, factor: Expression) -> Sum | None:
    rest = _rest(term, factor)
    other = multiply(rest, sigmoid_node(scale(-1.0, factor.args[0])))
    if other in terms and same(terms[other], c):
        return with_change(added, terms, [(-c, term), (-c, other), (c, rest)])
    if same(_coefficient(added, terms, rest), -c):
        return with_change(added, terms, [(-c, term), (c, rest), (-c, other)])
    return None


def softplus_sides(added: float, terms: Terms) -> Sum | None:
    """softplus(x) is x + softplus(-x): the side that leaves fewer terms."""
    for term, c in terms.items():
        for factor in factors_of(term):
            if factor.op == "softplus" and factor.moves:
                found = _other_side(added, terms, term, c, factor)
                if found is not None:
                    return found
    return None


def _other_side(added: float, terms: Terms, term: Expression, c: float, factor: Expression) -> Sum | None:
    (x,) = factor.args
    rest = _rest(term, factor)
    other = multiply(rest, softplus_node(scale(-1.0, x)))
    line = multiply(rest, x)
    changed = with_change(added, terms, [(-c, term), (c, other), (c, line)])
    before, after = _size(added, terms), _size(*changed)
    return changed if after < before else None


def _size(added: float, terms: Terms) -> int:
    return sum(1 if is_affine(term) else 2 for term in terms) + (added != 0.0)


SIMPLER.extend([complements, softplus_sides])
