"""Records of numbers and functions, as kernels take them.

A record that is handed to a backend is a NamedTuple of functions, which are compiled in. In place of a
number, an array or a tuple of these it has an ellipsis: that field is open, and comes with each call, in the
order of the kernel's parameters. For example

    transitions(n_transitions, tune, rng, q, args, rows, rule, proposal, target)

with ``rule=Rule(..., ..., draw, decide, accept, others, clipped, range_of)`` and
``proposal=ProposalKernel(..., propose, move, adapt, learn)`` is called with n_transitions, tune, rng, q,
args, rows, rule_schedule, rule_bound, proposal_state.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pytensor.link.numba.cache import compile_numba_function_src

from pymc_austerity.compilation import jitable

Records = Mapping[str, Any]


def has_functions(value: Any) -> bool:
    """Is it a record in which some fields are functions?"""
    return isinstance(value, tuple) and hasattr(value, "_fields") and any(map(callable, value))


def opened(record: Any) -> Any:
    """The record with an ellipsis for all that is not a function."""
    return type(record)(*(value if callable(value) else ... for value in record))


def open_fields(record: Any) -> list[str]:
    """Names of the fields that come with each call."""
    return [name for name, value in zip(record._fields, record, strict=True) if value is ...]


def functions_of(record: Any) -> list[Callable[..., Any]]:
    """The functions in a record."""
    return [value for value in record if value is not ...]


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
