"""While many graphs are made, what Python and PyTensor do for each of their nodes is left out."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytensor

# Fewer objects than these are not looked at in a fresh interpreter, either.
_FEW_OBJECTS = 10_000
# What one set-up leaves behind, 8 MB, is garbage that the next would not look at: each tenth looks at all.
_EVERY = 10
_set_ups = count(1)


@contextmanager
def many_graphs() -> Iterator[None]:
    """Look for garbage among new objects only, and keep no stack trace with each node.

    Graphs are many small objects. With every few of them Python would look at all that there are, which is a
    third of the time of a set-up.
    """
    is_ours = gc.get_freeze_count() < _FEW_OBJECTS  # else somebody wants it so
    if is_ours:
        if next(_set_ups) % _EVERY == 0:
            gc.collect()
        gc.freeze()
    try:
        with pytensor.config.change_flags(traceback__limit=0):
            yield
    finally:
        if is_ours:
            gc.unfreeze()
