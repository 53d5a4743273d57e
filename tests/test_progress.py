"""The line that says where a set-up is: in a terminal, a notebook and a log; and that it is quiet."""

import io
import sys
import threading
import time
import types

import numpy as np
import pymc as pm
import pytest
from numba import njit

from pymc_austerity import SCIR, AusterityMH, MinibatchCategoricalGibbs, TunaMH, find_mode, recommend
from pymc_austerity import progress as module
from pymc_austerity.exceptions import SubsamplingWarning, warn
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.progress import LogLine, NotebookLine, TerminalLine, line_of, stage, watched

SHORT = 0.1


class Stream(io.StringIO):
    def __init__(self, is_terminal):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


@pytest.fixture
def impatient(monkeypatch):
    """Stages are shown at once."""
    monkeypatch.setattr(module, "_TICK", SHORT / 10)
    for kind in (TerminalLine, NotebookLine, LogLine):
        monkeypatch.setattr(kind, "patience", 0.0)


def written_to(monkeypatch, stream):
    """Pytest has a stderr of its own, which it puts back before the test begins."""
    monkeypatch.setattr(module, "sys", types.SimpleNamespace(stderr=stream, modules=sys.modules))
    return stream


@pytest.fixture
def terminal(monkeypatch):
    return written_to(monkeypatch, Stream(True))


@pytest.fixture
def log(monkeypatch):
    return written_to(monkeypatch, Stream(False))


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
        with watched("TunaMH", True):
            some_stages()
        written = terminal.getvalue()
        shown = [each.strip() for each in written.split("\r") if each.strip()]
        assert shown[0] == "TunaMH: mode 1/2, 1,000 of 2,000 rows, 0 s"
        assert "TunaMH: mode 2/2, 2,000 of 2,000 rows, 0 s" in shown
        assert shown[-1].startswith("TunaMH: set up in 0 s")
        assert written.count("\n") == 1
        assert written.endswith("\n")

    def test_it_fits_in_80_columns(self, terminal):
        with watched("MinibatchCategoricalGibbs", True):
            some_stages("a stage with a name that no terminal of 80 columns could hold on one line")
        shown = [each for each in terminal.getvalue().split("\r") if "a stage" in each]
        assert shown
        assert max(map(len, shown)) == 79
        assert all(each.endswith(", 0 s") for each in shown)

    def test_the_number_and_the_rows_come_first(self, terminal, monkeypatch):
        """What is compiled is said as far as there is room."""
        set_up = module.SetUp("MinibatchCategoricalGibbs", TerminalLine(terminal))
        set_up.begin("mode", " 2/3, 20,000 of 327,346 rows")
        set_up.on_start(None)
        for width, end in [(90, " (kept for later)"), (79, " once"), (72, ""), (62, None)]:
            text = set_up._text(width)
            assert len(text) <= width
            assert "mode 2/3, 20,000 of 327,346 rows" in text
            assert text.endswith("rows" if end is None else f", compiling{end}")

    def test_stages_of_a_plate(self, terminal, monkeypatch):
        shown, begin = [], module.SetUp.begin

        def noted(self, name, detail):
            begin(self, name, detail)
            shown.append(self._text(79))

        monkeypatch.setattr(module.SetUp, "begin", noted)
        monkeypatch.setattr("pymc_austerity.mode.plates.center._FIRST_ROWS", 500)
        with interpreted():  # to compile sweeps takes long
            TunaMH(model=effects())
        for stage_of in (
            "reading the model",
            "order of rows, 30 groups",
            "mode 1/2, ",
            "mode 2/2, 2,000 of 2,000 rows",
            "fit 1/2, 30 groups",
            "fit 2/2, 30 groups",
            "bounds of 2,000 rows",
            "pilot run of ",
        ):
            assert any(each.startswith(f"TunaMH: {stage_of}") for each in shown), stage_of

    def test_what_was_shown_is_taken_away(self, terminal):
        with watched("TunaMH", True):
            some_stages()
            with pytest.warns(SubsamplingWarning):
                warn("Told.")
        *_, blank, _ = terminal.getvalue().split("\r")
        assert not blank.strip()

    def test_after_an_error_nothing_is_left(self, terminal):
        before = threading.active_count()
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        written = terminal.getvalue()
        assert "\n" not in written
        assert not written.split("\r")[-2].strip()
        assert threading.active_count() == before

    def test_what_is_compiled(self, terminal):
        @njit
        def thrice(x):
            return sum([3 * x for _ in range(3)])

        with watched("TunaMH", True):
            stage("transitions")
            thrice(2.0)
        assert "TunaMH: transitions, compiling (kept for later), " in terminal.getvalue()

    def test_one_within_another(self, terminal):
        with watched("recommend", True), watched("TunaMH", True):
            some_stages()
        assert "TunaMH" not in terminal.getvalue()
        assert terminal.getvalue().count("\n") == 1

    def test_off(self, terminal):
        with watched("recommend", False), watched("TunaMH", True):
            some_stages()
        assert terminal.getvalue() == ""


def test_short_stages_are_not_shown(terminal):
    with watched("TunaMH", True):
        some_stages()
    assert terminal.getvalue() == ""


def test_seconds_are_added_up(terminal, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    set_up = module.SetUp("TunaMH", TerminalLine(terminal))
    for name, seconds, compiling in [("mode", 4.0, 3.0), ("mode", 2.0, 0.0), ("bounds", 0.4, 0.0)]:
        set_up.begin(name, "")
        set_up.on_start(None)
        set_up.on_start(None)  # one within another counts once
        clock[0] += compiling
        set_up.on_end(None)
        set_up.on_end(None)
        clock[0] += seconds - compiling
    set_up.sum_up()
    assert set_up.summary(80) == "TunaMH: set up in 6 s (mode 3 s, compiling, once, 3 s)"
    assert set_up.summary(40) == "TunaMH: set up in 6 s (mode 3 s)"
    assert set_up.summary(22) == "TunaMH: set up in 6 s"


@pytest.mark.usefixtures("impatient")
class TestLog:
    def test_a_line_for_each_stage(self, log):
        with watched("TunaMH", True):
            some_stages()
        first, second, last = log.getvalue().splitlines()
        assert first == "TunaMH: mode 1/2, 1,000 of 2,000 rows ..."
        assert second == "TunaMH: mode 2/2, 2,000 of 2,000 rows ..."
        assert last.startswith("TunaMH: set up in 0 s")
        assert "\r" not in log.getvalue()

    def test_after_an_error(self, log):
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert len(log.getvalue().splitlines()) == 2


def test_a_log_has_long_stages_only(log):
    assert line_of(log).patience == 5.0
    with watched("TunaMH", True):
        some_stages()
    assert log.getvalue() == ""


@pytest.mark.usefixtures("impatient")
def test_a_notebook(log, monkeypatch):
    outputs = []

    class Handle:
        def __init__(self, place):
            self.place = place

        def update(self, shown, raw):
            outputs[self.place].append(shown["text/plain"])

    def display(shown, raw, display_id):
        outputs.append([shown["text/plain"]])
        return Handle(len(outputs) - 1)

    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    with watched("TunaMH", True):
        some_stages()
    (own,) = outputs  # one output of the cell
    assert own[0] == "TunaMH: mode 1/2, 1,000 of 2,000 rows, 0 s"
    assert own[-1].startswith("TunaMH: set up in 0 s")
    assert log.getvalue() == ""


def mixture():
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        z = pm.Categorical("z", p=w, shape=1000)
        pm.Normal("score", pm.math.constant([-3.0, 0.0, 3.0])[z], 1, observed=rng.normal(size=1000))
    return model


def poisson():
    rng = np.random.default_rng(1)
    x = rng.normal(size=6000)
    with pm.Model() as model:
        level, slope = pm.Normal("level"), pm.Normal("slope")
        pm.Poisson("y", pm.math.exp(level + slope * x), observed=rng.poisson(np.exp(1 + 0.3 * x)))
    return model


def effects():
    rng = np.random.default_rng(1)
    group = rng.integers(0, 30, 2000)
    y = rng.poisson(np.exp(1 + 0.5 * rng.normal(size=30)[group]))
    with pm.Model() as model:
        level, tau = pm.Normal("level"), pm.HalfNormal("tau")
        effect = pm.Normal("effect", level, tau, shape=30)
        pm.Poisson("y", pm.math.exp(effect[group]), observed=y)
    return model


@pytest.mark.parametrize(
    ("title", "make", "stages"),
    [
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
