"""`RowFunction`: the rows of a local term as one function of a few predictors and of data.

A pass over the rows takes them in chunks.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.target import Index

# Rows that a pass over a term looks at together: at least, at most, and numbers of their outer products.
_LARGEST_CHUNK, _SMALLEST_CHUNK, _CHUNK_BUDGET = 8192, 256, 4_000_000


class RowFunction(NamedTuple):
    """Local terms l_i(q) = f(eta_i1, ..., eta_ip; data_i), with predictors that are affine in q."""

    name: str  # Name of the model term
    n_rows: int  # Number of its local terms
    n_dim: int  # Length D of q, or of the features that stand for it
    n_predictors: int  # p
    # ``(positions) -> ndarray (m, p, D + 1)``: x_ik, and o_ik in the last column
    rows: Callable[[Index], npt.NDArray[np.float64]]
    # ``(positions) -> ndarray (n_data, m)``: the columns of data that f reads
    data: Callable[[Index], npt.NDArray[np.float64]]
    # f, whose leaves are predictors, columns of data and constants; None where only the predictors are known
    form: Expression | None
    # Names of the variables of other steps on which f or the predictors depend; where there are any, the
    # columns of data are those of one point
    others: tuple[str, ...]
    offset_fixed: bool  # Whether the o_ik are the same whatever other steps do
    # ``(positions) -> ndarray (m, G, D + 1)``: affine functions of q. Where one of them is
    # not above zero the row may be minus infinity instead.
    guards: Callable[[Index], npt.NDArray[np.float64]] | None = None

    @property
    def expression(self) -> Expression:
        """The function f, of rows that are no opaque function of their predictors."""
        assert self.form is not None
        return self.form


def have_one_predictor(terms: Sequence[RowFunction]) -> bool:
    """Whether every row of some terms is a function of one predictor."""
    return all(term.n_predictors == 1 for term in terms)


def chunks(term: RowFunction, n_rows: int, first: int = 0) -> Iterator[Index]:
    """The numbers from `first` to `n_rows`, in pieces of so many rows of a term as fit in the cache."""
    length = int(np.clip(_CHUNK_BUDGET // term.n_dim**2, _SMALLEST_CHUNK, _LARGEST_CHUNK))
    for start in range(first, n_rows, length):
        yield np.arange(start, min(start + length, n_rows))


def evenly_spaced(n_rows: int, at_most: int) -> Index:
    """Numbers of some rows, at equal distances; of all if there are few."""
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, at_most)).astype(np.int64))
