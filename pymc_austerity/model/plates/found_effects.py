"""The effects of groups in a model: one vector, several of the same groups, or a matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.plates.gathers import (
    Gather,
    NoPlate,
    largest_gather,
    require_no_categories,
    require_several_rows,
)
from pymc_austerity.model.plates.inner_effects import InnerEffects
from pymc_austerity.model.plates.matrix_effects import (
    MatrixEffects,
    matrix_effects,
    matrix_group_effects,
    rows_of_factor,
)
from pymc_austerity.model.plates.slopes import GroupEffects, group_effects, names_of_effects


class FoundEffects(NamedTuple):
    """Effects of groups as they were found in a model."""

    original: Factorisation  # Its block is theta, then the effects as the model has them
    factorisation: Factorisation  # Its block is theta, then the effects as vectors
    gather: Gather  # The likelihood in these, and the intercepts
    names: tuple[str, ...]  # Of the vectors: intercepts, then slopes
    variables: tuple[str, ...]  # Of the value variables
    matrix: MatrixEffects | None  # If they are one

    @property
    def n_vectors(self) -> int:
        """Number of vectors that effects are in; 1 if those of a group are side by side."""
        return 1 if self.matrix is not None and self.matrix.by_group else len(self.names)

    def priors(self, model: pm.Model, fact: Factorisation, gather: Gather) -> GroupEffects:
        """Priors of the effects; in the likelihood others may have taken the place of standardised ones.

        Raises
        ------
        NoPlate
            If they are of another form.
        """
        if self.matrix is None:
            return group_effects(model, fact, gather, self.names)
        matrix = self.matrix._replace(factorisation=fact, gather=gather)
        return matrix_group_effects(model, self.original, matrix)

    def inner(self, factor: list[Variable]) -> tuple[InnerEffects, ...]:
        """Elements of their covariance's factor that are proposed in other units."""
        if self.matrix is None:
            return ()
        return rows_of_factor(self.original, factor, len(self.names), self.variables)


def found_effects(model: pm.Model, fact: Factorisation, fewest: int) -> FoundEffects | None:
    """The effects of `fewest` groups or more; None if there are none.

    Raises
    ------
    NoPlate
        If there are, in a form that is no plate.
    """
    matrix = matrix_effects(model, fact, fewest)
    gather = largest_gather(fact, fewest) if matrix is None else matrix.gather
    if gather is None:
        require_several_rows(fact, fewest)
        return None
    require_no_categories(model, gather.term.name, gather.name)
    split = fact if matrix is None else matrix.factorisation
    names = names_of_effects(split, gather)
    if matrix is not None and names != matrix.names:
        raise NoPlate(
            f"the first effects of {matrix.name!r} are to be intercepts, and all others slopes, each times "
            "its data and nothing else: write u[index, 0] + b * x + u[index, 1] * x, with the mean slope b "
            "apart"
        )
    split = _with_last(split, names)
    if len(split.var_names) == len(names):
        raise NoPlate(f"there are no shared variables beside the effects {names[0]!r}")
    variables = names if matrix is None else (matrix.name,)
    original = _with_last(fact, variables)
    return FoundEffects(original, split, gather._replace(name=names[0]), names, variables, matrix)


def _with_last(fact: Factorisation, names: tuple[str, ...]) -> Factorisation:
    return replace(fact, var_names=(*(n for n in fact.var_names if n not in names), *names))
