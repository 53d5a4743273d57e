"""The machine that runs the program of an expression at points: values and derivatives, without intervals.

It reads the same programs as `machine`, and serves all models without a compilation of its own. It takes long
to compile, so that kernels and passes call it at its address.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.extending import overload

from pymc_austerity.bounds.jets import codes
from pymc_austerity.bounds.jets import tape as steps
from pymc_austerity.bounds.jets.compiled import at_address, entry, inner
from pymc_austerity.bounds.jets.functions import derivatives
from pymc_austerity.bounds.jets.ranges import WORK, is_outside
from pymc_austerity.bounds.jets.tape import Tape, address_for, n_taylor
from pymc_austerity.packed import address_of, caller, kind_of, packed
from pymc_austerity.target import Array, Vector

# Rows that are computed together, at most.
BLOCK = 128


class Points(NamedTuple):
    """Taylor coefficients of everything in a program, at a block of rows; and the machine."""

    # (n_slots, n_coefficients + 1, BLOCK): those of affine values have one more, which only intervals need
    coefficients: Array
    decided: npt.NDArray[np.bool_]  # (n_slots, BLOCK): conditions
    work: Array  # as for `ranges_of`
    # machine, special: where the machine code of `run_at_points` is, and that of special functions
    machine: int
    special: int


def points_for(tape: Tape) -> Points:
    """Work space for the program of an expression."""
    shape = (tape.n_slots, max(tape.n_coefficients, n_taylor(tape)) + 1, BLOCK)
    decided, work = np.zeros((tape.n_slots, BLOCK), dtype=np.bool_), np.zeros(WORK)
    return Points(np.zeros(shape), decided, work, address_of(_machine, _OF_MACHINE), address_for(tape))


def run_at_points(tape: Tape, eta: Array, data: Array, first: int, m: int, points: Points) -> None:
    """Run the program for the m rows `first`, first + 1, ...; compiled code calls the machine at its address.

    Parameters
    ----------
    tape : Tape
    eta : ndarray (p, n)
        Predictors.
    data : ndarray (n_data, n)
    first : int
    m : int
        At most `BLOCK`.
    points : Points
        The coefficients of the expression are in the slot `tape.root` then. They are not numbers where a
        function is left by its argument.
    """
    _from_python(*packed(tape, eta, data, first, m, points))


@entry
def _from_python(tape: Tape, eta: Array, data: Array, first: int, m: int, points: Points) -> None:
    run_at_points(tape, eta, data, first, m, points)


@overload(run_at_points)
def _run_at_points(tape, eta, data, first, m, points):  # type: ignore[no-untyped-def]
    def call(tape, eta, data, first, m, points):  # type: ignore[no-untyped-def]
        _call_machine(points.machine, (tape, eta, data, first, m, points))

    return call


@at_address
def _machine(tape: Tape, eta: Array, data: Array, first: int, m: int, points: Points) -> None:
    """The machine itself."""
    c = points.coefficients
    for number in range(tape.steps.shape[0]):
        step = tape.steps[number]
        code, out, a, b, third, last = step[0], step[1], step[2], step[3], step[4], step[5]
        scale = tape.numbers[number]
        if code == steps.MULTIPLY:
            if scale == 0.0:
                _clear(c[out], tape.n_coefficients, m)
            _multiply(tape, c, out, a, b, third, last, m)
        elif code == steps.ADD:
            _add(tape, c, out, a, third, last, m, scale)
        elif code == steps.TAYLOR:
            _taylor(points, out, a, b, third, tape.order, m)
        elif code == steps.COMPOSE:
            _clear(c[out], tape.n_coefficients, m)
            _load(c[out, 0], c[a, 0], 0, m)
        elif code == steps.CONSTANT:
            _clear(c[out], tape.n_coefficients, m)
            for lane in range(m):
                c[out, 0, lane] = scale
        elif code == steps.DATA:
            _clear(c[out], tape.n_coefficients, m)
            _load(c[out, 0], data[a], first, m)
        elif code == steps.PREDICTOR:
            _clear(c[out], tape.n_coefficients, m)
            _load(c[out, 0], eta[a], first, m)
            if tape.order > 0:
                for lane in range(m):
                    c[out, 1 + a, lane] = 1.0
        elif code in (steps.SQUARE, steps.TIGHTEN):
            pass  # intervals become smaller, numbers do not
        elif code in (steps.POSITIVE, steps.NONNEGATIVE, steps.ZERO, steps.NOT, steps.AND, steps.OR):
            _decide(points, code, out, a, b, m)
        else:
            _select(points, out, third, a, b, tape.n_coefficients, m)


_MATRIX = types.Array(types.float64, 2, "C")
_NOTHING = Tape(np.zeros((0, 6), np.int64), np.zeros(0), np.zeros((0, 3), np.int64), np.zeros(0), 0, 0, 0, 0)
_OF_MACHINE = types.void(
    kind_of(_NOTHING),
    _MATRIX,
    _MATRIX,
    types.int64,
    types.int64,
    kind_of(Points(np.zeros((0, 0, 0)), np.zeros((0, 0), np.bool_), np.zeros((0, 0)), 0, 0)),
)
_call_machine = caller(_OF_MACHINE)


@inner
def _clear(coefficients: Array, n: int, m: int) -> None:
    for k in range(n + 1):
        for lane in range(m):
            coefficients[k, lane] = 0.0


@inner
def _load(lanes: Vector, values: Vector, first: int, m: int) -> None:
    for lane in range(m):
        lanes[lane] = values[first + lane]


@inner
def _add(tape: Tape, c: Array, out: int, a: int, first: int, last: int, m: int, scale: float) -> None:
    """Add a multiple of Taylor coefficients."""
    for q in range(first, last):
        k = tape.pairs[q, 2]
        term, total = c[a, k], c[out, k]
        for lane in range(m):
            total[lane] += scale * term[lane]


@inner
def _multiply(tape: Tape, c: Array, out: int, a: int, b: int, first: int, last: int, m: int) -> None:
    """Add products of Taylor coefficients."""
    for q in range(first, last):
        one, two, total = c[a, tape.pairs[q, 0]], c[b, tape.pairs[q, 1]], c[out, tape.pairs[q, 2]]
        weight = tape.weights[q]
        for lane in range(m):
            total[lane] += weight * one[lane] * two[lane]


@inner
def _taylor(points: Points, out: int, a: int, code: int, extra: int, order: int, m: int) -> None:
    """phi^(k) / k! of the argument. The commonest functions are computed for all rows together."""
    c = points.coefficients
    if code == codes.EXP:
        _exp(c[a, 0], order, c[out], m)
    elif code in (codes.LOG, codes.LOG1P):
        _log(c[a, 0], 0.0 if code == codes.LOG else 1.0, order, c[out], m)
    elif code == codes.RECIPROCAL:
        _reciprocal(c[a, 0], order, c[out], m)
    elif code == codes.SOFTPLUS and order <= 2:
        _softplus(c[a, 0], order, c[out], m)
    else:
        found, error, other = points.work[0], points.work[1], points.work[2]
        is_of_two = code == codes.LOG_NDTR_BETWEEN
        n = (order + 1) * (order + 2) // 2 if is_of_two else order + 1
        for lane in range(m):
            x = c[a, 0, lane]
            y = c[extra, 0, lane] if extra >= 0 else 0.0
            if is_outside(code, x, x) or (is_of_two and not y > 0.0):
                found[:n] = math.nan
            else:
                other[0], other[1] = 0.0, 0.0
                derivatives(code, x, y, order, found, error, other, points.special)
            for k in range(n):
                c[out, k, lane] = found[k]


@inner
def _log(x: Vector, shift: float, order: int, result: Array, m: int) -> None:
    """The logarithm of x + shift, not a number where that is not positive."""
    for lane in range(m):
        z = x[lane] + shift
        inverse = 1.0 / z if z > 0.0 else math.nan
        result[0, lane] = (math.log(z) if shift == 0.0 else math.log1p(x[lane])) if z > 0.0 else math.nan
        power = inverse
        for k in range(1, order + 1):
            result[k, lane] = power / k
            power *= -inverse


@inner
def _reciprocal(x: Vector, order: int, result: Array, m: int) -> None:
    for lane in range(m):
        inverse = 1.0 / x[lane] if x[lane] != 0.0 else math.nan
        power = inverse
        for k in range(order + 1):
            result[k, lane] = power
            power *= -inverse


@inner
def _exp(x: Vector, order: int, result: Array, m: int) -> None:
    for lane in range(m):
        result[0, lane] = math.exp(x[lane])
    for k in range(1, order + 1):
        for lane in range(m):
            result[k, lane] = result[k - 1, lane] / k


@inner
def _softplus(x: Vector, order: int, result: Array, m: int) -> None:
    for lane in range(m):
        e = math.exp(-abs(x[lane]))
        result[0, lane] = max(x[lane], 0.0) + math.log1p(e)
        if order > 0:
            s = 1.0 / (1.0 + e)
            result[1, lane] = s if x[lane] > 0.0 else e * s
            if order > 1:
                result[2, lane] = 0.5 * e * s * s


@inner
def _decide(points: Points, code: int, out: int, a: int, b: int, m: int) -> None:
    """Truth of a condition at m points; a condition on NaN does not hold."""
    decided, x = points.decided, points.coefficients[a, 0]
    for lane in range(m):
        if code == steps.POSITIVE:
            decided[out, lane] = x[lane] > 0.0
        elif code == steps.NONNEGATIVE:
            decided[out, lane] = x[lane] >= 0.0
        elif code == steps.ZERO:
            decided[out, lane] = x[lane] == 0.0
        elif code == steps.NOT:
            decided[out, lane] = not decided[a, lane]
        elif code == steps.AND:
            decided[out, lane] = decided[a, lane] and decided[b, lane]
        else:
            decided[out, lane] = decided[a, lane] or decided[b, lane]


@inner
def _select(points: Points, out: int, condition: int, a: int, b: int, n: int, m: int) -> None:
    """The branch that the condition tells, lane by lane."""
    c = points.coefficients
    for k in range(n + 1):
        for lane in range(m):
            c[out, k, lane] = c[a if points.decided[condition, lane] else b, k, lane]
