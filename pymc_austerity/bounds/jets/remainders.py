"""Rows as kernels call them: they are data, which the machine at points runs.

Rows are log ratios of Taylor remainders, or a global part of the log density, taken apart. A row reads
numbers where the model has them, in arrays of any type. Each predictor is an offset and summands: numbers
of the row times coordinates of the block, or a coordinate that the row looks up. Nothing is compiled for a
model.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from numba.core import types

from pymc_austerity.bounds.expressions.node import Expression, constant, node
from pymc_austerity.bounds.jets.compiled import at_address, entry, inner
from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for, run_at_points
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.packed import NUMBERS, Packed, address_of, caller, kind_of, number_at, record_at
from pymc_austerity.target import Array, Expansion, Index, Matrix, Vector

Numbers = npt.NDArray[Any]
# Types of numbers that are read where they are, in the order of their codes.
_TYPES = tuple(NUMBERS)
# Rows that are computed together, at two states.
_ROWS = BLOCK // 2


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
    # Arrays of the derivatives at the center by predictors, then of second ones by j <= k; or there are none
    slopes: Index
    # (P, BLOCK): predictors at the center, what the new states add and, after these, the old ones, and sums
    center: Array
    moves: Array
    eta: Array
    numbers: Array  # (n_data, BLOCK)


class Remainders(NamedTuple):
    """The rows of all terms."""

    center: Vector  # (D,): about which they are expanded
    # (D,): the new state and the old one from there
    new: Vector
    old: Vector
    ends: Index  # (T,): rows up to the end of each term
    programs: Index  # (T,): where the record of each is
    # Where the machine code of `_write_changes` is, or of `_differentiate` if rows are differentiated
    machine: int
    # (_ROWS,): 0, 1, 2, ...; and whether no term has more rows than that
    lanes: Index
    are_few: bool


class GlobalPart(NamedTuple):
    """The global part of a log density: rows, and the sum of the polynomials of local terms."""

    rows: Remainders
    every: Index  # (n,): numbers of all rows
    values: Vector  # (n,): room
    ones: Vector  # (n,)
    # Of the polynomial, in features of the block if there are any; empty without one
    center: Vector
    gradient: Vector
    hessian: Matrix  # (0, 0) if it is linear


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
        Derivatives of the rows at the center by the predictors, first and perhaps second ones; k is zero for
        rows themselves, in place of their remainders.
    center : ndarray (D,)
        Where the rows are expanded.
    order : int, default 0
        1 for rows that are differentiated, of which all summands are kept.
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
        order: int = 0,
    ) -> None:
        self._given = n_rows, expression, data, predictors, guards, slopes, center
        self.order = order
        self.n_rows, self.center = n_rows, center
        self._arrays: list[Numbers] = []
        both = (*predictors, *guards)
        summands = [one for each in both for one in each.summands]
        program = expression if order else _moving_part(expression)
        tape, room = tape_of(program, len(predictors), order), (len(both), BLOCK)
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
            np.zeros((len(data), BLOCK)),
        )
        self.record = Packed(record._replace(columns=self._columns()), self._arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        """Made again elsewhere: the record has addresses."""
        return RemainderRows, (*self._given, self.order)

    def differentiated(self) -> "RemainderRows":
        """Rows whose program has first derivatives by the predictors, too."""
        return RemainderRows(*self._given, order=1)

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


class RowsOfTerms:
    """The rows of some terms, one term after the other, as compiled code has them.

    Parameters
    ----------
    terms : sequence of RemainderRows
        About one center, or none.
    n_dim : int
        D, the coordinates of a state.
    """

    def __init__(self, terms: Sequence[RemainderRows], n_dim: int) -> None:
        self.terms, self._n_dim = terms, n_dim
        self.record = Packed(_of_terms(terms, n_dim), terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowsOfTerms, (self.terms, self._n_dim)

    def __call__(self, q: Vector) -> Vector:
        """Values of all rows at q, if they are differentiated."""
        found: Vector = _all_values(self.record, np.ascontiguousarray(q, np.float64))
        return found


class GlobalRows:
    """The global part of a log density, as compiled code has it.

    Parameters
    ----------
    terms : sequence of RemainderRows
        Without slopes, expanded about zero.
    n_dim : int
        D.
    polynomial : Expansion or None
        The sum of the polynomials of local terms.
    """

    def __init__(self, terms: Sequence[RemainderRows], n_dim: int, polynomial: Expansion | None) -> None:
        self._given, rows = (terms, n_dim, polynomial), _of_terms(terms, n_dim)
        n = sum(one.n_rows for one in terms)
        center, gradient, hessian = np.zeros(0), np.zeros(0), np.zeros((0, 0))
        if polynomial is not None:
            center, gradient = (np.ascontiguousarray(x, np.float64) for x in polynomial[1:3])
            if polynomial.order == 2:
                hessian = np.ascontiguousarray(polynomial.hessian, np.float64)
        own = GlobalPart(rows, np.arange(n), np.zeros(n), np.ones(n), center, gradient, hessian)
        self.record = Packed(own, terms)

    def __reduce__(self) -> tuple[Any, ...]:
        return GlobalRows, self._given

    def differentiated(self) -> "GlobalRows":
        """A global part whose rows have derivatives, as `global_gradient` needs them."""
        terms, n_dim, polynomial = self._given
        return GlobalRows([one.differentiated() for one in terms], n_dim, polynomial)

    def without_polynomial(self) -> RowsOfTerms:
        """The global terms without the polynomial, row by row."""
        terms, n_dim, _ = self._given
        return RowsOfTerms([one.differentiated() for one in terms], n_dim)


def _of_terms(terms: Sequence[RemainderRows], n_dim: int) -> Remainders:
    """The record of all terms, with the machine that runs them."""
    are_differentiated = bool(terms) and terms[0].order == 1
    code, kind = (_differentiate, _OF_DIFFERENTIATE) if are_differentiated else (_write_changes, _OF_CHANGES)
    ends = np.cumsum([one.n_rows for one in terms], dtype=np.int64)
    programs = np.array([one.record.address for one in terms], dtype=np.int64)
    center = np.ascontiguousarray(terms[0].center if terms else np.zeros(n_dim), np.float64)
    machine = address_of(code, kind)
    are_few = all(one.n_rows <= _ROWS for one in terms)
    new, old = np.zeros(len(center)), np.zeros(len(center))
    return Remainders(center, new, old, ends, programs, machine, np.arange(_ROWS), are_few)


# In compiled code ---------------------------------------------------------------------------------


def _prototype() -> Program:
    """A record of the type that all have."""
    columns, nothing, no_numbers = Columns(*_NONE), np.zeros(0, np.int64), np.zeros((0, BLOCK))
    tape = tape_of(constant(0.0), 1, 0)
    points = Points(np.zeros((0, 0, 0)), np.zeros((0, 0), np.bool_), np.zeros((0, 0)), 0, 0)
    return Program(
        tape, points, columns, nothing, 0, np.zeros(0), nothing, nothing, np.zeros((0, 5), np.int64),
        np.zeros(0), nothing, no_numbers, no_numbers, no_numbers, no_numbers,
    )  # fmt: skip


_NONE = (np.zeros(0, np.int64), np.zeros((0, 2), np.int64), np.zeros(0, np.int64))
_NO_ROWS = Remainders(np.zeros(0), np.zeros(0), np.zeros(0), _NONE[0], _NONE[0], 0, _NONE[0], True)
_program_at = record_at(kind_of(_prototype()))
rows_at = record_at(kind_of(_NO_ROWS))
global_part_at = record_at(
    kind_of(GlobalPart(_NO_ROWS, _NONE[0], *[np.zeros(0)] * 4, np.zeros((0, 0))))  # type: ignore[call-arg]
)
_VECTOR = types.Array(types.float64, 1, "C")
_OF_CHANGES = types.void(kind_of(_NO_ROWS), _VECTOR, _VECTOR, types.Array(types.int64, 1, "C"), _VECTOR)
_OF_DIFFERENTIATE = types.void(kind_of(_NO_ROWS), _VECTOR, _VECTOR, _VECTOR, _VECTOR, types.boolean)
_call_changes, _call_differentiate = caller(_OF_CHANGES), caller(_OF_DIFFERENTIATE)


@inner
def log_ratios(rows: Remainders, q_new: Vector, q: Vector, index: Index) -> Vector:
    """Changes of the remainders of rows of the population from q to q_new."""
    result = np.empty(index.shape[0])
    _call_changes(rows.machine, (rows, q_new, q, index, result))
    return result


@inner
def global_log_ratio(own: GlobalPart, q_new: Vector, q: Vector, phi_new: Vector, phi: Vector) -> float:
    """The change of the global part; phi are the features of both states, or the states themselves."""
    total, n = 0.0, own.every.shape[0]
    if n > 0:
        _call_changes(own.rows.machine, (own.rows, q_new, q, own.every, own.values))
        for i in range(n):
            total += own.values[i]
    for j in range(own.gradient.shape[0]):
        total += 0.5 * (_slope(own, j, phi_new) + _slope(own, j, phi)) * (phi_new[j] - phi[j])
    return total


@inner
def global_gradient(own: GlobalPart, q: Vector, phi: Vector, features: int) -> Vector:
    """The gradient of the global part; `features` is where rows of features are, zero if phi is q."""
    result, n, p = np.zeros(q.shape[0]), own.every.shape[0], own.gradient.shape[0]
    if n > 0:
        _call_differentiate(own.rows.machine, (own.rows, q, own.values, own.ones, result, True))
    if features == 0:
        for j in range(p):
            result[j] += _slope(own, j, phi)
    elif p > 0:
        slopes, rows = np.empty(p), rows_at(features)
        for j in range(p):
            slopes[j] = _slope(own, j, phi)
        # The machine has run at q, and left slopes there, unless other rows have taken the room.
        _call_differentiate(rows.machine, (rows, q, phi, slopes, result, not rows.are_few))
    return result


@inner
def _slope(own: GlobalPart, j: int, phi: Vector) -> float:
    """The derivative of the polynomial by feature j."""
    total: float = own.gradient[j]
    for k in range(own.hessian.shape[0]):
        total += own.hessian[j, k] * (phi[k] - own.center[k])
    return total


@inner
def features_of(rows: Remainders, q: Vector) -> Vector:
    """Values of all rows."""
    n_terms = rows.ends.shape[0]
    values = np.empty(rows.ends[n_terms - 1] if n_terms > 0 else 0)
    if n_terms > 0:
        _call_differentiate(rows.machine, (rows, q, values, values[:0], values[:0], True))
    return values


@entry
def _all_values(rows: Any, q: Vector) -> Any:
    """Values of all rows, for Python."""
    return features_of(rows, q)


@at_address
def _write_changes(rows: Remainders, q_new: Vector, q: Vector, index: Index, result: Vector) -> None:
    """Write the changes of the remainders of rows; other functions call it at its address."""
    _place(rows, q_new, q)
    start = 0
    while start < index.shape[0]:
        term, first, stop = _neighbours(rows, index, start)
        own, some = _program_at(rows.programs[term]), index[start:stop]
        m = some.shape[0]
        _read(own, rows, some, first, 2)
        run_at_points(own.tape, own.eta, own.numbers, 0, 2 * m, own.points)
        for lane in range(m):
            change = _value(own, lane, lane) - _value(own, lane, m + lane)
            result[start + lane] = change - _polynomial(own, some[lane] - first, lane, m)
        start = stop


@at_address
def _differentiate(
    rows: Remainders, q: Vector, values: Vector, weights: Vector, gradient: Vector, runs: bool
) -> None:
    """Write the values of all rows, and add their gradients, times weights, if there are any.

    Without `runs`, values and derivatives are what they were when this was called last.
    """
    if runs:
        _place(rows, q, q)
    first = 0
    for term in range(rows.ends.shape[0]):
        own, n = _program_at(rows.programs[term]), rows.ends[term] - first
        for start in range(0, n, _ROWS):
            m, at = min(_ROWS, n - start), first + start
            index = rows.lanes[:m]
            if runs:
                _read(own, rows, index, -start, 1)
                run_at_points(own.tape, own.eta, own.numbers, 0, m, own.points)
                for lane in range(m):
                    values[at + lane] = _value(own, lane, lane)
            begin = 0
            for j in range(own.n_predictors if weights.shape[0] > 0 else 0):
                for s in range(begin, own.ends[j]):
                    _add_slopes(own, s, j, index, -start, weights[at : at + m], gradient)
                begin = own.ends[j]
        first = rows.ends[term]


@inner
def _place(rows: Remainders, q_new: Vector, q: Vector) -> None:
    """Tell how far two states are from the center."""
    for k in range(q.shape[0]):
        rows.new[k], rows.old[k] = q_new[k] - rows.center[k], q[k] - rows.center[k]


@inner
def _neighbours(rows: Remainders, index: Index, start: int) -> tuple[int, int, int]:
    """The term of a position, the first row of it, and how far positions of the same term go, at most."""
    term, first = 0, 0
    while index[start] >= rows.ends[term]:
        first = rows.ends[term]
        term += 1
    stop = start + 1
    while stop < min(index.shape[0], start + _ROWS) and first <= index[stop] < rows.ends[term]:
        stop += 1
    return term, first, stop


@inner
def _read(own: Program, rows: Remainders, index: Index, first: int, n_states: int) -> None:
    """Read some rows of a term, whose first is number `first` of the population, at one state or two."""
    m, begin = index.shape[0], 0
    for j in range(own.ends.shape[0]):
        array = own.arrays_of_offsets[j]
        for lane in range(m):
            own.center[j, lane], own.moves[j, lane], own.moves[j, m + lane] = own.offsets[j], 0.0, 0.0
            if array >= 0:
                own.center[j, lane] += _number(own.columns, array, index[lane] - first, 0)
        for s in range(begin, own.ends[j]):
            _add_summand(own, s, j, rows, index, first)
        begin = own.ends[j]
        for k in range(n_states):
            for lane in range(m):
                own.eta[j, k * m + lane] = own.center[j, lane] + own.moves[j, k * m + lane]
    for d in range(own.data.shape[0]):
        for lane in range(m):
            x = _number(own.columns, own.data[d], index[lane] - first, 0)
            for k in range(n_states):
                own.numbers[d, k * m + lane] = x


@inner
def _value(own: Program, lane: int, of_state: int) -> float:
    """The value of a row at a state."""
    value: float = own.points.coefficients[own.tape.root, 0, of_state]
    return value if _is_allowed(own, lane, of_state) else -math.inf


@inner
def _is_allowed(own: Program, lane: int, of_state: int) -> bool:
    """Are all guards of a row above zero at a state?"""
    for j in range(own.n_predictors, own.ends.shape[0]):
        center, move = own.center[j, lane], own.moves[j, of_state]
        if not center + move > 0.0 and not (center == 0.0 and move == 0.0):
            return False
    return True


@inner
def _polynomial(own: Program, i: int, lane: int, m: int) -> float:
    """The change of a row's Taylor polynomial."""
    p, place, total = own.n_predictors, own.n_predictors, 0.0
    for j in range(p if own.slopes.shape[0] > 0 else 0):
        t, s = own.moves[j, lane], own.moves[j, m + lane]
        total += _number(own.columns, own.slopes[j], i, 0) * (t - s)
        if own.slopes.shape[0] > p:
            total += 0.5 * _number(own.columns, own.slopes[place], i, 0) * (t - s) * (t + s)
            for k in range(j + 1, p):
                slope = _number(own.columns, own.slopes[place + k - j], i, 0)
                total += slope * (t * own.moves[k, lane] - s * own.moves[k, m + lane])
            place += p - j
    return total


@inner
def _add_summand(own: Program, s: int, j: int, rows: Remainders, index: Index, first: int) -> None:
    """Add a summand of a predictor to what it is at the center, and to what the states add."""
    columns, center, new, old = own.columns, rows.center, rows.new, rows.old
    coefficients, where, length = own.summands[s, 0], own.summands[s, 1], own.summands[s, 2]
    values, lookup = own.summands[s, 3], own.summands[s, 4]
    is_double, m = values >= 0 and columns.codes[values] == 0, index.shape[0]
    for lane in range(m):
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
        own.moves[j, lane] += factor * t
        own.moves[j, m + lane] += factor * u


@inner
def _add_slopes(
    own: Program, s: int, j: int, index: Index, first: int, weights: Vector, gradient: Vector
) -> None:
    """Add derivatives of rows by predictor j, through a summand of it, to their gradient by the state."""
    coefficients, where, length = own.summands[s, 0], own.summands[s, 1], own.summands[s, 2]
    values, lookup = own.summands[s, 3], own.summands[s, 4]
    for lane in range(index.shape[0]):
        i, slope = index[lane] - first, own.points.coefficients[own.tape.root, 1 + j, lane]
        slope *= weights[lane] * own.factors[s]
        if coefficients >= 0:
            slope *= _number(own.columns, coefficients, i, 0)
        if lookup >= 0:
            k = int(_number(own.columns, lookup, i, 0))
            gradient[where + (k + length if k < 0 else k)] += slope
        else:
            for k in range(length):
                gradient[where + k] += slope * (1.0 if values < 0 else _number(own.columns, values, i, k))


@inner
def _number(columns: Columns, array: int, i: int, k: int) -> float:
    """Number k of row i of an array."""
    strides, code = columns.strides, columns.codes[array]
    found: float = number_at(columns.addresses[array] + i * strides[array, 0] + k * strides[array, 1], code)
    return found
