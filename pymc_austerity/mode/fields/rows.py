"""The rows of a field as columns, in the order of their cells."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pytensor.graph.basic import Variable

from pymc_austerity import work
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression, constant, predictor
from pymc_austerity.bounds.expressions.rebuild import rebuilt
from pymc_austerity.model.field.find import Field, Likelihood
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.model.field.rows import Form, added
from pymc_austerity.model.structure.affine_expressions import affine_nodes, leaves, renumbered
from pymc_austerity.model.structure.case_predictors import case_predictors
from pymc_austerity.target import Index, Matrix, Vector

_CHUNK = 16_384
# Operations for a row and column, of a field that is read.
_OF_NUMBER = 20.0


class Columns(NamedTuple):
    """Rows of a likelihood with one predictor that differs by row. Elements are numbered over all tables."""

    offsets: Vector  # (N,): o_i
    dense: Index  # (D,): elements that all rows have
    x: Matrix  # (N, D): their coefficients
    columns: Index  # (N, F): elements that rows look up
    values: Matrix  # (N, F): their coefficients
    data: Matrix  # (n_data, N)
    expression: Expression  # The rows, a function of predictor 0 and of data
    scale: tuple[int, float, float] | None  # Of normal rows: element, factor and offset of a free number


def columns_of(found: Field) -> Columns:
    """Read all rows.

    Raises
    ------
    NoField
        If several predictors differ by row.
    """
    if len(found.likelihoods) != 1:
        raise NoField(f"there are {len(found.likelihoods)} likelihoods over the same effects")
    (likelihood,) = found.likelihoods
    if likelihood.graph.guards:
        raise NoField(f"rows of {likelihood.term.name!r} may be minus infinity for some effects")
    sizes = [int(np.prod(table.input.type.shape)) for table in found.tables]
    first = dict(zip((t.input for t in found.tables), np.cumsum([0, *sizes]), strict=False))
    of_numbers = {t.input for t in found.tables if t.innovation is None}
    n = likelihood.term.size
    predictors = _Predictors(likelihood)
    which, numbers = _kinds(predictors, n, of_numbers, first)
    parts: dict[int, Expression] = {which: predictor(0)}
    scale = None
    for k, (element, factor, offset) in numbers.items():
        if element < 0:
            parts[k] = constant(offset)
        else:
            parts[k], scale = predictor(1), (element, factor, offset)
    if sum(element >= 0 for element, _, _ in numbers.values()) > 1:
        raise NoField("rows share several numbers beside their predictor, as dispersions")
    expression = rebuilt(
        predictors.expression,
        lambda one: parts[int(one.value)] if one.op == "predictor" else None,  # type: ignore[call-overload]
    )
    data = leaves(expression, "data")
    expression = renumbered(expression, data)
    read = likelihood.graph.data.chosen(data)
    some = predictors(np.arange(min(_CHUNK, n)))[which]
    slots = [(table, j) for table, (_, p) in some.terms.items() for j in range(p.shape[-1])]
    columns, values = np.empty((len(slots), n), np.int64), np.empty((len(slots), n))
    offsets, kept = np.empty(n), np.empty((len(data), n))
    for a in range(0, n, _CHUNK):
        positions = np.arange(a, min(a + _CHUNK, n))
        work.spend(_OF_NUMBER * len(positions) * (len(slots) + 1), "The rows of a field")
        forms = predictors(positions)
        form = forms[which]
        if any(_number(forms[k], of_numbers, first) != own for k, own in numbers.items()):
            raise NoField("several predictors of the rows differ by row")
        offsets[positions] = form.offset
        if len(data):
            kept[:, positions] = np.asarray(read(positions))
        k = 0
        for table, (c, p) in form.terms.items():
            if [(table, j) for j in range(p.shape[-1])] != slots[k : k + p.shape[-1]]:
                raise NoField("rows have different numbers of terms")
            for j in range(p.shape[-1]):
                columns[k, positions] = np.broadcast_to(p[..., j], positions.shape) + first[table]
                values[k, positions] = np.broadcast_to(c[..., j], positions.shape)
                k += 1
    if not (np.isfinite(offsets).all() and np.isfinite(values).all()):
        raise NoField(f"some rows of {likelihood.term.name!r} have a number that is not finite")
    is_dense = np.array([bool(np.all(column == column[0])) for column in columns], dtype=np.bool_)
    is_dense &= ~np.isin(columns[:, 0], np.unique(columns[~is_dense]))  # some rows look these up, too
    dense, place = np.unique(columns[is_dense, 0], return_inverse=True)
    x = np.zeros((n, len(dense)))
    for column, at in zip(values[is_dense], np.ravel(place), strict=True):
        x[:, at] += column
    looked_up = [k for k in np.flatnonzero(~is_dense) if np.any(values[k])]
    return Columns(
        offsets,
        dense,
        x,
        np.ascontiguousarray(columns[looked_up].T),
        np.ascontiguousarray(values[looked_up].T),
        kept,
        expression,
        scale,
    )


class _Predictors:
    """The fewest predictors that rows are a function of, as linear forms."""

    def __init__(self, likelihood: Likelihood) -> None:
        graph = likelihood.graph
        cases = case_predictors(graph.expression, graph.data.moved_columns)
        self.expression = cases.expression
        self._parts = [affine_nodes(value).get(value) for value in cases.values]
        self._values = cases.values
        self._likelihood = likelihood
        used: list[Expression] = []
        for part, value in zip(self._parts, self._values, strict=True):
            used += [value] if part is None else [part.offset, *part.coefficients.values()]
        self._data = sorted({k for one in used for k in leaves(one, "data")})
        self._read = graph.data.chosen(self._data)

    def __call__(self, positions: Index) -> list[Form]:
        """The predictors of some rows."""
        scalars = self._likelihood(positions)
        columns = np.asarray(self._read(positions)) if self._data else ()
        data = dict(zip(self._data, columns, strict=True))

        def numbers(one: Expression) -> Vector:
            return np.broadcast_to(evaluate(one, {}, data), positions.shape).astype(np.float64)

        result = []
        for part, value in zip(self._parts, self._values, strict=True):
            forms = [Form(numbers(value if part is None else part.offset), {})]
            if part is not None:  # it moves
                forms += [scalars[k].times(numbers(one)) for k, one in part.coefficients.items()]
            result.append(added(forms, [1.0] * len(forms)))
        return result


def _kinds(
    predictors: _Predictors, n: int, of_numbers: set[Variable], first: dict[Variable, int]
) -> tuple[int, dict[int, tuple[int, float, float]]]:
    """Which predictor differs by row; element, factor and offset of the others, which are numbers."""
    positions = np.unique(np.linspace(0, n - 1, 1000).astype(np.int64))
    wide, numbers = [], {}
    for k, form in enumerate(predictors(positions)):
        number = _number(form, of_numbers, first)
        if number is None:
            wide.append(k)
        else:
            numbers[k] = number
    if not wide:
        raise NoField("rows depend on no effects")
    if len(wide) != 1:
        raise NoField(f"{len(wide)} predictors of the rows differ by row")
    return wide[0], numbers


def _number(
    form: Form, of_numbers: set[Variable], first: dict[Variable, int]
) -> tuple[int, float, float] | None:
    """Element, factor and offset of a predictor that is the same for some rows; None if it differs."""
    pairs = [(t, c, p) for t, (c, p) in form.terms.items() if np.any(c)]
    offset = np.ravel(form.offset)
    if len(pairs) > 1 or not all(t in of_numbers for t, _, _ in pairs) or np.any(offset != offset[0]):
        return None
    if not pairs:
        return -1, 0.0, float(offset[0])
    t, c, p = pairs[0]
    if p.shape[-1] != 1 or np.any(p != p.flat[0]) or np.any(c != c.flat[0]):
        return None
    return int(first[t] + p.flat[0]), float(c.flat[0]), float(offset[0])


class Used(NamedTuple):
    """Elements that rows use, in the order of a kernel: those that are looked up, then those of all rows."""

    elements: Index  # (n_x,): numbers over all tables
    n_lookups: int
    columns: npt.NDArray[np.int32]  # (N, F): in this order


def used(columns: Columns) -> Used:
    """The elements that rows use."""
    lookups = np.unique(columns.columns)
    elements = np.concatenate([lookups, columns.dense])
    place = np.zeros(int(elements.max(initial=0)) + 1, np.int32)
    place[elements] = np.arange(len(elements))
    return Used(elements, len(lookups), place[columns.columns])
