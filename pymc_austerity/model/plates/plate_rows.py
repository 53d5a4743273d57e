"""Rows of a plate, as numbers: which group, and coefficients of the shared variables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.plates.gathers import NoPlate
from pymc_austerity.model.structure.affine_expressions import AffineParts, leaves
from pymc_austerity.model.structure.data_of_rows import DataOfRows
from pymc_austerity.model.structure.direct_rows import DirectRows, Part, direct_parts
from pymc_austerity.model.structure.row_data import Columns
from pymc_austerity.model.structure.scalar_graph import ScalarGraph
from pymc_austerity.target import Index, Vector

Array = npt.NDArray[np.float64]


class SomeRows(NamedTuple):
    """Some rows of a plate.

    Attributes
    ----------
    x : ndarray (m, q)
        Coefficients of theta in the predictor.
    offsets : ndarray (m,)
    groups : ndarray of int (m,)
    """

    x: Array
    offsets: Vector
    groups: Index


class PlateRows:
    """Rows of the predictor x_i . theta + o_i + u_g(i), and of data, read from the model's arrays.

    Parameters
    ----------
    fact : Factorisation
        Its block is theta, then the effects.
    term : LocalTerm
    graph : ScalarGraph
        The rows of the term, taken apart.
    predictor : AffineParts
        As an affine function of the scalars of the graph.
    n_groups : int

    Attributes
    ----------
    n_rows, n_groups, n_shared : int
        N, G, and the length of theta.
    places : ndarray of int
        Coordinates of theta that enter the predictor.
    factors : list of ndarray of int
        Coordinates of the levels of other factors.
    factor : Expression
        The given predictor is so many times x_i . theta + o_i + u_g(i).
    """

    def __init__(
        self,
        fact: Factorisation,
        term: LocalTerm,
        graph: ScalarGraph,
        predictor: AffineParts,
        n_groups: int,
    ) -> None:
        self._name = term.name
        self.n_rows, self.n_groups = term.size, n_groups
        self.n_shared = sum(int(np.prod(fact.graph.values[n].type.shape)) for n in fact.var_names) - n_groups
        self._offset = predictor.offset
        self._numbers = sorted(
            {k for one in (predictor.offset, *predictor.coefficients.values()) for k in leaves(one, "data")}
        )
        self._factors: Columns = graph.data.chosen(self._numbers)
        self._designs: list[tuple[Expression, DirectRows]] = []
        places: set[int] = set()
        lookups: list[tuple[Expression, Part]] = []
        looked_up: list[tuple[Expression, Part]] = []
        times_used = np.zeros(self.n_shared, np.int64)
        for k, coefficient in predictor.coefficients.items():
            own, others = self._parts(fact, graph, k)
            lookups += [(coefficient, part) for part in own]
            looked_up += [(coefficient, part) for part in others if part.lookup is not None]
            for part in others:
                if part.places is not None:
                    places.update(int(p) for p in part.places)
                    times_used[part.places] += 1
            self._designs.append((coefficient, DirectRows(fact, term, others)))
        self.places = np.array(sorted(places), dtype=np.int64)
        if len(lookups) != 1:
            raise NoPlate(f"rows of the term {term.name!r} contain the effects more than once")
        (self.factor, part) = lookups[0]
        self._lookup = part.lookup
        self._index_of_groups = DataOfRows(fact, term, [self._lookup])
        # Other factors, of which each row has one level with the coefficient 1, and which are used once.
        self._factors_of_rows = [
            part
            for one, part in looked_up
            if one is self.factor
            and not part.factors
            and part.sign == 1.0
            and (times_used[part.places] == 1).all()
        ]
        self._index_of_levels = DataOfRows(fact, term, [part.lookup for part in self._factors_of_rows])
        self.factors: list[Index] = [part.places for part in self._factors_of_rows if part.places is not None]

    def _slopes_differ(self) -> NoPlate:
        return NoPlate(
            f"effects enter the term {self._name!r} with a coefficient for each row (random slopes), which a "
            "plate does not have"
        )

    def _parts(self, fact: Factorisation, graph: ScalarGraph, k: int) -> tuple[list[Part], tuple[Part, ...]]:
        """The summands of a scalar of the graph: with the effects, and without."""
        scalar = graph.scalars[k]
        selected = scalar.variable
        if not all(place is None for place in scalar.element):
            selected = selected[tuple(slice(None) if place is None else place for place in scalar.element)]
        parts = direct_parts(fact, selected)
        if parts is None:
            raise NoPlate(f"the predictor of the term {self._name!r} is computed in a way that is not known")
        own: list[Part] = []
        others: list[Part] = []
        for one in parts:
            of_effects = one.places is not None and one.places.max(initial=-1) >= self.n_shared
            (own if of_effects else others).append(one)
        for one in own:
            is_whole = one.places is not None and len(one.places) == self.n_groups
            if one.lookup is None or one.factors or one.sign != 1.0 or not is_whole:
                raise self._slopes_differ()
        return own, tuple(others)

    def __call__(self, positions: Index) -> SomeRows:
        """Some rows."""
        factors = dict(zip(self._numbers, self._factors(positions), strict=True))
        rows = np.zeros((len(positions), self.n_shared + 1))
        for coefficient, design in self._designs:
            design.add_to(rows, evaluate(coefficient, [], factors), positions)
        rows[:, -1] += evaluate(self._offset, [], factors)
        rows /= np.reshape(evaluate(self.factor, [], factors), (-1, 1))
        return SomeRows(rows[:, :-1], rows[:, -1], self.groups(positions))

    def levels(self, positions: Index) -> Index:
        """Of each factor, the coordinate of theta that some rows look up: ndarray (F, m)."""
        found = self._index_of_levels(positions)
        result = np.empty((len(self.factors), len(positions)), np.int64)
        for f, part in enumerate(self._factors_of_rows):
            result[f] = self.factors[f][np.asarray(found[part.lookup])]
        return result

    def groups(self, positions: Index) -> Index:
        """Which group some rows belong to."""
        groups = np.asarray(self._index_of_groups(positions)[self._lookup]).astype(np.int64)
        outside = (groups < -self.n_groups) | (groups >= self.n_groups)
        if outside.any():
            raise IndexError(
                f"Row {positions[outside][0]} of the term {self._name!r} is of group {groups[outside][0]}, "
                f"but there are {self.n_groups} groups, 0 to {self.n_groups - 1}."
            )
        return np.where(groups < 0, groups + self.n_groups, groups)
