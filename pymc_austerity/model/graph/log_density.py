"""The log density of a PyMC model as a graph in which every shape is known.

`pymc.Model.logp(sum=False)` gives one graph per model term, in variables without shapes (value variables
and `pm.Data` carry none). `typed_log_density` rebuilds these in variables that have the shapes of now.
`fingerprint` notices that shared data (`pm.Data`) were replaced after a step was built.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.sparse.basic import as_sparse_variable
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.type import TensorType
from pytensor.xtensor.type import XTensorType
from scipy.sparse import issparse

from pymc_austerity.data.row_store import Rows
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.rewrite import ShapeMeasure, depends_on, merged, narrowed, rebuild
from pymc_austerity.model.graph.rows_on_disk import rows_of, with_rows
from pymc_austerity.model.graph.terms import split
from pymc_austerity.model.refusal import named

Fingerprint = list[tuple[str, tuple[int, ...], str, bytes]]


@dataclass(frozen=True, eq=False)
class LogDensityGraph:
    """The terms of a model's log density, with static shapes throughout."""

    values: dict[str, Variable]  # Value variables, by name, in the order of ``model.value_vars``
    # Typed stand-ins of the model's shared data, and where their values live
    data: dict[Variable, SharedVariable]
    # All shared data, with those (lengths, integers) that became constants of the graph
    shared: list[SharedVariable]
    # Where each of them has its value, and the value when the graph was built, not copied
    seen: list[tuple[list[Any], Any]]
    point: dict[str, np.ndarray]  # The point at which unknown shapes were measured
    # One graph per model term, by name, in the order of PyMC (free, observed, potentials)
    terms: dict[str, Variable]
    raw: dict[str, Variable]  # The same terms as PyMC built them, in the model's own variables
    # Names of the free variables, which are those of their priors' terms, by names of value variables
    variables: dict[str, str]
    likelihood: dict[str, int]  # How many rows each other term has: observed variables and potentials

    @property
    def on_disk(self) -> dict[Variable, Rows]:
        """Variables of `data` whose rows are on disk, with these."""
        found = {typed: rows_of(shared) for typed, shared in self.data.items()}
        return {typed: rows for typed, rows in found.items() if rows is not None}

    def data_values(self) -> list[np.ndarray]:
        """Return the current values of the shared data, not copied."""
        return [shared.get_value(borrow=True) for shared in self.data.values()]

    def evaluate(self, var: Variable) -> np.ndarray:
        """Value of a graph of constants and shared data."""
        function = function_of(list(self.data), var)
        return np.asarray(function(*self.data_values()))

    def require_same_data(self) -> None:
        """Raise `ValueError` naming shared data that were replaced since the graph was built."""
        name = self.replaced_data()
        if name is not None:
            raise ValueError(
                f"The data {name!r} were replaced (pm.set_data) after the model was factorised; "
                "call factorise again."
            )

    def adopt_data(self) -> None:
        """Take the present arrays of the shared data for those of the build: their contents are equal."""
        self.seen[:] = _present(self.shared)

    def replaced_data(self) -> str | None:
        """Name of shared data whose array was replaced since the graph was built.

        What was written into an array in place is not found.
        """
        for storage, value in self.seen:
            if storage[0] is not value:
                return next(str(shared.name) for shared in self.shared if shared.container.storage is storage)
        return None


def fingerprint(graph: LogDensityGraph) -> Fingerprint:
    """Name, shape, dtype and content hash of each piece of shared data.

    Rows on disk are not read: what is compared is their files. `ValueError` is raised if a file was cut,
    written to or replaced since it was opened.
    """
    prints = []
    for shared in graph.shared:
        rows = rows_of(shared)
        if rows is not None:
            rows.require_unchanged()
            prints.append((str(shared.name), rows.shape, rows.dtype.str, rows.fingerprint.encode()))
            continue
        value = shared.get_value(borrow=True)
        digest = hashlib.blake2b(digest_size=16)
        for part in (value.data, value.indices, value.indptr) if issparse(value) else (value,):
            array = np.ascontiguousarray(part)
            digest.update(array.tobytes() if array.ndim == 0 else array.data)
        prints.append((str(shared.name), value.shape, value.dtype.str, digest.digest()))
    return prints


def raw_terms(model: pm.Model, value_vars: Sequence[Variable] | None) -> dict[str, Variable]:
    """The terms of `model` that contain one of `value_vars`, or all, as PyMC builds them.

    Where data are on disk, they are shared data with all rows, mapped.
    """
    names = [rv.name for rv in [*model.free_RVs, *model.observed_RVs, *model.potentials]]
    every = [pt.as_tensor(term, allow_xtensor_conversion=True) for term in model.logp(sum=False)]
    if any(isinstance(v.type, XTensorType) for v in ancestors(every)):  # PyMC leaves potentials labelled
        every = rewrite_graph(every, include=("lower_xtensor",), clone=True)
    every = narrowed(merged(with_rows(every)))
    contains = depends_on(every, value_vars or ())
    return {
        name: term
        for name, term in zip(names, every, strict=True)
        if value_vars is None or contains.get(term, False)
    }


def typed_log_density(model: pm.Model, raw: dict[str, Variable], point: Mapping[str, Any]) -> LogDensityGraph:
    """Give the terms `raw` of `model` static shapes, as they are at `point` and with the present data."""
    point = as_values(model.value_vars, point)
    memo: dict[Variable, Variable] = {}
    values = {}
    for v in model.value_vars:
        values[v.name] = memo[v] = TensorType(v.type.dtype, point[v.name].shape)(v.name)
    data = {}
    every_shared = [
        s
        for s in graph_inputs(raw.values())
        if isinstance(s, SharedVariable) and isinstance(s.type, TensorType | XTensorType)
    ]
    for shared in every_shared:
        value = shared.get_value(borrow=True)
        if isinstance(shared.type, SparseTensorType):
            memo[shared] = as_sparse_variable(value)
        elif value.ndim == 0 and value.dtype.kind in "iub":  # lengths of dims are shared integers
            memo[shared] = pt.constant(value)
        else:
            memo[shared] = typed = TensorType(shared.type.dtype, value.shape)(shared.name)
            data[typed] = shared
    inputs = dict(zip(values.values(), point.values(), strict=True))
    inputs |= {typed: shared.get_value(borrow=True) for typed, shared in data.items()}
    measure = ShapeMeasure(inputs, list(values.values()))
    terms = {}
    for name, term in raw.items():
        with named(name):
            (terms[name],) = rebuild([term], memo, measure, drop_checks=not model.check_bounds)
    variables = {str(v.name): str(model.values_to_rvs[v].name) for v in model.value_vars}
    observed = {rv.name: model.rvs_to_values[rv] for rv in model.observed_RVs}
    likelihood = {
        name: _rows_of_potential(term, values.values())
        if name not in observed
        else _rows_of(term, observed[name])
        for name, term in terms.items()
        if name not in variables.values()
    }
    present = _present(every_shared)
    return LogDensityGraph(values, data, every_shared, present, point, terms, raw, variables, likelihood)


def _rows_of(term: Variable, observed: Variable) -> int:
    """Rows of an observed variable: of its term, or of the data where that is one number for all."""
    shape: tuple[int, ...] = ()
    if isinstance(observed, Constant):
        shape = np.shape(observed.data)
    elif isinstance(observed, SharedVariable):
        shape = np.shape(observed.get_value(borrow=True))
    return max(longest(term), *shape, 1)


def _rows_of_potential(term: Variable, values: Iterable[Variable]) -> int:
    """Rows of a potential: of its longest vector, if that is made of data; else it is a prior."""
    n, parameters = longest(term), set(values)
    data = [var for var in ancestors([term]) if var.owner is None and var not in parameters]
    lengths = [k for var in data for k in getattr(var.type, "shape", ()) if k is not None]
    return n if 1 < n <= max(lengths, default=0) else 0


def longest(term: Variable) -> int:
    """Length of the longest vector that adds up to a term."""
    return max(max(piece.type.shape, default=1) for piece in split(term, 2))


def _present(every_shared: Iterable[SharedVariable]) -> list[tuple[list[Any], Any]]:
    """Containers of shared data, and the values that they have now."""
    return [(shared.container.storage, shared.container.storage[0]) for shared in every_shared]


def as_values(variables: Iterable[Variable], point: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Values of value variables at a point; an error names what is missing or of the wrong shape."""
    values = {}
    for var in variables:
        if var.name not in point:
            raise KeyError(
                f"the point has no value for {var.name!r}; it needs a value for every value variable, as in "
                "model.initial_point()"
            )
        values[var.name] = value = np.asarray(point[var.name], dtype=var.type.dtype)
        known = var.type.shape
        if value.ndim != len(known) or any(
            k not in (None, n) for k, n in zip(known, value.shape, strict=True)
        ):
            raise ValueError(f"the value of {var.name!r} must have shape {known}, got {value.shape}.")
    return values
