"""Summands of a linear predictor, by coordinates of the block and by numbers that are made of these.

Coefficients need not be coordinates. They may be put together of several variables, as in
``X @ stack([b, c])`` and ``concatenate([[0.0], b])[level]``, or be sums of them. Such numbers are counted
beyond the coordinates while a graph is read, and are written by coordinates in the end.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytensor.tensor as pt
from pytensor.gradient import pushforward
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.rewrite import INTERPRETED, parts_of, rebuild
from pymc_austerity.model.structure.predictors import block_and_others
from pymc_austerity.target import Matrix, Vector

Places = npt.NDArray[np.int64]

# Of how many coordinates numbers may be made: a function is evaluated for each. And times these numbers: a
# matrix is filled.
_MOST_COORDINATES, _LARGEST = 1000, 1_000_000


class Part(NamedTuple):
    """A summand of a predictor."""

    # (k,), or None: coordinates of the block, none of them twice; None for a summand without any
    places: Places | None
    values: Variable | None = None  # Data (m, k) that multiply them; by default ones
    lookup: Variable | None = None  # Data (m,): which one of the places it is in each row
    factors: tuple[Variable, ...] = ()  # Data, one number a row or one for all, that multiply all of it
    sign: float = 1.0


def tangent(block: Iterable[Variable], affine: Variable, n_dim: int) -> tuple[Variable, Variable]:
    """Change of a value that is affine in the block in a direction, and the direction.

    Along a line, by the one number t: by several variables at once PyTensor loses some whose gradients are
    one and the same variable, as those of a and b in a + b.
    """
    direction = pt.vector("direction", shape=(n_dim,))
    t = pt.scalar("t")
    line = {var: t * part for var, part in parts_of(direction, list(block)).items()}
    (value,) = rebuild([affine], line)
    slope = pushforward([value], [t], [pt.constant(1.0)], disconnected_outputs="ignore")[0]
    (change,) = rebuild([slope], {t: pt.constant(0.0)})
    return change, direction


def at_zero(block: Iterable[Variable], affine: Variable) -> Variable:
    """A value where the block is zero."""
    (value,) = rebuild([affine], {var: pt.zeros(var.type.shape) for var in block})
    return value


class _Made(NamedTuple):
    """A number that is made of coordinates: offset + weights . q[places]."""

    places: Places
    weights: Vector
    offset: float


class Coordinates:
    """The coordinates of a block, and numbers that are made of them.

    Attributes
    ----------
    of : dict of TensorVariable to ndarray of int
        Where the variables of the block are.
    """

    def __init__(self, fact: Factorisation) -> None:
        self._fact = fact
        block, _ = block_and_others(fact)
        self.of: dict[Variable, Places] = {}
        self._n_dim = 0
        for var in block.values():
            size = int(np.prod(var.type.shape))
            self.of[var] = self._n_dim + np.arange(size).reshape(var.type.shape)
            self._n_dim += size
        self._made: list[_Made] = []

    def of_made(self, var: Variable) -> Places | None:
        """Places of the numbers in a variable without rows that is affine in the block; None if too many."""
        used = set(ancestors([var]))
        block = [own for own in self.of if own in used]
        places = np.concatenate([self.of[own].ravel() for own in block])
        size = int(np.prod(var.type.shape))
        if len(places) > _MOST_COORDINATES or size * len(places) > _LARGEST:
            return None
        change, direction = tangent(block, var, len(places))
        function = self._fact.compile([change, at_zero(block, var)], [direction], mode=INTERPRETED)
        point, leaves = self._fact.point_values(self._fact.graph.point), self._fact.leaf_values
        matrix, offsets = np.empty((size, len(places))), np.empty(size)
        for k, unit in enumerate(np.eye(len(places))):
            column, offset = function(*point, unit, *leaves)
            matrix[:, k], offsets[:] = np.ravel(column), np.ravel(offset)
        numbers = zip(matrix, offsets, strict=True)
        found = [self._place(_Made(places, weights, offset)) for weights, offset in numbers]
        return np.reshape(found, var.type.shape)

    def _place(self, one: _Made) -> int:
        """A coordinate, if it is just that."""
        (own,) = np.nonzero(one.weights)
        if len(own) == 1 and one.weights[own[0]] == 1.0 and one.offset == 0.0:
            return int(one.places[own[0]])
        self._made.append(_Made(one.places[own], one.weights[own], one.offset))
        return self._n_dim + len(self._made) - 1

    def written_out(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The same sum by coordinates only, none of them twice in a part."""
        return tuple(new for part in parts for new in self._by_coordinates(part))

    def _by_coordinates(self, part: Part) -> list[Part]:
        if part.places is None or self._is_plain(part.places):
            return [part]
        places, matrix, offsets = self._as_matrix(part.places)
        if part.lookup is not None:
            values, offset = pt.constant(matrix)[part.lookup], pt.constant(offsets)[part.lookup]
        elif part.values is not None:
            data = part.values.astype("float64")
            values, offset = pt.dot(data, matrix), pt.dot(data, offsets)
        else:  # their sum, in which each coordinate has one weight for all rows
            total = zip([*places.reshape(-1, 1), None], [*matrix.sum(axis=0), offsets.sum()], strict=True)
            return [
                part._replace(places=place, factors=(*part.factors, pt.constant(weight)))
                for place, weight in total
                if weight
            ]
        new = [part._replace(places=places, values=values, lookup=None)] if len(places) else []
        if offsets.any():
            new.append(part._replace(places=None, values=None, lookup=None, factors=(*part.factors, offset)))
        return new

    def _as_matrix(self, numbers: Places) -> tuple[Places, Matrix, Vector]:
        """Some numbers as offsets + matrix q[places]."""
        own = [self._number(k) for k in numbers]
        places = np.unique(np.concatenate([one.places for one in own]))
        matrix = np.zeros((len(own), len(places)))
        for row, one in zip(matrix, own, strict=True):
            row[np.searchsorted(places, one.places)] = one.weights
        return places, matrix, np.array([one.offset for one in own])

    def _is_plain(self, places: Places) -> bool:
        return bool((places < self._n_dim).all()) and len(np.unique(places)) == len(places)

    def _number(self, place: int) -> _Made:
        if place < self._n_dim:
            return _Made(np.array([place]), np.ones(1), 0.0)
        return self._made[place - self._n_dim]
