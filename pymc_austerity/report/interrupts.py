"""Whether the user has pressed Ctrl-C: `pymc.sample` does not tell."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Interrupt:
    """Whether the user has interrupted a run."""

    seen: bool = False


@contextmanager
def watched() -> Iterator[Interrupt]:
    """Note an interrupt, which is then handled as it would have been.

    Only the main thread can be interrupted, and only where an interrupt has a handler in Python.
    """
    interrupt, before = Interrupt(), signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield interrupt
        return

    def note(signum: int, frame: FrameType | None) -> None:
        interrupt.seen = True
        before(signum, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
