"""Who runs the functions of a model and the kernels around them: numba, or Python itself.

Whatever is built under `interpreted` is run by Python, with equal decisions, and nothing is compiled for it.
That is many times slower per transition, and there at once: it is for tests, and for looking into a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytensor
from pytensor.graph.basic import Variable

from pymc_austerity.model.compile.native import interruptible
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE


def exact_arithmetic() -> Any:
    """Compile within this context without reordering of sums.

    With PyTensor's default, `fastmath`, code that was just compiled and the same code from the disk differ
    in the last bit, and with them the statistics of one seed in two processes.
    """
    return pytensor.config.change_flags(numba__fastmath=False)


@dataclass(frozen=True)
class Backend:
    """A way to run what is made from a model.

    Attributes
    ----------
    name : str
    mode : Mode or str
        PyTensor's mode for functions of the model.
    is_native : bool
        Whether kernels are compiled around these functions.
    """

    name: str
    mode: Any
    is_native: bool

    def function(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
        """A PyTensor function of some graphs. It takes arrays as they are, without a look at them."""
        with exact_arithmetic():
            return pytensor.function(
                inputs, outputs, mode=self.mode, on_unused_input="ignore", trust_input=True
            )

    def entry(self, function: Any) -> Any:
        """What Python calls to run a `function`: arrays in, a sequence of arrays out."""
        return interruptible(function.vm.jit_fn) if self.is_native else function


NUMBA = Backend("numba", "NUMBA", is_native=True)
# Powers as nested squares are one operation, which Python would do element by element.
_IN_NUMPY = INTERPRETED_STABLE.excluding("local_pow_to_nested_squaring")
PYTHON = Backend("python", _IN_NUMPY, is_native=False)

_current: ContextVar[Backend] = ContextVar("pymc_austerity_backend", default=NUMBA)


def current_backend() -> Backend:
    """The backend of whatever is built now."""
    return _current.get()


@contextmanager
def interpreted() -> Iterator[None]:
    """Build steps within this context without compiling functions of the model, PyMC's own included.

    Moves of gamma variables and alias tables are compiled all the same: once for all models.

    What was built keeps its backend. Nothing of it is pickled: a step that is built again in another process,
    or outside of this context, is compiled as usual.
    """
    token = _current.set(PYTHON)
    try:
        with pytensor.config.change_flags(mode="FAST_COMPILE"):  # of functions that ask for no mode
            yield
    finally:
        _current.reset(token)
