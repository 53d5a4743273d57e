"""The bar that says where a set-up is: in a terminal, a notebook and a log; and that it is quiet."""

import builtins
import io
import re
import sys
import threading
import time
import types
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pymc as pm
import pytest
from numba import njit
from rich.console import Console
from rich.progress import Progress

from pymc_austerity import SCIR, AusterityMH, MinibatchCategoricalGibbs, TunaMH, find_mode, recommend
from pymc_austerity import progress as module
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.progress import stage, watched
from tests.models import as_model

SHORT = 0.1
ERASED = "\x1b[2K"


def plain(text):
    """Without colours and moves of the cursor."""
    return re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", text)


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def shown(self):
        """What was written, each time over the text before."""
        return [plain(each).strip("\r\n ") for each in self.getvalue().split(ERASED)]

    def left(self):
        """What is there in the end."""
        return self.shown()[-1]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """What rich asks of them."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "JPY_PARENT_PID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def impatient(monkeypatch):
    """Set-ups are shown at once."""
    monkeypatch.setattr(module, "_VISIBLE", SHORT / 10)


@pytest.fixture
def terminal():
    return Terminal()


def some_stages(name="mode"):
    for k in (1, 2):
        stage(name, f" {k}/2, {k},000 of 2,000 rows")
        time.sleep(SHORT)


def interrupted():
    with watched("TunaMH", True):
        some_stages()
        raise KeyboardInterrupt


@pytest.mark.usefixtures("impatient")
class TestTerminal:
    def test_one_line_is_written_over(self, terminal):
        with redirect_stderr(terminal), watched("TunaMH", True):
            some_stages()
        shown = terminal.shown()
        assert any(each.endswith("0:00:00 TunaMH: mode 1/2, 1,000 of 2,000 rows") for each in shown)
        assert any(each.endswith("0:00:00 TunaMH: mode 2/2, 2,000 of 2,000 rows") for each in shown)
        assert not any("\n" in each for each in shown)
        assert terminal.left().startswith("TunaMH: set up in 0 s (mode 0 s")
        assert terminal.getvalue().endswith("\n")

    def test_it_fits_in_80_columns(self, terminal):
        with redirect_stderr(terminal), watched("MinibatchCategoricalGibbs", True):
            some_stages("a stage with a name that no terminal of 80 columns could hold on one line")
        shown = [each for each in terminal.shown() if "a stage" in each and "0:00" in each]
        assert shown
        assert max(map(len, shown)) == 80
        assert all("0:00:00 MinibatchCategoricalGibbs: a stage" in each for each in shown)

    def test_brackets_are_no_markup(self, terminal):
        with redirect_stderr(terminal), watched("SCIR", True):
            some_stages("likelihood of w[red]")
        assert any("likelihood of w[red]" in each for each in terminal.shown())

    def test_a_warning_stands_above(self, terminal):
        with redirect_stderr(terminal):
            with watched("TunaMH", True):
                some_stages()
                print("Told.", file=sys.stderr)
                time.sleep(SHORT)
            assert sys.stderr is terminal
        assert terminal.shown().count("Told.") == 0  # it is not written over
        assert any(each.startswith("Told.") and "mode 2/2" in each for each in terminal.shown())

    def test_what_is_printed_goes_where_it_goes(self, terminal):
        file = io.StringIO()
        with redirect_stderr(terminal), redirect_stdout(file), watched("TunaMH", True):
            some_stages()
            print("of the model")
        assert file.getvalue() == "of the model\n"

    def test_after_an_error_nothing_is_left(self, terminal):
        before = set(threading.enumerate())
        with redirect_stderr(terminal), pytest.raises(KeyboardInterrupt):
            interrupted()
        assert any("mode 2/2" in each for each in terminal.shown())
        assert terminal.left() == ""
        for thread in set(threading.enumerate()) - before:
            thread.join(1.0)
            assert not thread.is_alive()

    def test_what_is_compiled(self, terminal):
        @njit
        def thrice(x):
            return sum([3 * x for _ in range(3)])

        with redirect_stderr(terminal), watched("TunaMH", True):
            stage("transitions")
            thrice(2.0)
            time.sleep(SHORT)
        shown = terminal.shown()
        assert any(each.endswith("TunaMH: transitions, compiling once") for each in shown)
        assert shown[-3].endswith("TunaMH: transitions")

    def test_one_within_another(self, terminal):
        with redirect_stderr(terminal), watched("recommend", True), watched("TunaMH", True):
            some_stages()
        assert "TunaMH" not in terminal.getvalue()
        assert terminal.getvalue().count("set up in") == 1

    def test_off(self, terminal):
        with redirect_stderr(terminal), watched("recommend", False), watched("TunaMH", True):
            some_stages()
        assert terminal.getvalue() == ""

    def test_beside_another_display(self, terminal):
        """Two displays would write over one another: ours leaves its last line above the other."""
        with redirect_stderr(terminal):
            console = Console(file=terminal)
            with Progress(console=console) as other:
                other.add_task("Sampling")
                with watched("TunaMH", True):
                    some_stages()
        written = "\n".join(terminal.shown())
        assert "mode 1/2" not in written
        assert written.count("TunaMH: set up in 0 s") == 1
        assert "Sampling" in terminal.left()

    def test_a_terminal_that_cannot_write_over(self, terminal, monkeypatch):
        monkeypatch.setenv("TERM", "dumb")
        with redirect_stderr(terminal), watched("TunaMH", True):
            some_stages()
        (line,) = terminal.getvalue().splitlines()
        assert line.startswith("TunaMH: set up in 0 s")


def test_short_set_ups_are_not_shown(terminal):
    with redirect_stderr(terminal), watched("TunaMH", True):
        some_stages()
    assert terminal.getvalue() == ""


def test_seconds_are_added_up(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(module, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))
    set_up = module.SetUp("TunaMH")
    for name, seconds, compiling in [("mode", 4.0, 2.0), ("mode", 2.0, 0.0), ("bounds", 0.4, 0.0)]:
        set_up.begin(name, "")
        set_up.on_start(None)
        set_up.on_start(None)  # one within another counts once
        clock[0] += compiling
        set_up.on_end(None)
        set_up.on_end(None)
        clock[0] += seconds - compiling
    set_up.begin("", "")
    assert set_up.summary() == "TunaMH: set up in 6 s (mode 4 s, compiling, once, 2 s)"


@pytest.mark.usefixtures("impatient")
class TestLog:
    def test_the_last_line_alone(self):
        log = io.StringIO()
        with redirect_stderr(log), watched("TunaMH", True):
            some_stages()
        (line,) = log.getvalue().splitlines()
        assert line.startswith("TunaMH: set up in 0 s")

    def test_after_an_error(self):
        log = io.StringIO()
        with redirect_stderr(log), pytest.raises(KeyboardInterrupt):
            interrupted()
        assert log.getvalue() == ""

    def test_a_program_without_a_console(self):
        with redirect_stderr(None), watched("TunaMH", True):
            some_stages()


class ZMQInteractiveShell:
    """By the name of this class rich knows a notebook."""


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook(has_widgets, monkeypatch):
    widgets, log = [], io.StringIO()

    class Output:
        def __init__(self):
            self.shown, self.is_open = [], True
            widgets.append(self)

        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass

        def clear_output(self, wait):
            pass

        def close(self):
            self.is_open = False

    displayed = []

    def display(*shown, **_):
        displayed.extend(shown)

    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "ipywidgets", types.SimpleNamespace(Output=Output))
    monkeypatch.setattr(module, "find_spec", {"ipywidgets": has_widgets or None}.get)
    with redirect_stderr(log), watched("TunaMH", True):
        some_stages()
    assert log.getvalue().startswith("TunaMH: set up in 0 s")
    bundles = [each._repr_mimebundle_([], []) for each in displayed if each not in widgets]
    texts = [plain(bundle["text/plain"]) for bundle in bundles]
    if not has_widgets:
        assert widgets == texts == []
        return
    (own,) = widgets  # one output of the cell, which goes
    assert not own.is_open
    for k in (1, 2):
        assert any(f"0:00:00 TunaMH: mode {k}/2, {k},000 of 2,000 rows" in each for each in texts)


@as_model
def mixture():
    rng = np.random.default_rng(1)
    w = pm.Dirichlet("w", np.ones(3))
    z = pm.Categorical("z", p=w, shape=1000)
    pm.Normal("score", pm.math.constant([-3.0, 0.0, 3.0])[z], 1, observed=rng.normal(size=1000))


@as_model
def poisson():
    rng = np.random.default_rng(1)
    x = rng.normal(size=6000)
    level, slope = pm.Normal("level"), pm.Normal("slope")
    pm.Poisson("y", pm.math.exp(level + slope * x), observed=rng.poisson(np.exp(1 + 0.3 * x)))


@as_model
def effects():
    rng = np.random.default_rng(1)
    group = rng.integers(0, 30, 2000)
    y = rng.poisson(np.exp(1 + 0.5 * rng.normal(size=30)[group]))
    level, tau = pm.Normal("level"), pm.HalfNormal("tau")
    effect = pm.Normal("effect", level, tau, shape=30)
    pm.Poisson("y", pm.math.exp(effect[group]), observed=y)


@pytest.mark.parametrize(
    ("title", "make", "stages"),
    [
        (
            "TunaMH",
            lambda **on: TunaMH(model=effects(), **on),
            ["reading the model", "fit, ", "bounds of ", "transitions", "pilot run"],
        ),
        (
            "TunaMH",
            lambda **on: TunaMH(model=poisson(), **on),
            ["reading", "mode 1/2, 2,000 of 6,000", "bounds"],
        ),
        (
            "AusterityMH",
            lambda **on: AusterityMH(model=poisson(), **on),
            ["reading the model", "transitions"],
        ),
        (
            "recommend",
            lambda **on: recommend(poisson(), **on),
            ["reading", "mode 2/2, 6,000 of 6,000", "bounds"],
        ),
        ("find_mode", lambda **on: find_mode(poisson(), **on), ["reading the model", "mode 1/2"]),
        ("SCIR", lambda **on: SCIR(["w"], model=mixture(), **on), ["likelihood of w"]),
        (
            "MinibatchCategoricalGibbs",
            lambda **on: MinibatchCategoricalGibbs(["z"], model=mixture(), **on),
            ["reading the model", "updates"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.covering(1)
def test_steps_say_where_they_are(title, make, stages, monkeypatch, capsys):
    seen = []
    begin = module.SetUp.begin
    monkeypatch.setattr(
        module.SetUp,
        "begin",
        lambda self, name, detail: (seen.append(name + detail), begin(self, name, detail)),
    )
    with interpreted():
        make()
        for name in stages:
            assert any(each.startswith(name) for each in seen), seen
        seen.clear()
        make(progressbar=False)
        assert seen == []
        with pytest.raises(ValueError, match="progressbar must be True or False, got 'yes'"):
            make(progressbar="yes")
    assert title not in capsys.readouterr().out
