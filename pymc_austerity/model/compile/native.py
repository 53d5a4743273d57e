"""Calls of machine code that an interrupt cannot spoil.

Python handles Ctrl-C where it runs Python code next. numba's machine code takes long, and then runs some: to
look up the class of a NamedTuple or the type of an array that it returns, and to look up the functions of a
random generator that it is given. It does not expect an exception there. What follows is a `SystemError`, or
the end of the process by a segmentation fault.

So no Python code may run inside: a generator is handed over as addresses, and what comes back are numbers
alone. Arrays are written to, not returned. The interrupt is then raised after the call, by Python.
"""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt
from numba.core import cgutils, types
from numba.extending import intrinsic
from pytensor.link.numba.cache import compile_numba_function_src

from pymc_austerity.compilation import entry
from pymc_austerity.model.graph.functions import Kept
from pymc_austerity.target import Matrix

Addresses = npt.NDArray[np.uintp]
# Of numba's record of a bit generator; the first is its address, which only Python needs.
_FIELDS = ("state_address", "state", "fnptr_next_uint64", "fnptr_next_uint32", "fnptr_next_double")


@lru_cache(maxsize=64)
def addresses_of(rng: np.random.Generator) -> Addresses:
    """Addresses of state and functions of a generator, for `generator_at`; valid as long as `rng` exists.

    They are kept: to find them takes as long as a transition.
    """
    interface: Any = rng.bit_generator.ctypes
    functions = (interface.next_uint64, interface.next_uint32, interface.next_double)
    pointers = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    return np.array([interface.state_address, interface.state.value, *pointers], dtype=np.uintp)


@intrinsic
def generator_at(typing_context: Any, addresses: Any) -> Any:
    """The random generator at some addresses, in compiled code. It is the caller's; nothing is counted."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (kind,), (value,) = signature.args, arguments
        numbers = context.make_array(kind)(context, builder, value).data
        bits = cgutils.create_struct_proxy(types.npy_bitgen)(context, builder)
        for k, name in enumerate(_FIELDS):
            place = builder.gep(numbers, [context.get_constant(types.intp, k)])
            setattr(bits, name, builder.load(place))
        # Its reference to a Python object stays null, which is never counted.
        generator = cgutils.create_struct_proxy(types.npy_rng)(context, builder)
        generator.bit_generator = bits._getvalue()
        return generator._getvalue()

    return types.npy_rng(addresses), generate


def outcome_of(kernel: Callable[..., Any]) -> Any:
    """The class of what a kernel returns: a NamedTuple of numbers, of which the first may be a state q."""
    return get_type_hints(kernel)["return"]


# Functions by their keys: what numba has made, or read from disk, it never forgets.
_made = Kept()


def returns_state(kernel: Callable[..., Any]) -> bool:
    """Does the kernel return a state q, besides numbers?"""
    return bool(outcome_of(kernel)._fields[0] == "q")


class NativeKernel:
    """A compiled kernel.

    `engine` is compiled from the source that `numba_backend.engine_source` returns. `kernel` returns a
    NamedTuple of numbers, of which the first may be the state q: that array is written over. `own` has the
    names of what it is called with. `table_of` makes what the engine gets in place of the tuple `args`: see
    `numba_backend.TableMaker`.
    """

    def __init__(
        self, engine: Any, kernel: Callable[..., Any], own: list[str], table_of: Callable[[Any], Addresses]
    ) -> None:
        self._engine = engine
        self._outcome = outcome_of(kernel)
        self._rng_at = own.index("rng")
        self._args_at = own.index("args")
        self._table_of = table_of
        self._q_at = own.index("q") if returns_state(kernel) else None
        self._n_numbers = len(self._outcome._fields) - returns_state(kernel)
        # Machine code for each of the types that arguments have had; kernels of other models use it, too.
        self._entry_points: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *args: Any) -> Any:
        """Run the kernel, compiling it first if need be."""
        given, numbers = self._given(args), np.empty((1, self._n_numbers))
        written = self._written(args, numbers)
        self._engine(*written, *given)
        types = tuple(self._engine.typeof_pyval(each) for each in (*written, *given))
        compiled = self._engine.overloads.get(types)
        self._entry_points[types] = compiled and compiled.entry_point
        return self._outcome_of(args, numbers)

    @property
    def is_settled(self) -> bool:
        """Whether arguments have had the same types in all calls, which `again` relies on."""
        return len(self._entry_points) == 1 and None not in self._entry_points.values()

    def again(self, *args: Any) -> Any:
        """Run the kernel on arguments of the same types as before, which nobody looks at.

        numba's dispatcher looks at the type of every array of every argument in every call, which takes
        longer than a transition.
        """
        (entry_point,) = self._entry_points.values()
        numbers = np.empty((1, self._n_numbers))
        entry_point(*self._written(args, numbers), *self._given(args))
        return self._outcome_of(args, numbers)

    def run_ahead(self, draws: Matrix, numbers: Matrix, *args: Any) -> None:
        """Run the kernel once for each row of `draws`, each time from where it is."""
        (entry_point,) = self._entry_points.values()
        entry_point(draws, numbers, *self._given(args))

    def _written(self, args: tuple[Any, ...], numbers: Matrix) -> list[Any]:
        """What the machine code writes to: an empty table, if the kernel has states, and numbers."""
        if self._q_at is None:
            return [numbers]
        q = args[self._q_at]
        return [np.empty((0, len(q)), q.dtype), numbers]

    def _given(self, args: tuple[Any, ...]) -> list[Any]:
        """Arguments of the machine code: addresses in place of the generator and of the model's arguments."""
        given = list(args)
        given[self._rng_at] = addresses_of(args[self._rng_at])
        given[self._args_at] = self._table_of(args[self._args_at])
        return given

    def _outcome_of(self, args: tuple[Any, ...], numbers: Matrix) -> Any:
        found = numbers[0].tolist()
        return self._outcome(*found) if self._q_at is None else self._outcome(args[self._q_at], *found)


def from_source(
    source: str,
    name: str,
    environment: dict[str, Any],
    key: str | None,
    *,
    from_python: bool = True,
    **options: Any,
) -> Any:
    """A function, compiled when it is first called, and kept on disk under `key`, if there is one.

    What has the same key is the same function. What other compiled code calls, and never Python, takes less
    to compile.
    """

    def make() -> Any:
        function = compile_numba_function_src(source, name, environment, {}, cache_key=key)
        wrappers: dict[str, Any] = {"no_cfunc_wrapper": True, "no_cpython_wrapper": not from_python}
        return entry(function, cache=key is not None, **wrappers, **options)

    return make() if key is None else _made.get(key, make)


def interruptible(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that PyTensor compiled, such that an interrupt is raised as such.

    PyTensor's functions return tuples of arrays. An interrupt on the way out has become the cause of a
    `SystemError`.
    """

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except SystemError as error:
            cause: BaseException | None = error
            while isinstance(cause, SystemError):
                cause = cause.__cause__ or cause.__context__
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
            raise

    return call
