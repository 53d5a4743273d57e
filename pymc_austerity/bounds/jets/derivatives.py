"""A row function with its first and second derivatives by the predictors, at points."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.jets.compiled import entry
from pymc_austerity.bounds.jets.machine import LANES, Block, Box, Slots, run, slots_for
from pymc_austerity.bounds.jets.ranges import WORK
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.target import Vector

Array = npt.NDArray[np.float64]

_ORDER = 2


class RowDerivatives(NamedTuple):
    """Rows of a term at some predictors; not a number where they are not finite.

    Attributes
    ----------
    value : ndarray (m,)
    first : ndarray (p, m)
    second : ndarray (p, p, m)
    """

    value: Vector
    first: Array
    second: Array


@lru_cache(maxsize=64)
def _tape(expression: Expression, n_predictors: int) -> Tape:
    return tape_of(expression, n_predictors, _ORDER)


def row_derivatives(expression: Expression, predictors: Array, data: Array) -> RowDerivatives:
    """Differentiate rows by their predictors.

    Parameters
    ----------
    expression : Expression
    predictors : ndarray (m, p)
    data : ndarray (n_data, m)

    Returns
    -------
    RowDerivatives
    """
    m, p = predictors.shape
    tape = _tape(expression, p)
    coefficients = np.empty((tape.n_coefficients, m))
    _coefficients(tape, predictors, np.ascontiguousarray(data), slots_for(tape), coefficients)
    second = np.empty((p, p, m))
    place = p + 1
    for i in range(p):
        for j in range(i, p):
            # Taylor coefficients: half of the second derivative on the diagonal.
            second[i, j] = second[j, i] = coefficients[place] * (2.0 if i == j else 1.0)
            place += 1
    return RowDerivatives(coefficients[0], coefficients[1 : p + 1], second)


@entry
def _coefficients(tape: Tape, predictors: Array, data: Array, slots: Slots, result: Array) -> None:
    """Taylor coefficients of all rows, block by block."""
    m, p = predictors.shape
    block = Block(np.empty((p, LANES)), np.zeros((p, p, LANES)), np.empty((data.shape[0], LANES)))
    for k in range(p):
        block.factor[k, k] = 1.0
    box = Box(np.zeros(p), np.zeros(p), 0.0)
    work = np.empty(WORK)
    for start in range(0, m, LANES):
        for lane in range(LANES):
            row = min(start + lane, m - 1)
            for k in range(p):
                block.eta[k, lane] = predictors[row, k]
            for k in range(data.shape[0]):
                block.data[k, lane] = data[k, row]
        run(tape, block, box, slots, work)
        for k in range(result.shape[0]):
            for lane in range(min(LANES, m - start)):
                finite = slots.radius[tape.root, k, lane] < np.inf
                result[k, start + lane] = slots.middle[tape.root, k, lane] if finite else np.nan
