"""Third derivatives of the rows of a field: their size, by which units of predictors are chosen."""

import itertools
import math
from collections.abc import Callable

import numpy as np

from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.jets.tape import multi_indices, tape_of
from pymc_austerity.kernels.fields.records import FieldRows
from pymc_austerity.mode.fields.passes import derivatives_of
from pymc_austerity.target import Matrix, Vector

# Weights are halved and doubled so often, at most.
_MOST = 8


class ThirdDerivatives:
    """Third derivatives of rows by their p predictors: one number for each set of three predictors."""

    def __init__(self, expression: Expression, p: int) -> None:
        self._program, every = tape_of(expression, p, 3), multi_indices(p, 3)
        self._own = [k for k, index in enumerate(every) if sum(index) == 3]
        self._indices = np.array([every[k] for k in self._own])
        self._orders = np.array([math.prod(map(math.factorial, every[k])) for k in self._own], dtype=float)
        self.which = np.empty((p, p, p), np.int64)  # which number has the derivative by three predictors
        for place in itertools.product(range(p), repeat=3):
            self.which[place] = self._own.index(every.index(tuple(place.count(k) for k in range(p))))

    @property
    def n_numbers(self) -> int:
        """How many each row has."""
        return len(self._own)

    def of(self, rows: FieldRows, part: slice, predictors: Matrix) -> Matrix:
        """Third derivatives of a part of the rows at some predictors."""
        found = derivatives_of(rows._replace(program=self._program), part, predictors, 3)
        return found[self._own].T * self._orders

    def sizes(self, thirds: Matrix, units: Matrix) -> Vector:
        """Bounds on |T(a, b, c)| for vectors of length one in these units: roots of sums of squares."""
        scaled = thirds * np.prod(units[:, None] ** self._indices, axis=2)
        return np.sqrt(scaled**2 @ (6.0 / self._orders))

    def largest(self, rows: FieldRows, units: Matrix, reach: float) -> float:
        """The sum of the largest sizes of rows at the center, and so many units of one predictor from it."""
        every, eta = slice(None), rows.predictors
        shifts = [np.zeros_like(units)]
        for k in range(units.shape[1]):
            own = np.where(np.arange(units.shape[1]) == k, reach * units, 0.0)
            shifts += [own, -own]
        sizes = [self.sizes(self.of(rows, every, eta + shift), units) for shift in shifts]
        total = float(np.max(sizes, axis=0).sum())
        return total if math.isfinite(total) else math.inf


def weights_of_predictors(
    thirds: ThirdDerivatives, rows: FieldRows, units: Callable[[Vector], Matrix], reach: float
) -> Vector:
    """Weights of predictors by which bounds on third derivatives are small.

    A predictor that few blocks move, as one of a dispersion, is better bounded less sharply: its share would
    be large in those blocks. `units` are those of the rows by weights.
    """
    p = rows.predictors.shape[1]
    weights = np.ones(p)
    best = thirds.largest(rows, units(weights), reach)
    for k in range(1, p):
        for factor in (0.5, 2.0):
            for _ in range(_MOST):
                other = np.where(np.arange(p) == k, factor, 1.0) * weights
                size = thirds.largest(rows, units(other), reach)
                if not size < best:
                    break
                weights, best = other, size
    return weights
