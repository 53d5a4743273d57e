"""While many graphs are made, what Python and PyTensor do for each of their nodes is left out."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytensor

# Fewer objects than these are not looked at in a fresh interpreter, either.
_FEW_OBJECTS = 10_000


@contextmanager
def many_graphs() -> Iterator[None]:
    """Look for garbage among new objects only, and keep no stack trace with each node.

    Graphs are many small objects. With every few of them Python would look at all that there are, which is a
    third of the time of a set-up.
    """
    is_ours = gc.get_freeze_count() < _FEW_OBJECTS  # else somebody wants it so
    if is_ours:
        gc.freeze()
    try:
        with pytensor.config.change_flags(traceback__limit=0):
            yield
    finally:
        if is_ours:
            gc.unfreeze()
