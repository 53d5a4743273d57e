"""Which backend runs the functions of a model and the kernels around them: numba, or Python itself.

Whatever is built under `interpreted` is run by Python, with equal decisions, and nothing is compiled for it.
That is many times slower per transition, and there at once: it is for tests, and for looking into a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import pytensor

from pymc_austerity.model.compile.numba_backend import NumbaBackend
from pymc_austerity.model.compile.protocol import Backend
from pymc_austerity.model.compile.python_backend import PythonBackend

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
