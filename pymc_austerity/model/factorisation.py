"""`factorise`: the log density of a model as a global part plus a sum of many local terms.

log p(q) = global(q) + sum over i < N of l_i(q)

The local terms are the rows of every long vector in the model, observed or not; several vectors form
one population by concatenation. This is the partition of the scaffold into one global and N local
sections of Chen, Mansinghka & Ghahramani (section 3.1), found on PyTensor's graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.initial_point import PointType
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs, toposort

from pymc_austerity.exceptions import FactorisationError

# The rules register themselves.
from pymc_austerity.model import lift_indexing, lift_rules  # noqa: F401
from pymc_austerity.model.graph import (
    INTERPRETED,
    Coupled,
    LogDensityGraph,
    ShapeMeasure,
    depends_on,
    rebuild,
    refusal,
    typed_log_density,
)
from pymc_austerity.model.lift import Lifter, check_cost, has_random_draw
from pymc_austerity.model.self_check import check_against_model
from pymc_austerity.model.terms import long_axis, split

Array = npt.NDArray[np.float64]

# Rows that are evaluated at a time when all of them are wanted.
CHUNK = 65_536
# Constants up to this size stay in the graph.
_SMALL_CONSTANT = 1000
# Length of the index with which the cost of a row is judged.
_COST_ROWS = 7


@dataclass(frozen=True, eq=False)
class LocalTerm:
    """One vector of the population: its rows as a graph of `index`.

    Attributes
    ----------
    name : str
        Model term it belongs to.
    size : int
        Number of rows.
    index : TensorVariable
        Row numbers, an integer vector of any length m.
    rows : TensorVariable
        l_i for i in `index`, of shape (m,), a function of value variables and leaves.
    """

    name: str
    size: int
    index: Variable
    rows: Variable


@dataclass(frozen=True, eq=False)
class Leaf:
    """A part of the graph without parameters, evaluated once: data, or a function of data."""

    placeholder: Variable
    source: Variable


@dataclass(frozen=True, repr=False, eq=False)
class Factorisation:
    """log p(q) = global(q) + sum over i < N of l_i(q), of one model and some of its variables.

    Made by `factorise`. Nothing is compiled until a density is asked for.

    Attributes
    ----------
    n_local : int
        N, the number of local terms; 0 if no vector reaches the threshold.
    local_terms : list of (str, int)
        Name and number of rows of each local vector. Position i of the population counts through
        these vectors in this order.
    global_terms : list of str
        Names of the model terms evaluated in full. A term that splits into a vector and a remainder
        is in both lists.
    """

    graph: LogDensityGraph
    var_names: tuple[str, ...]
    locals: tuple[LocalTerm, ...]
    globals: tuple[tuple[str, Variable], ...]
    leaves: tuple[Leaf, ...]
    threshold: int
    leaf_values: list[np.ndarray]

    @property
    def n_local(self) -> int:
        """Number of local terms N."""
        return sum(term.size for term in self.locals)

    @property
    def local_terms(self) -> list[tuple[str, int]]:
        """Name and size of each local vector, in the order of the population."""
        return [(term.name, term.size) for term in self.locals]

    @property
    def global_terms(self) -> list[str]:
        """Names of the terms evaluated in full."""
        return list(dict.fromkeys(name for name, _ in self.globals))

    def longest_term(self) -> tuple[str, int]:
        """Name and length of the longest vector in any of the terms, local or not."""
        lengths = [
            (max(piece.type.shape, default=1), name)
            for name, term in self.graph.terms.items()
            for piece in split(term, 2)
        ]
        length, name = max(lengths, key=lambda pair: pair[0], default=(0, "none"))
        return name, int(length)

    def __repr__(self) -> str:
        rows = [("local", name, f"{size:,}") for name, size in self.local_terms]
        rows += [("global", name, "") for name in self.global_terms]
        width = max([len(name) for _, name, _ in rows], default=4)
        lines = [f"Factorisation by {', '.join(self.var_names)}: {self.n_local:,} local terms"]
        lines += [f"  {kind:<6}  {name:<{width}}  {size:>12}".rstrip() for kind, name, size in rows]
        return "\n".join(lines)

    def log_density_terms(self, point: Mapping[str, Any], index: npt.ArrayLike | None = None) -> Array:
        """Evaluate local terms l_i.

        Parameters
        ----------
        point : dict of str to array
            Value of every value variable, as in ``model.initial_point()``.
        index : array_like of int, shape (m,), optional
            Positions in the population, in any order, repeats allowed. Default: all N.

        Returns
        -------
        ndarray of float, shape (m,)

        Raises
        ------
        IndexError
            If a position is not in ``[0, n_local)``.
        """
        if index is None:
            chunks = [range(a, min(a + CHUNK, self.n_local)) for a in range(0, self.n_local, CHUNK)]
            parts = [self.log_density_terms(point, np.arange(c.start, c.stop)) for c in chunks]
            return np.concatenate(parts) if parts else np.empty(0)
        index = self._checked_index(index)
        if not len(index):
            return np.empty(0)
        values = self.point_values(point)
        if len(self.locals) == 1:
            (terms,) = self._terms_function(*values, index, *self.leaf_values)
            return np.asarray(terms, dtype=np.float64)
        bounds = np.cumsum([0] + [term.size for term in self.locals])
        masks = [(index >= a) & (index < b) for a, b in pairwise(bounds)]
        rows = [index[mask] - a for mask, a in zip(masks, bounds, strict=False)]
        result = np.empty(len(index))
        for mask, part in zip(masks, self._terms_function(*values, *rows, *self.leaf_values), strict=True):
            result[mask] = part
        return result

    def global_log_density(self, point: Mapping[str, Any]) -> float:
        """Evaluate the part of the log density that is not subsampled."""
        return float(self._global_function(*self.point_values(point), *self.leaf_values))

    def _checked_index(self, index: npt.ArrayLike) -> npt.NDArray[np.int64]:
        array = np.atleast_1d(np.asarray(index))
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(f"index must hold integers, got dtype {array.dtype}.")
        if array.ndim != 1:
            raise ValueError(f"index must be one-dimensional, got shape {array.shape}.")
        if array.size and (array.min() < 0 or array.max() >= self.n_local):
            bad = array[(array < 0) | (array >= self.n_local)][0]
            raise IndexError(f"index must be in [0, {self.n_local}), got {bad}.")
        return array.astype(np.int64)

    def point_values(self, point: Mapping[str, Any]) -> list[np.ndarray]:
        """Values of all value variables at `point`, in the order of `compile`."""
        try:
            return [np.asarray(point[n], dtype=v.type.dtype) for n, v in self.graph.values.items()]
        except KeyError as missing:
            raise KeyError(
                f"point has no value for {missing}; it needs {', '.join(self.graph.values)}, "
                "as in model.initial_point()."
            ) from None

    def compile(
        self, outputs: Sequence[Variable] | Variable, inputs: Sequence[Variable], **kwargs: Any
    ) -> Any:
        """Compile a function of all value variables, `inputs` and all leaves, in that order."""
        arguments = [
            *self.graph.values.values(),
            *inputs,
            *(leaf.placeholder for leaf in self.leaves),
        ]
        function = pytensor.function(arguments, outputs, on_unused_input="ignore", **kwargs)
        function.trust_input = True
        return function

    @cached_property
    def _terms_function(self) -> Any:
        return self.compile([t.rows for t in self.locals], [t.index for t in self.locals])

    @cached_property
    def _global_function(self) -> Any:
        return self.compile(self.global_graph, [])

    @property
    def global_graph(self) -> Variable:
        """Sum of the global terms."""
        total = pt.constant(0.0)
        for _, term in self.globals:
            total = total + term.sum()
        return total


def factorise(
    model: pm.Model | None = None,
    vars: Variable | Sequence[Variable] | None = None,
    *,
    threshold: int = 1000,
    initial_point: PointType | None = None,
) -> Factorisation:
    """Split a model's log density into a global part and a sum of independent local terms.

    Parameters
    ----------
    model : pymc.Model, optional
        Default: the model of the context.
    vars : random or value variables, optional
        Keep only the terms that contain one of these. Default: all.
    threshold : int, default 1000
        A vector of at least so many terms is local; shorter ones are evaluated in full.
    initial_point : dict, optional
        A point as ``model.initial_point()`` gives it, for models where that is slow.

    Returns
    -------
    Factorisation

    Raises
    ------
    FactorisationError
        If the rows of a long term cannot be computed one by one. The message names the term, the
        operation that couples its rows, and what to do.

    Notes
    -----
    Section 3.1 of Chen, Mansinghka & Ghahramani (2015). Nothing is compiled; the factorisation is
    checked once against the model, at a random point near `initial_point`, at the cost of a few
    evaluations of the log density.

    *Guarantee*: with ``vars=None``, ``log_density_terms(point).sum() + global_log_density(point)``
    equals ``model.compile_logp()(point)`` up to rounding. With some variables, differences between
    two points that differ only in these variables are equal.

    *When it fails*: it refuses, by name, whatever it cannot factorise; see `FactorisationError`.
    """
    if not isinstance(threshold, int | np.integer) or threshold < 2:
        raise ValueError(f"threshold must be an integer of at least 2, got {threshold!r}.")
    model = pm.modelcontext(model)
    value_vars = None if vars is None else value_variables(model, vars)
    point = model.initial_point() if initial_point is None else initial_point
    graph = typed_log_density(model, value_vars, point)
    for name, term in graph.raw.items():
        _refuse_scaled_or_random(model[name], term)
    names = list(graph.values) if value_vars is None else [v.name for v in value_vars]
    block = [graph.values[name] for name in names]
    lifter = Lifter(graph.terms.values(), graph.values.values(), threshold)
    pieces = [(name, p) for name, term in graph.terms.items() for p in split(term, threshold)]
    in_block = depends_on([p for _, p in pieces], block)
    locals_: list[LocalTerm] = []
    globals_: list[tuple[str, Variable]] = []
    whole: list[Variable] = []
    for name, piece in pieces:
        axis = long_axis(piece, threshold)
        if vars is not None and not in_block.get(piece, False):
            continue
        if axis is None:
            globals_.append((name, piece))
        else:
            locals_.append(_lift(lifter, name, piece, axis))
            whole.append(piece.sum(axis=[a for a in range(piece.type.ndim) if a != axis]))
    outputs = [t.rows for t in locals_] + [g for _, g in globals_]
    outputs = lift_indexing.select_early(lifter, outputs)
    changing = [*graph.values.values(), *(t.index for t in locals_)]
    leaves, lifted = _extract_leaves(outputs, changing)
    locals_ = [LocalTerm(t.name, t.size, t.index, rows) for t, rows in zip(locals_, lifted, strict=False)]
    globals_ = [(n, g) for (n, _), g in zip(globals_, lifted[len(locals_) :], strict=True)]
    leaf_values = _leaf_values(graph, leaves)
    example = {
        **dict(zip(graph.values.values(), graph.point.values(), strict=True)),
        **dict(zip((leaf.placeholder for leaf in leaves), leaf_values, strict=True)),
    }
    parameters = list(graph.values.values())
    for term in locals_:
        _check_cost_of_rows(term, example, parameters, threshold)
    for name, global_term in globals_:
        _check_cost(global_term, name, None, threshold)
    result = Factorisation(
        graph=graph,
        var_names=tuple(names),
        locals=tuple(locals_),
        globals=tuple(globals_),
        leaves=tuple(leaves),
        threshold=int(threshold),
        leaf_values=leaf_values,
    )
    check_against_model(result, model, whole, pieces)
    return result


def value_variables(model: pm.Model, vars: Any) -> list[Variable]:
    """Value variables of the given random or value variables, by default of all."""
    if vars is None:
        return list(model.value_vars)
    chosen = list(vars) if isinstance(vars, list | tuple) else [vars]
    result = []
    for var in chosen:
        value = model.rvs_to_values.get(var, var)
        if value not in model.value_vars:
            known = ", ".join(rv.name for rv in model.free_RVs)
            raise ValueError(f"{var!r} is not a free variable of the model. Its free variables: {known}.")
        result.append(value)
    return result


def _refuse_scaled_or_random(rv: Variable, term: Variable) -> None:
    """`total_size` and `pm.Minibatch` are a subsampling scheme of their own: N would be wrong."""
    if rv.owner is not None and isinstance(rv.owner.op, MinibatchRandomVariable):
        raise FactorisationError(
            f"The term {rv.name!r} was given total_size, which rescales its log density as if its "
            "rows were a sample of more. Give it all the data, without total_size and without "
            "pm.Minibatch; the step draws the subsamples."
        )
    if has_random_draw(term):
        raise FactorisationError(
            f"The term {rv.name!r} contains a random draw, as pm.Minibatch makes one, so that its "
            "value changes at every call. Give it all the data without pm.Minibatch; the step draws "
            "the subsamples."
        )


def _lift(lifter: Lifter, name: str, piece: Variable, axis: int) -> LocalTerm:
    """Rows of a long piece as a graph of an index."""
    size = piece.type.shape[axis]
    index = pt.vector("index", dtype="int64")
    try:
        rows = lifter.take(piece, axis, index)
    except Coupled as coupled:
        raise refusal(name, size, coupled) from None
    others = [a for a in range(rows.type.ndim) if a != axis]
    if others:
        rows = rows.sum(axis=others)
    if rows.type.shape[0] == 1:  # the same value in every row
        rows = pt.alloc(rows[0], index.shape[0])
    return LocalTerm(name, size, index, rows.astype("float64"))


def _extract_leaves(outputs: list[Variable], changing: list[Variable]) -> tuple[list[Leaf], list[Variable]]:
    """Replace the largest subgraphs that do not depend on `changing` by leaves.

    Short constants stay in the graph, where PyTensor can simplify with them. Leaves are arguments of
    the compiled functions: large constants inside would make these too big to cache.
    """
    varying = depends_on(outputs, changing, by_shape=True)
    frontier = {out: None for out in outputs if not varying.get(out, False) and not _stays_in_graph(out)}
    for node in toposort(outputs):
        if not any(varying.get(o, False) for o in node.outputs):
            continue
        for var in node.inputs:
            if not varying.get(var, False) and not _stays_in_graph(var):
                frontier[var] = None
    leaves = []
    for k, var in enumerate(frontier):
        leaves.append(Leaf(var.type(name=f"leaf{k}"), var))
    replaced = rebuild(outputs, {leaf.source: leaf.placeholder for leaf in leaves})
    return leaves, replaced


def _stays_in_graph(var: Variable) -> bool:
    if not isinstance(var.type, pt.TensorType):
        return True
    inputs = list(graph_inputs([var]))
    sizes = (np.prod(a.type.shape, dtype=np.int64) for a in ancestors([var]) if hasattr(a.type, "shape"))
    return all(isinstance(i, Constant) for i in inputs) and all(s <= _SMALL_CONSTANT for s in sizes)


def _leaf_values(graph: LogDensityGraph, leaves: list[Leaf]) -> list[np.ndarray]:
    """Evaluate the leaves. Plain data are not copied."""
    values: dict[Variable, np.ndarray] = {}
    shared = dict(zip(graph.data, graph.data_values(), strict=True))
    computed = []
    for leaf in leaves:
        if isinstance(leaf.source, Constant):
            values[leaf.source] = np.asarray(leaf.source.data)
        elif leaf.source in shared:
            values[leaf.source] = shared[leaf.source]
        else:
            computed.append(leaf.source)
    if computed:
        function = pytensor.function(list(shared), computed, mode=INTERPRETED, on_unused_input="ignore")
        values.update(zip(computed, function(*shared.values()), strict=True))
    return [np.asarray(values[leaf.source]) for leaf in leaves]


def _check_cost_of_rows(
    term: LocalTerm, example: dict[Variable, np.ndarray], parameters: list[Variable], threshold: int
) -> None:
    """Refuse a term whose rows cost O(N) each although every operation in it has a rule."""
    short = pt.vector("index", dtype="int64", shape=(_COST_ROWS,))
    measure = ShapeMeasure({**example, short: np.arange(_COST_ROWS)}, parameters)
    try:
        (rows,) = rebuild([term.rows], {term.index: short}, measure)
    except Coupled as coupled:
        raise refusal(term.name, term.size, coupled) from None
    _check_cost(rows, term.name, term.size, threshold)


def _check_cost(graph: Variable, name: str, size: int | None, threshold: int) -> None:
    try:
        check_cost([graph], threshold)
    except Coupled as coupled:
        raise refusal(name, size, coupled) from None
