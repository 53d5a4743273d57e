"""What a backend is: whoever runs functions of a model, and the kernels around them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pytensor
from pytensor.graph.basic import Variable

from pymc_austerity.model.compile.records import Records
from pymc_austerity.model.graph.functions import function_of


def exact_arithmetic() -> Any:
    """Compile within this context without reordering of sums.

    With PyTensor's default, `fastmath`, code that was just compiled and the same code from the disk differ
    in the last bit, and with them the statistics of one seed in two processes.
    """
    return pytensor.config.change_flags(numba__fastmath=False)


def pytensor_function(inputs: Sequence[Variable], outputs: Sequence[Variable], mode: Any) -> Any:
    """A PyTensor function of some graphs. It takes arrays as they are, without a look at them."""
    with exact_arithmetic():
        return function_of(inputs, outputs, mode, data_inside=True, trust_input=True)


class WrittenFunction(NamedTuple):
    """A function of a target that is known as source code."""

    # ``(array) -> str``: the source, in which ``array(k)`` is that of argument k
    source: Callable[[Callable[[int], str]], str | None]
    kinds: list[tuple[str, int]]  # Type of the numbers and dimensions of each argument


class ReadyKernel(Protocol):
    """A kernel around a target, to be called with what `records.call_parameters` says."""

    def __call__(self, *args: Any) -> Any:
        """Run the kernel, compiling it first if need be."""

    def again(self, *args: Any) -> Any:
        """Run the kernel on arguments of the same types as before, which nobody looks at."""

    @property
    def is_settled(self) -> bool:
        """Whether `again` may be called."""


class Backend(Protocol):
    """A way to run what is made from a model: compile(functions of a target, kernel, records).

    `model.compile.target` makes the graphs of a `Target`, and asks for `function` of each that is called. A
    backend that does not hold the rows in memory changes these and nothing else: kernels read rows only by
    ``log_ratios(q_new, q, index, args)`` and ``log_terms(q, index, args)``, at most `CHUNK` rows at a time.
    """

    @property
    def takes_source(self) -> bool:
        """Whether functions may be `WrittenFunction`, source code that the backend compiles."""

    @property
    def name(self) -> str:
        """Name of the backend, as users give it."""

    @property
    def mode(self) -> Any:
        """PyTensor's mode for functions of the model, or its name."""

    def function(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
        """A function of some graphs, for `entry` and `compile`."""

    def entry(self, function: Any) -> Callable[..., Any]:
        """Function that Python calls to run a `function`: arrays in, a sequence of arrays out."""

    def compile(
        self, functions: Mapping[str, Any], kernel: Callable[..., Any], records: Records
    ) -> ReadyKernel:
        """Put a kernel around a target and records.

        `functions` are made by `function`, each by its name in `Target`; the others remain stubs. The last
        parameter of the kernel is `target`. `records` has a NamedTuple for some of its parameters, by their
        names.
        """
