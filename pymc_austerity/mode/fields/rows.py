"""The rows of a field as columns, in the order of their cells."""

from typing import NamedTuple

import numpy as np
from pytensor.graph.basic import Variable
from scipy import sparse

from pymc_austerity import work
from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.conditions import zero
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression, constant, predictor
from pymc_austerity.bounds.expressions.node import data as data_column
from pymc_austerity.bounds.expressions.rebuild import rebuilt
from pymc_austerity.bounds.expressions.selects import select
from pymc_austerity.kernels.fields.records import Design
from pymc_austerity.mode.row_tables import RowTables, occurring, parts
from pymc_austerity.model.factorisation import CHUNK, FEWEST_GROUPS, some_rows
from pymc_austerity.model.field.find import Field, Likelihood
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.model.field.rows import Form, added
from pymc_austerity.model.structure.affine_expressions import (
    AffineParts,
    affine_nodes,
    by_powers,
    leaves,
    renumbered,
)
from pymc_austerity.model.structure.case_predictors import case_predictors
from pymc_austerity.model.structure.row_functions import MOST_PREDICTORS
from pymc_austerity.target import Index, Matrix, RowNumbers, Vector

# A sum of coefficients that is smaller, beside the largest of them, is none.
_CANCELS = 1e-12
# Operations for a row and column, of a field that is read.
_OF_NUMBER = 20.0


# Element, factor and offset of a number; element -1 for a constant.
_Number = tuple[int, float, float]


class Columns(NamedTuple):
    """Rows of a likelihood, functions of p predictors."""

    design: Design
    elements: Index  # (n_x,): those that rows look up, then those of all rows, by numbers over all tables
    offsets: Matrix  # (N, p): o_i
    data: Matrix  # (n_data, N)
    expression: Expression  # The rows, a function of predictors and of data
    scale: tuple[int, float, float] | None  # Of normal rows: element, factor and offset of a free number
    support: tuple[Form, ...]  # What is above zero where rows have a density, as the steps of cut points
    tables: RowTables

    @property
    def n_predictors(self) -> int:
        """How many predictors a row has."""
        return self.offsets.shape[1]

    @property
    def n_lookups(self) -> int:
        """How many elements rows look up."""
        return len(self.elements) - self.design.n_dense


class _Read(NamedTuple):
    """Rows of a likelihood as they are read."""

    slots: list[tuple[int, Variable, int]]  # Predictor, table and number of each term
    columns: RowNumbers  # (S, n): elements
    values: Matrix  # (S, n): their coefficients
    offsets: Matrix  # (n, p)
    data: Matrix  # (n_data, n)
    expression: Expression
    scale: tuple[int, float, float] | None
    support: tuple[Form, ...]


def columns_of(found: Field, *, is_normal: bool) -> Columns:
    """Read all rows; with `is_normal` one number that they share may be their scale.

    Raises
    ------
    NoField
        If the rows are functions of too many predictors.
    """
    starts = np.cumsum([0, *(table.size for table in found.tables)])
    first = dict(zip((t.input for t in found.tables), starts, strict=False))
    of_numbers = {t.input for t in found.tables if t.innovation is None}
    stored = found.rows.rows_on_disk
    tables = RowTables(stored[0].scratch_folder() if stored else None)
    every = [_read(one, first, of_numbers, tables, is_normal=is_normal) for one in found.likelihoods]
    read = _with_lookups(_joined(every, first, tables), tables)
    columns, values, n = read.columns, read.values, read.columns.shape[1]
    of_slots = np.array([number for number, _, _ in read.slots], np.int64)
    is_dense = np.array([all(np.all(own[p] == own[0]) for p in parts(n)) for own in columns], dtype=np.bool_)
    varying = [occurring(columns[k]) for k in np.flatnonzero(~is_dense)]
    is_dense &= ~np.isin(columns[:, 0], np.concatenate([[], *varying]))  # some rows look these up, too
    both = np.stack([of_slots[is_dense], columns[is_dense, 0]], 1)
    both, place = np.unique(both, axis=0, return_inverse=True)
    x = tables.zeros(n, len(both))
    for k, at in zip(np.flatnonzero(is_dense), np.ravel(place), strict=True):
        x[:, at] += values[k]
    of_all, at_x = np.unique(both[:, 1], return_inverse=True)
    looked_up = [k for k in np.flatnonzero(~is_dense) if np.any(values[k])]
    own_columns = tables.zeros(n, len(looked_up), dtype=np.int32)
    own_values = tables.zeros(n, len(looked_up))
    for f, k in enumerate(looked_up):
        own_columns[:, f], own_values[:, f] = columns[k], values[k]
    lookups, place = occurring(own_columns), np.zeros(starts[-1], np.int32)
    place[lookups] = np.arange(len(lookups))
    for part in parts(n):
        own_columns[part] = place[own_columns[part]]
    design = Design(
        own_columns, own_values, of_slots[looked_up], x, both[:, 0].copy(), np.ravel(at_x), len(of_all)
    )
    return Columns(
        design, np.concatenate([lookups, of_all]), read.offsets, read.data, read.expression, read.scale,
        read.support, tables,
    )  # fmt: skip


def _read(
    likelihood: Likelihood,
    first: dict[Variable, int],
    of_numbers: set[Variable],
    tables: RowTables,
    *,
    is_normal: bool,
    varying: frozenset[int] = frozenset(),
) -> _Read:
    """Read the rows of a likelihood; predictors that few rows show to be no numbers are `varying`."""
    n, predictors = likelihood.term.size, _Predictors(likelihood)
    expression, which, fixed, scale = _kinds(
        predictors, n, of_numbers, first, is_normal=is_normal, varying=varying
    )
    data = leaves(expression, "data")
    read = likelihood.graph.data.chosen(data)
    slots = _slots(predictors(np.arange(min(CHUNK, n))), which)
    columns, values = tables.zeros(len(slots), n, dtype=np.int32), tables.zeros(len(slots), n)
    offsets, kept = tables.zeros(n, len(which)), tables.zeros(len(data), n)
    for positions in some_rows(n):
        own = slice(positions[0], positions[-1] + 1)
        work.spend(_OF_NUMBER * len(positions) * (len(slots) + 1), "The rows of a field")
        found = predictors(positions)
        more = [k for k, number in fixed.items() if _number(found[k], of_numbers, first) != number]
        if more:
            varying = varying.union(more)
            return _read(likelihood, first, of_numbers, tables, is_normal=is_normal, varying=varying)
        if len(data):
            kept[:, own] = np.asarray(read(positions))
        if _slots(found, which) != slots:
            raise NoField("rows have different numbers of terms")
        k = 0
        for number, one in enumerate(which):
            offsets[own, number] = found[one].offset
            for table, (c, p) in found[one].terms.items():
                for j in range(p.shape[-1]):
                    columns[k, own] = p[..., j] + first[table]
                    values[k, own] = c[..., j]
                    k += 1
        if not (np.isfinite(offsets[own]).all() and np.isfinite(values[:, own]).all()):
            raise NoField(f"some rows of {likelihood.term.name!r} have a number that is not finite")
    support = _support(likelihood, of_numbers)
    return _Read(slots, columns, values, offsets, kept, renumbered(expression, data), scale, support)


def _with_lookups(read: _Read, tables: RowTables) -> _Read:
    """The rows with a look-up in the place of many columns of which each row has one, as of indicators."""
    slots, kept = list(range(len(read.slots))), []
    for key in dict.fromkeys((number, table) for number, table, _ in read.slots):
        own = [k for k in slots if read.slots[k][:2] == key]
        counts = [np.count_nonzero(read.values[own, p], axis=0) for p in parts(read.values.shape[1])]
        if len(own) < FEWEST_GROUPS or max(int(one.max(initial=0)) for one in counts) > 1:
            kept += own
            continue
        for p in parts(read.values.shape[1]):
            which, rows = np.argmax(read.values[own, p] != 0.0, axis=0), np.arange(p.start, p.stop)
            read.columns[own[0], p] = read.columns[own, p][which, rows - p.start]
            read.values[own[0], p] = read.values[own, p][which, rows - p.start]
        kept.append(own[0])
    if len(kept) == len(slots):
        return read
    n = read.values.shape[1]
    columns, values = tables.zeros(len(kept), n, dtype=np.int32), tables.zeros(len(kept), n)
    for at, k in enumerate(kept):
        columns[at], values[at] = read.columns[k], read.values[k]
    return read._replace(slots=[read.slots[k] for k in kept], columns=columns, values=values)


def _joined(every: list[_Read], first: dict[Variable, int], tables: RowTables) -> _Read:
    """Rows of several likelihoods as those of one: a column of data tells which function a row is."""
    if len(every) == 1:
        return every[0]
    starts = np.cumsum([0, *(len(one.offsets) for one in every)])
    n, p = int(starts[-1]), max(one.offsets.shape[1] for one in every)
    slots = list(dict.fromkeys(slot for one in every for slot in one.slots))
    columns, values = tables.zeros(len(slots), n, dtype=np.int32), tables.zeros(len(slots), n)
    columns[:] = np.array([[first[table]] for _, table, _ in slots])
    offsets, data = tables.zeros(n, p), tables.zeros(1 + sum(len(one.data) for one in every), n)
    branches, n_data = [], 1
    for k, one in enumerate(every):
        own = slice(int(starts[k]), int(starts[k + 1]))
        for slot, column, value in zip(one.slots, one.columns, one.values, strict=True):
            at = slots.index(slot)
            columns[at, own], values[at, own] = column, value
        offsets[own, : one.offsets.shape[1]] = one.offsets
        data[0, own] = k
        branches.append(renumbered(one.expression, [-1] * n_data + list(range(len(one.data)))))
        for column in one.data:
            data[n_data] = column[0]  # a value that the function may have
            data[n_data, own] = column
            n_data += 1
    expression = branches[-1]
    for k in range(len(every) - 2, -1, -1):
        which = forms.add(constant(-float(k)), data_column(0, 0.0, float(len(every) - 1)))
        expression = select(zero(which), branches[k], expression)
    support = tuple(form for one in every for form in one.support)
    return _Read(slots, columns, values, offsets, data, expression, None, support)


def _support(likelihood: Likelihood, of_numbers: set[Variable]) -> tuple[Form, ...]:
    """What has to be above zero for rows to have a density: functions of numbers of the model alone."""
    found = []
    for guard in likelihood.graph.guards:
        part = affine_nodes(guard).get(guard)
        form = None if part is None else _of_all_rows(likelihood, part, of_numbers)
        if form is None:
            raise NoField(f"rows of {likelihood.term.name!r} may be minus infinity for some effects")
        found.append(form)
    return tuple(found)


def _of_all_rows(likelihood: Likelihood, part: AffineParts, of_numbers: set[Variable]) -> Form | None:
    """An affine function of predictors in which effects cancel, and that is the same for all rows.

    Rows in which it is a number above zero, as in other cases of the data, do not count.
    """
    columns = sorted({k for one in (part.offset, *part.coefficients.values()) for k in leaves(one, "data")})
    read, n, result = likelihood.graph.data.chosen(columns), likelihood.term.size, None
    for positions in some_rows(n):
        work.spend(_OF_NUMBER * len(positions), "The rows of a field")
        data = dict(zip(columns, np.asarray(read(positions)), strict=True)) if columns else {}
        offset, *factors = (
            np.broadcast_to(evaluate(one, {}, data), positions.shape)
            for one in (part.offset, *part.coefficients.values())
        )
        counts = np.any(factors, axis=0) | ~(offset > 0.0)
        if not counts.any():
            continue
        scalars, offset = likelihood(positions[counts]), offset[counts]
        forms = [scalars[k].times(one[counts]) for k, one in zip(part.coefficients, factors, strict=True)]
        found = _common(added([Form(offset, {}), *forms], [1.0] * (1 + len(forms))))
        if found is None or not set(found.terms) <= of_numbers or not _is_same(found, result or found):
            return None
        result = found
    return Form(np.ones(1), {}) if result is None else result


def _common(form: Form) -> Form | None:
    """What all rows of a form have, each element once, as far as it does not cancel; None if rows differ."""
    terms = {}
    for table, (c, p) in form.terms.items():
        shape = np.broadcast_shapes((*form.shape, 1), c.shape, p.shape)
        values, elements = (np.broadcast_to(one, shape) for one in (c, p))
        rows = np.repeat(np.arange(shape[0]), shape[1])
        size = shape[0], int(elements.max(initial=0)) + 1
        matrix = sparse.csr_array((values.ravel(), (rows, elements.ravel())), size)
        matrix.data[np.abs(matrix.data) < _CANCELS * np.abs(values).max(initial=0.0)] = 0.0
        matrix.eliminate_zeros()
        n = matrix.indptr[1]
        if np.any(np.diff(matrix.indptr) != n):
            return None
        c, p = matrix.data.reshape(-1, n), matrix.indices.reshape(-1, n).astype(np.int64)
        if np.any(c != c[0]) or np.any(p != p[0]):
            return None
        if n:
            terms[table] = c[:1], p[:1]
    return None if np.any(form.offset != form.offset[0]) else Form(form.offset[:1], terms)


def _is_same(one: Form, other: Form) -> bool:
    """Have two forms the same numbers?"""
    return np.array_equal(one.offset, other.offset) and (
        one.terms.keys() == other.terms.keys()
        and all(np.array_equal(one.terms[t][k], other.terms[t][k]) for t in one.terms for k in (0, 1))
    )


def _slots(forms: list[Form], which: list[int]) -> list[tuple[int, Variable, int]]:
    """Predictor, table and number of each term of the rows."""
    return [
        (number, table, j)
        for number, own in enumerate(which)
        for table, (_, p) in forms[own].terms.items()
        for j in range(p.shape[-1])
    ]


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
    predictors: _Predictors,
    n: int,
    of_numbers: set[Variable],
    first: dict[Variable, int],
    *,
    is_normal: bool,
    varying: frozenset[int],
) -> tuple[Expression, list[int], dict[int, _Number], _Number | None]:
    """The rows as a function of what differs between rows or moves, and which predictors these are.

    Also what is read beside them: predictors that are numbers, and the free scale of normal rows.
    """
    positions = np.unique(np.linspace(0, n - 1, 1000).astype(np.int64))
    which, fixed, moving = [], {}, {}
    for k, form in enumerate(predictors(positions)):
        number = None if k in varying else _number(form, of_numbers, first)
        if number is not None and number[0] < 0:
            fixed[k] = number
            continue
        which.append(k)
        if number is not None:
            moving[k] = number
    if len(moving) == len(which):
        raise NoField("rows depend on no effects")
    if is_normal and len(moving) == 1 and len(which) == 2:
        ((k, scale),) = moving.items()
        (own,) = set(which) - {k}
        expression = with_fixed(predictors.expression, fixed, [own, k])
        powers = by_powers(expression)
        if powers is not None and not leaves(powers[2], "data"):
            return expression, [own], {**fixed, k: scale}, scale
    if len(which) > MOST_PREDICTORS:
        raise NoField(f"rows are functions of {len(which)} predictors, {MOST_PREDICTORS} at most have bounds")
    return with_fixed(predictors.expression, fixed, which), which, fixed, None


def with_fixed(expression: Expression, fixed: dict[int, _Number], which: list[int]) -> Expression:
    """The rows with constants in the place of some predictors; others get new numbers."""
    parts = {k: constant(offset) for k, (_, _, offset) in fixed.items()}
    parts |= {k: predictor(number) for number, k in enumerate(which)}
    return rebuilt(expression, lambda one: parts[int(one.value)] if one.op == "predictor" else None)  # type: ignore[call-overload]


def _number(form: Form, of_numbers: set[Variable], first: dict[Variable, int]) -> _Number | None:
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
