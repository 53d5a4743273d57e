"""How compiled code reads the rows of a term, where they are stored as they are needed."""

from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable

from pymc_austerity.bounds.row_function import RowFunction
from pymc_austerity.model.compile.remainders import AffineRows, Read, RemainderSource, Summand
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.structure.data_of_rows import leaf_of
from pymc_austerity.model.structure.parts import Part
from pymc_austerity.model.structure.row_data import Columns
from pymc_austerity.model.structure.row_functions import PredictorRows


class _Elsewhere(Exception):  # noqa: N818 - it is caught: PyTensor computes the rows then
    """A number of a row that is not stored."""


def remainder_source(
    fact: Factorisation, term: LocalTerm, function: RowFunction, center: Variable, slopes: list[Variable]
) -> RemainderSource | None:
    """The remainders of a term with a row function; None if not all that they read is stored.

    Parameters
    ----------
    fact : Factorisation
    term : LocalTerm
    function : RowFunction
        That of the term.
    center, slopes : TensorVariable
        Leaves: see `RemainderSource`.
    """
    if function.guards is not None:
        return None
    reader = _Reader(fact, term)
    try:
        return RemainderSource(
            function.expression,
            reader.columns(function.data),
            *reader.predictors(function.rows),
            center,
            tuple(slopes),
        )
    except _Elsewhere:
        return None


class _Reader:
    """Finds the leaves of a term."""

    def __init__(self, fact: Factorisation, term: LocalTerm) -> None:
        self._term, self._leaves = term, {leaf.placeholder for leaf in fact.leaves}

    def columns(self, columns: Any) -> dict[int, Read]:
        """Array and element that each column of data is read from, by number of the column."""
        if not isinstance(columns, Columns):
            raise _Elsewhere
        result = {}
        for number, column in enumerate(columns.columns):
            leaf = self._leaf(columns.values.variables[column.variable])
            if column.part != "all" or leaf.type.ndim > 2:
                raise _Elsewhere
            width = leaf.type.shape[1] if leaf.type.ndim == 2 else None
            result[number] = Read(leaf, None if width is None else min(column.element, width - 1))
        return result

    def predictors(self, rows: Any) -> tuple[tuple[AffineRows, ...], dict[int, Read]]:
        """Predictors, and the columns of data that they multiply."""
        if not isinstance(rows, PredictorRows) or rows.is_moved:
            raise _Elsewhere
        result = []
        for offset, terms in rows.summands():
            if any(parts is None for _, parts in terms):
                raise _Elsewhere
            own = tuple((factor, tuple(map(self._summand, parts or ()))) for factor, parts in terms)
            result.append(AffineRows(offset, own))
        numbers, columns = rows.numbers
        return tuple(result), dict(zip(numbers, self.columns(columns).values(), strict=True))

    def _summand(self, part: Part) -> Summand:
        factors = (part.sign, *map(self._factor, part.factors))
        if part.places is None:
            return Summand(0, 0, None, None, factors)
        first, count = int(part.places[0]), len(part.places)
        if not np.array_equal(part.places, np.arange(first, first + count)):
            raise _Elsewhere
        values = None if part.values is None else self._leaf(part.values)
        lookup = None if part.lookup is None else self._leaf(part.lookup)
        return Summand(first, count, values, lookup, factors)

    def _factor(self, var: Variable) -> Read | float:
        if isinstance(var, Constant) and np.size(var.data) == 1:
            return float(np.ravel(var.data)[0])
        leaf = self._leaf(var)
        if leaf.type.ndim != 1:
            raise _Elsewhere
        return Read(leaf)

    def _leaf(self, var: Variable) -> Variable:
        leaf = leaf_of(self._term, var)
        if leaf is None or leaf not in self._leaves:
            raise _Elsewhere
        return leaf
