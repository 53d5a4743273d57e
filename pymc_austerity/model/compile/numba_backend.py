"""Functions of the model, and the kernel that calls them, as native functions that are kept on disk.

Functions of a model and their arguments (values of other variables, data) have types of their own. If a
kernel were compiled around them, each model would compile all of it anew. So the functions are compiled
apart, each with a fixed signature, and the kernel, with its rule and its proposal, once for all models. It
gets a *table*: one array of the addresses of the functions, then for each argument the address of its numbers
and its shape. In compiled code `TARGET` calls a function of a table with that table, and the function makes
its arguments from it (`array_at`). A kernel only hands the table through.

No Python code runs on the way (`native`). What a function raises is raised by the kernel. A table is valid as
long as the functions and the arrays exist; its `TableMaker` keeps both.

Private internals of PyTensor and numba live in this module and in `native`. A few lines of source are
generated: each function of the target, as `TARGET` calls it; the constructor of each record; and `engine`,
which calls the kernel with them.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, overload
from numba.np.arrayobj import make_array
from numba.np.numpy_support import from_dtype
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph, Op
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch.basic import numba_funcify_ensure_cache

from pymc_austerity.bounds.jets.remainders import (
    GlobalRows,
    RowsOfTerms,
    features_of,
    global_gradient,
    global_log_ratio,
    global_part_at,
    log_ratios,
    rows_at,
)
from pymc_austerity.compilation import jitable
from pymc_austerity.model.compile.cache_key import is_of_package, key_of
from pymc_austerity.model.compile.native import (
    Addresses,
    NativeKernel,
    from_source,
    generator_at,
    interruptible,
    outcome_of,
    returns_state,
)
from pymc_austerity.model.compile.protocol import (
    Records,
    call_parameters,
    constructor,
    constructor_source,
    exact_arithmetic,
    open_fields,
    pytensor_function,
)
from pymc_austerity.model.graph.functions import Kept, structure_of, with_own_constants
from pymc_austerity.packed import address_of, array_of_table, call_at, word_of_table
from pymc_austerity.target import TARGET_NUMBERS, TARGET_PARAMETERS, Target, Vector

# Of equal graphs, which a model has again if it is given other data.
_functions, _targets = Kept(), Kept()
VECTOR = types.Array(types.float64, 1, "C")
INTEGERS = types.Array(types.int64, 1, "C")
TABLE = types.Array(types.uintp, 1, "C")
# A state is a vector of either; functions of the two have places of their own in a table.
_STATES: dict[Any, int] = {VECTOR: 0, INTEGERS: len(Target._fields)}
# Functions of a target that may be data, which compiled code runs: what is called with the record of such a
# function, how that is found, and sources of the other arguments. Without a polynomial nobody asks for phi.
Rows = RowsOfTerms | GlobalRows
_PHI = "features({0}, table) if own.gradient.shape[0] > 0 else {0}"
_AS_DATA: dict[str, tuple[Any, Any, str]] = {
    "log_ratios": (log_ratios, rows_at, "features(q_new, table), features(q, table), index"),
    "global_log_ratio": (
        global_log_ratio,
        global_part_at,
        f"q_new, q, {_PHI.format('q_new')}, {_PHI.format('q')}",
    ),
    "features": (features_of, rows_at, "q"),
    "global_gradient": (
        global_gradient,
        global_part_at,
        f"q, {_PHI.format('q')}, np.int64(table[of_features])",
    ),
}
# Where a table has the addresses of their records; and where arrays begin.
_RECORDS = {name: len(Target._fields) * len(_STATES) + k for k, name in enumerate(_AS_DATA)}
FIRST_ARRAY = max(_RECORDS.values()) + 1

Kind = tuple[str, int]


def signature_of(name: str, state: str) -> Signature:
    """The signature of a function of a `Target`, for states of numbers of the type `state`."""
    states = types.Array(from_dtype(np.dtype(state)), 1, "C")
    return Signature(_result(name), _parameters(name, states), None)


def _result(name: str) -> types.Type:
    return types.float64 if name in TARGET_NUMBERS else VECTOR


def _parameters(name: str, states: types.Array) -> tuple[types.Type, ...]:
    of = {"index": INTEGERS, "args": TABLE}
    return tuple(of.get(parameter, states) for parameter in TARGET_PARAMETERS[name])


def places_of(kinds: Sequence[Kind]) -> list[int]:
    """Positions in a table at which arrays of these types and dimensions begin."""
    steps = [1 + n_dim for _, n_dim in kinds]
    return [int(place) for place in FIRST_ARRAY + np.cumsum([0, *steps])[:-1]]


class TableMaker:
    """Makes the tables of one model.

    `functions` are dispatchers of the target, with the signature of each: they are compiled, or loaded from
    the disk, for the first table. `kinds` has the type of the numbers and the dimensions of each argument,
    of which functions in `rows`, which are data, take none.
    """

    def __init__(
        self,
        functions: Mapping[str, tuple[Any, Signature]],
        kinds: Sequence[Kind],
        rows: Mapping[str, Rows] | None = None,
    ) -> None:
        self._functions, self._rows = functions, rows or {}
        places = places_of(kinds)
        self._kinds = [(np.dtype(dtype), place) for (dtype, _), place in zip(kinds, places, strict=True)]
        self._size = FIRST_ARRAY + sum(1 + n_dim for _, n_dim in kinds)
        self._made: tuple[list[Any], Addresses] | None = None

    def __call__(self, args: tuple[np.ndarray, ...]) -> Addresses:
        """The table for these arguments, which are kept until the next is made."""
        if self._made is None:
            self._made = [None] * len(self._kinds), self._of_functions()
        kept, table = self._made
        others = [k for k, (a, b) in enumerate(zip(args, kept, strict=bool(kept))) if a is not b]
        if not others:
            return table
        kept, table = kept.copy(), table.copy()
        for k in others:
            dtype, place = self._kinds[k]
            array = kept[k] = np.require(args[k], dtype, ["C", "A"])
            table[place] = array.ctypes.data
            table[place + 1 : place + 1 + array.ndim] = array.shape
        self._made = kept, table
        return table

    def _of_functions(self) -> Addresses:
        table = np.zeros(self._size, dtype=np.uintp)
        for name, rows in self._rows.items():
            table[_RECORDS[name]] = rows.record.address
        for name, (function, signature) in self._functions.items():
            table[_place(name, signature.args[0])] = address_of(function, signature)
        return table


def _place(name: str, state: Any) -> int:
    return Target._fields.index(name) + _STATES[state]


# In compiled code -----------------------------------------------------------------------------------------


@intrinsic(prefer_literal=True)
def array_at(typing_context: Any, table: Any, place: Any, dtype: Any, n_dim: Any) -> Any:
    """The array whose address and shape are at `place` of a table. It is the caller's; nothing is counted."""
    if not all(isinstance(each, types.Literal) for each in (place, dtype, n_dim)):
        raise TypingError("Place, type and dimensions have to be literals.")
    kind = types.Array(from_dtype(np.dtype(dtype.literal_value)), n_dim.literal_value, "C")
    first = place.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers = make_array(TABLE)(context, builder, arguments[0]).data
        return array_of_table(context, builder, kind, numbers, first)

    return kind(table, place, dtype, n_dim), generate


def as_vector(array: np.ndarray) -> Vector:
    """The numbers of an array as a `VECTOR`, in compiled code; copied if they are not in one piece."""
    raise NotImplementedError


@intrinsic
def _as_contiguous(typing_context: Any, array: Any) -> Any:
    """The array with a type that says it is contiguous."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return impl_ret_borrowed(context, builder, VECTOR, arguments[0])

    return VECTOR(array), generate


# numba compares parameters and their annotations with those of the implementation.
@overload(as_vector)
def _as_vector(array):  # type: ignore[no-untyped-def]
    def itself(array):  # type: ignore[no-untyped-def]
        return array

    def contiguous(array):  # type: ignore[no-untyped-def]
        if array.strides[0] == array.itemsize:
            return _as_contiguous(array)  # type: ignore[call-arg]
        return _copied(array)

    if array == VECTOR:
        return itself
    return contiguous if array == VECTOR.copy(layout="A") else _copied


@jitable
def _copied(array):  # type: ignore[no-untyped-def]
    result = np.empty(array.shape[0])
    for i in range(array.shape[0]):
        result[i] = array[i]
    return result


def _call(name: str) -> Callable[..., Any]:
    """An intrinsic that calls a function of the table, which is the last of its arguments."""
    result = _result(name)

    @intrinsic
    def call(typing_context: Any, arguments: Any) -> Any:
        given = arguments.types
        state = given[0]
        if state not in _STATES or given != _parameters(name, state):
            raise TypingError(f"{name} takes contiguous vectors and a table, not {given}.")

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            parts = cgutils.unpack_tuple(builder, values[0])
            numbers = make_array(TABLE)(context, builder, parts[-1]).data
            address = word_of_table(context, builder, numbers, _place(name, state))
            with cgutils.if_unlikely(builder, cgutils.is_null(builder, address)):
                message = f"This target has no {name}."
                context.call_conv.return_user_exc(builder, NotImplementedError, (message,))
            return call_at(context, builder, address, result, given, parts)

        return result(arguments), generate

    return call


# The functions of a `Target`, with a table in place of its arguments.


def _with_table(name: str) -> Any:
    """A function that calls that of a table."""
    own = ", ".join(TARGET_PARAMETERS[name][:-1])
    source = f"def {name}({own}, table):\n    return call(({own}, table))"
    environment = {"__name__": __name__, "call": _call(name)}
    return jitable(compile_numba_function_src(source, name, environment, {}))


_call_features = _call("features")
_FEATURES = Target._fields.index("features")


@jitable
def _features(q: Vector, table: Any) -> Vector:
    """The state itself if the target has no features."""
    return _call_features((q, table)) if table[_FEATURES] != 0 else q


TARGET = Target(
    **{name: _with_table(name) for name in Target._fields if name != "features"}, features=_features
)


# The backend ------------------------------------------------------------------------------------------------


def _array_sources(kinds: Sequence[Kind]) -> list[str]:
    """Sources of the arguments of a function of a `Target`, which are made from its table."""
    places = zip(places_of(kinds), kinds, strict=True)
    return [f"array_at(table, {place}, {dtype!r}, {n_dim})" for place, (dtype, n_dim) in places]


def target_function_source(name: str, kinds: Sequence[Kind]) -> str:
    """Source of a function of a `Target`, which returns a number or a vector, around that of PyTensor."""
    *own, _ = TARGET_PARAMETERS[name]
    arrays = "".join(f"{array}, " for array in _array_sources(kinds))
    called = f"{name}_function({', '.join([*own, '*args'])})[0]"
    result = f"{called}.item()" if name in TARGET_NUMBERS else f"as_vector({called})"
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
    own = ", ".join(call_parameters(kernel, records))
    n_numbers = len(outcome_of(kernel)._fields) - returns_state(kernel)
    lines = [f"def engine({'draws, ' * returns_state(kernel)}numbers, {own}):"]
    lines += ["    for k in range(numbers.shape[0]):", f"        outcome = kernel({', '.join(arguments)})"]
    if returns_state(kernel):
        # Number by number: with q[:] = ... numba compiles an error message for 1 to 2 seconds.
        lines += ["        for i in range(len(q)):", "            q[i] = outcome.q[i]"]
        lines += ["            if draws.shape[0] > 0:", "                draws[k, i] = q[i]"]
    first = int(returns_state(kernel))
    lines += [f"        numbers[k, {j}] = 1.0 * outcome[{first + j}]" for j in range(n_numbers)]
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

    name, runs_programs = "numba", True
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
        parts = [part for record in own.values() for part in (type(record), *record) if part is not ...]
        key = key_of([*constructors, source], [kernel, *parts, NativeKernel])
        # Division by zero gives infinity in functions of this package, and raises in those of users.
        error_model = "python" if key is None else "numpy"
        environment: dict[str, Any] = {
            "__name__": kernel.__module__,
            "kernel": kernel,
            "generator_at": generator_at,
            **{f"make_{name}": constructor(record) for name, record in own.items()},
        }
        return NativeKernel(
            from_source(source, "engine", environment, key, error_model=error_model),
            kernel,
            call_parameters(kernel, own),
            _table_maker(functions),
        )


def _table_maker(functions: Mapping[str, Any]) -> TableMaker:
    """Makes the tables of functions of one model, each of which takes all arguments."""
    kinds: list[Kind] = []
    made, rows = {}, {}
    for name, function in functions.items():
        if isinstance(function, Rows):
            rows[name], made[name] = function, _of_rows(name)
            continue
        graph = function.maker.fgraph
        given = [variable.type for variable in graph.inputs[len(TARGET_PARAMETERS[name]) - 1 :]]
        kinds = [(kind.dtype, kind.ndim) for kind in given]
        made[name] = _targets.get((name, graph), partial(_target_function, name, graph, kinds))
    return TableMaker(made, kinds, rows)


def _of_rows(name: str) -> tuple[Any, Signature]:
    """A function of all targets that have it as data, and its signature."""
    called, record_at, arguments = _AS_DATA[name]
    source = (
        f"def {name}({', '.join(TARGET_PARAMETERS[name][:-1])}, table):\n"
        f"    own = record_at(np.int64(table[{_RECORDS[name]}]))\n"
        f"    return called(own, {arguments})"
    )
    environment = {
        "__name__": __name__,
        "np": np,
        "record_at": record_at,
        "called": called,
        "features": _features,
        "of_features": _RECORDS["features"],
    }
    key = key_of([source], [TableMaker, called])
    made = from_source(source, name, environment, key, from_python=False, error_model="numpy")
    return made, signature_of(name, "float64")


def _target_function(name: str, graph: FunctionGraph, kinds: Sequence[Kind]) -> tuple[Any, Signature]:
    """A function of a `Target` for a table of arguments of these kinds, and its signature."""
    with exact_arithmetic():
        built, graph_key = numba_funcify_ensure_cache(graph)
    source = target_function_source(name, kinds)
    operations = sorted(set(_own_operations(graph)), key=repr)
    key = key_of([graph_key, source], [TableMaker, *operations])
    environment = {
        "__name__": __name__,
        f"{name}_function": built,
        "array_at": array_at,
        "as_vector": as_vector,
    }
    made = from_source(source, name, environment, key, from_python=False)
    return made, signature_of(name, graph.inputs[0].type.dtype)
