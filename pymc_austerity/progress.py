"""Where a set-up is: a moving bar with the stage and its seconds, as PyMC shows its chains, drawn by rich.

`watched` shows what `stage` announces within it, once the set-up has taken a second, and leaves one line that
says where the time went. The line alone is shown where nothing can be written over: in a file or pipe, in a
notebook without ipywidgets, and while another display of rich is on. Where nobody watches, as in workers,
`stage` does nothing.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec
from threading import Timer
from typing import Any, Literal

from numba.core.event import Listener, install_listener
from rich.console import Console
from rich.file_proxy import FileProxy
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.theme import Theme

from pymc_austerity.validation import require_switches

# Seconds of a set-up before it is shown, and of a stage that the last line names.
_VISIBLE = 1.0
_BAR_WIDTH = 10  # characters, which leave 61 of 80 to the text
# Colours of PyMC's bars.
_THEME = Theme({"bar.pulse": "#1764f4", "progress.elapsed": "none"})


class SetUp(Listener):
    """Stages of a set-up and their seconds, with the bar that shows them."""

    def __init__(self, title: str) -> None:
        self._title, self._name, self._text = title, "", title
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._depth, self._compiling_since = 0, 0.0
        self._started = self._began = time.perf_counter()
        self._bar = _bar()
        self._task = self._bar.add_task(title, total=None)

    def begin(self, name: str, detail: str) -> None:
        """End the stage before, and begin one."""
        self._end()
        self._name, self._text = name, f"{self._title}: {name}{detail}"
        self._bar.reset(self._task, description=self._text)

    def _end(self) -> None:
        now = time.perf_counter()
        if self._name:
            self._seconds[self._name] += now - self._began
        self._began = now

    def on_start(self, event: Any) -> None:
        """Note that numba begins to compile a function, perhaps within the compilation of another."""
        if not self._depth:
            self._compiling_since = time.perf_counter()
            self._bar.update(self._task, description=f"{self._text}, compiling once")
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """Add up the seconds of a compilation that is not within another."""
        self._depth -= 1
        if not self._depth:
            spent = time.perf_counter() - self._compiling_since
            self._seconds["compiling, once,"] += spent
            self._began += spent  # which are none of the stage
            self._bar.update(self._task, description=self._text)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the bar after a second, and take it away; the last line stays, unless there was an error."""
        timer = Timer(_VISIBLE, self._bar.start)
        timer.daemon = True
        timer.start()
        try:
            with install_listener("numba:compile", self):
                yield
        finally:
            timer.cancel()
            timer.join()
            self._bar.stop()
        if time.perf_counter() - self._started >= _VISIBLE:
            self._end()
            # Not by rich's console, which writes into the display of another.
            print(self.summary(), file=sys.stderr, flush=True)

    def summary(self) -> str:
        """The seconds in all, and of the stages that took one at least, the longest first."""
        longest = sorted(self._seconds.items(), key=lambda item: -item[1])
        parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in longest if seconds >= _VISIBLE)
        total = f"{self._title}: set up in {time.perf_counter() - self._started:.0f} s"
        return f"{total} ({parts})" if parts else total


def _bar() -> Progress:
    """A bar on stderr, above which rich writes warnings. It does nothing where it cannot be shown."""
    console = Console(stderr=True, theme=_THEME)
    is_taken = isinstance(sys.stderr, FileProxy)  # by another display, such as the bars of pm.sample
    can_show = find_spec("ipywidgets") is not None if console.is_jupyter else console.is_interactive
    return Progress(
        BarColumn(_BAR_WIDTH),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        console=console,
        transient=True,
        redirect_stdout=False,  # it may be a file, although stderr is a terminal
        disable=is_taken or not can_show,
        expand=True,
    )


# The set-up that is watched; False within one that nobody wants to see.
_WATCHED: ContextVar[SetUp | Literal[False] | None] = ContextVar("watched", default=None)


@contextmanager
def watched(title: str, progressbar: bool) -> Iterator[None]:
    """Show the stages that are announced within, unless somebody further out does or does not want to."""
    require_switches(progressbar=progressbar)
    if _WATCHED.get() is not None:
        yield
        return
    # A program without a console has no stderr.
    set_up = SetUp(title) if progressbar and sys.stderr is not None else None
    token = _WATCHED.set(set_up or False)
    try:
        with nullcontext() if set_up is None else set_up.shown():
            yield
    finally:
        _WATCHED.reset(token)


def stage(name: str, detail: str = "") -> None:
    """Announce what is done from now on: a word or two, by which seconds are added up, and what follows."""
    if set_up := _WATCHED.get():
        set_up.begin(name, detail)
