"""No test is left out: each is run by one target of the Makefile, and `.ci/run` calls all but one target."""

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.core_seconds import COLLECTED, MARKS

TESTS = Path(__file__).parent
ROOT = TESTS.parent
# The expression by which each target selects tests; the first stands in pyproject.toml, too.
TARGETS = dict(
    re.findall(
        r"^(test[\w-]*):.*\n\t\$\(ONE_THREAD\) \$\(PYTHON\) -m pytest .*-m \"(.+)\" tests$",
        (ROOT / "Makefile").read_text(),
        re.MULTILINE,
    )
)


@pytest.fixture
def collected(request):
    return request.config.stash[COLLECTED]


def test_a_reason_is_given_for_each_mark(collected):
    without = [
        f"{path}: {mark}"
        for path, marks in collected
        for mark, args in marks.items()
        if len(args) != 1 or not isinstance(args[0], str) or len(args[0].split()) < 2
    ]
    assert without == []


def test_each_test_is_run_by_one_target():
    assert set(TARGETS) == {"test", "test-slow", "test-full-size"}
    for chosen in product([False, True], repeat=len(MARKS)):
        marks = dict(zip(MARKS, chosen, strict=True))
        by = [name for name, text in TARGETS.items() if Expression.compile(text).evaluate(marks.__getitem__)]
        assert len(by) == 1, f"tests with the marks {marks} are run by {by}"


def test_pytest_alone_runs_what_make_test_runs():
    assert f"'{TARGETS['test']}'" in (ROOT / "pyproject.toml").read_text().replace('"', "'")


def test_continuous_integration_runs_all_but_the_full_size():
    calls = re.findall(r"^make ([\w-]+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert {"lint", "test", "docs", *(name for name in TARGETS if name != "test-full-size")} <= set(calls)


def test_each_file_is_collected(request, collected):
    """A file of another name, in a folder that is left out, or with an error in its name has no tests."""
    found = {path.split("::")[0] for path, _ in collected}
    asked = [Path(argument).resolve() for argument in request.config.args]
    for path in TESTS.rglob("*.py"):
        if any(path.is_relative_to(folder) for folder in asked if folder.is_dir()):
            defines = re.search(r"^\s*def test_|^class Test", path.read_text(), re.MULTILINE)
            assert not defines or path.relative_to(ROOT).as_posix() in found, f"{path} is not collected"


CHEAP_AND_DEAR = """
import time
import pytest

def spend(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@pytest.fixture
def made():
    spend(0.3)

@pytest.fixture(scope="module")
def shared():
    spend(0.3)

def test_cheap():
    pass

def test_dear():
    spend(0.3)

def test_with_a_dear_fixture(made):
    pass

def test_with_a_shared_fixture(shared):
    pass

@pytest.mark.slow("it spends some time")
def test_marked():
    spend(0.3)
"""


def test_a_dear_test_fails_unless_it_is_marked(tmp_path):
    (tmp_path / "conftest.py").write_text("from tests import core_seconds\ncore_seconds.MOST_OWN = 0.2\n")
    (tmp_path / "test_some.py").write_text(CHEAP_AND_DEAR)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.core_seconds", "-m", "", str(tmp_path)]
    options = ["--rootdir", str(tmp_path), "-c", "/dev/null"]
    run = subprocess.run([*command, *options], capture_output=True, text=True, cwd=ROOT)
    assert "2 failed, 3 passed" in run.stdout, run.stdout + run.stderr
    for name in ("dear", "with_a_dear_fixture"):
        assert f"_ test_{name} _" in run.stdout
    assert "core-seconds without compilation" in run.stdout
