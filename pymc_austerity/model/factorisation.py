"""`Factorisation`: a log density as a global part plus a sum of many local terms.

log p(q) = global(q) + sum over i < N of l_i(q)

The local terms are the rows of every long vector in the model, observed or not; several vectors form
one population by concatenation. This is the partition of the scaffold into one global and N local
sections of Chen, Mansinghka & Ghahramani (section 3.1), found on PyTensor's graph by `factorise`.
"""

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pytensor.tensor as pt
from pytensor.graph.basic import Variable, equal_computations
from pytensor.graph.traversal import toposort
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_austerity.bounds.jets.remainders import GlobalRows, RemainderRows, RowsOfTerms
from pymc_austerity.data.row_store import Rows
from pymc_austerity.model.graph.elements import OF_ELEMENT, elements
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.leaves import Leaf
from pymc_austerity.model.graph.log_density import LogDensityGraph, as_values, longest
from pymc_austerity.target import Array, Expansion, Index

# Rows that are evaluated at a time when all of them are wanted.
CHUNK = 16_384
# Groups of rows whose effects are moved as a field, at least; and where moves of the whole block mix badly.
FEWEST_GROUPS, FEWEST_IF_SLOW = 30, 3
# Name of the polynomial among the global terms.
POLYNOMIAL = "Taylor polynomial"
# Elements of a vector that unknown numbers multiply, where it is a vector of effects.
FEWEST_SCALED = 5


def distance_of_rows(size: int, at_most: float) -> int:
    """Distance between neighbours of the rows that `some_rows` takes."""
    return max(1, math.ceil(size / at_most))


def some_rows(size: int, at_most: float = math.inf) -> Iterator[np.ndarray]:
    """Numbers of rows in chunks: all, or at equal distances if there are more than `at_most`."""
    step = distance_of_rows(size, at_most)
    for start in range(0, size, CHUNK * step):
        yield np.arange(start, min(start + CHUNK * step, size), step)


@dataclass(frozen=True, eq=False)
class LocalTerm:
    """One vector of the population: its rows as a graph of `index`."""

    name: str  # Model term it belongs to
    size: int  # Number of rows
    index: Variable  # Row numbers, an integer vector of any length m
    rows: Variable  # l_i for i in `index`, of shape (m,), a function of value variables and leaves
    # The same of a remainder, as data that the machine at points runs; see `bounds.jets.remainders`
    program: RemainderRows | None = None
    # Of rows that are joined (`model.equal_rows`): the first of those that each stands for
    first: Index | None = None


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
    n_rows : int
        Rows of the likelihood: local terms and others, but for elements of priors.
    global_terms : list of str
        Names of the model terms evaluated in full. A term that splits into a vector and a remainder
        is in both lists.
    features : TensorVariable or None
        Of an expansion in features of the block (`features`): phi(q), of shape (p,).
    polynomial : Expansion or None
        If the local terms are Taylor remainders (`expansion`): the sum of their polynomials, a global
        term.
    slab : TensorVariable or None
        Of a block with coefficients that come and go (`model.selection`): the parameters of their prior.
    field : Field or NoField
        The hierarchy of the model, found when it is asked for: the vectors that rows of the likelihood look
        up or multiply by data, and their priors. Or the reason why there is none. Print it to read it.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import factorise
    >>> from pymc_austerity.model import Factorisation
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> fact = factorise(model)
    >>> isinstance(fact, Factorisation)
    True
    >>> fact.n_local, fact.local_terms, fact.global_terms
    (2000, [('visits', 2000)], ['level', 'slope'])
    >>> terms = fact.log_density_terms({"level": 1.0, "slope": 0.3}, [0, 7])  # these two rows, and no others
    >>> terms.shape
    (2,)
    >>> print(fact.field)
    Field: rows of 'visits' (2,000) are linear in 2 vectors
      level  1  Normal
      slope  1  Normal
    """

    graph: LogDensityGraph
    var_names: tuple[str, ...]
    locals: tuple[LocalTerm, ...]
    globals: tuple[tuple[str, Variable], ...]
    leaves: tuple[Leaf, ...]
    threshold: int
    leaf_values: list[np.ndarray]
    features: Variable | None = None
    polynomial: Expansion | None = None
    slab: Variable | None = None
    # The global terms, and the features, as data that compiled code runs
    global_rows: GlobalRows | None = None
    feature_rows: RowsOfTerms | None = None
    find: Callable[["Factorisation"], Any] | None = None  # The field, of a factorisation made by `factorise`

    @cached_property
    def field(self) -> Any:
        """The hierarchy of the model, or the reason why there is none."""
        return None if self.find is None else self.find(self)

    @property
    def is_expanded(self) -> bool:
        """Whether the local terms are Taylor remainders."""
        return self.polynomial is not None

    @property
    def n_local(self) -> int:
        """Number of local terms N."""
        return sum(term.size for term in self.locals)

    @property
    def n_rows(self) -> int:
        """Rows of the likelihood; elements of priors are rows only where nothing else is local."""
        sizes = {name: 0 for name, n in self.graph.likelihood.items() if n}
        for term in self.locals:
            if term.name in sizes:
                sizes[term.name] += term.size
        total = sum(size or self.graph.likelihood[name] for name, size in sizes.items())
        return total or self.n_local

    @property
    def local_terms(self) -> list[tuple[str, int]]:
        """Name and size of each local vector, in the order of the population."""
        return [(term.name, term.size) for term in self.locals]

    @property
    def global_terms(self) -> list[str]:
        """Names of the terms evaluated in full."""
        return list(dict.fromkeys(name for name, _ in self.globals))

    @property
    def rows_on_disk(self) -> list[Rows]:
        """The data of the model that are on disk (`stored_data`)."""
        return list(self.graph.on_disk.values())

    def longest_term(self, names: Container[str] | None = None) -> tuple[str, int]:
        """Name and length of the longest vector in any of the terms, or of those `names`, local or not."""
        lengths = {n: longest(term) for n, term in self.graph.terms.items() if names is None or n in names}
        name = max(lengths, key=lengths.__getitem__, default="none")
        return name, lengths.get(name, 0)

    def coordinate(self, dimension: int) -> tuple[str, tuple[int, ...]]:
        """Name of the variable, and the index within it, of one coordinate of the block's vector q."""
        for name in self.var_names:
            shape = self.graph.values[name].type.shape
            size = math.prod(shape)
            if dimension < size:
                return name, tuple(int(k) for k in np.unravel_index(dimension, shape)) if shape else ()
            dimension -= size
        raise IndexError(f"q has no coordinate that is {dimension} beyond its last variable")

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
        ValueError
            If `pm.set_data` replaced data of the model since.
        """
        if index is None:
            parts = [self.log_density_terms(point, some) for some in some_rows(self.n_local)]
            return np.concatenate(parts) if parts else np.empty(0)
        index = self._checked_index(index)
        values, result, first = self.point_values(point), np.empty(len(index)), 0
        for term, rows in zip(self.locals, self._row_functions, strict=True):
            own = (index >= first) & (index < first + term.size)
            if own.any():  # not every operation can be evaluated on no rows
                result[own] = rows(*values, index[own] - first, *self.leaf_values)
            first += term.size
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
        self.graph.require_same_data()
        return list(as_values(self.graph.values.values(), point).values())

    def compile(
        self,
        outputs: Sequence[Variable] | Variable,
        inputs: Sequence[Variable],
        mode: Any = None,
        *,
        stabilised: bool = False,
    ) -> Any:
        """Compile a function of all value variables, `inputs` and all leaves, in that order.

        With `stabilised` the outputs are rewritten by `graph.rewrite.stable` first.
        """
        arguments = [
            *self.graph.values.values(),
            *inputs,
            *(leaf.placeholder for leaf in self.leaves),
        ]
        return function_of(arguments, outputs, mode, stabilised=stabilised, trust_input=True)

    @cached_property
    def _row_functions(self) -> list[Any]:
        return [self.compile(term.rows, [term.index]) for term in self.locals]

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


def added_rows(factorisation: Factorisation, before: Factorisation) -> Index | None:
    """Positions of the rows that a factorisation has beside those of an earlier one.

    None if it is not the same function of the same rows and of others that follow upon these.
    """
    new, old = factorisation, before

    def inputs(one: Factorisation) -> list[Variable]:
        indices = [term.index for term in one.locals]
        return [*one.graph.values.values(), *indices, *(leaf.placeholder for leaf in one.leaves)]

    def outputs(one: Factorisation) -> list[Variable]:
        return [*(term.rows for term in one.locals), *(graph for _, graph in one.globals)]

    names = [
        [*(name for name, _ in one.local_terms), *(name for name, _ in one.globals)] for one in (new, old)
    ]
    if names[0] != names[1] or len(inputs(new)) != len(inputs(old)):
        return None
    if not equal_computations(outputs(new), outputs(old), inputs(new), inputs(old)):
        return None
    by_rows = _looked_up_by_rows(new, outputs(new))
    for leaf, other, value, was in zip(new.leaves, old.leaves, new.leaf_values, old.leaf_values, strict=True):
        rows, before_these = new.graph.on_disk.get(leaf.source), old.graph.on_disk.get(other.source)
        sizes = {(new.locals[k].size, old.locals[k].size) for k in by_rows.get(leaf.placeholder, ())}
        if (value.dtype, value.ndim) != (was.dtype, was.ndim):
            return None
        if value.shape != was.shape and sizes != {(len(value), len(was))}:  # a table, of which rows read all
            return None
        if rows is not None and before_these is not None:
            is_same = rows.begins_with(before_these)
        else:
            first_ones = value[: len(was)] if was.ndim else value
            is_same = np.array_equal(first_ones, was, equal_nan=was.dtype.kind == "f")
        if not is_same:
            return None
    found, first = [], 0
    for term, own in zip(new.locals, old.locals, strict=True):
        found.append(np.arange(first + own.size, first + term.size))
        first += term.size
    return np.concatenate(found)


def _looked_up_by_rows(fact: Factorisation, outputs: list[Variable]) -> dict[Variable, set[int]]:
    """Placeholders of leaves that are read by numbers of rows alone, and the local terms that do so."""
    numbers = {term.index: k for k, term in enumerate(fact.locals)}
    leaves, found, others = {leaf.placeholder for leaf in fact.leaves}, dict[Variable, set[int]](), set()
    for node in toposort(outputs):
        is_lookup = isinstance(node.op, AdvancedSubtensor)
        for place, var in enumerate(node.inputs):
            if var not in leaves:
                continue
            if is_lookup and place == 0 and node.inputs[1] in numbers:
                found.setdefault(var, set()).add(numbers[node.inputs[1]])
            else:
                others.add(var)
    return {var: terms for var, terms in found.items() if var not in others}


def block_of(factorisation: Factorisation) -> list[Variable]:
    """Value variables of the block, in the order of its vector q."""
    return [factorisation.graph.values[name] for name in factorisation.var_names]


def coordinate_name(factorisation: Factorisation, dimension: int) -> str:
    """Name of one coordinate of q, as ``beta[2]``."""
    name, index = factorisation.coordinate(dimension)
    return name + (f"[{', '.join(map(str, index))}]" if index else "")


def row_operations(factorisation: Factorisation) -> float:
    """Operations of a gradient of all rows, as `work` counts them."""
    return OF_ELEMENT * pass_operations(factorisation)


def pass_operations(factorisation: Factorisation) -> float:
    """Operations of a pass over all rows: as many as these compute numbers."""
    block = block_of(factorisation)
    return sum(float(term.size * elements([term.rows], block).of_row) for term in factorisation.locals)


def vector_of(factorisation: Factorisation, point: Mapping[str, Any]) -> np.ndarray:
    """The state q of the block: the values of its variables in one vector."""
    names = factorisation.var_names
    # Discrete variables are integers, unless continuous ones are beside them.
    discrete = all(np.asarray(point[name]).dtype.kind in "iub" for name in names)
    kind: type = np.int64 if discrete else np.float64
    if len(names) == 1:
        return np.array(point[names[0]], dtype=kind).ravel()
    return np.concatenate([np.ravel(point[name]) for name in names]).astype(kind)


def point_of(
    factorisation: Factorisation, q: np.ndarray, point: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Values of all variables: those of the block from the vector `q`, the others from `point`.

    Of several vectors, one below another, the values are one below another.
    """
    result, start = dict(point), 0
    for name in factorisation.var_names:
        shape = factorisation.graph.values[name].type.shape
        stop = start + math.prod(shape)
        part = q[..., start:stop].reshape((*q.shape[:-1], *shape))
        kind = factorisation.graph.values[name].dtype
        result[name] = part if part.dtype == kind else part.astype(kind)
        start = stop
    return result
