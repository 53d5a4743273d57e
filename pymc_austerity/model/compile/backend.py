"""Which backend runs the functions of a model and the kernels around them: numba, or Python itself.

Whatever is built under `interpreted` is run by Python, with equal decisions, and nothing is compiled for it.
That is many times slower per transition, and there at once: it is for tests, and for looking into a kernel.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytensor
from pytensor.graph.basic import Variable

from pymc_austerity.model.compile.numba_backend import NumbaBackend
from pymc_austerity.model.compile.protocol import Backend, Records, pytensor_function
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE
from pymc_austerity.target import Matrix, Target

# Powers as nested squares are one operation, which Python would do element by element.
_IN_NUMPY = INTERPRETED_STABLE.excluding("local_pow_to_nested_squaring")


def target_function(entry: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a `Target`, which returns a number or a vector, from one that returns it in a list."""

    def call(*given: Any) -> Any:
        *own, args = given
        (result,) = entry(*own, *args)
        return result if result.ndim else result.item()

    return call


def filled(record: Any, values: Iterator[Any]) -> Any:
    """The record with its open fields taken from `values`."""
    return type(record)(*(next(values) if value is ... else value for value in record))


class InterpretedKernel:
    """A kernel in plain Python, with its records, the target among them."""

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

    def run_ahead(self, draws: Matrix, numbers: Matrix, *args: Any) -> None:
        """Run the kernel once for each row of `draws`, each time from where it is."""
        given, at = list(args), self._parameters.index("q")
        for own, counts in zip(draws, numbers, strict=True):
            own[:], *counts[:] = self(*given)
            given[at] = own.copy()


class PythonBackend:
    """PyTensor interprets the graphs, and kernels are called as they are."""

    name, runs_programs = "python", False
    mode: Any = _IN_NUMPY

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
        target = Target(**{name: target_function(self.entry(each)) for name, each in functions.items()})
        return InterpretedKernel(kernel, {**records, "target": target})


NUMBA = NumbaBackend()
PYTHON = PythonBackend()

_current: ContextVar[Backend] = ContextVar("pymc_austerity_backend", default=NUMBA)


def current_backend() -> Backend:
    """The backend of whatever is built now."""
    return _current.get()


@contextmanager
def interpreted() -> Iterator[None]:
    """Build steps within this context without compiling functions of the model, PyMC's own included.

    Moves of gamma variables and alias tables are compiled all the same, once for all models; and
    row functions, in a tenth of a second.

    What was built keeps its backend. Nothing of it is pickled: a step that is built again in another process,
    or outside of this context, is compiled as usual.
    """
    token = _current.set(PYTHON)
    try:
        with pytensor.config.change_flags(mode="FAST_COMPILE"):  # of functions that ask for no mode
            yield
    finally:
        _current.reset(token)
