"""Effects as linear functions of standardised coordinates: x = b(theta) + C(theta) z, z ~ N(0, R(theta)^-1).

A table of a field is what steps make of standard normal numbers. Here the steps become a sparse matrix. Each
of its elements is a constant times some *features*, which are functions of theta: scales, elements of a
Cholesky factor. Nothing is divided by a feature. Sums along an axis would make the matrix dense. There z are
the sums themselves, and their precision R that of a random walk: z = B' z' with independent z' has
R = B B'. An autoregression has R tridiagonal in the same way.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.distributions.transforms import ZeroSumTransform
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import Join, MakeVector
from pytensor.tensor.elemwise import Elemwise
from scipy import sparse

from pymc_austerity.model.field.find import Field
from pymc_austerity.model.field.priors import Innovation, NearlyNormal, NoField, Step
from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.graph.rewrite import depends_on, rebuild
from pymc_austerity.model.structure.operations import MOVING, UNCHANGED, WRITING, core_of
from pymc_austerity.target import Index, Matrix, Vector

# Elements of a dense matrix, at most.
_DENSE = 20_000
# Effects that sum to zero, from which on the map from independent ones is not written as a matrix.
_MANY_SUMMED = 64
# Steps after which heavy-tailed effects are still what their prior says, one by one.
_KEEPING = {"scale", "left", "right", "placed"}


class Entries(NamedTuple):
    """Elements of a sparse matrix, each a constant times features; those of one place are added."""

    rows: Index
    columns: Index
    coefficients: Vector
    factors: Index  # (n, m): which features; 0 is the number one

    def by_rows(self) -> "Entries":
        """The entries that are not zero, sorted by rows and columns."""
        kept = np.flatnonzero(self.coefficients)
        kept = kept[np.lexsort((self.columns[kept], self.rows[kept]))]
        return self.taken(kept)

    def taken(self, which: Index) -> "Entries":
        """Some of them."""
        return Entries(self.rows[which], self.columns[which], self.coefficients[which], self.factors[which])

    def shifted(self, rows: int, columns: int) -> "Entries":
        """The entries so many rows and columns further on."""
        return self._replace(rows=self.rows + rows, columns=self.columns + columns)

    def placed(self, rows: Index, columns: Index) -> "Entries":
        """The entries at other places, by the new numbers of rows and columns; -1 leaves one out."""
        found = self._replace(rows=rows[self.rows], columns=columns[self.columns])
        return found.taken(np.flatnonzero((found.rows >= 0) & (found.columns >= 0)))


def joined(parts: Iterable[Entries]) -> Entries:
    """All entries of some matrices, one after the other."""
    every = [_identity(0), *parts]
    width = max(part.factors.shape[1] for part in every)
    return Entries(
        np.concatenate([part.rows for part in every]),
        np.concatenate([part.columns for part in every]),
        np.concatenate([part.coefficients for part in every]),
        np.concatenate([np.pad(p.factors, ((0, 0), (0, width - p.factors.shape[1]))) for p in every]),
    )


@dataclass(eq=False)
class Features:
    """Functions of theta, each once: elements of graphs that are computed in the same way are one.

    Graphs are executed on numbers that stand for ways to compute an element: operations that only move
    elements move them, and element by element equal arguments give equal results.
    """

    graph: LogDensityGraph
    elements: list[tuple[Variable, int]] = field(default_factory=list)
    _ways: dict[Any, int] = field(default_factory=dict)  # Numbers of ways
    _constants: dict[int, float] = field(default_factory=dict)  # Of ways that are constants
    _features: dict[int, int] = field(default_factory=dict)  # Numbers of features, by ways
    _known: dict[Variable, Index] = field(default_factory=dict)

    def __call__(self, graph: Variable) -> tuple[Vector, Index]:
        """Constants, and numbers of features, of the elements of a graph."""
        ways = np.ravel(self._of(graph))
        constants, numbers = np.ones(len(ways)), np.zeros(len(ways), np.int64)
        distinct, first, place = np.unique(ways, return_index=True, return_inverse=True)
        for k, (way, at) in enumerate(zip(distinct.tolist(), first.tolist(), strict=True)):
            if way in self._constants:
                constants[place == k] = self._constants[way]
                continue
            if way not in self._features:
                self.elements.append((graph, at))
                self._features[way] = len(self.elements)
            numbers[place == k] = self._features[way]
        if not np.isfinite(constants).all():
            raise NoField("a scale or location of effects is not finite")
        return constants, numbers

    def _of(self, graph: Variable) -> Index:
        """Numbers of the ways in which elements are computed, in the shape of the graph."""
        for node in toposort([graph]):
            for out in node.outputs:
                if out not in self._known:
                    self._known[out] = self._result(node, out)
        return self._leaf(graph)

    def _leaf(self, var: Variable) -> Index:
        if var not in self._known:
            shape = tuple(int(k) for k in getattr(var.type, "shape", ()))
            if self._moves(var):
                found = [self._way(("value", var, k)) for k in range(int(np.prod(shape)))]
                self._known[var] = np.array(found, dtype=np.int64).reshape(shape)
            else:
                self._known[var] = self._of_numbers(self.graph.evaluate(var))
        return self._known[var]

    def _of_numbers(self, values: np.ndarray) -> Index:
        distinct, place = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True)
        ways = np.empty(len(distinct), np.int64)
        for k, value in enumerate(distinct.tolist()):
            ways[k] = self._way(("number", value))
            self._constants[int(ways[k])] = value
        return ways[place].reshape(np.shape(values))

    def _moves(self, var: Variable) -> bool:
        return not set(self.graph.values.values()).isdisjoint(ancestors([var]))

    def _way(self, key: Any) -> int:
        return self._ways.setdefault(key, len(self._ways))

    def _result(self, node: Apply, out: Variable) -> Index:
        if not self._moves(out):
            return self._of_numbers(self.graph.evaluate(out))
        op = core_of(node.op)
        if isinstance(op, Elemwise):
            return self._elementwise(op, [self._leaf(v) for v in node.inputs])
        if isinstance(op, UNCHANGED):
            return self._leaf(node.inputs[0])
        is_written = isinstance(op, WRITING) and op.set_instead_of_inc
        n_moved = 2 if is_written else 1
        if isinstance(op, Join):
            parts = [self._leaf(v) for v in node.inputs]
            return np.concatenate(parts, axis=op.axis)
        if isinstance(op, MakeVector):
            return np.array([int(self._leaf(v)) for v in node.inputs], dtype=np.int64)
        rest = node.inputs[n_moved:]
        if (is_written or isinstance(op, MOVING)) and not any(map(self._moves, rest)):
            moved = [self._leaf(v).astype(np.float64) for v in node.inputs[:n_moved]]
            storage: list[list[Any]] = [[None] for _ in node.outputs]
            node.op.perform(node, [*moved, *(self.graph.evaluate(v) for v in rest)], storage)
            return np.asarray(storage[0][0]).astype(np.int64)
        shape = tuple(int(k) for k in out.type.shape)
        found = [self._way(("element", out, k)) for k in range(int(np.prod(shape)))]
        return np.array(found, dtype=np.int64).reshape(shape)

    def _elementwise(self, op: Elemwise, args: list[Index]) -> Index:
        wide = np.broadcast_arrays(*args)
        rows, place = np.unique(np.stack([np.ravel(x) for x in wide], 1), axis=0, return_inverse=True)
        if type(op.scalar_op) in (ps.Identity, ps.Cast, ps.Second):  # the last argument as it is
            return wide[-1]
        ways = np.array([self._way((op.scalar_op, *row)) for row in rows.tolist()], dtype=np.int64)
        return ways[np.ravel(place)].reshape(wide[0].shape)

    @property
    def numbers(self) -> list[Variable]:
        """All features; the first is one."""
        return [pt.constant(1.0), *(pt.flatten(g)[k].astype("float64") for g, k in self.elements)]


class MatchedCoordinates(NamedTuple):
    """Effects that are normal only nearly: a, b, m and s of `kernels.fields.matched`."""

    kind: int
    # (4, n)
    constants: Matrix
    numbers: Index


class Coordinates(NamedTuple):
    """The coordinates z of one innovation w - m."""

    innovation: Innovation
    first: int  # Where they begin in the vector of all
    size: int
    own: Entries  # W - m of these, in their order
    precision: Entries  # R, the lower triangle
    log_volume: Variable | None  # What the density of z has besides -z' R z / 2, if it depends on theta
    shift: Entries | None = None  # What is added to all of w - m: one row, by z; `own` is without it
    # Of heavy-tailed effects, constant and feature of their degrees of freedom; 0 for Laplace's distribution
    tails: tuple[float, int] | None = None
    matched: MatchedCoordinates | None = None
    # Whether w are what PyMC makes of n effects that sum to zero: then z has their mean, too, which w has not
    has_mean: bool = False

    def shifted(self, features: Vector, z: Vector) -> float:
        """What is added to all of w - m."""
        if self.shift is None:
            return 0.0
        return float(value_of(self.shift, features) @ z[self.first + self.shift.columns])


class Given(NamedTuple):
    """Elements that are numbers of the model, constants times features."""

    elements: Index
    numbers: Index
    constants: Vector


@dataclass(frozen=True, eq=False)
class Maps:
    """All effects of a field as functions of theta and z. Elements are numbered over all tables."""

    coordinates: tuple[Coordinates, ...]
    first: Index  # (T + 1,): where the elements of each table begin
    elements: Entries  # C
    given: Given
    features: Features
    shifts: dict[int, Entries]  # What a shift of one adds to the elements of a table; its column is 0

    @property
    def n_coordinates(self) -> int:
        """Length of z."""
        return sum(one.size for one in self.coordinates)

    @cached_property
    def innovations(self) -> Entries:
        """All w - m, one after the other, but for their shifts."""
        return joined(one.own.shifted(one.first, one.first) for one in self.coordinates)

    @cached_property
    def precision(self) -> Entries:
        """R, the lower triangle."""
        return joined(one.precision.shifted(one.first, one.first) for one in self.coordinates)


_NONE_GIVEN = Given(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def maps_of(found: Field, graph: LogDensityGraph, *, with_means: bool = True) -> Maps:
    """The maps of a field; `with_means` many effects that sum to zero get a mean, which an intercept loses.

    Raises
    ------
    NoField
        If a prior is not normal, or its matrix would be dense.
    """
    features, coordinates = Features(graph), dict[Any, Coordinates]()
    effects = [table.innovation.value for table in found.tables if table.innovation is not None]
    first = 0
    for table in found.tables:
        one = table.innovation
        if one is None or one.name in coordinates:
            continue
        of_tables = [
            t.steps for t in found.tables if t.innovation is not None and t.innovation.name == one.name
        ]
        summed = _with_mean(one, of_tables, first, features) if with_means else None
        coordinates[one.name] = summed or _coordinates(one, of_tables, first, features, effects)
        first += coordinates[one.name].size
    places = np.cumsum([0, *(table.size for table in found.tables)])
    tables, given, shifts = list[Entries](), [_NONE_GIVEN], dict[int, Entries]()
    for k, (table, start) in enumerate(zip(found.tables, places, strict=False)):
        if table.innovation is None:
            continue
        own = coordinates[table.innovation.name]
        steps, shape = table.steps, tuple(int(k) for k in table.innovation.value.type.shape)
        if own.has_mean:
            steps, shape = steps[1:], (own.size,)
        tables.append(_through(steps, own.own, shape, features)[0].shifted(start, own.first))
        if own.shift is not None:
            ones = _identity(own.size)._replace(columns=np.zeros(own.size, np.int64))
            shifts[k] = _through(steps, ones, shape, features)[0].shifted(start, 0).by_rows()
    for table, start in zip(found.tables, places, strict=False):
        if table.innovation is None:
            constants, numbers = features(table.graph)
            given.append(Given(start + np.arange(table.size), numbers, constants))
    every = Given(*map(np.concatenate, zip(*given, strict=True)))
    return Maps(tuple(coordinates.values()), places, joined(tables).by_rows(), every, features, shifts)


def _coordinates(
    one: Innovation,
    of_tables: list[tuple[Step, ...]],
    first: int,
    features: Features,
    effects: list[Variable],
) -> Coordinates:
    shape = tuple(int(k) for k in one.value.type.shape)
    n = int(np.prod(shape))
    if one.precision:
        return _by_precision(one, n, first, features, effects)
    kinds = {step.kind: step for step in (*one.steps, *(s for steps in of_tables for s in steps))}
    tails = _tails(one, features)
    if tails is not None and not kinds.keys() <= _KEEPING:
        raise NoField(f"the prior of {one.name!r} is not normal, and sums are taken of it")
    base, precision = _identity(n), _identity(n)
    if "sum" in kinds:
        scales, at_sum = _through(_up_to(one.steps, of_tables, "sum"), base, shape, features)
        if at_sum != shape:
            raise NoField(f"{one.name!r} has another shape where sums are taken")
        base, precision = _walk(shape, kinds["sum"].axis, scales.by_rows())
    elif "autoregression" in kinds:
        return _autoregression(one, n, first, features)
    own, _ = _through(one.steps, base, shape, features)
    matched, volume = None, None
    if one.matched is not None:
        if not kinds.keys() <= _KEEPING:
            raise NoField(f"the prior of {one.name!r} is not normal, and sums are taken of it")
        matched, volume = _matched(one.matched, shape, features)
    return Coordinates(one, first, n, own.by_rows(), precision, volume, tails=tails, matched=matched)


def _with_mean(
    one: Innovation, of_tables: list[tuple[Step, ...]], first: int, features: Features
) -> Coordinates | None:
    """Effects that sum to zero as n independent ones less their mean; None for few, or another prior.

    Their matrix would be dense. With a mean, which is independent of all else, z are n standard normal
    numbers, and w - m is s z less the mean of s z.
    """
    n = int(np.prod(one.value.type.shape)) + 1
    is_summed = all(steps and steps[0].kind == "zero_sum" for steps in of_tables)
    if n < _MANY_SUMMED or one.value.type.ndim != 1 or not is_summed:
        return None
    own, _ = _through(one.steps, _identity(n), (n,), features)
    if np.ptp(own.coefficients) > 0.0 or np.ptp(own.factors, axis=0).any():
        return None
    shift = own._replace(rows=np.zeros(n, np.int64), coefficients=-own.coefficients / n)
    return Coordinates(one, first, n, own.by_rows(), _identity(n), None, shift, has_mean=True)


def _matched(
    own: NearlyNormal, shape: tuple[int, ...], features: Features
) -> tuple[MatchedCoordinates, Variable]:
    """Numbers of effects that are normal only nearly, and what their log density has of theta alone."""
    graphs = [pt.broadcast_to(one, shape) for one in (own.slope, own.amount, own.mean, pt.sqrt(own.variance))]
    constants, numbers = zip(*(features(one) for one in graphs), strict=True)
    curve = (pt.exp(own.mean), pt.exp(-own.mean), pt.softplus(own.mean))[own.kind]
    at_mean = own.slope * own.mean - own.amount * curve + own.log_normaliser
    volume = pt.broadcast_to(at_mean + 0.5 * pt.log(own.variance), shape)
    return MatchedCoordinates(own.kind, np.stack(constants), np.stack(numbers)), volume


def _tails(one: Innovation, features: Features) -> tuple[float, int] | None:
    """Degrees of freedom of heavy-tailed effects: a constant, and the number of a feature."""
    if one.family.name == "Normal":
        return None
    if one.family.name == "Laplace":
        return 0.0, 0
    assert one.shape is not None
    constants, numbers = features(one.shape)
    if np.ptp(constants) > 0.0 or np.ptp(numbers) > 0:
        raise NoField(f"elements of {one.name!r} have degrees of freedom that differ")
    return float(constants[0]), int(numbers[0])


def _up_to(steps: tuple[Step, ...], of_tables: list[tuple[Step, ...]], kind: str) -> tuple[Step, ...]:
    """Steps before the first of a kind."""
    for every in ((*steps, *own) for own in of_tables):
        for k, step in enumerate(every):
            if step.kind == kind:
                return every[:k]
    raise AssertionError(f"no step is a {kind}")


def _identity(n: int) -> Entries:
    return Entries(np.arange(n), np.arange(n), np.ones(n), np.zeros((n, 0), np.int64))


def _of_matrix(matrix: Any) -> Entries:
    found = sparse.coo_array(matrix)
    return Entries(
        found.row.astype(np.int64), found.col.astype(np.int64), found.data, np.zeros((found.nnz, 0), np.int64)
    )


def _walk(shape: tuple[int, ...], axis: int, scales: Entries) -> tuple[Entries, Entries]:
    """B and R of sums along an axis: differences, but for a first number with a scale of its own."""
    n, ids = int(np.prod(shape)), np.arange(int(np.prod(shape))).reshape(shape)
    lines = np.moveaxis(ids, axis, -1).reshape(-1, shape[axis])
    kinds = np.zeros((n, scales.factors.shape[1] + 1))
    kinds[scales.rows, :-1], kinds[scales.rows, -1] = np.sort(scales.factors, axis=1), scales.coefficients
    before, after = lines[:, :-1].ravel(), lines[:, 1:].ravel()
    same = np.all(kinds[before] == kinds[after], axis=1)
    matrix = sparse.eye_array(n, format="lil")
    matrix[after[same], before[same]] = -1.0
    matrix = sparse.csr_array(matrix)
    return _of_matrix(matrix), _of_matrix(sparse.tril(matrix.T @ matrix))


def _autoregression(one: Innovation, n: int, first: int, features: Features) -> Coordinates:
    """``w_t = rho w_(t - 1) + s z_t``: w_t = s v_t + rho^t w_0, and v has no scale."""
    scale, step = one.steps
    assert scale.graph is not None
    assert step.graph is not None
    if one.value.type.ndim != 1 or int(np.prod(step.graph.type.shape)) != 1:
        raise NoField(f"{one.name!r} is an autoregression of higher order, or of several series")
    constants, numbers = features(pt.broadcast_to(scale.graph, (n,)))
    rho = step.graph.flatten()[0]
    if np.any(numbers[1:] != numbers[1]) or np.any(constants[1:] != constants[1]):
        raise NoField(f"the steps of the autoregression {one.name!r} have several scales")
    powers, of_powers = features(rho ** np.arange(n))
    t = np.arange(1, n)
    of_scale = np.stack([numbers[1:], np.zeros(n - 1, np.int64)], 1)
    of_first = np.stack([np.full(n, numbers[0]), of_powers], 1)
    of_steps = Entries(t, t, constants[1:], of_scale)
    of_start = Entries(np.arange(n), np.zeros(n, np.int64), constants[0] * powers, of_first)
    r, of_r = (x[0] for x in features(rho))
    square = np.array([[of_r, of_r]]).repeat(n - 2, 0)
    precision = Entries(
        np.concatenate([np.arange(n), t[:-1], t[1:]]),
        np.concatenate([np.arange(n), t[:-1], t[:-1]]),
        np.concatenate([np.ones(n), np.full(n - 2, r * r), np.full(n - 2, -r)]),
        np.concatenate([np.zeros((n, 2), np.int64), square, np.array([[of_r, 0]]).repeat(n - 2, 0)]),
    )
    return Coordinates(one, first, n, joined([of_steps, of_start]).by_rows(), precision, None)


def _by_precision(
    one: Innovation, n: int, first: int, features: Features, effects: list[Variable]
) -> Coordinates:
    """R = sum of phi_k M_k, in units of the first of these: w = v / sqrt(phi_0)."""
    phi, matrix = one.precision[0]
    if any(m is not None and m.shape != (n, n) for _, m in one.precision):
        raise NoField(f"{one.name!r} are several fields of areas")
    if any(m is None for _, m in one.precision):
        return _intrinsic(one, n, first, features)
    graph = features.graph
    location = np.zeros(one.value.type.shape) if one.location is None else one.location
    if matrix.nnz == 0:  # no prior
        return Coordinates(one, first, n, _identity(n), _of_matrix(sparse.csr_array((n, n))), None)
    scale = phi**-0.5
    constants, numbers = features(scale)
    own = Entries(np.arange(n), np.arange(n), np.full(n, constants[0]), np.full((n, 1), numbers[0]))
    parts = []
    for k, (other, m) in enumerate(one.precision):
        c, number = (np.ones(1), np.zeros(1, np.int64)) if k == 0 else features(other / phi)
        part = _of_matrix(sparse.tril(m))
        n_own = len(part.rows)
        parts.append(_times(part, np.full(n_own, c[0]), np.full(n_own, number[0])))
    (at,) = rebuild([graph.terms[graph.variables[one.name]]], {one.value: pt.as_tensor(location)})
    nothing = {v: pt.zeros(v.type.shape) for v in effects if v in set(ancestors([at]))}
    (at,) = rebuild([at], nothing) if nothing else [at]  # at its location the density does not depend on it
    return Coordinates(one, first, n, own, joined(parts), _folded(at.sum(), graph) + n * pt.log(scale))


def _intrinsic(one: Innovation, n: int, first: int, features: Features) -> Coordinates:
    """exp(-w' L w / (2 s^2) - (sum w)^2 / (2 c^2)), where L does not see what is the same for all.

    z are the differences to the last one in units of s, whose precision is L without its last row and column,
    and the mean of w in units of its standard deviation, c / n. So w is v with v_n = 0, and a shift by the
    mean of w less that of v.
    """
    (phi, laplacian), (soft, _) = one.precision
    scale, sd = phi**-0.5, soft**-0.5 / n
    (c, d), (number, of_mean) = zip(*(features(graph) for graph in (scale, sd)), strict=True)
    others = np.arange(n - 1)
    own = Entries(others, others, np.full(n - 1, c[0]), np.full((n - 1, 1), number[0]))
    shift = Entries(
        np.zeros(n, np.int64),
        np.arange(n),
        np.append(np.full(n - 1, -c[0] / n), d[0]),
        np.append(np.full(n - 1, number[0]), of_mean[0])[:, None],
    )
    of_mean_itself = sparse.csr_array(np.ones((1, 1)))
    precision = sparse.tril(sparse.block_diag([laplacian[:-1, :-1], of_mean_itself]))
    return Coordinates(one, first, n, own, _of_matrix(precision), (n - 1) * pt.log(scale), shift)


def _folded(graph: Variable, of_model: LogDensityGraph) -> Variable:
    """A graph with numbers in the place of what no variable moves, as the eigenvalues of a map of areas."""
    moving = depends_on([graph], of_model.values.values())
    memo: dict[Variable, Variable] = {}
    for node in toposort([graph]):
        if moving.get(node.outputs[0], False):
            fixed = [v for v in node.inputs if v.owner is not None and not moving.get(v, False)]
            memo.update({v: pt.constant(of_model.evaluate(v)) for v in fixed if v not in memo})
    return rebuild([graph], memo)[0] if memo else graph


# Steps on entries: the rows are the elements of an array.
_Shape = tuple[int, ...]
_Array = tuple[Entries, _Shape]


def _through(steps: Iterable[Step], entries: Entries, shape: _Shape, features: Features) -> _Array:
    for step in steps:
        if step.kind not in _STEPS:
            raise NoField("an autoregression that is changed before rows look it up")
        entries, shape = _STEPS[step.kind](step, entries.by_rows(), shape, features)
    return entries, shape


def _taken(entries: Entries, source: Index) -> tuple[Entries, Index]:
    """Entries of other rows: row k is what `source[k]` was; and which entries these were."""
    starts = np.searchsorted(entries.rows, source)
    counts = np.searchsorted(entries.rows, source, side="right") - starts
    offset = np.cumsum(counts) - counts
    which = np.arange(counts.sum()) - np.repeat(offset - starts, counts)
    rows = np.repeat(np.arange(len(source)), counts)
    return Entries(rows, *(one[which] for one in entries[1:])), which


def _times(entries: Entries, constants: Vector, numbers: Index) -> Entries:
    """Each entry times a constant and a feature."""
    factors = entries.factors
    if np.any(numbers):
        factors = np.concatenate([factors, numbers[:, None]], axis=1)
    return entries._replace(coefficients=entries.coefficients * constants, factors=factors)


def _scale(step: Step, entries: Entries, shape: _Shape, features: Features) -> _Array:
    assert step.graph is not None
    own = tuple(int(k) for k in step.graph.type.shape)
    new = np.broadcast_shapes(shape, own)
    source, place = (
        np.broadcast_to(np.arange(int(np.prod(s))).reshape(s), new).ravel() for s in (shape, own)
    )
    entries, _ = _taken(entries, source)
    constants, numbers = features(step.graph)
    at = place[entries.rows]
    return _times(entries, constants[at], numbers[at]), new


def _matrix(step: Step, entries: Entries, shape: _Shape, features: Features) -> _Array:
    """A product with a matrix from the left, over the last axis but one, or from the right, over the last."""
    assert step.graph is not None
    own = [int(x) for x in step.graph.type.shape]
    ids = np.arange(np.prod(own)).reshape(own)
    if step.kind == "right":  # of one matrix, or of one for each row
        return _over(entries, shape, len(shape) - 1, ids, range(1 - len(own), 0), features(step.graph))
    axis = max(len(shape) - 2, 0)
    return _over(entries, shape, axis, ids.T, [axis], features(step.graph))


def _zero_sum(step: Step, entries: Entries, shape: _Shape, features: Features) -> _Array:
    n, axis = shape[step.axis], step.axis % len(shape)
    matrix = np.asarray(ZeroSumTransform.extend_axis(pt.constant(np.eye(n)), 0).eval())
    elements = matrix.ravel(), np.zeros(matrix.size, np.int64)
    return _over(entries, shape, axis, np.arange(matrix.size).reshape(matrix.shape).T, [axis], elements)


def _over(
    entries: Entries,
    shape: _Shape,
    axis: int,
    ids: Index,
    which: Iterable[int],
    elements: tuple[Vector, Index],
) -> _Array:
    """Sums over an axis times elements of a matrix: `ids`, by some axes of the entries and the new one."""
    (constants, numbers), n, size = elements, len(entries.rows), ids.shape[-1]
    if n * size > _DENSE * 1000:
        raise NoField("effects are multiplied by a matrix that is large and dense")
    new, at = (*shape[:axis], size, *shape[axis + 1 :]), np.unravel_index(entries.rows, shape)
    place = ids[tuple(at[k] for k in which)].ravel()
    index = [np.repeat(one, size) for one in at]
    index[axis] = np.tile(np.arange(size), n)
    every = entries.taken(np.repeat(np.arange(n), size))
    every = every._replace(rows=np.ravel_multi_index(tuple(index), new))
    return _times(every, constants[place], numbers[place]).by_rows(), new


def _sum(step: Step, entries: Entries, shape: _Shape, features: Features) -> _Array:
    """Cumulative sums of the entries with the same features."""
    n = int(np.prod(shape))
    lines = np.moveaxis(np.arange(n).reshape(shape), step.axis, -1).reshape(-1, shape[step.axis])
    position = np.empty(n, np.int64)
    position[lines.ravel()] = np.tile(np.arange(shape[step.axis]), len(lines))
    line = np.empty(n, np.int64)
    line[lines.ravel()] = np.repeat(np.arange(len(lines)), shape[step.axis])
    kinds, kind = np.unique(np.sort(entries.factors, axis=1), axis=0, return_inverse=True)
    kind = kind.ravel()
    order = np.lexsort((position[entries.rows], line[entries.rows], entries.columns, kind))
    e = entries.taken(order)
    key = np.stack([kind[order], e.columns, line[e.rows]], 1)
    parts = []
    starts = (
        np.flatnonzero(np.r_[True, np.any(key[1:] != key[:-1], axis=1)]) if len(key) else np.zeros(0, int)
    )
    total = 0
    for a, b in zip(starts, np.append(starts[1:], len(key)), strict=True):
        height = np.zeros(shape[step.axis])
        np.add.at(height, position[e.rows[a:b]], e.coefficients[a:b])
        height = np.cumsum(height)
        height[np.abs(height) < 1e-14] = 0.0
        some = np.flatnonzero(height)
        total += len(some)
        if total > _DENSE + 3 * n:
            raise NoField("sums of effects whose steps have several scales are tied to each other")
        factors = np.repeat(kinds[key[a, 0]][None], len(some), 0)
        parts.append(Entries(lines[key[a, 2]][some], np.full(len(some), key[a, 1]), height[some], factors))
    return joined(parts), shape


def _placed(step: Step, entries: Entries, shape: _Shape, features: Features) -> _Array:
    assert step.graph is not None
    node = step.graph.owner
    ids = pt.as_tensor(np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape))
    source = np.asarray(node.op(ids).eval()).astype(np.int64)
    return _taken(entries, source.ravel())[0], source.shape


_STEPS: dict[str, Callable[[Step, Entries, _Shape, Features], _Array]] = {
    "scale": _scale,
    "left": _matrix,
    "right": _matrix,
    "sum": _sum,
    "zero_sum": _zero_sum,
    "placed": _placed,
}


def value_of(entries: Entries, features: Vector) -> Vector:
    """The elements at some features."""
    return entries.coefficients * np.prod(features[entries.factors], axis=1)


def matrix_of(entries: Entries, features: Vector, shape: tuple[int, int]) -> Matrix:
    """The matrix at some features."""
    return sparse.csr_array((value_of(entries, features), (entries.rows, entries.columns)), shape)
