"""Functions of the model and kernels, run by Python as they are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from pymc_austerity.model.compile.protocol import pytensor_function
from pymc_austerity.model.compile.records import Records, filled
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE
from pymc_austerity.target import Target

# Powers as nested squares are one operation, which Python would do element by element.
_IN_NUMPY = INTERPRETED_STABLE.excluding("local_pow_to_nested_squaring")


def target_function(entry: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a `Target`, which returns a number or a vector, from one that returns it in a list."""

    def call(*given: Any) -> Any:
        *own, args = given
        (result,) = entry(*own, *args)
        return result if result.ndim else result.item()

    return call


class InterpretedKernel:
    """A kernel in plain Python.

    Parameters
    ----------
    kernel : callable
    records : dict of str to NamedTuple
        Its target among them.
    """

    is_settled = True

    def __init__(self, kernel: Callable[..., Any], records: Records) -> None:
        self._kernel, self._records = kernel, records
        self._parameters = list(inspect.signature(kernel).parameters)

    def __call__(self, *args: Any) -> Any:
        """Run the kernel."""
        values, records = iter(args), self._records
        arguments = [
            filled(records[name], values) if name in records else next(values) for name in self._parameters
        ]
        with np.errstate(all="ignore"):  # compiled code is silent too: what is not finite is looked at
            return self._kernel(*arguments)

    again = __call__


@dataclass(frozen=True)
class PythonBackend:
    """PyTensor interprets the graphs, and kernels are called as they are."""

    name: str = "python"
    mode: Any = _IN_NUMPY
    takes_source: bool = False

    def function(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
        """A function of some graphs."""
        return pytensor_function(inputs, outputs, self.mode)

    def entry(self, function: Any) -> Any:
        """The function itself."""
        return function

    def compile(
        self, functions: Mapping[str, Any], kernel: Callable[..., Any], records: Records
    ) -> InterpretedKernel:
        """The kernel around these functions; nothing is compiled."""
        target = Target(
            **{name: target_function(self.entry(function)) for name, function in functions.items()}
        )
        return InterpretedKernel(kernel, {**records, "target": target})
