"""From a `Factorisation` to compiled transitions.

Private internals of PyTensor and numba live here and in `native`.

A kernel (`pymc_austerity.kernels`) is a plain function of plain functions. Here the functions of a model
are compiled by PyTensor's numba backend, and the kernel is compiled around them into one native function that
runs many transitions without returning to Python, and is cached on disk. Interpreted (`model.backend`), the
kernel is called as it is.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numba.extending import register_jitable
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch.basic import numba_funcify_ensure_cache

from pymc_austerity.model.compile.backend import current_backend, exact_arithmetic
from pymc_austerity.model.compile.cache_key import is_of_package, key_of
from pymc_austerity.model.compile.native import (
    NativeKernel,
    compiled,
    engine_source,
    generator_at,
    interruptible,
)
from pymc_austerity.model.compile.row_order import in_random_order
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.leaves import extract_given
from pymc_austerity.model.graph.rewrite import parts_of, rebuild
from pymc_austerity.model.population import Positions
from pymc_austerity.target import Target

logger = logging.getLogger(__name__)

_FUNCTIONS = """
def log_ratios(q_new, q, index, args):
    return log_ratios_function(q_new, q, index, *args)[0]

def log_terms(q, index, args):
    return log_terms_function(q, index, *args)[0]

def global_gradient(q, args):
    return global_gradient_function(q, *args)[0]

def global_log_ratio(q_new, q, args):
    return global_log_ratio_function(q_new, q, *args)[0].item()

def features(q, args):
    return features_function(q, *args)[0]
"""


def _own_operations(graph: FunctionGraph) -> Iterator[type[Op]]:
    """Operations of a graph that this package defines; PyTensor's keys have their names alone."""
    for node in graph.apply_nodes:
        if is_of_package(type(node.op)):
            yield type(node.op)
        if isinstance(node.op, HasInnerGraph):
            yield from _own_operations(node.op.fgraph)


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
        self._inputs = {
            "log_ratios": [self._q_new, self._q, self._index, *args],
            "log_terms": [self._q, self._index, *args],
            "global_log_ratio": [self._q_new, self._q, *args],
            "global_gradient": [self._q, *args],
            "features": [self._q, *args],
        }
        self._functions: dict[str, Any] = {}

    def given_names(self) -> list[str]:
        """Names of the variables that `given` depends on."""
        used = set(ancestors([given.source for given in self.given]))
        return [name for name in self.other_names if self.values[name] in used]

    def stored_at(self, rows: np.ndarray) -> np.ndarray:
        """Where some rows of the population are stored."""
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
        self._q_new, self._q = (pt.vector(name, shape=(n_dim,)) for name in ("q_new", "q"))
        self._index = pt.vector("index", dtype="int64")
        positions = Positions(self._index, [term.size for term in terms])
        *graphs, global_ = graphs
        rows = [
            rebuild([graph], {term.index: own})[0]
            for term, graph, own in zip(terms, graphs, positions.rows, strict=True)
        ]
        outputs = [*rows, global_]
        features = fact.features
        if features is not None:
            (features,) = rebuild([features], parts_of(self._q, block))
        new, old = (rebuild(outputs, parts_of(q, block)) for q in (self._q_new, self._q))
        self._global = pt.as_tensor(old[-1])
        *local, global_ = [a - b for a, b in zip(new, old, strict=True)]
        return {
            "log_ratios": positions.in_order(local),
            "log_terms": positions.in_order(old[:-1]),
            "global_log_ratio": pt.as_tensor(global_),
            **({} if features is None else {"features": features}),
        }

    @cached_property
    def _given_function(self) -> Any:
        return interruptible(self.backend.function(self._args, [given.source for given in self.given]))

    def _function(self, name: str) -> Any:
        """One of the functions of a record, made by PyTensor when it is first asked for."""
        if name == "global_gradient" and name not in self._outputs:
            self._outputs[name] = grad(self._global, self._q, disconnected_inputs="ignore")
        if name not in self._functions:
            self._functions[name] = self.backend.function(self._inputs[name], [self._outputs[name]])
        return self._functions[name]

    def interpreted(self, record: type[Any] = Target) -> Any:
        """The target as functions that Python can call; numba, if that is the backend, compiles each."""
        made = {name: self.backend.entry(self._function(name)) for name in record._fields}
        functions = {
            "log_ratios": lambda q_new, q, index, args: made["log_ratios"](q_new, q, index, *args)[0],
            "log_terms": lambda q, index, args: made["log_terms"](q, index, *args)[0],
            "global_gradient": lambda q, args: made["global_gradient"](q, *args)[0],
            "global_log_ratio": lambda q_new, q, args: made["global_log_ratio"](q_new, q, *args)[0].item(),
            "features": lambda q, args: made["features"](q, *args)[0],
        }
        return record(*(functions[name] for name in record._fields))

    def interpret(
        self,
        kernel: Callable[..., Any],
        functions: Mapping[str, Callable[..., Any]],
        record: type[Any] = Target,
    ) -> Any:
        """Let Python run `kernel` around this target; parameters and result as of `compile`."""
        # Compiled code is silent too: what is not finite is looked at.
        return np.errstate(all="ignore")(partial(kernel, **functions, target=self.interpreted(record)))

    def compile(
        self,
        kernel: Callable[..., Any],
        functions: Mapping[str, Callable[..., Any]],
        record: type[Any] = Target,
    ) -> Any:
        """Compile `kernel` around this target, if the backend does that.

        Parameters
        ----------
        kernel : callable
            Its last parameters are those in `functions`, in order, and `target`.
        functions : dict of str to callable
            Functions that the kernel takes, such as a proposal and a decision rule. If all are functions of
            this package, the compiled code is kept on disk, and found again by the package's sources.
        record : type of NamedTuple, default Target
            What `target` is, one of those in `pymc_austerity.target`. Only its functions are compiled.

        Returns
        -------
        NativeKernel
            The kernel as a function of its remaining parameters.
        """
        if not self.backend.is_native:
            return self.interpret(kernel, functions, record)
        parameters = list(inspect.signature(kernel).parameters)
        own = parameters[: len(parameters) - len(functions) - 1]
        fields = list(record._fields)
        source = engine_source(kernel, own, list(functions), fields)
        with exact_arithmetic():
            built = {name: numba_funcify_ensure_cache(self._function(name).maker.fgraph) for name in fields}
        graph_keys = [cache_key for _, cache_key in built.values()]
        operations = {op for name in fields for op in _own_operations(self._function(name).maker.fgraph)}
        ours = [NativeKernel, *sorted(operations, key=repr)]
        key = key_of([*graph_keys, _FUNCTIONS, source], [kernel, *functions.values(), record, *ours])
        # Functions are handed to the kernel as `register_jitable` functions, which have no address; a
        # dispatcher as a value has one, and numba then refuses to cache.
        environment: dict[str, Any] = {
            "__name__": kernel.__module__,
            "kernel": kernel,
            "Record": record,
            "generator_at": generator_at,
            **{f"{name}_function": function for name, (function, _) in built.items()},
            **functions,
        }
        for name in fields:
            plain = compile_numba_function_src(_FUNCTIONS, name, environment, {})
            environment[f"{name}_"] = register_jitable(plain)
        return NativeKernel(compiled(source, "engine", environment, key), kernel, own)
