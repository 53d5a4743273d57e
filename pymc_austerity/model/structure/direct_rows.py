"""Rows of a design that are read from the data, where the graph of a linear predictor says where they stand.

Predictors of most models are sums of numbers, of columns or matrices of data times coefficients, and of
coefficients that are looked up, as in ``a + X @ b + u[group]``. Their rows are copied from the arrays of the
model: nothing is computed, and an array on disk is read where it lies.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor

from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.structure.data_of_rows import DataOfRows, neighbours
from pymc_austerity.model.structure.operations import VIEWS, core_of
from pymc_austerity.model.structure.parts import Coordinates, Part, Places
from pymc_austerity.model.structure.predictors import is_one_per_row
from pymc_austerity.model.structure.scaled_columns import add_columns
from pymc_austerity.target import Array, Index, Vector


class _Placed(NamedTuple):
    """Coordinates of the block, or numbers that are made of them, in the shape of a variable without rows."""

    places: Places


class _Wide(NamedTuple):
    """Data (m, k) times coordinates of the block, before they are summed."""

    part: Part


class _Rows(NamedTuple):
    """One number a row, or one for all."""

    parts: tuple[Part, ...]


_Found = _Placed | _Wide | _Rows


class _Indirect(Exception):  # noqa: N818 - it is caught: rows are then computed
    """A graph that does not say where rows stand."""


def direct_parts(fact: Factorisation, eta: Variable) -> tuple[Part, ...] | None:
    """The summands of a predictor; None where rows have to be computed."""
    try:
        return _Reader(fact, eta).parts()
    except _Indirect:
        return None


class _Reader:
    """Takes the graph of a predictor apart."""

    def __init__(self, fact: Factorisation, eta: Variable) -> None:
        self._coordinates = Coordinates(fact)
        self._eta, self._moving = eta, depends_on([eta], self._coordinates.of)
        self._found: dict[Variable, _Found] = {v: _Placed(p) for v, p in self._coordinates.of.items()}

    def parts(self) -> tuple[Part, ...]:
        """Parts of the whole predictor."""
        return self._coordinates.written_out(self._rows(self._eta).parts)

    def _moves(self, var: Variable) -> bool:
        return var in self._found or self._moving.get(var, False)

    def _read(self, var: Variable) -> _Found:
        if var not in self._found:
            node = var.owner
            if node is None:
                raise _Indirect
            try:
                self._found[var] = _rule(_RULES, node)(self, node)
            except _Indirect:
                self._found[var] = self._made(var)
        return self._found[var]

    def _made(self, var: Variable) -> _Placed:
        """Numbers that are made of coordinates, the same for all rows."""
        places = None if None in var.type.shape else self._coordinates.of_made(var)
        if places is None:
            raise _Indirect
        return _Placed(places)

    def _column(self, var: Variable, k: int) -> _Rows:
        """Column k of what has the shape (m, K), or (1, K)."""
        if var.type.ndim != 2:
            raise _Indirect
        k = k if var.type.shape[1] != 1 else 0
        if not self._moves(var):
            return _Rows((Part(None, factors=(var[:, k],)),))
        if var.owner is None:
            raise _Indirect
        return _rule(_COLUMN_RULES, var.owner)(self, var.owner, k)

    def _rows(self, var: Variable) -> _Rows:
        """One number a row, or one for all."""
        if not self._moves(var):
            _require_numbers(var)
            return _Rows((Part(None, factors=(var,)),))
        found = self._read(var)
        if isinstance(found, _Placed) and found.places.size == 1:
            return _Rows((Part(found.places.ravel()),))
        if not isinstance(found, _Rows):
            raise _Indirect
        return found

    def _elemwise(self, node: Apply) -> _Found:
        if isinstance(node.op.scalar_op, ps.Identity):
            return self._read(node.inputs[0])
        if isinstance(node.op.scalar_op, ps.Mul):
            return self._product(node)
        return _sum_of(node, [self._rows(var) for var in self._summands(node)])

    def _elemwise_column(self, node: Apply, k: int) -> _Rows:
        return _sum_of(node, [self._column(var, k) for var in self._summands(node)])

    def _summands(self, node: Apply) -> list[Variable]:
        if not isinstance(node.op.scalar_op, ps.Add | ps.Sub | ps.Neg):
            raise _Indirect
        return list(node.inputs)

    def _product(self, node: Apply) -> _Found:
        (moving,) = [var for var in node.inputs if self._moves(var)]
        data = [var for var in node.inputs if var is not moving]
        found = self._read(moving)
        if isinstance(found, _Placed) and found.places.size > 1:
            return self._wide(node, found.places, data)
        for var in data:
            _require_numbers(var)
        if isinstance(found, _Wide):
            return _Wide(found.part._replace(factors=(*found.part.factors, *data)))
        parts = self._rows(moving).parts
        return _Rows(tuple(part._replace(factors=(*part.factors, *data)) for part in parts))

    def _wide(self, node: Apply, places: Places, data: list[Variable]) -> _Wide:
        """Data (m, k) times coordinates (k,)."""
        values = [var for var in data if not is_one_per_row(var)]
        if len(values) != 1 or not _are_rows(values[0], places.size) or not _are_last(places):
            raise _Indirect
        return _Wide(Part(places.ravel(), values[0], factors=tuple(v for v in data if v is not values[0])))

    def _sum(self, node: Apply) -> _Found:
        found = self._read(node.inputs[0])
        if isinstance(found, _Placed) and node.outputs[0].type.ndim == 0:
            return _Rows((Part(found.places.ravel()),))
        if not isinstance(found, _Wide) or node.op.axis != (1,):
            raise _Indirect
        return _Rows((found.part,))

    def _dot(self, node: Apply, column: int | None = None) -> _Rows:
        values, var = node.inputs
        if self._moves(values) or not self._moves(var):
            raise _Indirect
        found = self._read(var)
        if not isinstance(found, _Placed):
            raise _Indirect
        places = found.places.ravel() if column is None else found.places[:, column]
        if not _are_rows(values, len(places)):
            raise _Indirect
        return _Rows((Part(places, values),))

    def _selection(self, node: Apply) -> _Found:
        """Some of the coordinates, or a column."""
        var = node.inputs[0]
        if not all(isinstance(index, Constant) for index in node.inputs[1:]):
            raise _Indirect
        index = indices_from_subtensor([int(i.data) for i in node.inputs[1:]], node.op.idx_list)
        if all(entry == slice(None) for entry in index):
            return self._read(var)
        if var.type.ndim == 2 and None in var.type.shape:
            if len(index) != 2 or index[0] != slice(None) or not isinstance(index[1], int):
                raise _Indirect
            return self._column(var, index[1])
        found = self._read(var)
        if not isinstance(found, _Placed):
            raise _Indirect
        return _Placed(np.asarray(found.places[tuple(index)]))

    def _lookup(self, node: Apply) -> _Found:
        var, *indices = node.inputs
        if node.op.idx_list != (0,) or self._moves(indices[0]) or indices[0].type.shape != (None,):
            raise _Indirect
        found = self._read(var)
        if not isinstance(found, _Placed) or found.places.ndim != 1:
            raise _Indirect
        return _Rows((Part(found.places, lookup=indices[0]),))

    def _reshaped(self, node: Apply) -> _Found:
        """The numbers in their order, in another shape."""
        found, shape = self._read(node.inputs[0]), node.outputs[0].type.shape
        if isinstance(found, _Placed):
            if isinstance(node.op, DimShuffle):
                kept = [k for k in node.op.new_order if k != "x"]
                if kept != sorted(kept):
                    places = found.places.transpose([*kept, *node.op.drop])
                    return _Placed(places.reshape(shape))
            return _Placed(found.places.reshape(shape))
        if isinstance(found, _Rows):
            return found
        raise _Indirect

    def _reshaped_column(self, node: Apply, k: int) -> _Rows:
        (var,) = node.inputs
        if node.op.new_order == (0, "x"):
            return self._rows(var)
        found = self._read(var)
        if node.op.new_order != ("x", 0) or not isinstance(found, _Placed):
            raise _Indirect
        return _Rows((Part(found.places[k : k + 1]),))


_RULES: dict[Any, Callable[[_Reader, Apply], _Found]] = {
    Elemwise: _Reader._elemwise,
    Sum: _Reader._sum,
    Dot: _Reader._dot,
    AdvancedSubtensor: _Reader._lookup,
    Subtensor: _Reader._selection,
    VIEWS: _Reader._reshaped,
}
_COLUMN_RULES: dict[Any, Callable[[_Reader, Apply, int], _Rows]] = {
    Elemwise: _Reader._elemwise_column,
    Dot: _Reader._dot,
    DimShuffle: _Reader._reshaped_column,
}


def _rule(rules: dict[Any, Any], node: Apply) -> Any:
    """The rule for the operation of a node."""
    op = core_of(node.op)
    found = next((rule for kind, rule in rules.items() if isinstance(op, kind)), None)
    if found is None:
        raise _Indirect
    return found


def _sum_of(node: Apply, terms: list[_Rows]) -> _Rows:
    """A sum, a difference, or the negative."""
    first, *others = (term.parts for term in terms)
    if isinstance(node.op.scalar_op, ps.Neg):
        return _Rows(tuple(map(_negative, first)))
    if isinstance(node.op.scalar_op, ps.Sub):
        return _Rows((*first, *map(_negative, others[0])))
    return _Rows((*first, *(part for parts in others for part in parts)))


def _negative(part: Part) -> Part:
    return part._replace(sign=-part.sign)


def _require_numbers(var: Variable) -> None:
    if not is_one_per_row(var):
        raise _Indirect


def _are_rows(var: Variable, k: int) -> bool:
    return var.type.shape == (None, k)


def _are_last(places: Places) -> bool:
    """Are all along the last axis?"""
    return places.shape[-1] == places.size


class DirectRows:
    """Rows (x_i, o_i) of a design, read from the data.

    Parameters
    ----------
    fact : Factorisation
    term : LocalTerm
    parts : tuple of Part
    """

    def __init__(self, fact: Factorisation, term: LocalTerm, parts: tuple[Part, ...]) -> None:
        self._parts = parts
        data = [var for part in parts for var in (part.values, part.lookup, *part.factors) if var is not None]
        self.data = DataOfRows(fact, term, data)

    def add_to(self, result: Array, factor: Vector | float, positions: Index) -> None:
        """Add the rows at some positions, times a factor for each, to an array (m, D + 1)."""
        values = self.data(positions)
        rows = np.arange(len(positions))
        for part in self._parts:
            scale = np.float64(part.sign) * factor  # products of half and single precision are in double
            for var in part.factors:
                scale = scale * np.ravel(values[var])
            if part.places is None:
                result[:, -1] += scale
            elif part.lookup is not None:
                result[rows, part.places[values[part.lookup]]] += scale
            elif part.values is None:
                result[:, neighbours(part.places)] += np.reshape(scale, (-1, 1))
            else:
                add_columns(result, part.places, values[part.values], scale)
