"""Between the values of the model and the coordinates theta and z of a field."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from scipy.sparse import linalg

from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.remainders import RowsOfTerms
from pymc_austerity.kernels.fields.records import Elements
from pymc_austerity.mode.fields.layout import Layout
from pymc_austerity.mode.fields.maps import Coordinates, Entries, Maps, matrix_of, value_of
from pymc_austerity.model.factorisation import Factorisation, point_of
from pymc_austerity.model.field.find import Field
from pymc_austerity.model.field.priors import Innovation, NoField
from pymc_austerity.model.field.rows import Form
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.random_variables import with_constants
from pymc_austerity.model.graph.rewrite import parts_of, rebuild
from pymc_austerity.model.structure.row_programs import feature_rows, global_rows
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import Index, Vector

# The term that says for which numbers rows have a density.
_SUPPORT = "support of the rows"


@dataclass(frozen=True, eq=False)
class FieldValues:
    """Values of the model as functions of theta and z, and back."""

    factorisation: Factorisation  # Its block are theta and the effects, as the model has them
    maps: Maps
    shared: Factorisation  # The terms of theta alone, with the features of the maps
    left: tuple[int, Entries] | None  # Which coordinate takes up shifts of effects, and how much by z

    def _pulled(self, features: Vector, every: Vector, sign: float) -> None:
        """Take what shifts of effects are from the intercept, or give it back."""
        if self.left is not None:
            z, pulls = self.left
            every[z] += sign * float(value_of(pulls, features) @ every[pulls.columns])

    def unseen(self, features: Vector) -> list[Vector]:
        """How z may move without any value of the model: means of effects that sum to zero, of length 1."""
        found = []
        for one in self.maps.coordinates:
            if one.has_mean:
                along = np.zeros(self.maps.n_coordinates)
                along[one.first : one.first + one.size] = one.size**-0.5
                self._pulled(features, along, 1.0)
                found.append(along)
        return found

    @cached_property
    def n_dim(self) -> int:
        """Length of the vector of the block."""
        return max((one.stop for one in self._places.values()), default=0)

    @cached_property
    def _places(self) -> dict[str, slice]:
        return _slices(self.factorisation)

    @cached_property
    def _numbers(self) -> Index:
        every = np.arange(self.n_dim)
        return np.concatenate([every[:0], *(every[self._places[name]] for name in self.shared.var_names)])

    @cached_property
    def _others(self) -> list[str]:
        """Variables that other steps move."""
        names = self.factorisation.var_names
        return [name for name in self.factorisation.graph.values if name not in names]

    def others(self, point: Mapping[str, Any] | None = None) -> list[np.ndarray]:
        """Values of the variables that other steps move, at a point; without one where the model starts."""
        values = self.factorisation.graph.point if point is None else point
        return [np.array(values[name]) for name in self._others]

    @cached_property
    def _features(self) -> Any:
        graph = self.factorisation.graph
        block = [self.shared.graph.values[name] for name in self.shared.var_names]
        theta = pt.vector("theta", shape=(len(self._numbers),))
        prior = sum((graph.sum() for _, graph in self.shared.globals), pt.zeros(()))
        outputs = rebuild([self.shared.features, prior], parts_of(theta, block))
        return function_of(
            [theta, *(graph.values[name] for name in self._others), *graph.data], outputs, None
        )

    @cached_property
    def _terms(self) -> RowsOfTerms | None:
        """Terms of the prior of theta as data."""
        rows = self.shared.global_rows
        return None if rows is None else rows.without_polynomial()

    def features(self, theta: Vector, others: list[np.ndarray] | None = None) -> Vector:
        """Features of the maps; `others` are values of variables that other steps move."""
        rows = self.shared.feature_rows
        return np.asarray(self._at(theta, others)[0]) if rows is None else rows(theta)

    def log_prior(self, theta: Vector, others: list[np.ndarray] | None = None) -> float:
        """Log density of theta, but for what effects add."""
        return float(self._at(theta, others)[1] if self._terms is None else self._terms(theta).sum())

    def _at(self, theta: Vector, others: list[np.ndarray] | None) -> Any:
        others = self.others() if others is None else others
        return self._features(theta, *others, *self.factorisation.graph.data_values())

    @cached_property
    def _located(self) -> tuple[Any, Any] | None:
        """Values of the effects from theta and w - m; and locations m from values. None without locations."""
        innovations = [one.innovation for one in self.maps.coordinates]
        if all(one.location is None for one in innovations):
            return None
        graph = self.factorisation.graph
        inputs = {one.value: one.value.type(f"{one.name} - m") for one in innovations}
        known: dict[Variable, Variable] = {}

        def effects(one: Innovation) -> Variable:
            """The values of a variable; its location may be made of others."""
            if one.value not in known:
                value: Variable = inputs[one.value]
                if one.location is not None:
                    within = set(ancestors([one.location]))
                    of_others = {o.value: effects(o) for o in innovations if o.value in within}
                    value = value + (rebuild([one.location], of_others)[0] if of_others else one.location)
                known[one.value] = value
            return known[one.value]

        numbers = [graph.values[name] for name in (*self.shared.var_names, *self._others)]
        every = [*numbers, *inputs.values(), *graph.data]
        forth = function_of(every, [effects(one) for one in innovations], None, trust_input=True)
        nothing = pt.zeros(())
        locations = [
            pt.broadcast_to(nothing if one.location is None else one.location, one.value.type.shape)
            for one in innovations
        ]
        back = function_of([*graph.values.values(), *graph.data], locations, None)
        return forth, back

    def __call__(
        self,
        theta: Vector,
        z: Vector,
        features: Vector | None = None,
        others: list[np.ndarray] | None = None,
    ) -> Vector:
        """The vector of the block; `z` are in the order of the maps, and `features` those at theta."""
        features = self.features(theta, others) if features is None else features
        result, every, effects = np.empty(self.n_dim), z, np.zeros(len(z))
        result[self._numbers] = theta
        if self.left is not None:
            every = z.copy()
            self._pulled(features, every, -1.0)
        _add_products(Elements(*self.maps.innovations), features, every, effects)
        found = []
        for one in self.maps.coordinates:
            own = effects[one.first : one.first + one.size]
            if one.shift is not None:
                own += one.shifted(features, every)
            found.append(_shortened(own) if one.has_mean else own)
        if self._located is not None:
            shapes = [one.innovation.value.type.shape for one in self.maps.coordinates]
            innovations = [w.reshape(shape) for w, shape in zip(found, shapes, strict=True)]
            data = self.factorisation.graph.data_values()
            values = self.shared.graph.values
            numbers = [
                theta[part].reshape(values[name].type.shape) for name, part in _slices(self.shared).items()
            ]
            others = self.others() if others is None else others
            found = self._located[0](*numbers, *others, *innovations, *data)
        for one, w in zip(self.maps.coordinates, found, strict=True):
            result[self._places[one.innovation.name]] = w.ravel()
        return result

    def coordinates(self, q: Vector, others: list[np.ndarray] | None = None) -> tuple[Vector, Vector]:
        """Theta and z of the vector of the block; z is 0 where a scale is so small that it cannot be told."""
        graph, theta = self.factorisation.graph, q[self._numbers]
        others = self.others() if others is None else others
        features = self.features(theta, others)
        locations: Sequence[np.ndarray | float] = [0.0] * len(self.maps.coordinates)
        if self._located is not None:
            point = point_of(self.factorisation, q, dict(zip(self._others, others, strict=True)))
            values = [point[name] for name in graph.values]
            locations = self._located[1](*values, *graph.data_values())
        every = np.empty(self.maps.n_coordinates)
        for one, location in zip(self.maps.coordinates, locations, strict=True):
            w = q[self._places[one.innovation.name]] - np.ravel(location)
            matrix = matrix_of(one.own, features, (one.size, one.size))
            with np.errstate(all="ignore"):
                if one.has_mean:  # the mean of z is in no value of the model: any will do
                    z = _solved(matrix, _lengthened(w))
                else:
                    z = _solved(matrix, w) if one.shift is None else _differences(matrix, one, features, w)
            every[one.first : one.first + one.size] = np.where(np.isfinite(z), z, 0.0)
        self._pulled(features, every, 1.0)
        return theta.copy(), every


def _slices(factorisation: Factorisation) -> dict[str, slice]:
    """Where the vector of a block has each variable."""
    sizes = [math.prod(factorisation.graph.values[name].type.shape) for name in factorisation.var_names]
    ends = np.cumsum(sizes).tolist()
    every = zip(factorisation.var_names, sizes, ends, strict=True)
    return {name: slice(end - size, end) for name, size, end in every}


@entry
def _add_products(matrix: Elements, features: Vector, x: Vector, result: Vector) -> None:
    """Add a matrix times x."""
    rows, columns, coefficients, factors = matrix.rows, matrix.columns, matrix.coefficients, matrix.factors
    for k in range(coefficients.shape[0]):
        value = coefficients[k] * x[columns[k]]
        for j in range(factors.shape[1]):
            value *= features[factors[k, j]]
        result[rows[k]] += value


def _differences(matrix: Any, one: Coordinates, features: Vector, w: Vector) -> Vector:
    """Differences of effects to the last one, and their mean, in the units of z."""
    assert one.shift is not None
    mean = value_of(one.shift, features)[-1]
    return np.append((w[:-1] - w[-1]) / matrix.diagonal()[:-1], w.mean() / mean)


def _shortened(effects: Vector) -> Vector:
    """What PyMC samples in the place of effects that sum to zero: n - 1 numbers of the same length."""
    n = len(effects)
    return effects[:-1] - effects[-1] / (1.0 + math.sqrt(n))


def _lengthened(w: Vector) -> Vector:
    """Effects that sum to zero, from what PyMC samples in their place."""
    root = math.sqrt(len(w) + 1)
    mean = w.sum() / (root + root**2)
    return np.append(w, mean - w.sum() / root) - mean


def _solved(matrix: Any, w: Vector) -> Vector:
    diagonal = matrix.diagonal()
    if matrix.nnz == len(w) and np.count_nonzero(diagonal) == len(w):
        return w / diagonal
    if np.any(np.abs(matrix).sum(axis=1) == 0.0):
        return np.zeros(len(w))
    return linalg.spsolve(matrix.tocsc(), w)


def _within(form: Form, found: Field) -> Variable:
    """Zero where a function of numbers is above zero, else minus infinity."""
    graphs = {table.input: table.graph for table in found.tables}
    total = pt.as_tensor(float(form.offset[0]))
    for table, (c, p) in form.terms.items():
        total = total + pt.dot(np.ravel(c), graphs[table].flatten()[np.ravel(p)])
    return pt.switch(pt.gt(total, 0.0), 0.0, -np.inf)


def values_of(
    found: Field, fact: Factorisation, layout: Layout, precision: Variable | None
) -> tuple[FieldValues, int]:
    """The values of a field; and which feature the logarithm of the precision of normal rows is, or -1.

    Raises
    ------
    NoField
        If other terms have effects.
    """
    graph, maps = fact.graph, layout.maps
    if found.others:
        raise NoField(f"effects enter the terms {', '.join(map(repr, found.others))}, too")
    number = -1
    if precision is not None:
        _, numbers = maps.features(precision)
        number = int(numbers[0])
    effects = {one.innovation.name for one in maps.coordinates}
    names = tuple(name for name in fact.var_names if name not in effects)
    own = {graph.variables[name] for name in effects} | {one.term.name for one in found.likelihoods}
    terms = [(name, term) for name, term in graph.terms.items() if name not in own]
    terms += [(one.innovation.name, one.log_volume) for one in maps.coordinates if one.log_volume is not None]
    terms += [(_SUPPORT, _within(one, found)) for one in layout.columns.support]
    values = {name: var for name, var in graph.values.items() if name not in effects}
    point = {name: graph.point[name] for name in values}
    terms_of_theta = with_constants(graph, [pt.sum(term) for _, term in terms])
    features = with_constants(graph, maps.features.numbers)
    shared = replace(
        fact,
        graph=replace(graph, values=values, point=point),
        var_names=names,
        locals=(),
        globals=tuple((name, term) for (name, _), term in zip(terms, terms_of_theta, strict=True)),
        features=pt.stack(features),
        polynomial=None,
    )
    shared = replace(
        shared,
        global_rows=global_rows(shared, TermStructure(shared).of_globals),
        feature_rows=feature_rows(shared, features),
    )
    return FieldValues(fact, maps, shared, layout.left), number
