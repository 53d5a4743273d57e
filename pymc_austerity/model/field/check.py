"""Comparison of a field with the graph that it was found on, at points: priors, tables and predictors."""

from typing import Any

import numpy as np

from pymc_austerity.bounds.row_function import evenly_spaced
from pymc_austerity.distributions.uniform_stiefel import orthonormal_names
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.factorisation import CHUNK, Factorisation
from pymc_austerity.model.field.priors import Innovation, NoField, Step
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on
from pymc_austerity.model.starting_point import jittered_point
from pymc_austerity.target import Array

# Of the sum of absolute terms: of priors, and of rows. PyTensor may write these in a form that loses more to
# rounding, as of log(1 + erf(x)).
_TOLERANCE, _OF_ROWS = 1e-10, 1e-6


def require_same_priors(
    factorisation: Factorisation, innovations: list[Innovation], points: list[list[np.ndarray]]
) -> None:
    """Compare the densities of innovations with the model's own terms, up to a constant for each.

    Raises
    ------
    NoField
        If one differs: its rule does not hold for this model.
    """
    graph = factorisation.graph
    for one in innovations:
        rule = _log_density if one.matched is None else _nearly_normal
        found = np.array([rule(factorisation, one, point) for point in points])
        function = function_of([*graph.values.values(), *graph.data], graph.terms[graph.variables[one.name]])
        data = graph.data_values()
        theirs = [np.asarray(function(*point, *data)) for point in points]
        expected = np.array([each.sum() for each in theirs])
        size = max(float(np.abs(each).sum()) for each in theirs)
        differences = (found - expected) - (found - expected)[0]
        if not np.all(np.abs(differences) <= _TOLERANCE * (1.0 + size)):
            raise NoField(
                f"the prior of {graph.variables[one.name]!r} differs from its rule by "
                f"{np.abs(differences).max():.3g}"
            )


def _log_density(factorisation: Factorisation, one: Innovation, point: list[np.ndarray]) -> float:
    """Log p of w - m by the rule, with the determinant of S, up to a constant."""
    graphs = [step.graph for step in one.steps if step.graph is not None]
    shape = [] if one.shape is None else [one.shape]
    outputs = [one.graph, *graphs, *shape, *(phi for phi, _ in one.precision)]
    graph = factorisation.graph
    function = function_of([*graph.values.values(), *graph.data], outputs)
    w, *rest = (np.asarray(x, dtype=np.float64) for x in function(*point, *graph.data_values()))
    if one.precision:
        weights = [float(x) for x in rest]
        quadratic = sum(
            phi * (w.sum() ** 2 if matrix is None else w.ravel() @ (matrix @ w.ravel()))
            for phi, (_, matrix) in zip(weights, one.precision, strict=True)
        )
        at_location = _at_location(factorisation, one, point)
        return at_location - 0.5 * quadratic
    values = iter(rest)
    known = [(step, next(values) if step.graph is not None else None) for step in one.steps]
    z, log_determinant = standardised(w, known)
    degrees = float(np.ravel(rest[-1])[0]) if shape else 0.0
    return float(np.sum(one.family.distribution(degrees).logpdf(z))) - log_determinant


def _nearly_normal(factorisation: Factorisation, one: Innovation, point: list[np.ndarray]) -> float:
    """Log p of l + t v by the rule a v - b K(v) + c."""
    assert one.matched is not None
    own, graph = one.matched, factorisation.graph
    outputs = [one.value, own.slope, own.amount, own.log_normaliser, own.location, own.unit]
    found = function_of([*graph.values.values(), *graph.data], outputs)(*point, *graph.data_values())
    w, slope, amount, constant, location, unit = np.broadcast_arrays(*found)
    v = (w - location) / unit
    curve = (np.exp(v), np.exp(-v), np.logaddexp(0.0, v))[own.kind]
    return float(np.sum(slope * v - amount * curve + constant - np.log(unit)))


def _at_location(factorisation: Factorisation, one: Innovation, point: list[np.ndarray]) -> float:
    """The model's own density of a variable that is at its location: the logarithm of what normalises it."""
    graph = factorisation.graph
    inputs = list(graph.values.values())
    location = np.zeros(one.value.type.shape)
    if one.location is not None:
        function = function_of([*inputs, *graph.data], one.location)
        location = np.broadcast_to(function(*point, *graph.data_values()), location.shape)
    moved = [location if var is one.value else x for var, x in zip(inputs, point, strict=True)]
    function = function_of([*inputs, *graph.data], graph.terms[graph.variables[one.name]])
    return float(np.sum(function(*moved, *graph.data_values())))


def standardised(w: Array, steps: list[tuple[Step, Array | None]]) -> tuple[Array, float]:
    """Z of w = S z, and log |det S|. Scales must not be zero here."""
    log_determinant = 0.0
    for step, graph in reversed(steps):
        if step.kind == "scale":
            assert graph is not None
            w = w / graph
            log_determinant += float(np.sum(np.log(np.abs(np.broadcast_to(graph, w.shape)))))
        elif step.kind == "right":
            assert graph is not None
            q = graph.shape[-1]
            if graph.ndim == 2:
                w = np.linalg.solve(graph.T, w.reshape(-1, q).T).T.reshape(w.shape)
            else:  # a matrix for each row
                w = np.linalg.solve(np.swapaxes(graph, -1, -2), w[..., None])[..., 0]
            log_determinant += w.size / q * float(np.mean(np.linalg.slogdet(graph)[1]))
        elif step.kind == "sum":
            w = np.diff(w, axis=step.axis, prepend=0.0)
        elif step.kind == "autoregression":
            assert graph is not None
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
