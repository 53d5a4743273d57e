"""A pytest plugin: what each test costs, in core-seconds, and a limit for tests that are not marked slow.

Processor time counts, so that a busy machine does not matter, in three parts:

- *own*: of the process that runs the test, without
- *compile*: numba's compiler and PyTensor's making of functions. It is spent by whichever test comes first on
  an empty cache, and not at all on a full one, so it is no property of a test.
- *workers*: of the processes that a test has started. They import PyMC and compile, too; from outside these
  cannot be told apart.

An unmarked test fails above `MOST_OWN` or `MOST_WORKERS`, fixtures of wider scope apart.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytensor.compile.maker as maker
import pytest
from numba.core.event import Event, Listener, register

# Core-seconds that a test may take that `make test` runs: 5, and twice that where other programs share the
# processor.
MOST_OWN = 2.0 * 5.0
MOST_WORKERS = 40.0

# Tests that were collected, before any was deselected: (path, names of the marks and their reasons).
COLLECTED = pytest.StashKey[list[tuple[str, dict[str, tuple[Any, ...]]]]]()
MARKS = {
    "slow": "a long check, run by `make test-slow`",
    "full_size": "an experiment at the size of a paper, a larger case of a shorter test, or a benchmark",
}


class Cost(NamedTuple):
    """Core-seconds."""

    own: float
    compile: float
    workers: float

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*(a - b for a, b in zip(self, other, strict=True)))

    def __add__(self, other: tuple[float, ...]) -> Cost:
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


class CompileClock(Listener):
    """Core-seconds spent on compilation; what is compiled on the way counts once."""

    def __init__(self) -> None:
        self.seconds, self._depth, self._since = 0.0, 0, 0.0

    def on_start(self, event: Event | None = None) -> None:
        if self._depth == 0:
            self._since = own_time()
        self._depth += 1

    def on_end(self, event: Event | None = None) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += own_time() - self._since

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def clocked(*args: Any, **kwargs: Any) -> Any:
            self.on_start()
            try:
                return function(*args, **kwargs)
            finally:
                self.on_end()

        return clocked


CLOCK = CompileClock()


def own_time() -> float:
    times = os.times()
    return times.user + times.system


def spent() -> Cost:
    """Since the process was started."""
    times = os.times()
    return Cost(own_time() - CLOCK.seconds, CLOCK.seconds, times.children_user + times.children_system)


class Costs:
    """Collects what the tests have cost, and fails those that cost too much."""

    def __init__(self) -> None:
        self._since = self._shared = spent()
        self.files: defaultdict[str, Cost] = defaultdict(lambda: Cost(0.0, 0.0, 0.0))
        self.tests: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._since = self._shared = spent()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        """What several tests share is no cost of the one that comes first."""
        before = spent()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._shared += spent() - before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        cost = spent() - self._shared  # with the fixtures that were made for it alone
        dear = cost.own > MOST_OWN or cost.workers > MOST_WORKERS
        marked = any(item.get_closest_marker(mark) for mark in MARKS)
        if report.when == "call" and report.passed and dear and not marked:
            report.outcome = "failed"
            report.longrepr = (
                f"{cost.own:.1f} core-seconds without compilation (at most {MOST_OWN:g}), and "
                f"{cost.workers:.1f} in workers (at most {MOST_WORKERS:g}). Make it cheaper, or mark it "
                '@pytest.mark.slow("why it takes long").'
            )
        if report.when == "teardown":
            report.user_properties.append(("core_seconds", tuple(spent() - self._since)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, cost in report.user_properties:
            if name == "core_seconds" and report.when == "teardown":
                path = report.nodeid.split("::")[0]
                self.files[path] += tuple(cost)
                self.tests[path] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.files:
            return
        rows = sorted(self.files.items(), key=lambda item: -sum(item[1]))
        total = sum((cost for _, cost in rows), Cost(0.0, 0.0, 0.0))
        write = terminalreporter.write_line
        terminalreporter.section("core-seconds")
        write(f"{'tests':>6}{'all':>8}{'own':>8}{'compile':>9}{'workers':>9}")
        for path, cost in [("all files", total), *rows]:
            n = self.tests[path] if path in self.tests else self.tests.total()
            write(f"{n:6d}{sum(cost):8.1f}{cost.own:8.1f}{cost.compile:9.1f}{cost.workers:9.1f}  {path}")


def pytest_configure(config: pytest.Config) -> None:
    for mark, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{mark}(reason): {meaning}")
    register("numba:compile", CLOCK)
    for name in ("__init__", "create"):
        setattr(maker.FunctionMaker, name, CLOCK.around(getattr(maker.FunctionMaker, name)))
    config.pluginmanager.register(Costs(), "core-seconds")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COLLECTED] = [
        (item.nodeid, {mark.name: mark.args for mark in item.iter_markers() if mark.name in MARKS})
        for item in items
    ]
