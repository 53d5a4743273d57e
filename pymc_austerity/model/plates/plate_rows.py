"""Rows of a plate, as numbers: which group, and coefficients of the shared variables."""

from typing import NamedTuple

import numpy as np

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression, constant
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.plates.dispersions import selected
from pymc_austerity.model.plates.gathers import NoPlate, OtherSpelling
from pymc_austerity.model.structure.affine_expressions import AffineParts, leaves
from pymc_austerity.model.structure.data_of_rows import DataOfRows
from pymc_austerity.model.structure.direct_rows import DirectRows, direct_parts
from pymc_austerity.model.structure.parts import Part
from pymc_austerity.model.structure.row_data import Columns
from pymc_austerity.model.structure.scalar_graph import ScalarGraph
from pymc_austerity.target import Array, Index, Vector


class SomeRows(NamedTuple):
    """Rows of a plate as numbers."""

    x: Array  # (m, D): coefficients of the coordinates `PlateRows.dense` of theta in the predictor
    offsets: Vector  # (m,)
    groups: Index  # (m,)
    covariates: Array  # (m, q - 1): coefficients of the slopes of the group


class PlateRows:
    """Rows of the predictor x_i . theta + o_i + u_g(i), and of data, read from the model's arrays.

    With slopes u_g is a vector, and rows have Z_i . u_g(i), in which Z_i is a one and the covariates.

    Of other factors a row has one level each, which is read as a coordinate of theta, with the coefficient 1.

    Parameters
    ----------
    fact : Factorisation
        Its block is theta, then the effects.
    term : LocalTerm
    graph : ScalarGraph
        The rows of the term, taken apart.
    predictor : AffineParts
        As an affine function of the scalars of the graph.
    effects : tuple of int
        How many groups there are, and effects of each: an intercept, and slopes.
    others : ndarray of int
        Coordinates of theta that rows depend on in another way; their columns are zero.

    Attributes
    ----------
    n_rows, n_groups, n_shared : int
        N, G, and the length of theta.
    places : ndarray of int
        Coordinates of theta that enter the predictor, and the others.
    factors : list of ndarray of int
        Coordinates of the levels of other factors.
    dense : ndarray of int (D,)
        All of these but levels of other factors.
    factor : Expression
        The given predictor is so many times x_i . theta + o_i + u_g(i).
    """

    def __init__(
        self,
        fact: Factorisation,
        term: LocalTerm,
        graph: ScalarGraph,
        predictor: AffineParts,
        effects: tuple[int, int],
        others: Index,
    ) -> None:
        self._name = term.name
        self.n_rows, (self.n_groups, self.n_effects) = term.size, effects
        n_dim = sum(int(np.prod(fact.graph.values[n].type.shape)) for n in fact.var_names)
        self.n_shared = n_dim - self.n_groups * self.n_effects
        self._offset = predictor.offset
        self._numbers = sorted(
            {k for one in (predictor.offset, *predictor.coefficients.values()) for k in leaves(one, "data")}
        )
        self._factors: Columns = graph.data.chosen(self._numbers)
        lookups: dict[int, tuple[Expression, Part]] = {}
        summands: list[tuple[Expression, tuple[Part, ...]]] = []
        for k, coefficient in predictor.coefficients.items():
            own, rest = self._parts(fact, graph, k)
            for which, part in own:
                if which in lookups:
                    raise NoPlate(f"rows of the term {term.name!r} contain the effects more than once")
                lookups[which] = _signed(coefficient, part), part
            summands.append((coefficient, rest))
        if len(lookups) != self.n_effects:
            raise NoPlate(f"rows of the term {term.name!r} do not contain all effects of their group")
        (self.factor, part) = lookups[0]
        if _may_be_zero(self.factor):
            raise NoPlate(f"some rows of the term {term.name!r} do not contain the effects")
        if len({own.lookup for _, own in lookups.values()}) > 1:
            raise NoPlate(f"rows of the term {term.name!r} look effects of different groups up")
        self._lookup = part.lookup
        self._slopes = [lookups[which] for which in range(1, self.n_effects)]
        self._covariates = DataOfRows(fact, term, [var for _, own in self._slopes for var in own.factors])
        self._index_of_groups = DataOfRows(fact, term, [self._lookup])
        used = _joined([_places(part) for _, own in summands for part in own])
        times_used = np.bincount(np.append(used, others), minlength=self.n_shared)
        self.places = np.flatnonzero(times_used)
        of_factors = [p for one, terms in summands for p in terms if self._is_factor(one, p, times_used)]
        self._lookups_of_levels = [part.lookup for part in of_factors]
        self._index_of_levels = DataOfRows(fact, term, self._lookups_of_levels)
        self.factors: list[Index] = [_places(part) for part in of_factors]
        self.dense = np.setdiff1d(self.places, _joined(self.factors))
        self._designs: list[tuple[Expression, DirectRows]] = []
        for one, terms in summands:
            parts = [self._among_dense(p) for p in terms if not self._is_factor(one, p, times_used)]
            self._designs.append((one, DirectRows(fact, term, tuple(parts))))

    def _is_factor(self, coefficient: Expression, part: Part, times_used: Index) -> bool:
        """Does each row have one level of it, with the coefficient 1, and is it used once?"""
        return (
            part.lookup is not None
            and self.n_effects == 1
            and coefficient is self.factor
            and not part.factors
            and part.sign == 1.0
            and bool((times_used[part.places] == 1).all())
        )

    def _among_dense(self, part: Part) -> Part:
        """A part of the predictor with places among the dense coordinates."""
        return part if part.places is None else part._replace(places=np.searchsorted(self.dense, part.places))

    def _slopes_differ(self) -> OtherSpelling:
        return OtherSpelling(
            f"effects enter the term {self._name!r} with a coefficient for each row (random slopes) in a way "
            "that is no product with data alone: write a[index] + b[index] * x"
        )

    def _parts(
        self, fact: Factorisation, graph: ScalarGraph, k: int
    ) -> tuple[list[tuple[int, Part]], tuple[Part, ...]]:
        """The summands of a scalar of the graph: with the effects, and which, and without."""
        parts = direct_parts(fact, selected(graph, k))
        if parts is None:
            raise OtherSpelling(
                f"the predictor of the term {self._name!r} is not written as a sum of coefficients, alone or "
                "times data, and of effects that are looked up"
            )
        own: list[tuple[int, Part]] = []
        others: list[Part] = []
        for one in parts:
            places = one.places
            if places is None or places.max(initial=-1) < self.n_shared:
                others.append(one)
                continue
            which, first = divmod(int(places[0]) - self.n_shared, self.n_groups)
            if one.lookup is None or first or len(places) != self.n_groups or (one.factors and not which):
                raise self._slopes_differ()
            own.append((which, one))
        return own, tuple(others)

    def __call__(self, positions: Index) -> SomeRows:
        """Rows of the plate at some positions, as numbers."""
        factors = dict(zip(self._numbers, self._factors(positions), strict=True))
        rows = np.zeros((len(positions), len(self.dense) + 1))
        for coefficient, design in self._designs:
            design.add_to(rows, evaluate(coefficient, [], factors), positions)
        rows[:, -1] += evaluate(self._offset, [], factors)
        rows /= np.reshape(evaluate(self.factor, [], factors), (-1, 1))
        covariates = self._slopes_of(positions, factors)
        return SomeRows(rows[:, :-1], rows[:, -1], self.groups(positions), covariates)

    def _slopes_of(self, positions: Index, factors: dict[int, Vector]) -> Array:
        result = np.empty((len(positions), len(self._slopes)))
        values = self._covariates(positions) if self._slopes else {}
        for column, (coefficient, part) in zip(result.T, self._slopes, strict=True):
            column[:] = evaluate(coefficient, [], factors) / evaluate(self.factor, [], factors)
            for var in part.factors:
                column *= np.ravel(values[var])
        return result

    def levels(self, positions: Index) -> Index:
        """Coordinates of theta that some rows look up, one line for each factor: ndarray (F, m)."""
        found = self._index_of_levels(positions)
        result = np.empty((len(self.factors), len(positions)), np.int64)
        for f, lookup in enumerate(self._lookups_of_levels):
            result[f] = self.factors[f][np.asarray(found[lookup])]
        return result

    def groups(self, positions: Index) -> Index:
        """Number of the group that each of some rows belongs to."""
        groups = np.asarray(self._index_of_groups(positions)[self._lookup]).astype(np.int64)
        outside = (groups < -self.n_groups) | (groups >= self.n_groups)
        if outside.any():
            raise IndexError(
                f"Row {positions[outside][0]} of the term {self._name!r} is of group {groups[outside][0]}, "
                f"but there are {self.n_groups} groups, 0 to {self.n_groups - 1}."
            )
        return np.where(groups < 0, groups + self.n_groups, groups)


def _may_be_zero(factor: Expression) -> bool:
    """Is a factor zero in some case of the data? The predictor is another one there."""
    if factor.op == "select":
        return any(_may_be_zero(one) for one in factor.args[1:])
    return factor is constant(0.0)


def _signed(coefficient: Expression, part: Part) -> Expression:
    return coefficient if part.sign == 1.0 else forms.multiply(constant(part.sign), coefficient)


def _places(part: Part) -> Index:
    """Coordinates of theta, of which there may be none."""
    return np.zeros(0, np.int64) if part.places is None else part.places


def _joined(several: list[Index]) -> Index:
    return np.concatenate([np.zeros(0, np.int64), *several])
