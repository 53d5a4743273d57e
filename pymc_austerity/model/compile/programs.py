"""The function that computes an expression, and its first two derivatives, at points."""

import math
from functools import lru_cache

from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.jets.compiled import of_records
from pymc_austerity.bounds.jets.derivatives import Program
from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for, run_at_points
from pymc_austerity.bounds.jets.source import source_of
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.model.compile.cache_key import key_of
from pymc_austerity.model.compile.native import from_source
from pymc_austerity.target import Array

_ORDER = 2


@lru_cache(maxsize=64)
def program_of(expression: Expression, n_predictors: int) -> Program:
    """Program of an expression: compiled from source if that is short, and else run by the machine."""
    source = source_of(expression, n_predictors)
    if source is not None:
        environment = {"__name__": __name__, "math": math}
        key = key_of([source], [source_of])
        compiled: Program = from_source(source, "program", environment, key, error_model="numpy")
        return compiled
    tape = tape_of(expression, n_predictors, _ORDER)
    return lambda eta, data, result: _run(tape, points_for(tape), eta, data, result)


@of_records
def _run(tape: Tape, points: Points, eta: Array, data: Array, result: Array) -> None:
    """Derivatives of all rows, from their Taylor coefficients."""
    p = eta.shape[0]
    for first in range(0, eta.shape[1], BLOCK):
        m = run_at_points(tape, eta, data, first, points)
        found = points.coefficients[tape.root]
        for k in range(1 + p):
            for lane in range(m):
                result[k, first + lane] = found[k, lane]
        place = 1 + p
        for j in range(p):
            for k in range(j, p):
                factor = 2.0 if j == k else 1.0
                for lane in range(m):
                    result[place, first + lane] = factor * found[place, lane]
                place += 1
