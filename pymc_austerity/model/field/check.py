"""Comparison of a field with the graph that it was found on, at points: priors, tables and predictors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from pymc_austerity.bounds.expressions.continuity import is_straight
from pymc_austerity.bounds.row_function import evenly_spaced
from pymc_austerity.distributions.uniform_stiefel import orthonormal_names
from pymc_austerity.exceptions import NoNormalApproximationError, SelfCheckError
from pymc_austerity.model.factorisation import CHUNK, Factorisation
from pymc_austerity.model.field.priors import Innovation, NoField, Step, factors
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on
from pymc_austerity.model.starting_point import jittered_point
from pymc_austerity.target import Array

# Values of all variables of a model.
Point = list[np.ndarray]

# Of the sum of absolute terms: of priors, and of rows. PyTensor may write these in a form that loses more to
# rounding, as of log(1 + erf(x)).
_TOLERANCE, _OF_ROWS = 1e-10, 1e-6


def require_same_priors(
    factorisation: Factorisation, innovations: list[Innovation], points: list[Point]
) -> None:
    """Compare the densities of innovations with the model's own terms, up to a constant for each.

    Raises
    ------
    NoField
        If one differs: its rule does not hold for this model.
    """
    graph = factorisation.graph
    for one in innovations:
        rule = _nearly_normal if one.matched is not None else _by_precision if one.precision else _by_steps
        found = np.array(rule(graph, one, points))
        theirs = [each for (each,) in _values(graph, [_term(graph, one)], points)]
        expected = np.array([each.sum() for each in theirs])
        size = max(float(np.abs(each).sum()) for each in theirs)
        differences = (found - expected) - (found - expected)[0]
        if not np.all(np.abs(differences) <= _TOLERANCE * (1.0 + size)):
            raise NoField(
                f"the prior of {graph.variables[one.name]!r} differs from its rule by "
                f"{np.abs(differences).max():.3g}"
            )


def _term(graph: LogDensityGraph, one: Innovation) -> Variable:
    """The model's own density of a variable."""
    return graph.terms[graph.variables[one.name]]


def _values(graph: LogDensityGraph, outputs: list[Variable], points: list[Point]) -> list[list[Array]]:
    """Values of some graphs at points."""
    function, data = function_of([*graph.values.values(), *graph.data], outputs), graph.data_values()
    return [[np.asarray(x, dtype=np.float64) for x in function(*point, *data)] for point in points]


def _by_steps(graph: LogDensityGraph, one: Innovation, points: list[Point]) -> list[float]:
    """Log p of w - m by the distribution of z, with the determinant of S, up to a constant."""
    shape, result = [] if one.shape is None else [one.shape], []
    for w, *rest in _values(graph, [one.graph, *factors(one.steps), *shape], points):
        z, log_determinant = standardised(w, one.steps, rest)
        degrees = float(np.ravel(rest[-1])[0]) if shape else 0.0
        result.append(float(np.sum(one.family.distribution(degrees).logpdf(z))) - log_determinant)
    return result


def _by_precision(graph: LogDensityGraph, one: Innovation, points: list[Point]) -> list[float]:
    """Log p of w - m by its precision; what normalises it is the model's own density at the location."""
    result = []
    for point, (w, *weights) in zip(
        points, _values(graph, [one.graph, *(phi for phi, _ in one.precision)], points), strict=True
    ):
        quadratic = sum(
            float(phi) * (w.sum() ** 2 if matrix is None else w.ravel() @ (matrix @ w.ravel()))
            for phi, (_, matrix) in zip(weights, one.precision, strict=True)
        )
        at = [x - w if var is one.value else x for var, x in zip(graph.values.values(), point, strict=True)]
        ((own,),) = _values(graph, [_term(graph, one)], [at])
        result.append(float(own.sum()) - 0.5 * quadratic)
    return result


def _nearly_normal(graph: LogDensityGraph, one: Innovation, points: list[Point]) -> list[float]:
    """Log p of l + t v by the rule a v - b K(v) + c."""
    assert one.matched is not None
    own, result = one.matched, []
    outputs = [one.value, own.slope, own.amount, own.log_normaliser, own.location, own.unit]
    for found in _values(graph, outputs, points):
        w, slope, amount, constant, location, unit = np.broadcast_arrays(*found)
        v = (w - location) / unit
        curve = (np.exp(v), np.exp(-v), np.logaddexp(0.0, v))[own.kind]
        result.append(float(np.sum(slope * v - amount * curve + constant - np.log(unit))))
    return result


def standardised(w: Array, steps: Sequence[Step], values: Sequence[Array]) -> tuple[Array, float]:
    """Z of w = S z, and log |det S|, by values of the graphs of the steps. Scales must not be zero here."""
    known: dict[Step, Any] = dict(zip((one for one in steps if one.graph is not None), values, strict=False))
    log_determinant = 0.0
    for step in reversed(steps):
        graph: Any = known.get(step)
        if step.kind == "scale":
            w = w / graph
            log_determinant += float(np.sum(np.log(np.abs(np.broadcast_to(graph, w.shape)))))
        elif step.kind == "right":
            q = graph.shape[-1]
            if graph.ndim == 2:
                w = np.linalg.solve(graph.T, w.reshape(-1, q).T).T.reshape(w.shape)
            else:  # a matrix for each row
                w = np.linalg.solve(np.swapaxes(graph, -1, -2), w[..., None])[..., 0]
            log_determinant += w.size / q * float(np.mean(np.linalg.slogdet(graph)[1]))
        elif step.kind == "sum":
            w = np.diff(w, axis=step.axis, prepend=0.0)
        elif step.kind == "autoregression":
            p = graph.shape[-1]
            rest = w[..., p:].copy()
            for k in range(p):
                rest -= graph[..., k, None] * w[..., p - 1 - k : w.shape[-1] - 1 - k]
            w = np.concatenate([w[..., :p], rest], axis=-1)
        else:
            raise NoField(f"a rule of a prior has the step {step.kind!r}, which only tables have")
    return w, log_determinant


# Rows of a term that are compared, and points.
_ROWS, _POINTS, _SPREAD, _SEED = 200, 3, 0.3, 2025


def require_same(factorisation: Factorisation, field: Any) -> None:
    """Compare priors and rows with the model's own, at points near the start.

    Raises
    ------
    NoField
        If a prior differs from its rule.
    SelfCheckError
        If rows differ: a defect.
    """
    graph = factorisation.graph
    orthonormal = orthonormal_names(graph.raw.values())
    points = [
        list(jittered_point(graph.point, np.random.default_rng(seed), _SPREAD, orthonormal).values())
        for seed in range(_SEED, _SEED + _POINTS)
    ]
    innovations = {t.innovation.name: t.innovation for t in field.tables if t.innovation is not None}
    require_same_priors(factorisation, list(innovations.values()), points)
    inputs, data = [*graph.values.values(), *graph.data], graph.data_values()
    pieces: dict[str, list[Any]] = {}
    for one in field.likelihoods:
        pieces.setdefault(one.term.name, []).append(one)
    # Rows on disk are computed one by one, by the terms that were compared with the model.
    is_read = depends_on([graph.terms[name] for name in pieces], graph.on_disk)
    stored = {name: own for name, own in pieces.items() if is_read.get(graph.terms[name], False)}
    pieces = {name: own for name, own in pieces.items() if name not in stored}
    outputs = [*(t.graph for t in field.tables), *(graph.terms[name] for name in pieces)]
    # Stable forms are slow without compilation: many rows are computed as they are written.
    stable = max(one.term.size for one in field.likelihoods) <= CHUNK
    function = function_of(inputs, outputs, stabilised=stable)
    for point in points:
        values = function(*point, *data)
        tables = {t.input: np.ravel(x) for t, x in zip(field.tables, values, strict=False)}
        _require_same_single_rows(factorisation, stored, tables, point)
        for one in field.likelihoods:
            etas, columns = one.leaves_at(evenly_spaced(one.term.size, _ROWS), tables)
            if is_straight(one.graph.expression, etas, columns):
                raise NoNormalApproximationError.of_straight_pieces(one.term.name)
        for (name, own), theirs in zip(pieces.items(), values[len(field.tables) :], strict=True):
            _require_same_rows(name, own, tables, theirs)


def _require_same_single_rows(
    factorisation: Factorisation, pieces: dict[str, list[Any]], tables: dict[Any, Array], point: list[Any]
) -> None:
    """Compare some rows of each piece of the terms."""
    for name, own in pieces.items():
        terms = [term for term in factorisation.locals if term.name == name]
        if [term.size for term in terms] != [one.term.size for one in own]:
            raise NoField(f"rows of {name!r}, which are on disk, are taken apart in two ways")
        for one, term in zip(own, terms, strict=True):
            positions = evenly_spaced(term.size, _ROWS)
            rows = factorisation.compile(term.rows, [term.index], mode=INTERPRETED)
            with np.errstate(all="ignore"):
                expected = np.asarray(rows(*point, positions, *factorisation.leaf_values))
            ours, size = one.rows_at(positions, tables)
            _compare(name, ours, size, expected, [f"row {k}" for k in positions])


def _require_same_rows(name: str, pieces: list[Any], tables: dict[Any, Array], theirs: Array) -> None:
    """Compare some rows of a term; their sum, if they are in pieces, or a part of a sum or of a table."""
    n = pieces[0].term.size
    positions = evenly_spaced(n, _ROWS)
    if len(pieces) > 1 or np.shape(theirs) != (n,):
        parts = [one.rows_at(np.arange(one.term.size), tables) for one in pieces]
        ours, size = (np.atleast_1d(sum(each.sum() for each in both)) for both in zip(*parts, strict=True))
        expected, where = np.atleast_1d(np.sum(theirs)), ["the sum"]
    else:
        ours, size = pieces[0].rows_at(positions, tables)
        expected, where = theirs[positions], [f"row {k}" for k in positions]
    _compare(name, ours, size, expected, where)


def _compare(name: str, ours: Array, size: Array, expected: Array, where: list[str]) -> None:
    """Compare numbers of a field with those of the model; `size` are sums of absolute terms."""
    with np.errstate(invalid="ignore"):
        is_near = np.abs(ours - expected) <= _OF_ROWS * (1.0 + size)
        wrong = ~(is_near | (ours == expected) | np.isnan(expected))
    if wrong.any():
        k = int(np.flatnonzero(wrong)[0])
        raise SelfCheckError(
            f"Self-check failed for the term {name!r}: {where[k]} of its field is {ours[k]!r}, the graph "
            f"gives {expected[k]!r}. This is a defect of pymc_austerity: please report the model."
        )
