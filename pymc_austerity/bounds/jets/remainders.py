"""Log ratios of Taylor remainders, as kernels call them: rows are data, which the machine at points runs.

A row reads numbers where the model has them, in arrays of any type. Each predictor is an offset and summands:
numbers of the row times coordinates of the block, or a coordinate that the row looks up. Nothing is compiled
for a model.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.expressions.node import Expression, constant, node
from pymc_austerity.bounds.jets.compiled import inner
from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for, run_at_points
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.packed import NUMBERS, Packed, kind_of, number_at, record_at
from pymc_austerity.target import Array, Index, Vector

Numbers = npt.NDArray[Any]
# Types of numbers that are read where they are, in the order of their codes.
_TYPES = tuple(NUMBERS)


class Columns(NamedTuple):
    """Arrays that rows read."""

    addresses: Index
    strides: Index  # (n, 2): bytes from row to row, and from number to number of a row
    codes: Index  # Of the types


class Program(NamedTuple):
    """The rows of a term, f(eta; data) without its Taylor polynomial in the predictors."""

    tape: Tape  # Of f, without what is the same at all states
    points: Points
    columns: Columns
    data: Index  # The arrays of numbers that f reads
    n_predictors: int  # p
    # (P,): the offset of each predictor of f, and of each guard after these: a number, and an array or -1
    offsets: Vector
    arrays_of_offsets: Index
    ends: Index  # (P,): up to which summand they go
    # (S, 5): an array of coefficients or -1; the first coordinate, and how many neighbours; the array of
    # numbers that multiply these, or -1 for ones; that of look-ups, or -1
    summands: npt.NDArray[np.int64]
    factors: Vector  # (S,): multiply the coefficients
    # Arrays of the derivatives at the center by predictors, then of second ones by j <= k, if there are any
    slopes: Index
    # (P, BLOCK): predictors at the center; what the new state and the old one add; and their sums
    center: Array
    new: Array
    old: Array
    eta: Array
    numbers: Array  # (n_data, BLOCK)
    value: Vector  # (BLOCK,)


class Remainders(NamedTuple):
    """The rows of all terms."""

    center: Vector  # (D,): about which they are expanded
    # (D,): the new state and the old one from there
    new: Vector
    old: Vector
    ends: Index  # (T,): rows up to the end of each term
    programs: Index  # (T,): where the record of each is


class Summand(NamedTuple):
    """A summand of a predictor: a factor times coefficients times coordinates."""

    factor: float
    coefficients: Numbers | None  # (n,)
    first: int
    length: int
    values: Numbers | None = None  # (n, length)
    lookup: Numbers | None = None  # (n,): which of the coordinates


class Predictor(NamedTuple):
    """A predictor, or a guard."""

    offset: float
    offsets: Numbers | None  # (n,): are added
    summands: tuple[Summand, ...]


class RemainderRows:
    """The rows of a term as compiled code has them, with the arrays that they read and room to work in.

    Parameters
    ----------
    n_rows : int
    expression : Expression
        f.
    data : sequence of ndarray (n,)
        The columns that f reads.
    predictors, guards : sequence of Predictor
        Where a guard is not above zero the row is minus infinity; one that is always zero allows the row.
    slopes : ndarray (k, n)
        Derivatives of the rows at the center by the predictors, first and perhaps second ones.
    center : ndarray (D,)
        Where the rows are expanded.
    """

    def __init__(
        self,
        n_rows: int,
        expression: Expression,
        data: Sequence[Numbers],
        predictors: Sequence[Predictor],
        guards: Sequence[Predictor],
        slopes: Array,
        center: Vector,
    ) -> None:
        self._given = n_rows, expression, data, predictors, guards, slopes, center
        self.n_rows, self.center = n_rows, center
        self._arrays: list[Numbers] = []
        both = (*predictors, *guards)
        summands = [one for each in both for one in each.summands]
        tape, room = tape_of(_moving_part(expression), len(predictors), 0), (len(both), BLOCK)
        record = Program(
            tape,
            points_for(tape),
            Columns(*np.zeros((3, 0), np.int64)),
            self._places(data),
            len(predictors),
            np.array([one.offset for one in both]),
            self._places(one.offsets for one in both),
            np.cumsum([len(one.summands) for one in both]),
            np.array([self._summand(one) for one in summands], dtype=np.int64).reshape(-1, 5),
            np.array([one.factor for one in summands]),
            self._places(slopes),
            np.zeros(room),
            np.zeros(room),
            np.zeros(room),
            np.zeros(room),
            np.zeros((len(data), BLOCK)),
            np.zeros(BLOCK),
        )
        self.record = Packed(record._replace(columns=self._columns()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Made again elsewhere: the record has addresses."""
        return RemainderRows, self._given

    def _places(self, arrays: Iterable[Numbers | None]) -> Index:
        return np.array([self._place(one) for one in arrays], dtype=np.int64)

    def _place(self, array: Numbers | None) -> int:
        """The number of an array, -1 for none. What is of another type than those that are read is copied."""
        if array is None:
            return -1
        self._arrays.append(array if array.dtype.name in _TYPES else array.astype(np.float64))
        return len(self._arrays) - 1

    def _summand(self, one: Summand) -> tuple[int, ...]:
        arrays = map(self._place, (one.coefficients, one.values, one.lookup))
        coefficients, values, lookup = arrays
        return coefficients, one.first, one.length, values, lookup

    def _columns(self) -> Columns:
        return Columns(
            np.array([one.ctypes.data for one in self._arrays], dtype=np.int64),
            np.array([(*one.strides, 0)[:2] for one in self._arrays], dtype=np.int64).reshape(-1, 2),
            np.array([_TYPES.index(one.dtype.name) for one in self._arrays], dtype=np.int64),
        )


def _moving_part(root: Expression) -> Expression:
    """An expression without summands that are the same at all states."""
    if root.op != "sum":
        return root
    _, factors = cast(tuple[float, tuple[float, ...]], root.value)
    kept = [(arg, c) for arg, c in zip(root.args, factors, strict=True) if arg.moves]
    if not kept:
        return constant(0.0)
    return node("sum", tuple(arg for arg, _ in kept), (0.0, tuple(c for _, c in kept)))


class RemaindersOfTerms:
    """The rows of all terms, one term after the other, as compiled code has them."""

    def __init__(self, terms: Sequence[RemainderRows]) -> None:
        self._terms, center = terms, np.ascontiguousarray(terms[0].center, dtype=np.float64)
        ends = np.cumsum([one.n_rows for one in terms])
        programs = np.array([one.record.address for one in terms], dtype=np.int64)
        self.record = Packed(Remainders(center, np.zeros(len(center)), np.zeros(len(center)), ends, programs))

    def __reduce__(self) -> tuple[Any, ...]:
        return RemaindersOfTerms, (self._terms,)


# In compiled code ---------------------------------------------------------------------------------


def _prototype() -> Program:
    """A record of the type that all have."""
    columns, nothing, no_numbers = Columns(*_NONE), np.zeros(0, np.int64), np.zeros((0, BLOCK))
    tape = tape_of(constant(0.0), 1, 0)
    points = Points(np.zeros((0, 0, 0)), np.zeros((0, 0), np.bool_), np.zeros((0, 0)), 0, 0)
    return Program(
        tape, points, columns, nothing, 0, np.zeros(0), nothing, nothing, np.zeros((0, 5), np.int64),
        np.zeros(0), nothing, no_numbers, no_numbers, no_numbers, no_numbers, no_numbers, np.zeros(0),
    )  # fmt: skip


_NONE = (np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros(0, np.int64))
_program_at = record_at(kind_of(_prototype()))
rows_at = record_at(kind_of(Remainders(np.zeros(0), np.zeros(0), np.zeros(0), _NONE[0], _NONE[0])))


@inner
def log_ratios(rows: Remainders, q_new: Vector, q: Vector, index: Index) -> Vector:
    """Changes of the remainders of rows of the population from q to q_new."""
    n = index.shape[0]
    result = np.empty(n)
    for k in range(q.shape[0]):
        rows.new[k], rows.old[k] = q_new[k] - rows.center[k], q[k] - rows.center[k]
    start = 0
    while start < n:
        term, first = 0, 0
        while index[start] >= rows.ends[term]:
            first = rows.ends[term]
            term += 1
        stop = start + 1
        while stop < min(n, start + BLOCK) and first <= index[stop] < rows.ends[term]:
            stop += 1
        _write(_program_at(rows.programs[term]), rows, index[start:stop], first, result[start:stop])
        start = stop
    return result


@inner
def _write(own: Program, rows: Remainders, index: Index, first: int, result: Vector) -> None:
    """Changes of the remainders of some rows of a term, whose first is number `first` of the population."""
    m, begin = index.shape[0], 0
    for j in range(own.ends.shape[0]):
        array = own.arrays_of_offsets[j]
        for lane in range(m):
            own.center[j, lane], own.new[j, lane], own.old[j, lane] = own.offsets[j], 0.0, 0.0
            if array >= 0:
                own.center[j, lane] += _number(own.columns, array, index[lane] - first, 0)
        for s in range(begin, own.ends[j]):
            _add_summand(own, s, j, rows, index, first)
        begin = own.ends[j]
    for k in range(own.data.shape[0]):
        for lane in range(m):
            own.numbers[k, lane] = _number(own.columns, own.data[k], index[lane] - first, 0)
    _run(own, own.new, m)
    for lane in range(m):
        own.value[lane] = own.points.coefficients[own.tape.root, 0, lane]
    _run(own, own.old, m)
    for lane in range(m):
        there, here = own.value[lane], own.points.coefficients[own.tape.root, 0, lane]
        if not _is_allowed(own, own.new, lane):
            there = -math.inf
        if not _is_allowed(own, own.old, lane):
            here = -math.inf
        result[lane] = there - here - _polynomial(own, index[lane] - first, lane)


@inner
def _run(own: Program, moves: Array, m: int) -> None:
    """F at the predictors of m rows, moved from the center."""
    for j in range(own.n_predictors):
        for lane in range(m):
            own.eta[j, lane] = own.center[j, lane] + moves[j, lane]
    run_at_points(own.tape, own.eta, own.numbers, 0, m, own.points)


@inner
def _is_allowed(own: Program, moves: Array, lane: int) -> bool:
    """Are all guards of a row above zero?"""
    for j in range(own.n_predictors, own.ends.shape[0]):
        center, move = own.center[j, lane], moves[j, lane]
        if not center + move > 0.0 and not (center == 0.0 and move == 0.0):
            return False
    return True


@inner
def _polynomial(own: Program, i: int, lane: int) -> float:
    """The change of a row's Taylor polynomial."""
    p, place, total = own.n_predictors, own.n_predictors, 0.0
    for j in range(p):
        t, s = own.new[j, lane], own.old[j, lane]
        total += _number(own.columns, own.slopes[j], i, 0) * (t - s)
        if own.slopes.shape[0] > p:
            total += 0.5 * _number(own.columns, own.slopes[place], i, 0) * (t - s) * (t + s)
            for k in range(j + 1, p):
                slope = _number(own.columns, own.slopes[place + k - j], i, 0)
                total += slope * (t * own.new[k, lane] - s * own.old[k, lane])
            place += p - j
    return total


@inner
def _add_summand(own: Program, s: int, j: int, rows: Remainders, index: Index, first: int) -> None:
    """Add a summand of a predictor to what it is at the center, and to what the states add."""
    columns, center, new, old = own.columns, rows.center, rows.new, rows.old
    coefficients, where, length = own.summands[s, 0], own.summands[s, 1], own.summands[s, 2]
    values, lookup = own.summands[s, 3], own.summands[s, 4]
    is_double = values >= 0 and columns.codes[values] == 0
    for lane in range(index.shape[0]):
        i, factor = index[lane] - first, own.factors[s]
        if coefficients >= 0:
            factor *= _number(columns, coefficients, i, 0)
        at, t, u = 0.0, 0.0, 0.0
        if lookup >= 0:
            k = int(_number(columns, lookup, i, 0))
            k = k + length if k < 0 else k
            if k < 0 or k >= length:
                raise IndexError("a row looks up a coordinate that there is not")
            at, t, u = center[where + k], new[where + k], old[where + k]
        elif values < 0:
            at = 1.0 if length == 0 else 0.0
            for k in range(where, where + length):
                at, t, u = at + center[k], t + new[k], u + old[k]
        elif is_double:
            address = columns.addresses[values] + i * columns.strides[values, 0]
            for k in range(length):
                x = number_at(address + k * columns.strides[values, 1], 0)
                at, t, u = at + x * center[where + k], t + x * new[where + k], u + x * old[where + k]
        else:
            for k in range(length):
                x = _number(columns, values, i, k)
                at, t, u = at + x * center[where + k], t + x * new[where + k], u + x * old[where + k]
        own.center[j, lane] += factor * at
        own.new[j, lane] += factor * t
        own.old[j, lane] += factor * u


@inner
def _number(columns: Columns, array: int, i: int, k: int) -> float:
    """Number k of row i of an array."""
    strides, code = columns.strides, columns.codes[array]
    found: float = number_at(columns.addresses[array] + i * strides[array, 0] + k * strides[array, 1], code)
    return found
