"""Functions of the model and the kernel around them as one native function, kept on disk.

Private internals of PyTensor and numba live here and in `native`. A few lines of source are generated: each
function of the target, as kernels call it; the constructor of each record; and `engine`, which calls the
kernel with them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numba.extending import register_jitable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch.basic import numba_funcify_ensure_cache

from pymc_austerity.model.compile.cache_key import is_of_package, key_of
from pymc_austerity.model.compile.native import (
    NativeKernel,
    compiled,
    generator_at,
    interruptible,
    returns_state,
)
from pymc_austerity.model.compile.protocol import exact_arithmetic, pytensor_function
from pymc_austerity.model.compile.records import (
    Records,
    call_parameters,
    constructor,
    constructor_source,
    functions_of,
    open_fields,
)
from pymc_austerity.target import TARGET_PARAMETERS, Target


def target_function_source(name: str, *, is_number: bool) -> str:
    """Source of a function of a `Target`, which returns a number or a vector, around that of PyTensor."""
    parameters = TARGET_PARAMETERS[name]
    result = f"{name}_function({', '.join([*parameters[:-1], '*args'])})[0]{'.item()' if is_number else ''}"
    return f"def {name}({', '.join(parameters)}):\n    return {result}"


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


@dataclass(frozen=True)
class NumbaBackend:
    """Everything is compiled by numba."""

    name: str = "numba"
    mode: Any = "NUMBA"

    def function(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
        """A compiled function of some graphs."""
        return pytensor_function(inputs, outputs, self.mode)

    def entry(self, function: Any) -> Callable[..., Any]:
        """The compiled code, without PyTensor's checks."""
        return interruptible(function.vm.jit_fn)

    def compile(
        self, functions: Mapping[str, Any], kernel: Callable[..., Any], records: Records
    ) -> NativeKernel:
        """Compile the kernel around the target when it is first called.

        If all functions are of this package, the compiled code is kept on disk, and found again by the
        package's sources.
        """
        graphs = {name: function.maker.fgraph for name, function in functions.items()}
        with exact_arithmetic():
            built = {name: numba_funcify_ensure_cache(graph) for name, graph in graphs.items()}
        sources = {
            name: target_function_source(name, is_number=graph.outputs[0].type.ndim == 0)
            for name, graph in graphs.items()
        }
        # Functions are handed to the kernel as `register_jitable` functions, which have no address; a
        # dispatcher as a value has one, and numba then refuses to cache.
        target = Target(
            **{
                name: register_jitable(
                    compile_numba_function_src(
                        source, name, {"__name__": Target.__module__, f"{name}_function": built[name][0]}, {}
                    )
                )
                for name, source in sources.items()
            }
        )
        engine = engine_source(kernel, {**records, "target": target})
        keys = [graph_key for _, graph_key in built.values()]
        constructors = [constructor_source(record) for record in records.values()]
        operations = {op for graph in graphs.values() for op in _own_operations(graph)}
        key = key_of(
            [*keys, *sources.values(), *constructors, engine],
            [
                kernel,
                *(part for record in records.values() for part in (type(record), *functions_of(record))),
                Target,
                NativeKernel,
                *sorted(operations, key=repr),
            ],
        )
        environment: dict[str, Any] = {
            "__name__": kernel.__module__,
            "kernel": kernel,
            "generator_at": generator_at,
            **{f"make_{name}": constructor(record) for name, record in records.items()},
            "make_target": constructor(target),
        }
        own = call_parameters(kernel, {**records, "target": target})
        return NativeKernel(compiled(engine, "engine", environment, key), kernel, own)
