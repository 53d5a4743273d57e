"""Value, gradient and Hessian of a factorised log density, summed over rows in one vectorised pass.

A term with a linear predictor, l_i = f_i(x_i . q + o_i), needs two derivatives by one number for each row:
its gradient is X' f' and its Hessian X' diag(f'') X. Any other term is differentiated along all coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad, pushforward
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph

from pymc_austerity.model.factorisation import CHUNK, Factorisation, LocalTerm
from pymc_austerity.model.predictor import DesignRows, predictor_graph
from pymc_austerity.model.rebuild import INTERPRETED_STABLE, rebuild
from pymc_austerity.target import Index, Vector

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
        self._terms = [_term(factorisation, t, self._q, self._parts) for t in factorisation.locals]

    def likelihood(self, q: Vector, positions: Index | None = None) -> Derivatives:
        """Sum of the local terms at `positions` of the population, by default of all."""
        result = Derivatives(0.0, np.zeros(self.n_dim), np.zeros((self.n_dim, self.n_dim)))
        length = int(np.clip(_BUDGET // self.n_dim, _SMALLEST_CHUNK, CHUNK))
        start = 0
        if positions is not self._positions:
            self._positions = positions
            for function in self._terms:
                function.forget(self._fact.n_local if positions is None else len(positions))
        with np.errstate(all="ignore"):
            for term, function in zip(self._fact.locals, self._terms, strict=True):
                own = np.arange(term.size)
                if positions is not None:
                    own = positions[(positions >= start) & (positions < start + term.size)] - start
                for a in range(0, len(own), length):
                    result = result.plus(function(q, own[a : a + length], self._point))
                start += term.size
        return result

    def prior(self, q: Vector) -> Derivatives:
        """The global terms."""
        with np.errstate(all="ignore"):
            return _flat(self._global(*self._point, q, *self._fact.leaf_values))

    @cached_property
    def _global(self) -> Any:
        (graph,) = rebuild([self._fact.global_graph], self._parts)
        return self._fact.compile(_with_derivatives(graph, self._q), [self._q], mode=INTERPRETED_STABLE)


def parts_of(q: Variable, values: Sequence[Variable]) -> dict[Variable, Variable]:
    """Each of the variables `values` as a part of one vector."""
    parts, start = {}, 0
    for value in values:
        size = int(np.prod(value.type.shape))
        parts[value] = q[start : start + size].reshape(value.type.shape)
        start += size
    return parts


def stable(rows: Variable) -> Variable:
    """The same after rewrites that keep log(1 - sigmoid(eta)) from becoming log(0).

    Some patterns are only found before the graph is brought to a canonical form, some only after.
    """
    rows = rewrite_graph(rows, include=("stabilize",), clone=True)
    return rewrite_graph(rows, include=("canonicalize", "stabilize"), clone=True)


def slopes(rows: Variable, at: Variable, index: Variable, order: int = 2) -> list[Variable]:
    """Derivatives of each row by the one number on which it depends.

    Parameters
    ----------
    rows : TensorVariable
        Terms, of shape (m,), as a function of `at`.
    at : TensorVariable
        One number for each row, or one for all.
    index : TensorVariable
        Row numbers, for m.
    order : int, default 2

    Returns
    -------
    list of TensorVariable
        f_i', f_i'', ..., of shape (m,) each.
    """
    result, last = [], stable(rows)
    for _ in range(order):
        last = pushforward([last], [at], [pt.ones_like(at)], disconnected_outputs="ignore")[0]
        result.append(last if last.type.ndim else pt.alloc(last, index.shape[0]))
    return result


def _term(fact: Factorisation, term: LocalTerm, q: Variable, parts: dict[Variable, Variable]) -> Any:
    found = predictor_graph(fact, term)
    try:
        if isinstance(found, str):
            return _ByCoordinates(fact, term, q, parts)
        return OfPredictor(fact, term, *found)
    except NotImplementedError as error:
        raise ValueError(
            f"The term {term.name!r} cannot be differentiated twice, which a mode and a Taylor "
            f"polynomial need: {error}. Use the step without control_variate, and with a random walk."
        ) from None


class OfPredictor:
    """A term with a linear predictor: x_i, o_i, and derivatives of f_i."""

    def __init__(self, fact: Factorisation, term: LocalTerm, rows: Variable, eta: Variable) -> None:
        self._leaves = fact.leaf_values
        self._n_rows = fact.n_local
        self._kept: dict[int, np.ndarray] = {}
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
        self._n_rows = n_rows

    def __call__(self, q: Vector, positions: Index, point: list[np.ndarray]) -> Derivatives:
        """Sum over some rows, whose design is kept for the next call if it is not too large."""
        rows = self._kept.get(int(positions[0]))
        if rows is None:
            rows = self.design(positions)
            if self._n_rows * rows.shape[1] <= _KEPT:
                self._kept[int(positions[0])] = rows
        x, offset = rows[:, :-1], rows[:, -1]
        value, first, second = self.of_rows(x @ q + offset, positions, point)
        return Derivatives(float(value.sum()), first @ x, (x.T * second) @ x)


class _ByCoordinates:
    """Any other term."""

    def __init__(
        self, fact: Factorisation, term: LocalTerm, q: Variable, parts: dict[Variable, Variable]
    ) -> None:
        self._leaves = fact.leaf_values
        (rows,) = rebuild([term.rows], parts)
        outputs = _with_derivatives(stable(rows).sum(), q)
        self._function = fact.compile(outputs, [q, term.index], mode=INTERPRETED_STABLE)

    def forget(self, n_rows: int) -> None:
        """Nothing is kept."""

    def __call__(self, q: Vector, positions: Index, point: list[np.ndarray]) -> Derivatives:
        return _flat(self._function(*point, q, positions, *self._leaves))


def _with_derivatives(density: Variable, q: Variable) -> list[Variable]:
    """A scalar graph, its gradient, and its Hessian along all coordinates at once."""
    gradient = grad(density, q, disconnected_inputs="ignore")
    direction = q.type("direction")
    change = pushforward([gradient], [q], [direction], disconnected_outputs="ignore")[0]
    coordinates = pt.constant(np.eye(q.type.shape[0]))
    try:
        hessian = vectorize_graph(change, {direction: coordinates})
    except Exception:  # an operation that knows no batches
        hessian = pt.stack([rebuild([change], {direction: row})[0] for row in coordinates])
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

    def __call__(self, point: Mapping[str, Any]) -> Vector:
        """Of shape (N,)."""
        values, leaves = self._fact.point_values(point), self._fact.leaf_values
        result, first = np.empty(self._fact.n_local), 0
        with np.errstate(all="ignore"):
            for term, function in zip(self._fact.locals, self._functions, strict=True):
                for start in range(0, term.size, CHUNK):
                    some = np.arange(start, min(start + CHUNK, term.size))
                    result[first + some] = function(*values, some, *leaves)
                first += term.size
        return result
