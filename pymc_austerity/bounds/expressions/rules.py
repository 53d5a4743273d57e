"""What makes a sum simpler: complements of sigmoids, and the better side of a softplus."""

from collections.abc import Iterator

from pymc_austerity.bounds.expressions.affine import is_affine
from pymc_austerity.bounds.expressions.linear import ONE, Terms, accumulated, linear, plus, same
from pymc_austerity.bounds.expressions.logarithms import softplus_node
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.expressions.products import factors_of, multiply, sigmoid_node
from pymc_austerity.bounds.expressions.sums import SIMPLER, Sum, scale


def _with_factor(terms: Terms, op: str) -> Iterator[tuple[Expression, float, Expression, Expression]]:
    """Terms with a factor op(x) that moves, and their numbers; with x, and the product of other factors."""
    for term, c in terms.items():
        for factor in factors_of(term):
            if factor.op == op and factor.moves:
                others = factors_of(term)
                others.remove(factor)
                yield term, c, factor.args[0], multiply(*others) if others else ONE


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
    for term, c, x, rest in _with_factor(terms, "sigmoid"):
        other = multiply(rest, sigmoid_node(scale(-1.0, x)))
        if other in terms and same(terms[other], c):
            return with_change(added, terms, [(-c, term), (-c, other), (c, rest)])
        if same(_coefficient(added, terms, rest), -c):
            return with_change(added, terms, [(-c, term), (c, rest), (-c, other)])
    return None


def softplus_sides(added: float, terms: Terms) -> Sum | None:
    """softplus(x) is x + softplus(-x): the side that leaves fewer terms."""
    for term, c, x, rest in _with_factor(terms, "softplus"):
        other = multiply(rest, softplus_node(scale(-1.0, x)))
        changed = with_change(added, terms, [(-c, term), (c, other), (c, multiply(rest, x))])
        if _size(*changed) < _size(added, terms):
            return changed
    return None


def _size(added: float, terms: Terms) -> int:
    return sum(1 if is_affine(term) else 2 for term in terms) + (added != 0.0)


SIMPLER.extend([complements, softplus_sides])
