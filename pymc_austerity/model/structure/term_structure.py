"""`TermStructure`: all that is found on the graphs of the local terms, each of it once.

The predictors of every term, features of the block if the terms have predictors in these, and whatever is
made of both are asked for by steps, bounds, proposals and the search for the mode. They share one structure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.structure.element_rows import ElementRows, element_rows
from pymc_austerity.model.structure.features import Features, find_features
from pymc_austerity.model.structure.predictor_values import linear_predictor, predictor_of
from pymc_austerity.model.structure.predictors import TermForm, find_predictors
from pymc_austerity.target import LinearPredictor, Predictor

# Features of a block, at most.
MOST_FEATURES = 300


@dataclass(frozen=True, eq=False)
class TermStructure:
    """The form of all local terms of a factorisation; each part is found when it is first asked for.

    Attributes
    ----------
    factorisation : Factorisation
    most_features : int
        Number of features above which none are used.
    """

    factorisation: Factorisation
    most_features: int = MOST_FEATURES

    @cached_property
    def forms_in_block(self) -> tuple[TermForm, ...]:
        """The local terms as functions of the block's vector q."""
        fact = self.factorisation
        return tuple(find_predictors(fact, term) for term in fact.locals)

    @cached_property
    def features(self) -> Features | None:
        """Features phi(q) in which the terms have linear predictors; None where q itself is as good."""
        return find_features(self.factorisation, self.forms_in_block, self.most_features)

    @property
    def inner(self) -> Factorisation:
        """The local terms as functions of the features: a factorisation whose block is phi, or q itself."""
        return self.factorisation if self.features is None else self.features.factorisation

    @property
    def forms(self) -> tuple[TermForm, ...]:
        """The local terms as functions of the features, or of q itself."""
        return self.forms_in_block if self.features is None else self.features.forms

    @cached_property
    def predictors(self) -> tuple[Predictor, ...]:
        """The linear predictors of all local terms in the features, one or two for each, in their order.

        Raises
        ------
        UnboundedError
            If a term has neither one nor two; the message names the term and the operation in the way.
        """
        return tuple(predictor_of(form) for form in self.forms)

    @cached_property
    def linear_predictors(self) -> tuple[LinearPredictor, ...]:
        """The linear predictors of all local terms in q, in their order.

        Raises
        ------
        UnboundedError
            If a term has not exactly one; the message names the term and the operation in the way.
        """
        return tuple(linear_predictor(form) for form in self.forms_in_block)

    @cached_property
    def rows_of(self) -> dict[tuple[str, str], ElementRows]:
        """For a term and a grouped variable in it, by their names: the rows that contain each element."""
        return {
            (form.term.name, group.variable): element_rows(group)
            for form in self.forms
            for group in form.groups
        }
