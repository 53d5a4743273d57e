"""What a row reads besides its predictors: numbers that do not depend on the block, as expressions.

Every number that is not the same in all rows is a column of data, of which the range over all rows is
known. Columns that are equal in all rows are one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pytensor.graph.basic import Variable

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import Expression, constant, data
from pymc_austerity.model.factorisation import Factorisation, LocalTerm, some_rows
from pymc_austerity.model.structure.data_of_rows import DataOfRows
from pymc_austerity.target import Index, Vector

_LOG_2 = math.log(2.0)
# Numbers that a row reads, at most.
MOST_NUMBERS = 500
# Numbers that PyTensor takes of a written one in single precision, by what it makes of them: the branches of
# a normal distribution function would differ by 1e-8 where they meet. That is rounding, and not a kink.
_SQRT_2 = float(np.float32(math.sqrt(2.0)))
_IN_DOUBLE = {_SQRT_2: math.sqrt(2.0), 1.0 / _SQRT_2: math.sqrt(0.5), float(np.float32(_LOG_2)): _LOG_2}
# Whole numbers below this are subtracted exactly.
_WHOLE = 2.0**50


class TooMany(Exception):  # noqa: N818 - it is caught, and becomes an obstacle
    """A row reads more numbers than are looked at."""


class Column(NamedTuple):
    """One number of each row."""

    variable: int  # Number of the variable that holds it
    element: int  # Place of the number among those of a row
    part: str = "all"  # All of it; or whether it is finite, or a finite number in its place

    def of(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Numbers of some rows, from the values (m, k) of all variables."""
        own = values[self.variable]
        one = own[:, min(self.element, own.shape[1] - 1)]
        if self.part == "finite":
            return np.isfinite(one).astype(np.float64)
        return np.where(np.isfinite(one), one, 0.0) if self.part == "filled" else one


class ValuesOfRows:
    """Variables that do not depend on the block, evaluated for some rows.

    Parameters
    ----------
    fact : Factorisation
    term : LocalTerm
    variables : sequence of TensorVariable
    """

    def __init__(self, fact: Factorisation, term: LocalTerm, variables: Sequence[Variable]) -> None:
        self.variables = tuple(variables)
        self._data = DataOfRows(fact, term, variables)

    def __call__(self, positions: Index) -> list[np.ndarray]:
        """Each as an array (m, k), or (1, k) if it is the same for all rows."""
        found = self._data(positions)
        return [_by_rows(var, found[var]) for var in self.variables]


def _by_rows(var: Variable, value: np.ndarray) -> np.ndarray:
    shape = var.type.shape
    if None not in shape:
        return np.reshape(value, (1, -1)).astype(np.float64)
    return np.moveaxis(value, shape.index(None), 0).reshape(value.shape[shape.index(None)], -1).astype(float)


class RowData:
    """Expressions for everything in a graph that does not depend on the block.

    Parameters
    ----------
    fact : Factorisation
    term : LocalTerm
    variables : sequence of TensorVariable
    moved : collection of TensorVariable
        Those that depend on variables of other steps, so that nothing is known of their range.

    Attributes
    ----------
    columns : list of Column
        Those that some expression needed so far.
    moved_columns : set of int
        Those among them that variables of other steps move.

    Raises
    ------
    TooMany
    """

    def __init__(
        self,
        fact: Factorisation,
        term: LocalTerm,
        variables: Sequence[Variable],
        moved: Collection[Variable],
    ) -> None:
        numbers = sum(_size(var) for var in variables if None in var.type.shape or var in moved)
        if numbers > MOST_NUMBERS:
            raise TooMany
        self._fact, self._term, self._moved = fact, term, set(moved)
        self._values = ValuesOfRows(fact, term, variables)
        self.columns: list[Column] = []
        self.moved_columns: set[int] = set()
        self._known: dict[Hashable, int] = {}
        # Columns of whole numbers that differ from another one by the same number in all rows.
        self._shifted: dict[bytes, tuple[tuple[int, int], float]] = {}

    @cached_property
    def _summary(self) -> list[_Summary]:
        """Summary of the numbers that rows have, for each variable."""
        variables = self._values.variables
        is_compared = sum(_size(var) for var in variables if None in var.type.shape) > 1
        result = [_Summary(_size(var), is_compared=is_compared) for var in variables]
        for positions in some_rows(self._term.size):
            for one, value in zip(result, self._values(positions), strict=True):
                one.add(value)
        return result

    def elements(self, var: Variable) -> np.ndarray:
        """The numbers of a row as an array of expressions, whose row axis has length one."""
        number = self._values.variables.index(var)
        shape = tuple(1 if k is None else k for k in var.type.shape)
        result = np.empty(int(np.prod(shape)), dtype=object)
        for k in range(len(result)):
            found = self._element(number, k, var in self._moved)
            result[k] = forms.greater(found, constant(0.0)) if var.type.dtype == "bool" else found
        return result.reshape(shape)

    def _element(self, number: int, k: int, is_moved: bool) -> Expression:
        known = self._summary[number]
        low, high = known.low[k], known.high[k]
        if is_moved:
            column = self._column(Column(number, k), (number, k))
            self.moved_columns.add(column)
            return data(column, -np.inf, np.inf)
        if low == high and not known.has_nan[k]:
            return constant(math.copysign(_IN_DOUBLE.get(abs(low), abs(low)), low))
        key: Hashable = known.digest(k) or (number, k)
        shifted = known.shifted(k)
        if shifted is not None:
            digest, first = shifted
            other, own = self._shifted.setdefault(digest, ((number, k), first))
            if other != (number, k):
                return forms.add(self._element(*other, is_moved=False), constant(first - own))
        if known.has_nan[k] or (np.isfinite(low) and np.isfinite(high)):
            if known.has_nan[k]:
                low, high = -np.inf, np.inf
            nonzero = not known.has_zero[k] and not known.has_nan[k]
            return data(self._column(Column(number, k), key), low, high, nonzero=nonzero)
        # Infinite in some rows: a choice, so that the other rows have finite numbers.
        infinite = constant(low if np.isinf(low) else high)
        if np.isinf(low) and np.isinf(high):
            is_high = forms.greater(data(self._column(Column(number, k), key), low, high), constant(0.0))
            infinite = forms.select(is_high, constant(high), constant(low))
        return forms.select(self._finite(number, k, key), self._filled(number, k, key), infinite)

    def _finite(self, number: int, k: int, key: Hashable) -> Expression:
        is_finite = data(self._column(Column(number, k, "finite"), (key, "finite")), 0.0, 1.0)
        return forms.greater(is_finite, constant(0.0))

    def _filled(self, number: int, k: int, key: Hashable) -> Expression:
        known = self._summary[number]
        low, high = known.finite_low[k], known.finite_high[k]
        if low == high:
            return constant(low)
        return data(self._column(Column(number, k, "filled"), (key, "filled")), min(low, 0.0), max(high, 0.0))

    def _column(self, column: Column, key: Hashable) -> int:
        """Number of a column; of an equal one, if there is one."""
        if key not in self._known:
            self._known[key] = len(self.columns)
            self.columns.append(column)
        return self._known[key]

    def chosen(self, numbers: Sequence[int]) -> Columns:
        """Some of the columns, to be evaluated."""
        columns = [self.columns[k] for k in numbers]
        variables = sorted({column.variable for column in columns})
        renumbered = [column._replace(variable=variables.index(column.variable)) for column in columns]
        own = [self._values.variables[k] for k in variables]
        return Columns(ValuesOfRows(self._fact, self._term, own), renumbered)


@dataclass(frozen=True)
class Columns:
    """Columns of data of a row function."""

    values: ValuesOfRows
    columns: list[Column]

    def __call__(self, positions: Index) -> npt.NDArray[np.float64]:
        """Data of m rows, an array (n_data, m)."""
        result = np.empty((len(self.columns), len(positions)))
        if self.columns:
            values = self.values(positions)
            for k, column in enumerate(self.columns):
                result[k] = column.of(values)
        return result


class _Summary:
    """What is known of the columns of one variable, chunk after chunk.

    Parameters
    ----------
    width : int
        Number of columns.
    is_compared : bool
        Whether there are other columns, which may be equal to these.
    """

    def __init__(self, width: int, *, is_compared: bool) -> None:
        self._is_compared = is_compared
        self._digests = [blake2b(digest_size=16) for _ in range(width)]
        self._shifted = [blake2b(digest_size=16) for _ in range(width)]
        self.first: Vector | None = None
        self.low, self.high = np.full(width, np.inf), np.full(width, -np.inf)
        self.finite_low, self.finite_high = self.low.copy(), self.high.copy()
        self.has_nan, self.has_zero = np.zeros(width, dtype=bool), np.zeros(width, dtype=bool)
        self._is_whole = np.ones(width, dtype=bool)

    def add(self, values: np.ndarray) -> None:
        """Numbers (m, k) of some more rows, or of all at once."""
        if self.first is None:
            self.first = values[0].copy()
        low, high = values.min(axis=0), values.max(axis=0)
        finite_low, finite_high = low, high
        if not np.all(np.isfinite(low) & np.isfinite(high)):
            self.has_nan |= np.isnan(low)
            low = np.fmin.reduce(values, axis=0, initial=np.inf)
            high = np.fmax.reduce(values, axis=0, initial=-np.inf)
            finite = np.isfinite(values)
            finite_low = np.min(values, axis=0, where=finite, initial=np.inf)
            finite_high = np.max(values, axis=0, where=finite, initial=-np.inf)
        self.has_zero |= (values == 0.0).any(axis=0)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        self.finite_low = np.minimum(self.finite_low, finite_low)
        self.finite_high = np.maximum(self.finite_high, finite_high)
        if self._is_compared:
            self._add_digests(values)

    def _add_digests(self, values: np.ndarray) -> None:
        for digest, column in zip(self._digests, values.T, strict=True):
            _add_to(digest, column)
        with np.errstate(invalid="ignore"):
            self._is_whole &= np.all((values == np.rint(values)) & (np.abs(values) < _WHOLE), axis=0)
            for digest, column in zip(self._shifted, (values - self.first).T, strict=True):
                _add_to(digest, column)

    def digest(self, k: int) -> bytes | None:
        """Digest of column k, which equal columns share; None if it is not compared with others."""
        return self._digests[k].digest() if self._is_compared else None

    def shifted(self, k: int) -> tuple[bytes, float] | None:
        """The digest of column k without its first number, and that, if it has whole numbers."""
        if not self._is_compared or not self._is_whole[k] or self.first is None:
            return None
        return self._shifted[k].digest(), float(self.first[k])


def _add_to(digest: Any, column: Vector) -> None:
    """Add numbers to a digest; small whole ones, as are most responses, in an eighth of the time."""
    with np.errstate(invalid="ignore"):
        small = column.astype(np.int8)
    is_small = np.array_equal(small, column)
    digest.update(b"small" if is_small else b"any")
    digest.update(small if is_small else np.ascontiguousarray(column + 0.0))


def _size(var: Variable) -> int:
    return int(np.prod([k for k in var.type.shape if k is not None], dtype=np.int64))
