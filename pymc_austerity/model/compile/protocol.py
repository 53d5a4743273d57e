"""What a backend is: whoever runs functions of a model, and the kernels around them.

A record that is handed to a backend is a NamedTuple of functions, which are compiled in. In place of a
number, an array or a tuple of these it has an ellipsis: that field is open, and comes with each call, in the
order of the kernel's parameters. For example

    transitions(n_transitions, tune, rng, q, args, rows, rule, proposal, target)

with ``rule=Rule(..., ..., draw, decide, accept, others, clipped, range_of)`` and
``proposal=ProposalKernel(..., propose, move, adapt, learn)`` is called with n_transitions, tune, rng, q,
args, rows, rule_schedule, rule_bound, proposal_state.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pytensor
from pytensor.graph.basic import Variable
from pytensor.link.numba.cache import compile_numba_function_src

from pymc_austerity.compilation import jitable
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.target import Matrix

Records = Mapping[str, Any]


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


class ReadyKernel(Protocol):
    """A kernel around a target, to be called with what `call_parameters` says."""

    def __call__(self, *args: Any) -> Any:
        """Run the kernel, compiling it first if need be."""

    def again(self, *args: Any) -> Any:
        """Run the kernel on arguments of the same types as before, which nobody looks at."""

    def run_ahead(self, draws: Matrix, numbers: Matrix, *args: Any) -> None:
        """Run the kernel as `again` does, once for each row of `draws`, each time from where it is.

        What the kernel returns is written: the state to `draws` (n, D), all else to `numbers` (n, .).
        """

    @property
    def is_settled(self) -> bool:
        """Whether `again` and `run_ahead` may be called."""


class Backend(Protocol):
    """A way to run what is made from a model: compile(functions of a target, kernel, records).

    `model.compile.target` makes the graphs of a `Target`, and asks for `function` of each that is called. A
    backend that does not hold the rows in memory changes these and nothing else: kernels read rows only by
    ``log_ratios(q_new, q, index, args)`` and ``log_terms(q, index, args)``, at most `CHUNK` rows at a time.
    """

    @property
    def runs_programs(self) -> bool:
        """Whether functions may be `GlobalRows` or `RowsOfTerms`, which compiled code runs."""

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


def has_functions(value: Any) -> bool:
    """Is it a record in which some fields are functions?"""
    return isinstance(value, tuple) and hasattr(value, "_fields") and any(map(callable, value))


def opened(record: Any) -> Any:
    """The record with an ellipsis for all that is not a function."""
    return type(record)(*(value if callable(value) else ... for value in record))


def open_fields(record: Any) -> list[str]:
    """Names of the fields that come with each call."""
    return [name for name, value in zip(record._fields, record, strict=True) if value is ...]


def call_parameters(kernel: Callable[..., Any], records: Records) -> list[str]:
    """Names of what a kernel is called with: its parameters, and of records the open fields."""
    names: list[str] = []
    for name in inspect.signature(kernel).parameters:
        names += [f"{name}_{field}" for field in open_fields(records[name])] if name in records else [name]
    return names


def constructor_source(record: Any) -> str:
    """Source of a function ``make`` of the open fields, which returns the record."""
    return f"def make({', '.join(open_fields(record))}):\n    return Record({', '.join(record._fields)})"


def constructor(record: Any) -> Callable[..., Any]:
    """A function for compiled code that makes the record of its open fields; others are compiled into it."""
    functions = {name: value for name, value in zip(record._fields, record, strict=True) if value is not ...}
    environment = {"__name__": type(record).__module__, "Record": type(record), **functions}
    made: Callable[..., Any] = jitable(
        compile_numba_function_src(constructor_source(record), "make", environment, {})
    )
    return made
