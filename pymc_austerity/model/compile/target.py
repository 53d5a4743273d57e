"""Make the functions of a `Target` of a `Factorisation`.

A kernel (`pymc_austerity.kernels`) is a plain function of plain functions. Here are the graphs of these
functions, and their arguments at a point. A backend (`model.compile.protocol`) makes functions of the graphs,
and puts the kernel around them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_austerity.bounds.jets.remainders import GlobalRows, RowsOfTerms
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.model.compile.backend import current_backend, target_function
from pymc_austerity.model.compile.native import interruptible
from pymc_austerity.model.compile.protocol import ReadyKernel, Records
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.leaves import extract_given
from pymc_austerity.model.graph.rewrite import parts_of, rebuild, stable
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.target import TARGET_PARAMETERS, Target

# The order of rows has to be the same in every process that works on one chain.
_SEED = 2014
# Made from the log densities when they are asked for.
_GRADIENTS = ("global_gradient", "local_gradient")


class Positions:
    """Positions of the population, told apart by the term that they fall into.

    Not every operation can be evaluated on no rows. A term that no position falls into is therefore evaluated
    on one surplus row, its first or last, whose result is dropped. Other terms have no surplus row.

    `rows` has, for each term, row numbers within it: those that `index` asks for, or a single surplus one.
    """

    def __init__(self, index: Variable, sizes: Sequence[int]) -> None:
        self._index = index
        self._places: list[Variable] = []
        self.rows = [index]
        if len(sizes) < 2:
            return
        # The surplus row has the last place, which no position has.
        last = pt.expand_dims(index.shape[0], 0)
        extended = pt.concatenate([index, pt.zeros(1, dtype="int64")])
        self.rows = []
        start = 0
        for size in sizes:
            inside = ((index >= start) & (index < start + size)).nonzero()[0]
            places = pt.concatenate([inside, last])[: pt.maximum(inside.shape[0], 1)]
            self._places.append(places)
            self.rows.append(pt.clip(extended[places] - start, 0, size - 1))
            start += size

    def in_order(self, results: Sequence[Variable]) -> Variable:
        """The results of all terms, each of the length of its `rows`, in the order of the positions; (m,)."""
        if not self._places:
            return pt.as_tensor(results[0])
        # Set, not joined and sliced: PyTensor would push the slice down to the rows, and none would be left.
        joined = pt.zeros(self._index.shape[0] + 1)
        for places, result in zip(self._places, results, strict=True):
            joined = pt.set_subtensor(joined[places], result)
        return joined[:-1]


class CompiledTarget:
    """Log ratios of a block of variables, as functions of one vector q.

    The block is that of the factorisation, in this order in q. With `shuffle`, rows are stored in a fixed
    random order, so that neighbours are a random sample of each term.
    """

    _orders: Sequence[np.ndarray] = ()  # of the rows of each term, if they are stored at random

    def __init__(self, factorisation: Factorisation, *, shuffle: bool = False) -> None:
        self.backend = current_backend()  # runs the functions and kernels
        self.factorisation = factorisation
        self.values = factorisation.graph.values
        terms: list[LocalTerm] = list(factorisation.locals)
        placeholders = (leaf.placeholder for leaf in factorisation.leaves)
        data = dict(zip(placeholders, factorisation.leaf_values, strict=True))
        if shuffle:
            terms, stored, self._orders = _in_random_order(terms, data)
            data |= stored
        graphs = [*(term.rows for term in terms), factorisation.global_graph]
        moving = [*(self.values[n] for n in factorisation.var_names), *(term.index for term in terms)]
        # Parts that depend on other variables only and take long vectors to compute: once for each draw.
        self.given, graphs = extract_given(graphs, moving, factorisation.threshold)
        outputs = self._differences(terms, graphs)
        args = self._take_arguments(outputs.values(), data, factorisation.var_names)
        self._outputs = outputs
        own = {"q_new": self._q_new, "q": self._q, "index": self._index}
        self._inputs = {
            name: [*(own[parameter] for parameter in parameters[:-1]), *args]
            for name, parameters in TARGET_PARAMETERS.items()
        }
        # The arguments, where they are the same at every point.
        self.fixed_args = None if self._others or self.given else self.leaf_values
        self._functions: dict[str, Any] = {}

    def _take_arguments(
        self, outputs: Iterable[Variable], data: Mapping[Variable, np.ndarray], block: Sequence[str]
    ) -> list[Variable]:
        """Decide which other variables and data, and what is given by these, some graphs take."""
        used = set(ancestors([*outputs, *(given.source for given in self.given)]))
        # Value variables outside the block that the terms depend on.
        self.other_names = [n for n, v in self.values.items() if n not in block and v in used]
        types = [self.values[n].type for n in self.other_names]
        self._others = [(n, t.dtype, t.shape) for n, t in zip(self.other_names, types, strict=True)]
        leaves = [leaf for leaf in data if leaf in used]
        self.leaf_values = tuple(np.asarray(data[leaf], order="C") for leaf in leaves)  # contiguous
        self._args = [*(self.values[n] for n in self.other_names), *leaves]
        return [*self._args, *(given.placeholder for given in self.given)]

    def given_names(self) -> list[str]:
        """Names of the variables that `given` depends on."""
        used = set(ancestors([given.source for given in self.given]))
        return [name for name in self.other_names if self.values[name] in used]

    def stored_at(self, rows: np.ndarray) -> np.ndarray:
        """Numbers under which some rows of the population are stored."""
        if not self._orders:
            return rows
        start, places = 0, []
        for order in self._orders:
            places.append(start + np.flatnonzero(np.isin(order, rows - start)))
            start += len(order)
        return np.concatenate(places)

    def args(self, point: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Arguments of the functions at `point`: other variables, data, and what is given by these."""
        others = [np.asarray(point[n], dtype, order="C") for n, dtype, _ in self._others]
        for value, (name, _, shape) in zip(others, self._others, strict=True):
            if value.shape != shape:  # machine code does not look
                raise ValueError(f"The value of {name} must have shape {shape}, got {value.shape}.")
        args = (*others, *self.leaf_values)
        return (*args, *self._given_function(*args)) if self.given else args

    def _differences(self, terms: list[LocalTerm], graphs: list[Variable]) -> dict[str, Variable]:
        """Graphs of l_i(q_new) - l_i(q) and l_i(q) at some positions, and of the global log ratio."""
        fact = self.factorisation
        block = [self.values[n] for n in fact.var_names]
        n_dim = sum(int(np.prod(value.type.shape)) for value in block)
        is_discrete = bool(block) and all(np.dtype(value.type.dtype).kind in "iub" for value in block)
        kind = "int64" if is_discrete else "float64"
        self._q_new, self._q = (pt.vector(name, shape=(n_dim,), dtype=kind) for name in ("q_new", "q"))
        self._index = pt.vector("index", dtype="int64")
        positions = Positions(self._index, [term.size for term in terms])
        *graphs, global_ = graphs
        rows = [
            rebuild([graph], {term.index: own})[0]
            for term, graph, own in zip(terms, graphs, positions.rows if terms else [], strict=True)
        ]
        outputs = [*rows, global_]
        of_state = {"features": fact.features, "slab": fact.slab}
        result = {
            name: rebuild([graph], parts_of(self._q, block))[0]
            for name, graph in of_state.items()
            if graph is not None
        }
        new, old = (rebuild(outputs, parts_of(q, block)) for q in (self._q_new, self._q))
        self._global = pt.as_tensor(old[-1])
        *local, global_ = [a - b for a, b in zip(new, old, strict=True)]
        result["global_log_ratio"] = pt.as_tensor(global_)
        if local:
            self._local = positions.in_order(old[:-1])
            result |= {"log_ratios": positions.in_order(local), "log_terms": self._local}
        return result

    @cached_property
    def _given_function(self) -> Any:
        return interruptible(self.backend.function(self._args, [given.source for given in self.given]))

    def _function(self, name: str) -> Any:
        """One of the functions of the target, made by the backend when it is first asked for."""
        if name not in self._functions:
            self._functions[name] = self.backend.function(self._inputs[name], [self._graph(name)])
        return self._functions[name]

    def _graph(self, name: str) -> Variable:
        if name == "global_gradient":
            return grad(self._global, self._q, disconnected_inputs="ignore")
        if name != "local_gradient":
            return self._outputs[name]
        try:
            return grad(stable(self._local).sum(), self._q, disconnected_inputs="ignore")
        except NO_GRADIENT as error:
            names = ", ".join(repr(name) for name, _ in self.factorisation.local_terms)
            raise UnsuitableError(
                f"The local terms ({names}) have no gradient, which Langevin moves go along: {error}. Use "
                "AusterityMH with proposal=RandomWalk(scale) for the variables in them."
            ) from None

    def evaluated(self, name: str, *given: Any) -> np.ndarray:
        """One of the functions at some arguments; nothing is compiled."""
        return np.asarray(function_of(self._inputs[name], self._graph(name))(*given))

    def _has(self, name: str) -> bool:
        """Whether the model has this function; without features, they are the state itself."""
        return name in self._outputs or name in _GRADIENTS

    def interpreted(self) -> Target:
        """The target as functions that Python can call; each is made when it is first called."""

        def called(name: str) -> Callable[..., Any]:
            entry = cache(lambda: self.backend.entry(self._function(name)))
            return target_function(lambda *args: entry()(*args))

        return Target(**{name: called(name) for name in Target._fields if self._has(name)})

    def compile(
        self, kernel: Callable[..., Any], records: Records, target_functions: Iterable[str]
    ) -> ReadyKernel:
        """Put a kernel around this target; numba compiles it when it is first called.

        The last parameter of `kernel` is `target`. `records` has functions that it takes, such as a proposal
        and a decision rule; see `protocol`. Of the `Target`, it calls the `target_functions`: the others are
        stubs. What is returned is the kernel as a function of what `call_parameters` says.
        """
        wanted = [name for name in target_functions if self._has(name)]
        if self._has("features"):  # functions that are data call these
            wanted = [*dict.fromkeys([*wanted, "features"])]
        rows = {name: found for name in wanted if (found := self._as_rows(name)) is not None}
        functions = {name: rows[name] if name in rows else self._function(name) for name in wanted}
        return self.backend.compile(functions, kernel, records)

    def _as_rows(self, name: str) -> RowsOfTerms | GlobalRows | None:
        """A function as data that compiled code runs, if it is known as such."""
        if not self.backend.runs_programs:
            return None
        match name:
            case "log_ratios":
                return self._rows
            case "features":
                return self.factorisation.feature_rows
            case "global_log_ratio":
                return self.factorisation.global_rows
            case "global_gradient":
                fact = self.factorisation
                is_known = fact.features is None or fact.feature_rows is not None
                return fact.global_rows.differentiated() if fact.global_rows and is_known else None
        return None

    @cached_property
    def _rows(self) -> RowsOfTerms | None:
        """The remainders of all terms."""
        programs = [term.program for term in self.factorisation.locals]
        known = [one for one in programs if one is not None]
        if self._orders or not known or len(known) < len(programs):
            return None
        return RowsOfTerms(known, int(self._q.type.shape[0]))


def _in_random_order(
    old_terms: Sequence[LocalTerm], values: Mapping[Variable, np.ndarray]
) -> tuple[list[LocalTerm], dict[Variable, np.ndarray], list[np.ndarray]]:
    """Renumber the rows of every local term at random, so that a block of neighbours is a random sample.

    Data that a term reads at its own row number are stored in the new order. Whatever else depends on
    the row number (a neighbour in a series, a latent value) looks up the old one.

    Returns the same rows as functions of the new row number; new leaves, and their values; and for each term
    the old row number of each new one.
    """
    rng = np.random.default_rng(_SEED)
    terms: list[LocalTerm] = []
    stored: dict[Variable, np.ndarray] = {}
    orders = []
    for k, term in enumerate(old_terms):
        order = rng.permutation(term.size)
        orders.append(order)
        index = term.index.clone()
        old = pt.vector(f"order{k}", dtype="int64", shape=(term.size,))
        stored[old] = order
        moved: dict[Variable, Variable] = {}
        replace: dict[Variable, Variable] = {term.index: old[index]}
        for node in toposort([term.rows]):
            if _reads_own_row(node, term, values):
                leaf = node.inputs[0]
                if leaf not in moved:
                    moved[leaf] = leaf.type(name=f"{leaf.name}_of_term{k}")
                    stored[moved[leaf]] = np.take(values[leaf], order, axis=0)
                replace[node.outputs[0]] = moved[leaf][index]
            elif isinstance(node.op, Shape | Shape_i) and node.inputs[0] is term.index:
                replace[node.outputs[0]] = node.op(index)
        (rows,) = rebuild([term.rows], replace)
        terms.append(LocalTerm(term.name, term.size, index, rows))
    return terms, stored, orders


def _reads_own_row(node: Apply, term: LocalTerm, leaves: Mapping[Variable, np.ndarray]) -> bool:
    """Is this leaf[index], with one row of the leaf for each row of the term?"""
    return (
        isinstance(node.op, AdvancedSubtensor)
        and node.inputs[0] in leaves
        and len(node.inputs) == 2
        and node.inputs[1] is term.index
        and node.op.idx_list[0] == 0
        and node.inputs[0].type.shape[0] == term.size
    )
