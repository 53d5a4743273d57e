"""The sum of the local terms over some rows, with gradient and Hessian, in vectorised passes over the data.

A term with a linear predictor, l_i = f_i(x_i . phi + o_i), needs two derivatives by one number for each row:
its gradient is X' f' and its Hessian X' diag(f'') X; with a few predictors there are as many X. Any other
term is differentiated along all coordinates.

Rows are added up in blocks, one after the other and without BLAS, and then the sums of the blocks in their
order: the result is the same to the bit wherever the sums of a block are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from pymc_austerity import work
from pymc_austerity.bounds.jets.derivatives import no_sums
from pymc_austerity.model.factorisation import CHUNK
from pymc_austerity.model.structure.derivatives import Derivatives, zero
from pymc_austerity.model.structure.feature_map import FeatureMap
from pymc_austerity.model.structure.local_terms import rows_within
from pymc_austerity.model.structure.term_derivatives import TermDerivatives
from pymc_austerity.target import Index, Vector

# Numbers of a chunk of rows.
_BUDGET = 200_000
_SMALLEST_CHUNK = 256
# Chunks of a block, and its rows, whichever are more: other processes send a matrix for each block.
_BLOCK, _BLOCK_ROWS = 16, 65_536
# Numbers of a design that are stored from one pass to the next: those of a subsample.
_STORED = 2_500_000

Slopes = npt.NDArray[np.float64]
# Positions of a term; a range takes no memory.
Rows = Index | range


class Elsewhere(Protocol):
    """Computes sums over blocks of rows in other processes."""

    def __call__(self, phi: Vector, n_blocks: int) -> Sequence[Derivatives]:
        """The sums over each block, at features phi."""


class LikelihoodAt(NamedTuple):
    """The log likelihood at some features."""

    total: Derivatives  # Of the sum, by the features
    # tuple of ndarray (k, n): for each term the derivatives of its rows by the predictors: the p first ones,
    # then the second ones by predictors j <= k in the order of the rows of a matrix. Without columns where a
    # term has no predictors, or slopes are not stored, or sums come from elsewhere.
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
    elsewhere : callable, optional
        Computes the sums of blocks.

    Attributes
    ----------
    passes : int
        How often rows were read.
    operations : float
        Of a pass.
    """

    def __init__(
        self,
        terms: Sequence[TermDerivatives],
        features: FeatureMap,
        positions: Index | None = None,
        *,
        stores_slopes: bool = True,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._stores_slopes, self._elsewhere = stores_slopes, elsewhere
        self.features = features
        self.passes = 0
        n_rows = sum(term.size for term in terms) if positions is None else len(positions)
        width = max((term.n_predictors for term in terms), default=0) * (features.n_features + 1)
        length = int(np.clip(_BUDGET // max(1, width), _SMALLEST_CHUNK, CHUNK))
        self._sums: list[_Blocks] = []
        self.operations, first = 0.0, 0
        for term in terms:
            own: Rows = range(term.size)
            if positions is not None:
                own = rows_within(positions, first, term.size)
            chunks = [own[a : a + length] for a in range(0, len(own), length)]
            self._sums.append(_Blocks(term, chunks, stores=n_rows * width <= _STORED))
            self.operations += term.operations(len(own)) if work.is_open() else 0.0
            first += term.size
        self._last: tuple[Vector, LikelihoodAt] | None = None

    def __call__(self, q: Vector) -> Derivatives:
        """Sum of the terms at q, with gradient and Hessian by q."""
        found = self.at(self.features(q)).total
        work.spend(self.features.operations, "The search for the mode")
        return self.features.in_block(q, found)

    def at(self, phi: Vector) -> LikelihoodAt:
        """Sum of the terms at the features phi, with gradient and Hessian by phi, and slopes of rows."""
        if self._last is None or not np.array_equal(self._last[0], phi):
            work.spend(self.operations, "The search for the mode")
            self.passes += 1
            self._last = None  # its slopes make room for the new ones
            slopes = [term.no_slopes(self._stores_slopes and self._elsewhere is None) for term in self._sums]
            total = zero(self.features.n_features)
            if self._elsewhere is None:
                blocks: Iterable[Derivatives] = self._blocks(phi, range(self.n_blocks), slopes)
            else:
                blocks = self._elsewhere(phi, self.n_blocks)
            for block in blocks:
                total = total.plus(block)
            self._last = phi.copy(), LikelihoodAt(total, tuple(slopes))
        return self._last[1]

    @property
    def n_blocks(self) -> int:
        """Blocks of rows whose sums are added up."""
        return sum(term.n_blocks for term in self._sums)

    def of_blocks(self, phi: Vector, numbers: range) -> list[Derivatives]:
        """The sums over some blocks of rows."""
        return list(self._blocks(phi, numbers, [term.no_slopes(False) for term in self._sums]))

    def slopes(self, phi: Vector) -> tuple[Slopes, ...]:
        """Slopes of all rows at phi: as `at` found them, or by a pass over terms that have some."""
        if self._elsewhere is None and self._last is not None and np.array_equal(self._last[0], phi):
            return self._last[1].slopes
        slopes = [term.no_slopes(self._stores_slopes) for term in self._sums]
        with np.errstate(all="ignore"):
            for term, own in zip(self._sums, slopes, strict=True):
                for b in range(term.n_blocks if own.shape[1] else 0):
                    term.of_block(phi, b, own)
        return tuple(slopes)

    def _blocks(self, phi: Vector, numbers: range, slopes: list[Slopes]) -> Iterator[Derivatives]:
        """The sums over some blocks; derivatives of rows are written where there is room."""
        first = 0
        for term, own in zip(self._sums, slopes, strict=True):
            for b in range(max(numbers.start - first, 0), min(numbers.stop - first, term.n_blocks)):
                with np.errstate(all="ignore"):
                    found = term.of_block(phi, b, own)
                yield found
            first += term.n_blocks


class _Blocks:
    """Some rows of a term, in chunks of which several are a block.

    With `stores` what the term reads of a chunk is kept when it is first read.
    """

    def __init__(self, term: TermDerivatives, chunks: list[Rows], *, stores: bool) -> None:
        self._term, self._chunks = term, chunks
        self._stores, self._stored = stores, dict[int, tuple[np.ndarray, ...]]()
        self._starts = np.cumsum([0, *map(len, chunks)])
        self._block = max(_BLOCK, -(-_BLOCK_ROWS // len(chunks[0])) if chunks else 0)
        self.n_blocks = -(-len(chunks) // self._block)

    def no_slopes(self, stored: bool) -> Slopes:
        """Room for derivatives of all rows; without columns if none are stored."""
        n_slopes = self._term.n_slopes
        return np.empty((n_slopes or 2, self._starts[-1] if stored and n_slopes else 0))

    def of_block(self, phi: Vector, number: int, slopes: Slopes) -> Derivatives:
        """The sums over a block; derivatives of its rows are written if there is room."""
        sums = no_sums(len(phi))
        for k in range(number * self._block, min((number + 1) * self._block, len(self._chunks))):
            positions = _positions(self._chunks[k])
            own = self._term.add_to(sums, phi, positions, self._read(k, positions))
            if slopes.shape[1]:
                slopes[:, self._starts[k] : self._starts[k + 1]] = own
        lower = sums.hessian
        return Derivatives(float(sums.value[0]), sums.gradient, lower + np.tril(lower, -1).T)

    def _read(self, chunk: int, positions: Index) -> tuple[np.ndarray, ...]:
        if chunk in self._stored:
            return self._stored[chunk]
        found = self._term.read(positions)
        if self._stores:
            self._stored[chunk] = found
        return found


def _positions(rows: Rows) -> Index:
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
