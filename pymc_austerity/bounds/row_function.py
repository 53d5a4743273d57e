"""`RowFunction`: the rows of a local term as one function of a few predictors and of data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.target import Index, LinearPredictor


class RowFunction(NamedTuple):
    """Local terms l_i(q) = f(eta_i1, ..., eta_ip; data_i), with predictors that are affine in q.

    Attributes
    ----------
    name : str
        Name of the model term.
    n_rows : int
        Number of its local terms.
    n_dim : int
        Length D of q, or of the features that stand for it.
    n_predictors : int
        p.
    rows : callable
        ``(positions) -> ndarray (m, p, D + 1)``: x_ik, and o_ik in the last column.
    data : callable
        ``(positions) -> ndarray (n_data, m)``: the columns of data that f reads.
    expression : Expression
        f, whose leaves are predictors, columns of data and constants.
    others : tuple of str
        Names of the variables of other steps on which f or the predictors depend; where there are any, the
        columns of data are those of one point.
    offset_fixed : bool
        Whether the o_ik are the same whatever other steps do.
    guards : callable, optional
        ``(positions) -> ndarray (m, G, D + 1)``: affine functions of q. Where one of them is not above zero
        the row may be minus infinity instead.
    """

    name: str
    n_rows: int
    n_dim: int
    n_predictors: int
    rows: Callable[[Index], npt.NDArray[np.float64]]
    data: Callable[[Index], npt.NDArray[np.float64]]
    expression: Expression
    others: tuple[str, ...]
    offset_fixed: bool
    guards: Callable[[Index], npt.NDArray[np.float64]] | None = None


def have_one_predictor(terms: Sequence[RowFunction | LinearPredictor]) -> bool:
    """Whether every row of some terms is a function of one predictor."""
    return all(isinstance(term, LinearPredictor) or term.n_predictors == 1 for term in terms)
