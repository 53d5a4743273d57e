"""Functions of the model, and the kernel that calls them, as native functions that are kept on disk.

Each function of the target is compiled on its own. The kernel, with its rule and its proposal, is compiled
once for all models: it is handed the functions in a table (`target_table`). Private internals of PyTensor and
numba live in these two modules and in `native`. A few lines of source are generated: each function of the
target, as `target_table` calls it; the constructor of each record; and `engine`, which calls the kernel with
them.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numba.core.typing.templates import Signature
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.link.numba.dispatch.basic import numba_funcify_ensure_cache

from pymc_austerity.model.compile.cache_key import is_of_package, key_of
from pymc_austerity.model.compile.native import (
    NativeKernel,
    from_source,
    generator_at,
    interruptible,
    returns_state,
)
from pymc_austerity.model.compile.protocol import WrittenFunction, exact_arithmetic, pytensor_function
from pymc_austerity.model.compile.records import (
    Records,
    call_parameters,
    constructor,
    constructor_source,
    functions_of,
    open_fields,
)
from pymc_austerity.model.compile.target_table import (
    TARGET,
    Kind,
    TableMaker,
    array_at,
    as_vector,
    places_of,
    signature_of,
)
from pymc_austerity.model.graph.functions import Kept, structure_of, with_own_constants
from pymc_austerity.target import TARGET_PARAMETERS

# Of equal graphs, which a model has again if it is given other data.
_functions, _targets = Kept(), Kept()


def _array_sources(kinds: Sequence[Kind]) -> list[str]:
    """Sources of the arguments of a function of a `Target`, which are made from its table."""
    places = zip(places_of(kinds), kinds, strict=True)
    return [f"array_at(table, {place}, {dtype!r}, {n_dim})" for place, (dtype, n_dim) in places]


def target_function_source(name: str, kinds: Sequence[Kind], *, is_number: bool) -> str:
    """Source of a function of a `Target`, which returns a number or a vector, around that of PyTensor."""
    *own, _ = TARGET_PARAMETERS[name]
    arrays = "".join(f"{array}, " for array in _array_sources(kinds))
    called = f"{name}_function({', '.join([*own, '*args'])})[0]"
    result = f"{called}.item()" if is_number else f"as_vector({called})"
    lines = [
        f"def {name}({', '.join([*own, 'table'])}):",
        f"    args = ({arrays})",
        f"    return {result}",
    ]
    return "\n".join(lines)


def engine_source(kernel: Callable[..., Any], records: Records) -> str:
    """Source of ``engine``, the kernel as `NativeKernel` calls it."""
    arguments = []
    for name in inspect.signature(kernel).parameters:
        if name in records:
            fields = ", ".join(f"{name}_{field}" for field in open_fields(records[name]))
            arguments.append(f"make_{name}({fields})")
        else:
            arguments.append("generator_at(rng)" if name == "rng" else name)
    lines = [
        f"def engine({', '.join(call_parameters(kernel, records))}):",
        f"    outcome = kernel({', '.join(arguments)})",
    ]
    if returns_state(kernel):
        # Number by number: with q[:] = ... numba compiles an error message for 1 to 2 seconds.
        lines += ["    for i in range(len(q)):", "        q[i] = outcome.q[i]", "    return outcome[1:]"]
    else:
        lines += ["    return outcome[:]"]
    return "\n".join(lines)


def _own_operations(graph: FunctionGraph) -> Iterator[type[Op]]:
    """Operations of a graph that this package defines; PyTensor's keys have their names alone."""
    for node in graph.apply_nodes:
        if is_of_package(type(node.op)):
            yield type(node.op)
        if isinstance(node.op, HasInnerGraph):
            yield from _own_operations(node.op.fgraph)


class NumbaBackend:
    """Everything is compiled by numba."""

    name, takes_source = "numba", True
    mode: Any = "NUMBA"

    def function(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
        """A compiled function of some graphs: for equal graphs the same, which is machine code already."""
        structure = structure_of(inputs, outputs)
        if structure is None:
            return pytensor_function(inputs, outputs, self.mode)
        return _functions.get(
            structure, lambda: pytensor_function(inputs, with_own_constants(inputs, outputs), self.mode)
        )

    def entry(self, function: Any) -> Callable[..., Any]:
        """The compiled code, without PyTensor's checks."""
        return interruptible(function.vm.jit_fn)

    def compile(
        self, functions: Mapping[str, Any], kernel: Callable[..., Any], records: Records
    ) -> NativeKernel:
        """Compile the functions of the target, and the kernel, when it is first called.

        The kernel is the same for all models. What is of this package, or a graph, is kept on disk, and found
        again by the package's sources.
        """
        own = {**records, "target": TARGET}
        source = engine_source(kernel, own)
        constructors = [constructor_source(record) for record in own.values()]
        parts = [part for record in own.values() for part in (type(record), *functions_of(record))]
        key = key_of([*constructors, source], [kernel, *parts, NativeKernel])
        environment: dict[str, Any] = {
            "__name__": kernel.__module__,
            "kernel": kernel,
            "generator_at": generator_at,
            **{f"make_{name}": constructor(record) for name, record in own.items()},
        }
        return NativeKernel(
            from_source(source, "engine", environment, key),
            kernel,
            call_parameters(kernel, own),
            _table_maker(functions),
        )


def _table_maker(functions: Mapping[str, Any]) -> TableMaker:
    """Makes the tables of functions of one model, each of which takes all arguments."""
    kinds: list[Kind] = []
    made = {}
    for name, function in functions.items():
        if isinstance(function, WrittenFunction):
            kinds = function.kinds
            made[name] = _from_source(name, function)
            continue
        graph = function.maker.fgraph
        given = [variable.type for variable in graph.inputs[len(TARGET_PARAMETERS[name]) - 1 :]]
        kinds = [(kind.dtype, kind.ndim) for kind in given]
        made[name] = _targets.get((name, graph), partial(_target_function, name, graph, kinds))
    return TableMaker(made, kinds)


def _from_source(name: str, function: WrittenFunction) -> tuple[Any, Signature]:
    """A function of a `Target` that is written, and its signature."""
    source = cast(str, function.source(_array_sources(function.kinds).__getitem__))
    key = key_of([source], [TableMaker])
    environment = {"__name__": TableMaker.__module__, "array_at": array_at, "math": math, "np": np}
    signature = signature_of(name, "float64", is_number=False)
    return from_source(source, name, environment, key, from_python=False, error_model="numpy"), signature


def _target_function(name: str, graph: FunctionGraph, kinds: Sequence[Kind]) -> tuple[Any, Signature]:
    """A function of a `Target` for a table of arguments of these kinds, and its signature."""
    is_number = graph.outputs[0].type.ndim == 0
    with exact_arithmetic():
        built, graph_key = numba_funcify_ensure_cache(graph)
    source = target_function_source(name, kinds, is_number=is_number)
    operations = sorted(set(_own_operations(graph)), key=repr)
    key = key_of([graph_key, source], [TableMaker, *operations])
    environment = {
        "__name__": TableMaker.__module__,
        f"{name}_function": built,
        "array_at": array_at,
        "as_vector": as_vector,
    }
    signature = signature_of(name, graph.inputs[0].type.dtype, is_number=is_number)
    return from_source(source, name, environment, key, from_python=False), signature
