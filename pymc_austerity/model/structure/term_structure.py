"""`TermStructure`: all that is found on the graphs of the local terms, each of it once.

The predictors of every term, features of the block if the terms have predictors in these, and whatever is
made of both are asked for by steps, bounds, proposals and the search for the mode. They share one structure.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Constant

from pymc_austerity.bounds.expressions.guards import is_defined_everywhere
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.model.factorisation import Factorisation, LocalTerm, block_of
from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.self_check import jittered
from pymc_austerity.model.structure.features import Features, feature_candidates
from pymc_austerity.model.structure.global_terms import of_globals
from pymc_austerity.model.structure.predictors import TermForm, find_predictor
from pymc_austerity.model.structure.row_functions import check_against_graph, row_function
from pymc_austerity.model.structure.scalar_graph import Obstacle

# Features of a block, at most.
MOST_FEATURES = 300

# One for each term, or what is in the way of it.
Functions = tuple[RowFunction | Obstacle, ...]


# Predictors of a term with which no features do better, unless they need one only.
_FEW = 2


class _Found(NamedTuple):
    """Features, or None for q itself, and the terms as functions of few predictors, if these were needed."""

    features: Features | None
    functions: Functions | None


@dataclass(frozen=True, eq=False)
class TermStructure:
    """The form of all local terms of a factorisation; each part is found when it is first asked for."""

    factorisation: Factorisation
    most_features: int = MOST_FEATURES  # Number of features above which none are used
    # Whether rows are asked for that are those of the graph at every state, and not bounds, which may say
    # that nothing is known of some
    everywhere: bool = False

    @cached_property
    def forms_in_block(self) -> tuple[TermForm, ...]:
        """The local terms as functions of the block's vector q."""
        fact = self.factorisation
        return tuple(find_predictor(fact, term) for term in fact.locals)

    @cached_property
    def features(self) -> Features | None:
        """Features phi(q) in which the terms have linear predictors; None where q itself is as good.

        One linear predictor for each term is best, in q or else in features; then as few as possible.
        """
        return self._search.features

    @property
    def inner(self) -> Factorisation:
        """The local terms as functions of the features: a factorisation whose block is phi, or q itself."""
        return self.factorisation if self.features is None else self.features.factorisation

    @property
    def forms(self) -> tuple[TermForm, ...]:
        """The local terms as functions of the features, or of q itself."""
        return self.forms_in_block if self.features is None else self.features.forms

    def row_function(self, number: int) -> RowFunction:
        """A local term, by its number, as a function of a few linear predictors in the features.

        Raises
        ------
        UnboundedError
            If it is no such function; the message names the term and the operation in the way.
        """
        found = self._functions[number]
        if isinstance(found, Obstacle):
            raise UnboundedError(str(found))
        return found

    def has_row_function(self, number: int) -> bool:
        """Whether `row_function` has an answer."""
        return isinstance(self._functions[number], RowFunction)

    def is_function_of_block(self, number: int) -> bool:
        """Whether a term has a row function that nothing outside of the block changes."""
        function = self._functions[number]
        return isinstance(function, RowFunction) and not function.others and function.offset_fixed

    @cached_property
    def of_globals(self) -> "TermStructure":
        """The global terms, as functions of q."""
        return TermStructure(of_globals(self.factorisation), most_features=0, everywhere=True)

    @cached_property
    def row_functions(self) -> tuple[RowFunction, ...]:
        """All local terms as functions of a few linear predictors in the features, in their order.

        Raises
        ------
        UnboundedError
            If a term is no such function; the message names the term and the operation in the way.
        """
        return tuple(self.row_function(number) for number in range(len(self.factorisation.locals)))

    @cached_property
    def _functions(self) -> Functions:
        # Where each term has one linear predictor nothing else was looked for.
        found = self._search.functions
        return self._made(self.features) if found is None else found

    @cached_property
    def _search(self) -> _Found:
        if all(form.has_one for form in self.forms_in_block):
            return _Found(None, None)
        candidates = feature_candidates(self.factorisation, self.most_features)
        for features in candidates:
            if all(form.has_one for form in features.forms):
                return _Found(features, None)
        best, fewest = _Found(None, self._in_block), _most(self._in_block)
        for features in candidates if fewest > _FEW else []:
            functions = self._made(features)
            if _most(functions) < fewest:
                best, fewest = _Found(features, functions), _most(functions)
        return best

    @cached_property
    def _in_block(self) -> Functions:
        return self._made(None)

    def _made(self, features: Features | None) -> Functions:
        return _functions(self.factorisation, features, everywhere=self.everywhere)

    @property
    def has_functions_in_block(self) -> bool:
        """Whether all local terms are functions of a few linear predictors in q."""
        return all(form.has_one for form in self.forms_in_block) or math.isfinite(_most(self._in_block))


def _most(functions: Functions) -> float:
    """The largest number of predictors of a term; infinite if a term is no function of few."""
    if any(isinstance(one, Obstacle) for one in functions):
        return math.inf
    return max((one.n_predictors for one in functions if isinstance(one, RowFunction)), default=0)


def _functions(fact: Factorisation, features: Features | None, *, everywhere: bool) -> Functions:
    """The row functions of all terms in features, or in q itself; or what is in the way."""
    start = fact.graph.point
    # Data that other steps move are read at the start.
    near = [
        moved if name in fact.var_names else start[name]
        for name, moved in zip(start, jittered(fact.graph), strict=True)
    ]
    points = [list(start.values()), near]
    inner = fact
    if features is not None:
        inner, points = features.factorisation, features.at(fact, points)
    found = tuple(_function(inner, term, everywhere=everywhere) for term in inner.locals)
    pairs = zip(inner.locals, found, strict=True)
    check_against_graph(inner, [(term, one) for term, one in pairs if isinstance(one, RowFunction)], points)
    if features is None:
        return found
    return tuple(
        Obstacle(features.in_words(str(one), fact)) if isinstance(one, Obstacle) else one for one in found
    )


def _function(fact: Factorisation, term: LocalTerm, *, everywhere: bool) -> RowFunction | Obstacle:
    try:
        found = row_function(fact, term)
    except Obstacle as obstacle:
        return obstacle
    if everywhere and not (is_defined_everywhere(found.expression) and _is_plain(fact, term)):
        return Obstacle(f"the term {term.name!r} has operations that are not defined everywhere")
    return found


def _is_plain(fact: Factorisation, term: LocalTerm) -> bool:
    """Does no operation ask whether a number is infinite, or none? Expressions take all for finite.

    PyMC's densities ask whether a logarithm is minus infinity, where they go on as their limits.
    """
    for var, moves in depends_on([term.rows], block_of(fact)).items():
        operation = getattr(getattr(var.owner, "op", None), "scalar_op", None)
        if moves and isinstance(operation, ps.IsNan | ps.IsInf):
            return False
        if moves and isinstance(operation, ps.EQ | ps.NEQ):
            constants = [one.data for one in var.owner.inputs if isinstance(one, Constant)]
            if any(np.isposinf(data).any() for data in constants):
                return False
    return True
