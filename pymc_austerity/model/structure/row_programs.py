"""The rows of a term as data that the machine at points runs: what they read, and where it stands."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression
from pymc_austerity.bounds.jets.remainders import (
    GlobalRows,
    Numbers,
    Predictor,
    RemainderRows,
    RowsOfTerms,
    Summand,
)
from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.model.factorisation import Factorisation, LocalTerm, block_of, some_rows
from pymc_austerity.model.structure.data_of_rows import DataOfRows
from pymc_austerity.model.structure.global_terms import of_features
from pymc_austerity.model.structure.parts import Part
from pymc_austerity.model.structure.row_data import Columns
from pymc_austerity.model.structure.row_functions import Guards, PredictorRows
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import Index, Vector

# Numbers a row that are stored, where they cannot be read from the data of the model.
_MOST_STORED = 24


class _Elsewhere(Exception):  # noqa: N818 - it is caught: PyTensor computes the rows then
    """Rows of which too much would have to be stored."""


def remainder_rows(
    fact: Factorisation, term: LocalTerm, function: RowFunction, slopes: np.ndarray, center: Vector
) -> RemainderRows | None:
    """The remainders of a term; None if too many numbers would be stored, or guards are not strict.

    Parameters
    ----------
    fact : Factorisation
    term : LocalTerm
    function : RowFunction
        That of the term, which no other step moves.
    slopes : ndarray (k, n)
        Its derivatives by the predictors at the center, first and perhaps second ones.
    center : ndarray (D,)
    """
    reader = _Reader(fact, term)
    if isinstance(function.guards, Guards) and not function.guards.are_strict:
        return None
    try:
        data = reader.columns(function.data)
        predictors = reader.predictors(function.rows)
        guards = [] if function.guards is None else reader.predictors(function.guards)
    except _Elsewhere:
        return None
    return RemainderRows(term.size, function.expression, data, predictors, guards, slopes, center)


def global_rows(fact: Factorisation, structure: TermStructure) -> GlobalRows | None:
    """The global terms as data that compiled code runs; None if PyTensor has to compile one of them.

    Parameters
    ----------
    fact : Factorisation
    structure : TermStructure
        Of its global terms.
    """
    programs = _programs(structure)
    return None if programs is None else GlobalRows(programs, _n_dim(fact), fact.polynomial)


def feature_rows(fact: Factorisation, sources: Iterable[Variable]) -> RowsOfTerms | None:
    """The numbers of some graphs as data that compiled code runs; None if PyTensor has to compile one."""
    own = of_features(fact, sources)
    structure = None if own is None else TermStructure(own, most_features=0, everywhere=True)
    programs = None if structure is None else _programs(structure)
    if programs is None or any(one.record.ends.shape[0] > one.record.n_predictors for one in programs):
        return None  # with a guard, a value that is none would be minus infinity
    return RowsOfTerms([one.differentiated() for one in programs], _n_dim(fact))


def _programs(structure: TermStructure) -> list[RemainderRows] | None:
    """The rows of all terms themselves; None if one of them is no data."""
    fact, programs = structure.factorisation, []
    for k, term in enumerate(fact.locals):
        if not structure.is_function_of_block(k):
            return None
        no_slopes, center = np.zeros((0, term.size)), np.zeros(_n_dim(fact))
        program = remainder_rows(fact, term, structure.row_function(k), no_slopes, center)
        if program is None:
            return None
        programs.append(program)
    return programs


def _n_dim(fact: Factorisation) -> int:
    return sum(math.prod(var.type.shape) for var in block_of(fact))


def _column(columns: Columns, number: int, positions: Index) -> Vector:
    return columns(positions)[number]


class _Reader:
    """Finds arrays of the model, and computes what is not in one."""

    def __init__(self, fact: Factorisation, term: LocalTerm) -> None:
        self._fact, self._term, self._n_stored = fact, term, 0

    def columns(self, columns: Any) -> list[Numbers]:
        """Columns of data, each (n,)."""
        assert isinstance(columns, Columns)
        result = []
        for number, column in enumerate(columns.columns):
            array = self._stored(columns.values.variables[column.variable])
            if array is None or array.ndim not in (1, 2) or column.part != "all":
                result.append(self._computed(partial(_column, columns, number)))
            else:
                result.append(array if array.ndim == 1 else array[:, min(column.element, array.shape[1] - 1)])
        return result

    def predictors(self, rows: Any) -> list[Predictor]:
        """All predictors of a term, or its guards."""
        rows = rows.rows if isinstance(rows, Guards) else rows
        assert isinstance(rows, PredictorRows)
        numbers, columns = rows.numbers
        data = dict(zip(numbers, self.columns(columns), strict=True))
        result = []
        for j, (offset, terms) in enumerate(rows.summands()):
            if any(parts is None for _, parts in terms):
                result.append(self._whole(rows, j))
                continue
            number, array = self._of_expression(offset, data)
            summands = [self._part(by, part, data) for by, parts in terms for part in parts or ()]
            result.append(Predictor(number, array, tuple(one for several in summands for one in several)))
        return result

    def _whole(self, rows: PredictorRows, j: int) -> Predictor:
        """A predictor of which all coefficients are stored."""
        found = self._computed(lambda some: rows(some)[:, j], rows.n_dim + 1)
        return Predictor(0.0, found[:, -1], (Summand(1.0, None, 0, rows.n_dim, found[:, :-1]),))

    def _of_expression(self, one: Expression, data: dict[int, Numbers]) -> tuple[float, Numbers | None]:
        """A number that is the same in all rows, or zero and an array of one for each row."""
        if one.op == "constant":
            return float(one.value), None  # type: ignore[arg-type]
        if one.op == "data":
            return 0.0, data[one.value]  # type: ignore[index]
        columns = {k: np.asarray(array, dtype=np.float64) for k, array in data.items()}
        return 0.0, self._computed(lambda some: evaluate(one, [], {k: x[some] for k, x in columns.items()}))

    def _part(self, by: Expression, part: Part, data: dict[int, Numbers]) -> list[Summand]:
        """A part of a predictor, times a number of the row; one summand for each run of neighbours."""
        number, array = self._of_expression(by, data)
        factor, arrays = part.sign * (number if array is None else 1.0), [] if array is None else [array]
        for var in part.factors:
            stored = self._stored(var)
            if stored is not None and stored.ndim == 0:
                factor *= float(stored)
            else:
                arrays.append(self._numbers(var, 1)[:, 0])
        coefficients = self._product(arrays)
        if part.places is None:
            return [Summand(factor, coefficients, 0, 0)]
        places = part.places
        if part.lookup is not None:
            lookup, first = self._numbers(part.lookup, 1, np.int64)[:, 0], int(places[0])
            if np.array_equal(places, np.arange(first, first + len(places))):
                return [Summand(factor, coefficients, first, len(places), None, lookup)]
            own = self._computed(lambda some: places[lookup[some]], dtype=np.int64)
            return [Summand(factor, coefficients, 0, int(places.max()) + 1, None, own)]
        values = None if part.values is None else self._numbers(part.values, len(places))
        cuts = [0, *(np.flatnonzero(np.diff(places) != 1) + 1), len(places)]
        return [
            Summand(factor, coefficients, int(places[a]), b - a, None if values is None else values[:, a:b])
            for a, b in pairwise(cuts)
        ]

    def _product(self, arrays: Sequence[Numbers]) -> Numbers | None:
        """A product of columns; None of none."""
        if len(arrays) < 2:
            return arrays[0] if arrays else None
        return self._computed(lambda some: np.prod([x[some].astype(np.float64) for x in arrays], axis=0))

    def _stored(self, var: Variable) -> Numbers | None:
        """The array of the model that a variable has the rows of, or its one number."""
        return DataOfRows(self._fact, self._term, [var]).stored.get(var)

    def _numbers(self, var: Variable, width: int, dtype: type = np.float64) -> Numbers:
        """A variable in all rows (n, width): where it is, or computed."""
        found, n = self._stored(var), self._term.size
        if found is None:
            data = DataOfRows(self._fact, self._term, [var])
            found = self._computed(lambda some: data(some)[var], width, dtype)
        return np.broadcast_to(found[:, None] if found.ndim == 1 else found, (n, width))

    def _computed(self, of: Callable[[Index], Any], width: int = 1, dtype: type = np.float64) -> Numbers:
        """Numbers that are not in an array of the model, for all rows."""
        self._n_stored += width
        if self._n_stored > _MOST_STORED:
            raise _Elsewhere
        n = self._term.size
        result: Numbers = np.empty((n, width) if width > 1 else n, dtype)
        for some in some_rows(n):
            result[some] = np.broadcast_to(np.reshape(of(some), (-1, *result.shape[1:])), result[some].shape)
        return result
