"""Where a set-up is: one line with the stage and its seconds, which is written over; or a few lines of a log.

`watched` shows what `stage` announces within it. A stage of less than a second is never shown. What numba
compiles meanwhile is told of by numba itself. Where nobody watches, as in workers, `stage` does nothing.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from threading import Event, Lock, Thread
from typing import Any, Literal, Protocol, TextIO

from numba.core.event import Listener, install_listener

# Seconds of a stage before it is shown: on a line that is written over, and in a log, where lines stay.
_VISIBLE, _LONG = 1.0, 5.0
_TICK = 0.2
_COLUMNS = 80
# What is said while numba compiles: the first that fits.
_COMPILING = (", compiling (kept for later)", ", compiling once", ", compiling")


class Line(Protocol):
    """Where the progress is shown.

    Attributes
    ----------
    patience : float
        Seconds of a stage before it is shown.
    stays : bool
        Whether what is shown cannot be written over.
    """

    patience: float
    stays: bool

    def show(self, text: str) -> None:
        """Show a text in place of the one before."""

    def clear(self) -> None:
        """Take away what is shown."""

    def leave(self, text: str) -> None:
        """Show the last text."""


class TerminalLine:
    """A line of a terminal, with carriage returns."""

    patience, stays = _VISIBLE, False

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._length = stream, 0

    def show(self, text: str) -> None:
        """Show a text in place of the one before."""
        self._stream.write("\r" + text.ljust(self._length))
        self._stream.flush()
        self._length = len(text)

    def clear(self) -> None:
        """Take away what is shown."""
        if self._length:
            self.show("")
            self._stream.write("\r")
            self._length = 0

    def leave(self, text: str) -> None:
        """Show the last text."""
        self.clear()
        self._stream.write(text + "\n")
        self._stream.flush()


class NotebookLine:
    """An output of a notebook's cell, which is displayed anew."""

    patience, stays = _VISIBLE, False

    def __init__(self, display: Any) -> None:
        self._display, self._handle = display, None

    def show(self, text: str) -> None:
        """Show a text in place of the one before."""
        shown = {"text/plain": text}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def clear(self) -> None:
        """Take away what is shown."""
        if self._handle is not None:
            self.show("")

    leave = show


class LogLine:
    """Lines of a file or pipe: one for each long stage."""

    patience, stays = _LONG, True

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, text: str) -> None:
        """Write another line."""
        self._stream.write(text + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Lines of a file stay."""

    leave = show


def line_of(stream: TextIO) -> Line:
    """Where progress is shown: a terminal, a notebook, or whatever stderr is written to."""
    if stream.isatty():
        return TerminalLine(stream)
    # Without IPython there is no notebook; nothing is imported to find that out.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None and getattr(shell, "kernel", None) is not None:
        from IPython.display import display

        return NotebookLine(display)
    return LogLine(stream)


class SetUp(Listener):
    """Stages of a set-up, and their seconds; one thread shows them on a line.

    Parameters
    ----------
    title : str
        What is set up.
    line : Line
    """

    def __init__(self, title: str, line: Line) -> None:
        self._title, self._line = title, line
        self._lock, self._over = Lock(), Event()
        self._seconds: dict[str, float] = {}
        self._name = self._detail = ""
        self._depth, self._compiled, self._compiled_here, self._compiling_since = 0, 0.0, 0.0, 0.0
        self._shown = self._was_shown = False
        self._started = self._began = time.perf_counter()

    # What happens ---------------------------------------------------------------------------

    def begin(self, name: str, detail: str) -> None:
        """Begin the next stage."""
        with self._lock:
            self._end()
            self._name, self._detail = name, detail

    def _end(self) -> None:
        now = time.perf_counter()
        if self._name:
            own = now - self._began - self._compiled_here
            self._seconds[self._name] = self._seconds.get(self._name, 0.0) + own
        self._clear()
        self._began, self._compiled_here, self._shown = now, 0.0, False

    def on_start(self, event: Any) -> None:
        """Numba begins to compile, perhaps within another compilation."""
        if not self._depth:
            self._compiling_since = time.perf_counter()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """Numba has compiled a function, perhaps within another compilation."""
        self._depth -= 1
        if not self._depth:
            spent = time.perf_counter() - self._compiling_since
            self._compiled, self._compiled_here = self._compiled + spent, self._compiled_here + spent

    # What is shown --------------------------------------------------------------------------

    def clear(self) -> None:
        """Take the line away, for other output."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        if self._shown and not self._line.stays:
            self._line.clear()
            self._shown = False

    def watch(self) -> None:
        """Show the stage again and again, until all is over."""
        while not self._over.wait(_TICK):
            with self._lock:
                self._show()

    def _show(self) -> None:
        seconds = time.perf_counter() - self._began
        if not self._name or seconds < self._line.patience or (self._shown and self._line.stays):
            return
        end = " ..." if self._line.stays else f", {seconds:.0f} s"
        self._line.show(self._text(_width() - len(end)) + end)
        self._shown = self._was_shown = True

    def _text(self, width: int) -> str:
        """The stage with its number and rows, which come before what is compiled."""
        text = f"{self._title}: {self._name}{self._detail}"
        for compiling in _COMPILING if self._depth else ():
            if len(text) + len(compiling) <= width:
                return text + compiling
        return text[:width]

    def stop(self, thread: Thread) -> None:
        """Take the line away, and show no more."""
        self._over.set()
        thread.join()
        self.clear()

    def sum_up(self) -> None:
        """Leave one line that says where the time went, if any was shown."""
        with self._lock:
            self._end()
            if self._was_shown:
                self._line.leave(self.summary(_width()))

    def summary(self, width: int) -> str:
        """The time in all, and of as many stages as fit, the longest first."""
        found = {**self._seconds, "compiling, once,": self._compiled}
        longest = sorted(found.items(), key=lambda item: -item[1])
        parts = [f"{name} {seconds:.0f} s" for name, seconds in longest if seconds >= _VISIBLE]
        text = f"{self._title}: set up in {time.perf_counter() - self._started:.0f} s"
        while parts and len(text) + len(", ".join(parts)) + 3 > width:
            parts.pop()
        return (text + (f" ({', '.join(parts)})" if parts else ""))[:width]


def _width() -> int:
    """Characters that fit on a line."""
    return min(shutil.get_terminal_size((_COLUMNS, 24)).columns, _COLUMNS) - 1


# The set-up that is watched; False within one that nobody wants to see.
_WATCHED: ContextVar[SetUp | Literal[False] | None] = ContextVar("watched", default=None)


@contextmanager
def watched(title: str, progressbar: bool) -> Iterator[None]:
    """Show the stages that are announced within, unless somebody further out does or does not want to.

    Parameters
    ----------
    title : str
        What is set up.
    progressbar : bool
    """
    if _WATCHED.get() is not None:
        yield
        return
    # A program without a console has no stderr.
    set_up = SetUp(title, line_of(sys.stderr)) if progressbar and sys.stderr is not None else None
    token = _WATCHED.set(set_up or False)
    try:
        with nullcontext() if set_up is None else _shown(set_up):
            yield
    finally:
        _WATCHED.reset(token)


@contextmanager
def _shown(set_up: SetUp) -> Iterator[None]:
    thread = Thread(target=set_up.watch, daemon=True)
    thread.start()
    try:
        with install_listener("numba:compile", set_up):
            yield
    finally:
        set_up.stop(thread)
    set_up.sum_up()


def stage(name: str, detail: str = "") -> None:
    """Announce what is done from now on.

    Parameters
    ----------
    name : str
        A word or two, by which seconds are added up.
    detail : str
        What follows.
    """
    if set_up := _WATCHED.get():
        set_up.begin(name, detail)


def make_room() -> None:
    """Take the line away, for other output."""
    if set_up := _WATCHED.get():
        set_up.clear()


def checked_progressbar(given: object) -> bool:
    """Check the option `progressbar`."""
    if not isinstance(given, bool):
        raise ValueError(f"progressbar must be True or False, got {given!r}.")
    return given
