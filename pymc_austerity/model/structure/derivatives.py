"""Value, gradient and Hessian of a factorised log density, summed over rows in one vectorised pass.

A term with a linear predictor, l_i = f_i(x_i . q + o_i), needs two derivatives by one number for each row:
its gradient is X' f' and its Hessian X' diag(f'') X. Any other term is differentiated along all coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytensor.tensor as pt
from pytensor.gradient import grad, pushforward
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph

from pymc_austerity.exceptions import NoNormalApproximationError
from pymc_austerity.model.factorisation import CHUNK, Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE, parts_of, rebuild, stable
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.model.structure.predictor import DesignRows, predictor_graph
from pymc_austerity.model.structure.predictor_pair import predictors
from pymc_austerity.target import Index, LinearPredictor, Predictor, Vector

# Numbers in an intermediate result: rows at a time, times dimensions.
_BUDGET = 2_000_000
_SMALLEST_CHUNK = 256
# Numbers of a design that are kept from one pass to the next.
_KEPT = 30_000_000


class Derivatives(NamedTuple):
    """A function at a point.

    Attributes
    ----------
    value : float
    gradient : ndarray of shape (D,)
    hessian : ndarray of shape (D, D)
    """

    value: float
    gradient: Vector
    hessian: np.ndarray

    def plus(self, other: Derivatives, weight: float = 1.0) -> Derivatives:
        """The sum of two functions, the second with a weight."""
        return Derivatives(
            self.value + weight * other.value,
            self.gradient + weight * other.gradient,
            self.hessian + weight * other.hessian,
        )


class Differentiable:
    """A factorised log density as a function of one vector q, the values of its block.

    Parameters
    ----------
    factorisation : Factorisation
    point : dict of str to ndarray
        Values of all variables; those outside the block stay there.
    """

    def __init__(self, factorisation: Factorisation, point: Mapping[str, Any]) -> None:
        self._fact = factorisation
        self._point = factorisation.point_values(point)
        values = factorisation.graph.values
        self.start = np.concatenate([np.ravel(point[n]) for n in factorisation.var_names]).astype(np.float64)
        self.n_dim = len(self.start)
        self._q = pt.vector("q", shape=(self.n_dim,))
        self._parts = parts_of(self._q, [values[n] for n in factorisation.var_names])
        self._positions: Index | None = None
        self._last: tuple[Vector, Derivatives] | None = None
        # Functions of local terms, by number: compiled when asked for, as a worker needs few of them.
        self._made: dict[int, OfPredictor | _ByCoordinates] = {}

    def _function(self, k: int) -> OfPredictor | _ByCoordinates:
        if k not in self._made:
            self._made[k] = _term(self._fact, self._fact.locals[k], self._q, self._parts)
        return self._made[k]

    def likelihood(self, q: Vector, positions: Index | None = None) -> Derivatives:
        """Sum of the local terms at `positions` of the population, by default of all."""
        if positions is None and self._last is not None and np.array_equal(self._last[0], q):
            return self._last[1]
        result = Derivatives(0.0, np.zeros(self.n_dim), np.zeros((self.n_dim, self.n_dim)))
        start = 0
        if positions is not self._positions:
            self._positions = positions
            for function in self._made.values():
                function.forget(self._fact.n_local if positions is None else len(positions))
        for k, term in enumerate(self._fact.locals):
            own = np.arange(term.size) if positions is None else _within(positions, start, term.size)
            result = self._add(result, k, q, own)
            start += term.size
        self._last = (q.copy(), result) if positions is None else None
        return result

    def _add(self, result: Derivatives, k: int, q: Vector, rows: Index) -> Derivatives:
        """The sum of some rows of local term number k, added to `result`."""
        function = self._function(k)
        length = int(np.clip(_BUDGET // self.n_dim, _SMALLEST_CHUNK, CHUNK))
        with np.errstate(all="ignore"):
            for a in range(0, len(rows), length):
                result = result.plus(function(q, rows[a : a + length], self._point))
        return result

    def slopes(self, k: int, q: Vector) -> npt.NDArray[np.float64]:
        """f_i' and f_i'' at q of the n rows of local term number k, which has a linear predictor; (2, n)."""
        function = self._function(k)
        assert isinstance(function, OfPredictor)
        if self._last is None or not np.array_equal(self._last[0], q):  # no pass over all terms for this
            self._last = None
            function.forget(self._fact.n_local)
            nothing = Derivatives(0.0, np.zeros(self.n_dim), np.zeros((self.n_dim, self.n_dim)))
            self._add(nothing, k, q, np.arange(self._fact.locals[k].size))
        return np.concatenate(list(function.last.values()), axis=1)

    def features(self, q: Vector) -> Vector:
        """What the linear predictors are linear in: q itself."""
        return q

    def of_features(self, q: Vector) -> Derivatives:
        """The sum of all local terms as a function of that."""
        return self.likelihood(q)

    def predictors(self) -> tuple[Predictor, ...]:
        """The linear predictors of all local terms, one or two each, as `predictors` finds them.

        What is known of their rows from passes over all data is not computed again.
        """
        found = list(predictors(self._fact))
        for k, predictor in enumerate(found):
            function = self._made.get(k) if self._positions is None else None
            if isinstance(function, OfPredictor) and isinstance(predictor, LinearPredictor):
                found[k] = predictor._replace(rows=function.rows)
        return tuple(found)

    def forget(self) -> None:
        """Keep nothing of the size of the data."""
        self._last = None
        for function in self._made.values():
            function.forget(self._fact.n_local)

    def prior(self, q: Vector) -> Derivatives:
        """The global terms."""
        with np.errstate(all="ignore"):
            return _flat(self._global(*self._point, q, *self._fact.leaf_values))

    @cached_property
    def _global(self) -> Any:
        (graph,) = rebuild([self._fact.global_graph], self._parts)
        try:
            outputs = with_derivatives(graph, self._q)
        except NO_GRADIENT as error:
            names = ", ".join(repr(name) for name, _ in self._fact.globals)
            raise _not_smooth(f"The prior, or one of the short terms ({names}),", error) from None
        return self._fact.compile(outputs, [self._q], mode=INTERPRETED_STABLE)


def slopes(rows: Variable, at: Variable, index: Variable) -> list[Variable]:
    """First and second derivative of each row by the one number on which it depends.

    Parameters
    ----------
    rows : TensorVariable
        Terms, of shape (m,), as a function of `at`.
    at : TensorVariable
        One number for each row, or one for all.
    index : TensorVariable
        Row numbers, for m.

    Returns
    -------
    list of TensorVariable
        f_i' and f_i'', of shape (m,) each.
    """
    result, last = [], stable(rows)
    for _ in range(2):
        last = pushforward([last], [at], [pt.ones_like(at)], disconnected_outputs="ignore")[0]
        result.append(last if last.type.ndim else pt.alloc(last, index.shape[0]))
    return result


def _term(fact: Factorisation, term: LocalTerm, q: Variable, parts: dict[Variable, Variable]) -> Any:
    found = predictor_graph(fact, term)
    try:
        if isinstance(found, str):
            return _ByCoordinates(fact, term, q, parts)
        return OfPredictor(fact, term, *found)
    except NO_GRADIENT as error:
        raise _not_smooth(f"The term {term.name!r}", error) from None


def _not_smooth(what: str, error: Exception) -> NoNormalApproximationError:
    return NoNormalApproximationError(
        f"{what} cannot be differentiated twice, which a mode and a Taylor polynomial need: {error}. Use the "
        "step without control_variate, and with a random walk."
    )


class OfPredictor:
    """A term with a linear predictor: x_i, o_i, and derivatives of f_i."""

    def __init__(self, fact: Factorisation, term: LocalTerm, rows: Variable, eta: Variable) -> None:
        self._leaves = fact.leaf_values
        self._n_rows = fact.n_local
        self._kept: dict[int, np.ndarray] = {}
        # Slopes of the last pass over the rows.
        self.last: dict[int, np.ndarray] = {}
        self.design = DesignRows(fact, term, eta)
        self._input = eta.type("eta")
        (of_eta,) = rebuild([rows], {eta: self._input})
        outputs = [of_eta, *slopes(of_eta, self._input, term.index)]
        self._function = fact.compile(outputs, [self._input, term.index], mode=INTERPRETED_STABLE)

    def of_rows(self, eta: Vector, positions: Index, point: list[np.ndarray]) -> list[Vector]:
        """l_i, f_i' and f_i'' at eta_i."""
        shape = self._input.type.shape
        wide = (
            eta.reshape([-1 if k is None else 1 for k in shape]) if None in shape else eta[:1].reshape(shape)
        )
        outputs = self._function(*point, wide, positions, *self._leaves)
        return [np.broadcast_to(np.ravel(out), len(positions)) for out in outputs]

    def forget(self, n_rows: int) -> None:
        """Other rows are wanted from now on, so many in all terms."""
        self._kept.clear()
        self.last.clear()
        self._n_rows = n_rows

    def rows(self, positions: Index) -> np.ndarray:
        """The design, as far as it is kept, of consecutive rows."""
        first, last = int(positions[0]), int(positions[-1])
        begins = [start for start in self._kept if start <= first]
        start = max(begins, default=0)
        kept = self._kept.get(start)
        if kept is None or last >= start + len(kept) or last - first + 1 != len(positions):
            return self.design(positions)
        return kept[first - start : last + 1 - start]

    def __call__(self, q: Vector, positions: Index, point: list[np.ndarray]) -> Derivatives:
        """Sum over some rows, whose design is kept for the next call if it is not too large."""
        rows = self._kept.get(int(positions[0]))
        if rows is None:
            rows = self.design(positions)
            if self._n_rows * rows.shape[1] <= _KEPT:
                self._kept[int(positions[0])] = rows
        x, offset = rows[:, :-1], rows[:, -1]
        value, first, second = self.of_rows(x @ q + offset, positions, point)
        self.last[int(positions[0])] = np.stack([first, second])
        return Derivatives(float(value.sum()), first @ x, (x.T * second) @ x)


class _ByCoordinates:
    """Any other term."""

    def __init__(
        self, fact: Factorisation, term: LocalTerm, q: Variable, parts: dict[Variable, Variable]
    ) -> None:
        self._leaves = fact.leaf_values
        (rows,) = rebuild([term.rows], parts)
        outputs = with_derivatives(stable(rows).sum(), q)
        self._function = fact.compile(outputs, [q, term.index], mode=INTERPRETED_STABLE)

    def forget(self, n_rows: int) -> None:
        """Nothing is kept."""

    def __call__(self, q: Vector, positions: Index, point: list[np.ndarray]) -> Derivatives:
        return _flat(self._function(*point, q, positions, *self._leaves))


def with_derivatives(density: Variable, q: Variable) -> list[Variable]:
    """A scalar graph, its gradient, and its Hessian along all coordinates at once."""
    gradient = grad(density, q, disconnected_inputs="ignore")
    direction = q.type("direction")
    change = pushforward([gradient], [q], [direction], disconnected_outputs="ignore")[0]
    coordinates = pt.constant(np.eye(q.type.shape[0]))
    try:
        hessian = vectorize_graph(change, {direction: coordinates})
    except NotImplementedError:  # an operation that knows no batches
        hessian = pt.stack([rebuild([change], {direction: row})[0] for row in coordinates])
    if hessian.type.ndim == 1:  # a gradient that does not change: flat, or made of straight pieces
        hessian = pt.zeros_like(coordinates)
    return [density, gradient, hessian]


def _flat(outputs: list[np.ndarray]) -> Derivatives:
    value, gradient, hessian = outputs
    return Derivatives(float(value), gradient, (hessian + hessian.T) / 2.0)


class LocalTerms:
    """All l_i at a state as one vector; nothing is compiled."""

    def __init__(self, factorisation: Factorisation) -> None:
        self._fact = factorisation
        self._functions = [
            factorisation.compile(stable(term.rows), [term.index], mode=INTERPRETED_STABLE)
            for term in factorisation.locals
        ]

    def __call__(self, point: Mapping[str, Any], positions: Index | None = None) -> Vector:
        """Those at `positions` of the population, in order; by default all, of shape (N,)."""
        values, leaves = self._fact.point_values(point), self._fact.leaf_values
        parts, first = [], 0
        with np.errstate(all="ignore"):
            for term, function in zip(self._fact.locals, self._functions, strict=True):
                own = np.arange(term.size) if positions is None else _within(positions, first, term.size)
                for start in range(0, len(own), CHUNK):
                    parts.append(function(*values, own[start : start + CHUNK], *leaves))
                first += term.size
        return np.concatenate(parts) if parts else np.empty(0)


def _within(positions: Index, first: int, size: int) -> Index:
    """Those positions of the population that belong to a term, counted within it."""
    inside: Index = positions[(positions >= first) & (positions < first + size)] - first
    return inside
