"""The sum of the local terms over some rows, with gradient and Hessian, in vectorised passes over the data.

A term with a linear predictor, l_i = f_i(x_i . phi + o_i), needs two derivatives by one number for each row:
its gradient is X' f' and its Hessian X' diag(f'') X; with a few predictors there are as many X. Any other
term is differentiated along all coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.derivatives import add_rows, no_sums
from pymc_austerity.model.factorisation import CHUNK
from pymc_austerity.model.structure.derivatives import Derivatives, zero
from pymc_austerity.model.structure.feature_map import FeatureMap
from pymc_austerity.model.structure.local_terms import rows_within
from pymc_austerity.model.structure.term_derivatives import (
    ByCoordinates,
    ByPredictor,
    ByRowFunction,
    TermDerivatives,
)
from pymc_austerity.target import Index, Vector

# Numbers of a chunk of rows.
_BUDGET = 200_000
_SMALLEST_CHUNK = 256
# Numbers of a design that are stored from one pass to the next: those of a subsample.
_STORED = 2_500_000

Slopes = npt.NDArray[np.float64]
RowsOf = Callable[[Index], np.ndarray]
# Positions of a term; a range takes no memory.
Rows = Index | range


class LikelihoodAt(NamedTuple):
    """The log likelihood at some features.

    Attributes
    ----------
    total : Derivatives
        Of the sum, by the features.
    slopes : tuple of ndarray (k, n)
        For each term the derivatives of its rows by the predictors: the p first ones, then the second ones
        by predictors j <= k in the order of the rows of a matrix. Without columns where a term has no
        predictors, or slopes are not stored.
    """

    total: Derivatives
    slopes: tuple[Slopes, ...]


class LogLikelihood:
    """The sum of the local terms over some rows, as a function of q or of the features.

    Designs that are not too large are stored for as long as this object lives. So is what was found last.

    Parameters
    ----------
    terms : sequence of TermDerivatives
    features : FeatureMap
    positions : ndarray of int, optional
        Rows of the population, in increasing order; by default all.
    stores_slopes : bool, default True
        Whether `at` tells the derivatives of all rows, some numbers for each.

    Attributes
    ----------
    passes : int
        How often rows were read.
    """

    def __init__(
        self,
        terms: Sequence[TermDerivatives],
        features: FeatureMap,
        positions: Index | None = None,
        *,
        stores_slopes: bool = True,
    ) -> None:
        self._stores_slopes = stores_slopes
        self.features = features
        self.passes = 0
        n_rows = sum(term.size for term in terms) if positions is None else len(positions)
        width = max((term.n_predictors for term in terms), default=0) * (features.n_features + 1)
        length = int(np.clip(_BUDGET // max(1, width), _SMALLEST_CHUNK, CHUNK))
        self._sums: list[_Sum] = []
        first = 0
        for term in terms:
            own: Rows = range(term.size)
            if positions is not None:
                own = rows_within(positions, first, term.size)
            chunks = [own[a : a + length] for a in range(0, len(own), length)]
            self._sums.append(_sum_of(term, chunks, stores=n_rows * width <= _STORED))
            first += term.size
        self._last: tuple[Vector, LikelihoodAt] | None = None

    def __call__(self, q: Vector) -> Derivatives:
        """As a function of q."""
        return self.features.in_block(q, self.at(self.features(q)).total)

    def at(self, phi: Vector) -> LikelihoodAt:
        """As a function of the features."""
        if self._last is None or not np.array_equal(self._last[0], phi):
            self.passes += 1
            self._last = None  # its slopes make room for the new ones
            total, slopes = zero(self.features.n_features), []
            with np.errstate(all="ignore"):
                for term in self._sums:
                    derivatives, own = term.at(phi, stores_slopes=self._stores_slopes)
                    total = total.plus(derivatives)
                    slopes.append(own)
            self._last = phi.copy(), LikelihoodAt(total, tuple(slopes))
        return self._last[1]

    def slopes(self, phi: Vector) -> tuple[Slopes, ...]:
        """Those of `at`, without a pass over terms that have none."""
        with np.errstate(all="ignore"):
            return tuple(
                term.at(phi, stores_slopes=True)[1]
                if self._stores_slopes and not isinstance(term, _SumByCoordinates)
                else _NO_SLOPES
                for term in self._sums
            )


class _Stored:
    """What is read for one chunk of rows after the other, which may be stored when it is first read."""

    def __init__(self, read: RowsOf, chunks: list[Rows], *, stores: bool) -> None:
        self._read, self._chunks, self._stores = read, chunks, stores
        self._stored: dict[int, np.ndarray] = {}

    def of_chunk(self, k: int) -> np.ndarray:
        """That of chunk number k."""
        if k in self._stored:
            return self._stored[k]
        found = self._read(_positions(self._chunks[k]))
        if self._stores:
            self._stored[k] = found
        return found


class _SumByPredictor:
    """Some rows of a term with one linear predictor."""

    def __init__(self, term: ByPredictor, chunks: list[Rows], *, stores: bool) -> None:
        self._term, self._chunks = term, chunks
        self._rows = _Stored(term.design, chunks, stores=stores)

    def at(self, phi: Vector, *, stores_slopes: bool) -> tuple[Derivatives, Slopes]:
        """The sum over the rows, and their slopes."""
        total, slopes = zero(len(phi)), []
        for k, positions in enumerate(self._chunks):
            rows = self._rows.of_chunk(k)
            x, offset = rows[:, :-1], rows[:, -1]
            value, first, second = self._term.of_rows(x @ phi + offset, _positions(positions))
            total = total.plus(Derivatives(float(value.sum()), first @ x, (x.T * second) @ x))
            if stores_slopes:
                slopes.append(np.stack([first, second]))
        return total, np.concatenate(slopes, axis=1) if slopes else _NO_SLOPES


class _SumByRowFunction:
    """Some rows of a term with a few linear predictors."""

    def __init__(self, term: ByRowFunction, chunks: list[Rows], *, stores: bool) -> None:
        function = term.function
        self._expression, self._chunks = function.expression, chunks
        self._n_slopes = function.n_predictors * (function.n_predictors + 3) // 2
        self._rows = _Stored(function.rows, chunks, stores=stores)
        self._data = _Stored(function.data, chunks, stores=stores)
        self._guards = None if function.guards is None else _Stored(function.guards, chunks, stores=stores)

    def at(self, phi: Vector, *, stores_slopes: bool) -> tuple[Derivatives, Slopes]:
        """The sum over the rows, and their slopes."""
        sums, start = no_sums(len(phi)), 0
        slopes = np.empty((self._n_slopes, sum(map(len, self._chunks)) if stores_slopes else 0))
        for k, positions in enumerate(self._chunks):
            own = add_rows(self._expression, self._rows.of_chunk(k), self._data.of_chunk(k), phi, sums)
            if stores_slopes:
                slopes[:, start : start + len(positions)] = own
                start += len(positions)
            if self._guards is not None:
                guards = self._guards.of_chunk(k)
                if not np.all(guards[..., :-1] @ phi + guards[..., -1] > 0.0):
                    sums.value[0] = -np.inf
        lower = sums.hessian
        hessian = lower + np.tril(lower, -1).T
        return Derivatives(float(sums.value[0]), sums.gradient, hessian), slopes


class _SumByCoordinates:
    """Some rows of any other term."""

    def __init__(self, term: ByCoordinates, chunks: list[Rows]) -> None:
        self._term, self._chunks = term, chunks

    def at(self, phi: Vector, *, stores_slopes: bool) -> tuple[Derivatives, Slopes]:
        """The sum over the rows, and no slopes."""
        total = zero(len(phi))
        for positions in self._chunks:
            total = total.plus(self._term.of_rows(phi, _positions(positions)))
        return total, _NO_SLOPES


_Sum = _SumByPredictor | _SumByRowFunction | _SumByCoordinates
_NO_SLOPES = np.empty((2, 0))


def _positions(rows: Rows) -> Index:
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows


def _sum_of(term: TermDerivatives, chunks: list[Rows], *, stores: bool) -> _Sum:
    if isinstance(term, ByPredictor):
        return _SumByPredictor(term, chunks, stores=stores)
    if isinstance(term, ByRowFunction):
        return _SumByRowFunction(term, chunks, stores=stores)
    return _SumByCoordinates(term, chunks)
