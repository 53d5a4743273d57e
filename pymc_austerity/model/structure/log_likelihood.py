"""The sum of the local terms over some rows, with gradient and Hessian, in vectorised passes over the data.

A term with a linear predictor, l_i = f_i(x_i . phi + o_i), needs two derivatives by one number for each row:
its gradient is X' f' and its Hessian X' diag(f'') X; with a few predictors there are as many X. Any other
term is differentiated along all coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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

# Numbers in an intermediate result: rows at a time, times dimensions.
_BUDGET = 2_000_000
_SMALLEST_CHUNK = 256
# Numbers of a design that are stored from one pass to the next.
_STORED = 30_000_000

Slopes = npt.NDArray[np.float64]
RowsOf = Callable[[Index], np.ndarray]


class LikelihoodAt(NamedTuple):
    """The log likelihood at some features.

    Attributes
    ----------
    total : Derivatives
        Of the sum, by the features.
    slopes : tuple of ndarray (k, n)
        For each term the derivatives of its rows by the predictors: the p first ones, then the second ones
        by predictors j <= k in the order of the rows of a matrix. Without columns where a term has no
        predictors.
    """

    total: Derivatives
    slopes: tuple[Slopes, ...]


class LogLikelihood:
    """The sum of the local terms over some rows, as a function of q or of the features.

    Designs that are not too large are stored for as long as this object lives.

    Parameters
    ----------
    terms : sequence of TermDerivatives
    features : FeatureMap
    positions : ndarray of int, optional
        Rows of the population, in increasing order; by default all.
    """

    def __init__(
        self, terms: Sequence[TermDerivatives], features: FeatureMap, positions: Index | None = None
    ) -> None:
        self.features = features
        self._is_whole = positions is None
        n_rows = sum(term.size for term in terms) if positions is None else len(positions)
        length = int(np.clip(_BUDGET // max(1, features.n_features), _SMALLEST_CHUNK, CHUNK))
        numbers = max((term.n_predictors for term in terms), default=0) * (features.n_features + 1)
        stores = n_rows * numbers <= _STORED
        self._sums: list[_Sum] = []
        first = 0
        for term in terms:
            own = np.arange(term.size) if positions is None else rows_within(positions, first, term.size)
            chunks = [own[a : a + length] for a in range(0, len(own), length)]
            self._sums.append(_sum_of(term, chunks, stores=stores))
            first += term.size

    def __call__(self, q: Vector) -> Derivatives:
        """As a function of q."""
        return self.features.in_block(q, self.at(self.features(q)).total)

    def at(self, phi: Vector) -> LikelihoodAt:
        """As a function of the features."""
        total, slopes = zero(self.features.n_features), []
        with np.errstate(all="ignore"):
            for term in self._sums:
                own = []
                for derivatives, some in term.chunks(phi):
                    total = total.plus(derivatives)
                    own.append(some)
                slopes.append(_joined(own))
        return LikelihoodAt(total, tuple(slopes))

    def slopes(self, phi: Vector) -> tuple[Slopes, ...]:
        """Those of `at`, without a pass over terms that have none."""
        result = []
        with np.errstate(all="ignore"):
            for term in self._sums:
                chunks = [] if isinstance(term, _SumByCoordinates) else term.chunks(phi)
                result.append(_joined([some for _, some in chunks]))
        return tuple(result)

    def stored_design(self, number: int) -> StoredDesign | None:
        """The design of a term with one linear predictor, read from here where it is stored; else None."""
        term = self._sums[number]
        return term.design if self._is_whole and isinstance(term, _SumByPredictor) else None


class StoredDesign:
    """The design of consecutive chunks of rows, which may be stored when it is first computed.

    Parameters
    ----------
    design : callable
        ``positions -> ndarray``, with one row for each.
    chunks : list of ndarray of int
    stores : bool
    """

    def __init__(self, design: RowsOf, chunks: list[Index], *, stores: bool) -> None:
        self._design, self._chunks, self._stores = design, chunks, stores
        self._length = len(chunks[0]) if chunks else 1
        self._stored: list[np.ndarray | None] = [None] * len(chunks)

    def of_chunk(self, k: int) -> np.ndarray:
        """Rows (x_i, o_i) of chunk number k."""
        rows = self._stored[k]
        if rows is None:
            rows = self._design(self._chunks[k])
            if self._stores:
                self._stored[k] = rows
        return rows

    def __call__(self, positions: Index) -> np.ndarray:
        """Those of any rows, if the chunks are all rows of the term: a part of a stored chunk if possible."""
        k, start = divmod(int(positions[0]), self._length)
        stored, stop = self._stored[k], start + len(positions)
        if stored is None or stop > len(stored) or np.any(np.diff(positions) != 1):
            return self._design(positions)
        return stored[start:stop]


class _SumByPredictor:
    """Some rows of a term with one linear predictor."""

    def __init__(self, term: ByPredictor, chunks: list[Index], *, stores: bool) -> None:
        self._term, self._chunks = term, chunks
        self.design = StoredDesign(term.design, chunks, stores=stores)

    def chunks(self, phi: Vector) -> Iterator[tuple[Derivatives, Slopes]]:
        """The sum over one chunk of rows after the other, and the slopes of these rows."""
        for k, positions in enumerate(self._chunks):
            rows = self.design.of_chunk(k)
            x, offset = rows[:, :-1], rows[:, -1]
            value, first, second = self._term.of_rows(x @ phi + offset, positions)
            derivatives = Derivatives(float(value.sum()), first @ x, (x.T * second) @ x)
            yield derivatives, np.stack([first, second])


class _SumByRowFunction:
    """Some rows of a term with a few linear predictors."""

    def __init__(self, term: ByRowFunction, chunks: list[Index], *, stores: bool) -> None:
        self._term, self._chunks = term, chunks
        self.design = StoredDesign(term.design, chunks, stores=stores)
        self._guards = None if term.guards is None else StoredDesign(term.guards, chunks, stores=stores)

    def chunks(self, phi: Vector) -> Iterator[tuple[Derivatives, Slopes]]:
        """The sum over one chunk of rows after the other, and the slopes of these rows."""
        for k, positions in enumerate(self._chunks):
            rows = self.design.of_chunk(k)
            x, offsets = rows[..., :-1], rows[..., -1]
            found = self._term.of_rows(x @ phi + offsets, positions)
            p, value = x.shape[1], float(found.value.sum())
            if self._guards is not None:
                guards = self._guards.of_chunk(k)
                allowed = np.all(guards[..., :-1] @ phi + guards[..., -1] > 0.0)
                value = value if allowed else -np.inf
            gradient, hessian = np.zeros(len(phi)), np.zeros((len(phi), len(phi)))
            for i in range(p):
                gradient += found.first[i] @ x[:, i]
                hessian += (x[:, i].T * found.second[i, i]) @ x[:, i]
                for j in range(i):
                    mixed = (x[:, i].T * found.second[i, j]) @ x[:, j]
                    hessian += mixed + mixed.T
            above = found.second[np.triu_indices(p)]
            yield Derivatives(value, gradient, hessian), np.concatenate([found.first, above])


class _SumByCoordinates:
    """Some rows of any other term."""

    def __init__(self, term: ByCoordinates, chunks: list[Index]) -> None:
        self._term, self._chunks = term, chunks

    def chunks(self, phi: Vector) -> Iterator[tuple[Derivatives, Slopes]]:
        """The sum over one chunk of rows after the other, and no slopes."""
        for positions in self._chunks:
            yield self._term.of_rows(phi, positions), np.empty((2, 0))


_Sum = _SumByPredictor | _SumByRowFunction | _SumByCoordinates


def _sum_of(term: TermDerivatives, chunks: list[Index], *, stores: bool) -> _Sum:
    if isinstance(term, ByPredictor):
        return _SumByPredictor(term, chunks, stores=stores)
    if isinstance(term, ByRowFunction):
        return _SumByRowFunction(term, chunks, stores=stores)
    return _SumByCoordinates(term, chunks)


def _joined(slopes: list[Slopes]) -> Slopes:
    return np.concatenate(slopes, axis=1) if slopes else np.empty((2, 0))
