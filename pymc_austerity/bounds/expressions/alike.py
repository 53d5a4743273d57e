"""Expressions that are the same function of other affine values, as one expression."""

import math
from collections.abc import Callable
from functools import reduce
from itertools import product

from pymc_austerity.bounds.expressions.affine import is_affine
from pymc_austerity.bounds.expressions.linear import ZERO, Terms, is_constant, linear, number
from pymc_austerity.bounds.expressions.logarithms import softplus_node
from pymc_austerity.bounds.expressions.node import Expression, node
from pymc_austerity.bounds.expressions.order import order_key
from pymc_austerity.bounds.expressions.ranges import union
from pymc_austerity.bounds.expressions.rules import with_change
from pymc_austerity.bounds.expressions.sums import combined, scale, sum_node

type Values = list[Expression]

# Leaves among which others are looked for: an expression of more has no use here.
_MOST_LEAVES = 6


def _is_leaf(x: Expression) -> bool:
    return is_affine(x) and not (is_constant(x) and not math.isfinite(number(x)))


def _curved(x: Expression) -> list[tuple[float, Expression]]:
    """The terms that are not affine, with their coefficients."""
    return [(c, term) for term, c in linear(x)[1].items() if not is_affine(term)]


def _line(x: Expression) -> Expression:
    """The affine part of a sum."""
    added, terms = linear(x)
    return sum_node(added, {term: c for term, c in terms.items() if is_affine(term)})


def shape(x: Expression) -> str:
    """Text that expressions share which are the same function of affine values."""
    if _is_leaf(x):
        return "*"
    if not x.moves:
        return repr(x)
    return " + ".join(sorted(f"{c!r} {_core(term)}" for c, term in _curved(x)))


def _core(term: Expression) -> str:
    return f"{term.op}({', '.join(shape(arg) for arg in term.args)})"


def _lines_inside(x: Expression) -> list[Expression]:
    """All affine values that an expression is a function of."""
    if _is_leaf(x):
        return [x]
    return [_line(x), *(line for _, term in _curved(x) for arg in term.args for line in _lines_inside(arg))]


def on_one_side(cases: Values) -> Values:
    """Where one case has softplus(x) and another softplus(-x) of a curved x, one is written by the other."""
    used = {term for case in cases for _, term in _curved(case) if term.op == "softplus"}
    flipped = set()
    for term in sorted(used, key=order_key):
        mirror = softplus_node(scale(-1.0, term.args[0]))
        if mirror in used and mirror not in flipped and not is_affine(term.args[0]):
            flipped.add(term)
    return [_flipped(case, flipped) for case in cases]


def _flipped(case: Expression, flipped: set[Expression]) -> Expression:
    if not flipped.intersection(linear(case)[1]):
        return case
    added, terms = linear(case)
    for term in flipped.intersection(terms):
        c = terms[term]
        (x,) = term.args
        parts = [(-c, term), (c, x), (c, softplus_node(scale(-1.0, x)))]
        added, terms = with_change(added, terms, parts)
    return sum_node(added, terms)


class Alike:
    """Expressions of one shape.

    Parameters
    ----------
    cases : list of Expression
    picked : callable
        An expression that in each case is that of a list of expressions.
    """

    def __init__(self, cases: Values, picked: Callable[[Values], Expression]) -> None:
        self._cases, self._picked = cases, picked
        self._basis: list[tuple[Values, Expression]] = []
        self._known: dict[tuple[Expression, ...], Expression] = {}
        terms = [{t for line in _lines_inside(case) for t in linear(line)[1]} for case in cases]
        self._shared = sorted(set.intersection(*terms), key=order_key)

    def expression(self) -> Expression:
        """One expression for all."""
        if len(set(self._cases)) == 1:
            return self._cases[0]
        leaves: list[Values] = []

        def noted(values: Values) -> Expression:
            leaves.append(values)
            return values[0]

        self._merged(self._cases, noted)
        for values in sorted(leaves, key=lambda values: sum(order_key(value)[1] for value in values)):
            self._leaf(values)
        return self._merged(self._cases, self._leaf)

    def _merged(self, xs: Values, leaf: Callable[[Values], Expression]) -> Expression:
        if len(set(xs)) == 1:
            return xs[0]
        if all(_is_leaf(x) for x in xs):
            return leaf(xs)
        added, terms = linear(leaf([_line(x) for x in xs]))
        found: Terms = dict(terms)
        for column in zip(*(self._aligned(x) for x in xs), strict=True):
            coefficient = column[0][0]
            term = self._merged_term([term for _, term in column], leaf)
            found[term] = found.get(term, 0.0) + coefficient
        return sum_node(added, found)

    def _merged_term(self, xs: Values, leaf: Callable[[Values], Expression]) -> Expression:
        if len(set(xs)) == 1:
            return xs[0]
        columns = zip(*(x.args for x in xs), strict=True)
        args = tuple(self._merged(list(column), leaf) for column in columns)
        return node(xs[0].op, args, xs[0].value, reduce(union, (x.range for x in xs)))

    def _aligned(self, x: Expression) -> list[tuple[float, Expression]]:
        """The curved terms in an order that is the same in all cases."""
        return sorted(
            _curved(x),
            key=lambda pair: (pair[0], _core(pair[1]), self._signature(pair[1]), order_key(pair[1])),
        )

    def _signature(self, x: Expression) -> list[float]:
        """The coefficients of what all cases share."""
        lines = [linear(line)[1] for line in _lines_inside(x)]
        return [line.get(term, 0.0) for line in lines for term in self._shared]

    def _leaf(self, values: Values) -> Expression:
        """The affine values of all cases, if possible by others that are there already."""
        if len(set(values)) == 1:
            return values[0]
        key = tuple(values)
        if key not in self._known:
            self._known[key] = self._by_others(values)
        return self._known[key]

    def _by_others(self, values: Values) -> Expression:
        few = [*self._basis[:_MOST_LEAVES], ([ZERO] * len(values), ZERO)]
        for ((first, a), (second, b)), c, d in product(product(few, repeat=2), (1.0, -1.0), (1.0, -1.0)):
            if a is ZERO and b is ZERO:
                continue
            rest = _fixed_rest(values, (c, first), (d, second))
            if rest is not None:
                return _sum_of([(c, a), (d, b), (1.0, self._picked(rest))])
        made = self._picked(values)
        if made.moves:
            self._basis.append((values, made))
        return made


def _fixed_rest(values: Values, *others: tuple[float, Values]) -> Values | None:
    """Values less multiples of others, in each case, if the difference does not move in any case."""
    rest: Values = []
    for case, value in enumerate(values):
        left = combined([(1.0, value), *((-c, other[case]) for c, other in others)])
        if left.moves:
            return None
        rest.append(left)
    return rest


def _sum_of(parts: list[tuple[float, Expression]]) -> Expression:
    """A sum, as it stands, of trees of cases."""
    added = 0.0
    found: Terms = {}
    for factor, x in parts:
        more, terms = linear(x)
        added += factor * more
        for term, c in terms.items():
            found[term] = found.get(term, 0.0) + factor * c
    return sum_node(added, {term: c for term, c in found.items() if c != 0.0})
