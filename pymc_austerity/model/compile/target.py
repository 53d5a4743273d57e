"""Make the functions of a `Target` of a `Factorisation`.

A kernel (`pymc_austerity.kernels`) is a plain function of plain functions. Here are the graphs of these
functions, and their arguments at a point. A backend (`model.compile.protocol`) makes functions of the graphs,
and puts the kernel around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.model.compile.backend import current_backend
from pymc_austerity.model.compile.native import interruptible
from pymc_austerity.model.compile.protocol import ReadyKernel, WrittenFunction
from pymc_austerity.model.compile.python_backend import InterpretedKernel, target_function
from pymc_austerity.model.compile.records import Records
from pymc_austerity.model.compile.remainders import log_ratios_source
from pymc_austerity.model.compile.row_order import in_random_order
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.leaves import extract_given
from pymc_austerity.model.graph.rewrite import parts_of, rebuild, stable
from pymc_austerity.model.population import Positions
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.target import TARGET_PARAMETERS, Target

# Made from the log densities when they are asked for.
_GRADIENTS = ("global_gradient", "local_gradient")


def state_type(block: Iterable[Variable]) -> str:
    """The type of the numbers of q: integers if all of the variables are discrete."""
    return "int64" if all(np.dtype(value.type.dtype).kind in "iub" for value in block) else "float64"


class CompiledTarget:
    """Log ratios of a block of variables, as functions of one vector q.

    Parameters
    ----------
    factorisation : Factorisation
        Its `var_names` are the block, in this order in q.
    shuffle : bool, default False
        Store rows in a fixed random order, so that neighbours are a random sample of each term.

    Attributes
    ----------
    other_names : list of str
        Value variables outside the block that the terms depend on.
    leaf_values : tuple of ndarray
        Data, contiguous, one for each leaf.
    given : list of Leaf
        Parts that depend on other variables only and take long vectors to compute: once for each draw.
    backend : Backend
        Who runs the functions and kernels.
    """

    def __init__(self, factorisation: Factorisation, *, shuffle: bool = False) -> None:
        self.backend = current_backend()
        self.factorisation = factorisation
        self.values = factorisation.graph.values
        terms: list[LocalTerm] = list(factorisation.locals)
        stored: dict[Variable, np.ndarray] = {}
        self._orders: list[np.ndarray] = []
        if shuffle:
            terms, stored, self._orders = in_random_order(factorisation)
        graphs = [*(term.rows for term in terms), factorisation.global_graph]
        moving = [*(self.values[n] for n in factorisation.var_names), *(term.index for term in terms)]
        self.given, graphs = extract_given(graphs, moving, factorisation.threshold)
        outputs = self._differences(terms, graphs)
        used = set(ancestors([*outputs.values(), *(given.source for given in self.given)]))
        block = set(factorisation.var_names)
        self.other_names = [n for n, v in self.values.items() if n not in block and v in used]
        types = [self.values[n].type for n in self.other_names]
        self._others = [(n, t.dtype, t.shape) for n, t in zip(self.other_names, types, strict=True)]
        original = dict(
            zip(
                (leaf.placeholder for leaf in factorisation.leaves),
                factorisation.leaf_values,
                strict=True,
            )
        )
        leaves = [leaf for leaf in {**original, **stored} if leaf in used]
        self.leaf_values = tuple(
            np.asarray(stored[leaf] if leaf in stored else original[leaf], order="C") for leaf in leaves
        )
        self._args = [*(self.values[n] for n in self.other_names), *leaves]
        args = [*self._args, *(given.placeholder for given in self.given)]
        self._outputs = outputs
        own = {"q_new": self._q_new, "q": self._q, "index": self._index}
        self._inputs = {
            name: [*(own[parameter] for parameter in parameters[:-1]), *args]
            for name, parameters in TARGET_PARAMETERS.items()
        }
        self._functions: dict[str, Any] = {}

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
        kind = state_type(block)
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
        if name == "local_gradient":
            return self._gradient_of_rows()
        return self._outputs[name]

    def _gradient_of_rows(self) -> Variable:
        """The gradient of the sum of some rows."""
        try:
            return grad(stable(self._local).sum(), self._q, disconnected_inputs="ignore")
        except NO_GRADIENT as error:
            names = ", ".join(repr(name) for name, _ in self.factorisation.local_terms)
            raise UnsuitableError(
                f"The local terms ({names}) have no gradient, which Langevin moves go along: {error}. Use "
                "AusterityMH with proposal=RandomWalk(scale) for the variables in them."
            ) from None

    def _has(self, name: str) -> bool:
        """Whether the model has this function; without features, they are the state itself."""
        return name in self._outputs or name in _GRADIENTS

    def interpreted(self) -> Target:
        """The target as functions that Python can call; each is made when it is first called."""
        return Target(**{name: self._called_from_python(name) for name in Target._fields if self._has(name)})

    def _called_from_python(self, name: str) -> Callable[..., Any]:
        @cache
        def entry() -> Callable[..., Any]:
            return self.backend.entry(self._function(name))

        return target_function(lambda *args: entry()(*args))

    def interpret(self, kernel: Callable[..., Any], records: Records) -> InterpretedKernel:
        """Let Python run `kernel` around this target; parameters as of `compile`."""
        return InterpretedKernel(kernel, {**records, "target": self.interpreted()})

    def compile(
        self, kernel: Callable[..., Any], records: Records, target_functions: Iterable[str]
    ) -> ReadyKernel:
        """Put a kernel around this target; numba compiles it when it is first called.

        Parameters
        ----------
        kernel : callable
            Its last parameter is `target`.
        records : dict of str to NamedTuple
            Functions that the kernel takes, such as a proposal and a decision rule; see `records`.
        target_functions : iterable of str
            Functions of the `Target` that are called. The others are stubs.

        Returns
        -------
        ReadyKernel
            The kernel as a function of what `records.call_parameters` says.
        """
        wanted = [name for name in target_functions if self._has(name)]
        functions = {
            name: (self._written if name == "log_ratios" else None) or self._function(name) for name in wanted
        }
        return self.backend.compile(functions, kernel, records)

    @cached_property
    def _written(self) -> WrittenFunction | None:
        """The log ratios of remainders as source code, if that is known of all terms."""
        terms = [(term.size, term.source) for term in self.factorisation.locals]
        known = all(source for _, source in terms)
        if not known or not self.backend.takes_source or self._orders:
            return None
        args = [*self._args, *(given.placeholder for given in self.given)]
        places, (n_dim,) = {var: k for k, var in enumerate(args)}, self._q.type.shape

        def source(array: Callable[[int], str]) -> str | None:
            return log_ratios_source(terms, n_dim, lambda leaf: array(places[leaf]))

        return (
            None
            if source(str) is None
            else WrittenFunction(source, [(v.type.dtype, v.type.ndim) for v in args])
        )
