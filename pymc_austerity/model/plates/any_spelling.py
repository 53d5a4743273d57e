"""`find_plates`: the plates of a model, however its likelihood is written.

Plates know one spelling: sums of ``table[index] * column`` and of ``X @ coefficients``. A likelihood in
another one is written so from the rows of the model's field, which is found on any spelling.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Mul
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.type import TensorType

from pymc_austerity import work
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.checks import IMPUTED
from pymc_austerity.model.factorisation import (
    FEWEST_SCALED,
    Factorisation,
    LocalTerm,
    pass_operations,
    some_rows,
)
from pymc_austerity.model.field.find import Field, Likelihood, find_field, in_tables
from pymc_austerity.model.field.priors import NoField, applied
from pymc_austerity.model.field.rows import Form
from pymc_austerity.model.field.tables import Table
from pymc_austerity.model.graph.leaves import Leaf
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on, rebuild
from pymc_austerity.model.plates.effects_prior import EffectsPrior
from pymc_austerity.model.plates.gathers import LargeFactor, NoPlate, OneRowEach, OtherSpelling
from pymc_austerity.model.plates.inner_effects import InnerEffects
from pymc_austerity.model.plates.plate_model import PlateModel, plate_model
from pymc_austerity.model.self_check import jittered
from pymc_austerity.model.structure.affine import core_of
from pymc_austerity.target import Array, Index

# Rows that are compared, and by how much they may differ, relative to the largest of them.
# PyTensor may write one of the two in a form that loses more to rounding.
_COMPARED, _TOLERANCE = 10_000, 1e-6
# Passes over rows: their linear forms, what is written of these, and a comparison.
_PASSES = 3
# What is a plate.
_PLATES = (
    "independent effects of groups, an intercept and at most three slopes of one factor or of nested ones, "
    "in one predictor of a likelihood"
)


def find_plates(model: pm.Model, fact: Factorisation, fewest: int) -> PlateModel | None:
    """The plate of effects of `fewest` groups or more; None if there is none.

    Raises
    ------
    NoPlate
        If there are such effects in a form that is no plate; of a likelihood as the model has it.
    """
    reason = None
    try:
        found = plate_model(model, fact, fewest)
    except LargeFactor:  # there are no fewer in another spelling
        raise
    except NoPlate as error:
        found, reason = None, error
    if found is not None:
        return found
    if reason is None and not _may_look_up(fact, fewest):
        return None
    try:
        found = plate_model(model, respelled(model, fact, fewest), fewest)
    except NoField:
        found = None
    except NoPlate as error:
        found, reason = None, reason or error
    if found is not None:
        return _in_model(found, fact)
    if reason is not None:
        raise reason
    return None


def why_none(model: pm.Model, fact: Factorisation, fewest: int, reason: NoPlate | None) -> NoPlate | None:
    """Why effects of `fewest` groups or more are no plate: what their field is; None if there are no such.

    `reason` is that of `find_plates`, if it has one.
    """
    if (
        reason is None
        and not _may_look_up(fact, fewest)
        and not _may_look_up(fact, FEWEST_SCALED, times=True)
    ):
        return None
    try:
        field = find_field(model, fact)
    except NoField as error:
        is_it = isinstance(reason, OneRowEach) or _may_look_up(fact, fewest)
        return NoPlate(str(error)) if is_it else reason
    except SelfCheckError as error:
        return NoPlate(str(error))
    tables_of = {one: one.looked_up(field.tables, fewest, scaled=True) for one in field.likelihoods}
    found = {one: tables for one, tables in tables_of.items() if tables}
    if not found:
        return reason
    said = "; ".join(
        f"predictors of {one.term.name!r} are linear in {' and '.join(map(_said, tables))}"
        for one, tables in found.items()
    )
    own = _why_other(found) if reason is None or isinstance(reason, OtherSpelling) else str(reason)
    why = NoPlate(f"{said}, which are no plate: {own}")
    why.field = field
    return why


def _said(table: Table) -> str:
    """A table, its size and its prior in words."""
    what = table.variable if table.innovation else f"a function of {table.variable}"
    missing = ", missing values" if table.variable.endswith(f"{IMPUTED}'") else ""
    return f"{what} ({table.size:,}, {table.said}{missing})"


def _why_other(likelihoods: Iterable[Likelihood]) -> str:
    """What is no plate's in rows that look groups up, or else what a plate is."""
    for one in likelihoods:
        n = sum(None in scalar.variable.type.shape for scalar in one.graph.scalars)
        if not _has_vectors(one):
            return f"the predictors of {one.term.name!r} are a matrix, and a plate's are a vector"
        if n > 1:
            return f"{n} predictors of the likelihood differ by row, and one of a plate's does"
    return _PLATES


def _may_look_up(fact: Factorisation, fewest: int, *, times: bool = False) -> bool:
    """May rows of the likelihood look up or multiply a vector of `fewest` elements or more?

    With `times` one that is a product of unknown numbers.
    """
    graph = fact.graph
    terms = [graph.terms[name] for name in graph.likelihood]
    moving = depends_on(terms, graph.values.values())
    return any(
        moving.get(var, False)
        and math.prod(var.type.shape) >= fewest
        and (not times or _is_product(var, moving))
        for node in toposort(terms)
        if isinstance(core_of(node.op), AdvancedSubtensor | Dot)
        or isinstance(node.inputs[0].type, SparseTensorType)
        for var in node.inputs
    )


def _is_product(var: Variable, moving: dict[Variable, bool]) -> bool:
    """Is a value made of a product of several that variables move?"""
    return any(
        isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, Mul)
        and sum(moving.get(one, False) for one in node.inputs) > 1
        for node in toposort([var])
    )


def _in_model(plate: PlateModel, fact: Factorisation) -> PlateModel:
    """A plate whose variables have the shapes that they have in the model."""
    shared, memo, own = plate.shared, {}, dict(plate.shared.graph.values)
    for name, var in shared.graph.values.items():
        if var.type.ndim != fact.graph.values[name].type.ndim:
            own[name] = fact.graph.values[name]
            memo[var] = own[name].flatten()

    def written[T: (EffectsPrior, InnerEffects)](one: T) -> T:
        """A record with its graphs in variables of the model."""
        graphs = {name: part for name, part in one._asdict().items() if isinstance(part, Variable)}
        return one._replace(**dict(zip(graphs, rebuild(list(graphs.values()), memo), strict=True)))

    names, graphs = zip(*shared.globals, strict=True)
    features, *globals_ = rebuild([shared.features, *graphs], memo)
    point = {name: fact.graph.point[name] for name in own}
    return replace(
        plate,
        factorisation=replace(fact, var_names=plate.factorisation.var_names),
        priors=tuple(map(written, plate.priors)),
        inner=tuple(map(written, plate.inner)),
        shared=replace(
            shared,
            graph=replace(shared.graph, values=own, point=point, terms=fact.graph.terms),
            globals=tuple(zip(names, globals_, strict=True)),
            features=features,
        ),
    )


def respelled(model: pm.Model, fact: Factorisation, fewest: int) -> Factorisation:
    """The factorisation with its likelihood in the spelling that plates know.

    Its columns are copies, of the size of what they hold.

    Raises
    ------
    NoField
        If the rows are not linear in variables, or in several predictors that are no vector each, or look
        nothing up of `fewest` elements or more.
    """
    if fact.rows_on_disk:
        raise NoField("rows on disk are read as they are written")
    _, field = in_tables(model, fact, innovations=False)
    for likelihood in field.likelihoods:
        _require_lookups(field, likelihood, fewest)
    work.spend(_PASSES * pass_operations(field.rows), "The search for groups")
    columns = _Columns(list(fact.leaves) + list(field.rows.leaves), fact.leaf_values + field.rows.leaf_values)
    forms = [one(np.arange(one.term.size)) for one in field.likelihoods]
    vectors = _vectors(field, [form for several in forms for form in several])
    graphs = {table.input: _in_vectors(table, vectors) for table in field.tables}
    wholes = {table.input: table.graph for table in field.tables}
    terms = {
        one.term.name: _respelled_term(one, own, graphs, wholes, columns)
        for one, own in zip(field.likelihoods, forms, strict=True)
    }
    if len(terms) < len(field.likelihoods):
        raise NoField("rows of the likelihood are in several vectors")
    terms = {name: term for name, term in terms.items() if name in dict(fact.local_terms)}
    locals_ = tuple(terms.get(term.name, term) for term in fact.locals)
    found = replace(fact, locals=locals_, leaves=tuple(columns.leaves), leaf_values=columns.values)
    found = _of_vectors(found, vectors)
    for name in terms:
        _require_same_rows(fact, found, name)
    return found


def _require_lookups(field: Field, one: Likelihood, fewest: int) -> None:
    """Look at some rows before all are taken apart: predictors are vectors, and have few of many effects."""
    if not _has_vectors(one):
        raise NoField(f"the predictors of {one.term.name!r} are no vectors")
    if not one.looked_up(field.tables, fewest):
        raise NoField(f"rows of {one.term.name!r} look nothing up of {fewest} elements or more")


def _has_vectors(one: Likelihood) -> bool:
    """Are predictors that differ by row vectors?"""
    own = [scalar for scalar in one.graph.scalars if None in scalar.variable.type.shape]
    return all(scalar.variable.type.ndim == 1 and scalar.element[0] is None for scalar in own)


def _require_same_rows(fact: Factorisation, found: Factorisation, name: str) -> None:
    """Compare some rows of a term at a point near the start."""
    values = []
    for one in (fact, found):
        term = next(term for term in one.locals if term.name == name)
        positions = np.concatenate(list(some_rows(term.size, _COMPARED)))
        rows = one.compile(term.rows, [term.index], mode=INTERPRETED)
        with np.errstate(all="ignore"):
            values.append(rows(*jittered(one.graph), positions, *one.leaf_values))
    expected, ours = values
    size = 1.0 + np.max(np.abs(expected[np.isfinite(expected)]), initial=0.0)
    if not np.allclose(ours, expected, rtol=0.0, atol=_TOLERANCE * size, equal_nan=True):
        raise SelfCheckError(
            f"Self-check failed for the term {name!r}: its rows, written as sums of effects, differ from "
            "those of the model. This is a defect of pymc_austerity: please report the model."
        )


def _vectors(field: Field, forms: list[Form]) -> dict[Variable, Variable]:
    """A vector for each matrix of independent elements of which rows look up other columns, too."""
    found = {}
    for table in field.tables:
        value = None if table.innovation is None else table.innovation.value
        if value is None or value.type.ndim < 2 or not _is_apart(table):
            continue
        own = [form.terms[table.input][1] for form in forms if table.input in form.terms]
        columns = [places % value.type.shape[-1] for places in own]
        if 1 in value.type.shape or any((one != one[:1]).any() for one in columns):
            found[value] = TensorType("float64", (int(np.prod(value.type.shape)),))(str(value.name))
    return found


def _is_apart(table: Table) -> bool:
    """Are the elements of a table independent, and multiplied by the same numbers?"""
    one = table.innovation
    steps = [*table.steps, *([] if one is None else one.steps)]
    return all(step.kind == "scale" for step in steps) and all(
        step.graph is not None and not step.graph.type.ndim for step in table.steps
    )


def _in_vectors(table: Table, vectors: dict[Variable, Variable]) -> Variable:
    """The value of a table, as a vector if its variable is one."""
    if table.innovation is None:
        return table.graph
    if table.innovation.value not in vectors:
        return _with_matrix(table)
    if not _is_apart(table):
        raise NoField(f"{table.innovation.name!r} is looked up in more than one way")
    return applied(vectors[table.innovation.value], table.steps)


def _with_matrix(table: Table) -> Variable:
    """The value of a table, with a matrix in the place of scales by column."""
    assert table.innovation is not None
    scales = [step.graph for step in table.steps if step.graph is not None and step.kind == "scale"]
    shape = table.graph.type.shape
    if len(shape) != 2 or not scales or len(scales) < len(table.steps):
        return table.graph
    if table.innovation.value.type.shape != shape:
        return table.graph
    scale = reduce(pt.mul, scales)
    if scale.type.ndim and scale.type.shape == (1,) * (scale.type.ndim - 1) + shape[1:]:
        return pt.dot(table.innovation.value, pt.diag(scale.flatten()))
    return table.graph


def _of_vectors(fact: Factorisation, vectors: dict[Variable, Variable]) -> Factorisation:
    """A factorisation whose variables are vectors where these are given."""
    memo = {value: vector.reshape(value.type.shape) for value, vector in vectors.items()}
    names = {str(value.name): vector for value, vector in vectors.items()}
    graph = fact.graph
    terms = dict(zip(graph.terms, rebuild(list(graph.terms.values()), memo), strict=True))
    point = {name: np.ravel(x) if name in names else x for name, x in graph.point.items()}
    globals_ = rebuild([term for _, term in fact.globals], memo)
    rows = rebuild([term.rows for term in fact.locals], memo)
    return replace(
        fact,
        graph=replace(graph, values={**graph.values, **names}, point=point, terms=terms),
        globals=tuple((name, new) for (name, _), new in zip(fact.globals, globals_, strict=True)),
        locals=tuple(replace(term, rows=new) for term, new in zip(fact.locals, rows, strict=True)),
    )


class _Columns:
    """Leaves to which columns are added."""

    def __init__(self, leaves: list[Leaf], values: list[np.ndarray]) -> None:
        self.leaves, self.values = leaves, values

    def of(self, column: np.ndarray, index: Variable) -> Variable:
        """Rows of an array, as a graph of their numbers; a number, if all are equal."""
        if column.ndim == 1 and len(column) and (column == column[0]).all():
            return pt.constant(column[0])
        for leaf, value in zip(self.leaves, self.values, strict=True):
            if value.dtype == column.dtype and np.array_equal(value, column):
                return leaf.placeholder[index]
        source = pt.tensor(f"column{len(self.leaves)}", dtype=column.dtype, shape=column.shape)
        self.leaves.append(Leaf(source, source))
        self.values.append(column)
        return source[index]


def _respelled_term(
    one: Likelihood,
    forms: list[Form],
    graphs: dict[Variable, Variable],
    wholes: dict[Variable, Variable],
    columns: _Columns,
) -> LocalTerm:
    """The rows of a term; `graphs` are tables as rows look them up, `wholes` in the shape that they have."""
    memo = {}
    for scalar, form in zip(one.graph.scalars, forms, strict=True):
        if None not in scalar.variable.type.shape:  # the same for all rows
            continue
        memo[scalar.variable] = _written(form, one.term, graphs, columns)
    (rows,) = rebuild(rebuild([one.graph.rows], memo), wholes)
    return replace(one.term, rows=rows)


def _written(form: Form, term: LocalTerm, graphs: dict[Variable, Variable], columns: _Columns) -> Variable:
    """A predictor as the sum of its tables times data."""
    n, index = term.size, term.index
    offset = np.broadcast_to(form.offset, n)
    summands = [columns.of(np.ascontiguousarray(offset), index)] if offset.any() else []
    for table, (c, p) in form.terms.items():
        graph = graphs[table]
        size = int(np.prod(graph.type.shape))
        k = c.shape[-1]
        c, p = np.broadcast_to(c, (n, k)), np.broadcast_to(p, (n, k))
        coefficients, places = _collected(c, p, size)
        fixed = [k for k in range(places.shape[1]) if (places[:, k] == places[0, k]).all()]
        if len(fixed) > 1:
            vector = graph.flatten()[places[0, fixed]] if len(fixed) < size else graph.flatten()
            design = np.ascontiguousarray(coefficients[:, fixed])
            summands.append(pt.dot(columns.of(design, index), vector))
        for k in range(places.shape[1]):
            if len(fixed) > 1 and k in fixed:
                continue
            own = _looked_up(graph, places[:, k], columns, index)
            column = columns.of(np.ascontiguousarray(coefficients[:, k]), index)
            sign = float(column.data) if isinstance(column, Constant) else 0.0
            summands.append(own if sign == 1.0 else -own if sign == -1.0 else column * own)
    if not summands:
        raise NoField(f"a predictor of {term.name!r} is zero")
    total = reduce(pt.add, summands)
    return total if total.type.ndim else total[None]


def _collected(c: Array, p: Index, size: int) -> tuple[Array, Index]:
    """Coefficients (n, K) and places (n, K), with those of one place in one column."""
    if c.shape[1] >= size > 1:
        dense = np.zeros((len(c), size))
        np.add.at(dense, (np.arange(len(c))[:, None], p), c)
        is_one = np.count_nonzero(dense, axis=1) == 1
        if is_one.all():  # a matrix of indicators
            place = np.argmax(dense != 0.0, axis=1)[:, None]
            return np.take_along_axis(dense, place, axis=1), place
        c, p = dense, np.broadcast_to(np.arange(size), dense.shape)
    found: list[tuple[Array, Index]] = []
    for k in range(c.shape[1]):
        if not c[:, k].any():
            continue
        same = next((j for j, (_, q) in enumerate(found) if np.array_equal(q, p[:, k])), None)
        if same is None:
            found.append((c[:, k], p[:, k]))
        else:
            found[same] = found[same][0] + c[:, k], p[:, k]
    if not found:
        return np.zeros((len(c), 0)), np.zeros((len(c), 0), np.int64)
    return np.stack([one for one, _ in found], axis=1), np.stack([one for _, one in found], axis=1)


def _looked_up(graph: Variable, places: Index, columns: _Columns, index: Variable) -> Variable:
    """The element of a table that each row looks up; of a matrix, an element of one of its short sides."""
    shape = graph.type.shape
    if len(shape) == 2:
        row, column = np.divmod(places, shape[1])
        if (column == column[0]).all():
            return graph[columns.of(row, index), int(column[0])]
        if (row == row[0]).all():
            return _transposed(graph)[columns.of(column, index), int(row[0])]
    flat = graph if len(shape) == 1 else graph.flatten()
    return flat[columns.of(np.ascontiguousarray(places), index)]


def _transposed(graph: Variable) -> Variable:
    """The transpose of a matrix; of a product that of its factors, in the other order."""
    if graph.owner is not None and isinstance(core_of(graph.owner.op), Dot):
        left, right = graph.owner.inputs
        return pt.dot(right.T, left.T)
    return graph.T
