"""The tool that compares two commits: its comparison, its table of cases, and its worktrees."""

import ast
from pathlib import Path

import numpy as np
import pytest

import pymc_austerity
from pymc_austerity import acceptance
from tests.golden import __main__ as tool
from tests.golden import bench, cases
from tests.golden.compare import differences
from tests.golden.worktrees import Checkout, GitError, Version, checked_out, git, resolve

DRAWS = np.random.default_rng(1).normal(size=(2, 50, 3))
ARRAYS = {"posterior/beta": DRAWS, "sample_stats/psi": np.full((2, 50), np.nan), "name": np.array("TunaMH()")}


def changed(name, where, value):
    array = ARRAYS[name].copy()
    array[where] = value
    return {**ARRAYS, name: array}


@pytest.mark.parametrize(
    "other",
    [
        {name: array.copy() for name, array in ARRAYS.items()},
        {**ARRAYS, "posterior/beta": np.asfortranarray(DRAWS)},
        {**ARRAYS, "sample_stats/psi": -np.full((2, 50), np.nan)},
    ],
    ids=["copied", "of another layout", "any nan is nan"],
)
def test_the_same_is_the_same(other):
    assert np.float64(-np.nan).tobytes() != np.float64(np.nan).tobytes()
    assert differences(ARRAYS, other) == []


def test_one_bit():
    one_up = np.nextafter(DRAWS[1, 17, 2], np.inf)
    (line,) = differences(ARRAYS, changed("posterior/beta", (1, 17, 2), one_up))
    assert line.startswith("posterior/beta: 1 of 300 differ, first at chain 1, draw 17: ")
    assert line.endswith(" sd apart")


def test_distance_is_in_standard_deviations():
    away = DRAWS[0, 3, 1] + 2 * DRAWS[..., 1].std()
    (line,) = differences(ARRAYS, changed("posterior/beta", (0, 3, 1), away))
    assert line.endswith("; at most 2 sd apart")


def test_signs_of_zero_differ():
    assert differences({"a": np.array([0.0])}, {"a": np.array([-0.0])}) != []


def test_nan_is_nothing_else():
    assert len(differences(ARRAYS, changed("sample_stats/psi", (0, 0), 0.0))) == 1


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (DRAWS.astype(np.float32), "a: float64 (2, 50, 3), then float32 (2, 50, 3)"),
        (DRAWS[:, :49], "a: float64 (2, 50, 3), then float64 (2, 49, 3)"),
    ],
)
def test_types_and_shapes(other, line):
    assert differences({"a": DRAWS}, {"a": other}) == [line]


def test_missing_arrays():
    fewer = {name: array for name, array in ARRAYS.items() if name != "sample_stats/psi"}
    assert differences(ARRAYS, fewer) == ["sample_stats/psi: only in the first"]
    assert differences(fewer, ARRAYS) == ["sample_stats/psi: only in the second"]


def test_texts():
    (line,) = differences(ARRAYS, {**ARRAYS, "name": np.array("SCIR()  ")})
    assert "TunaMH(), then SCIR()" in line


# What a run prints, and its exit code.


@pytest.fixture
def write(tmp_path):
    """Write results of a case as a child does."""

    def write(side, arrays, warnings="[]"):
        folder = tmp_path / side
        folder.mkdir()
        if arrays is None:
            (folder / "exact.log").write_text("Traceback ...\nValueError: what happened\n")
        else:
            np.savez(folder / "exact.npz", **arrays)
            (folder / "exact.json").write_text(warnings)
        return folder

    return write


@pytest.mark.parametrize(
    ("other", "reason", "right", "told"),
    [
        (ARRAYS, None, True, ""),
        (changed("posterior/beta", (0, 0, 0), 0.0), None, False, "DIFFERS  exact\n"),
        (changed("posterior/beta", (0, 0, 0), 0.0), "a mend", True, "allowed  exact (a mend)\n"),
        (ARRAYS, "a mend", True, "exact is the same, though a difference is allowed (a mend)"),
        (None, None, False, "failed on two: ValueError: what happened"),
    ],
    ids=["same", "different", "allowed", "allowed in vain", "failed"],
)
def test_judgement(write, capsys, other, reason, right, told):
    folders = [write("one", ARRAYS), write("two", other)]
    assert tool.judge("exact", folders, ["one", "two"], reason) is right
    printed = capsys.readouterr().out
    assert told in printed
    assert bool(printed) == bool(told)


def test_warnings_that_differ_are_told(write, capsys):
    folders = [write("one", ARRAYS, '["many rows"]'), write("two", ARRAYS, '["few rows"]')]
    assert tool.judge("exact", folders, ["one", "two"], None)
    assert capsys.readouterr().out == (
        "  exact: only one warns: many rows\n  exact: only two warns: few rows\n"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--only", "tuba*"], "no case is called 'tuba*'; there are austerity, "),
        (["--allow", "exakt=why"], "no case is called 'exakt'"),
        (["--allow", "exact"], "--allow needs a reason"),
        (["--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["--pairs", "5"], "--pairs must be at least 6, got 5"),
    ],
)
def test_bad_options(capsys, given, message):
    with pytest.raises(SystemExit):
        tool.arguments(["HEAD", "HEAD", *given])
    assert message in capsys.readouterr().err


def test_cases_are_chosen_by_pattern():
    assert tool.arguments(["a", "b", "--only", "tuna_[lp]*", "fork"]).names == [
        "tuna_logistic",
        "tuna_poisson",
        "fork",
    ]


def test_interval_of_the_median():
    """From 9 pairs the second and the eighth: P = 1 - 2 (1 + 9) / 2^9 = 0.961."""
    assert bench.interval(np.arange(9.0)[::-1]) == (4.0, 1.0, 7.0)
    assert bench.interval(np.arange(6.0)) == (2.5, 0.0, 5.0)


def test_pairs_alternate(monkeypatch):
    """A first child of each does not count; the first of a pair is the second of the next."""
    order = []

    def child(checkout):
        order.append(checkout.version.name)
        return {"draw": {"A": 1e-6, "B": 3e-6}[order[-1]] * len(order)}

    monkeypatch.setattr(bench, "child", child)
    one, two = (Checkout(Version(name, "", ""), Path(), {}) for name in "AB")
    *_, line = bench.told(one, two, bench.timed(one, two, 6)).splitlines()
    assert "".join(order) == "AB" + 3 * "ABBA"
    ratios = [3 * second / first for first, second in ((3, 4), (6, 5), (7, 8), (10, 9), (11, 12), (14, 13))]
    assert line.split()[-3:] == [f"[{min(ratios):.3f},", f"{max(ratios):.3f}]", "*"]
    assert f"{np.median(ratios):.3f}" in line


# The table.


def names_in_cases():
    """Names that the functions of the table look up."""
    nodes = list(ast.walk(ast.parse(Path(cases.__file__).read_text())))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


COVERED = names_in_cases()


@pytest.mark.parametrize("name", [*pymc_austerity.__all__, *acceptance.__all__])
def test_every_public_name_is_in_a_case(name):
    """A new step, rule, proposal or control variate needs a case in tests/golden/cases.py."""
    assert (name in COVERED) != (name in cases.LEFT_OUT)


def test_nothing_else_is_left_out():
    assert set(cases.LEFT_OUT) <= set(pymc_austerity.__all__)


# Worktrees, in a repository of two commits.


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "repository"
    package = root / "pymc_austerity"
    package.mkdir(parents=True)
    git(root, "init", "--quiet")
    for number in ("1", "2"):
        (package / "__init__.py").write_text(f"number = {number}\n")
        (root / "tests").mkdir(exist_ok=True)
        (root / "tests" / "cases.py").write_text("")
        git(root, "add", ".")
        git(root, "-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "-m", number)
    return root


def number_in(checkout):
    return (checkout.path / "pymc_austerity" / "__init__.py").read_text()


def test_versions_side_by_side(repository):
    with (
        checked_out(resolve("HEAD~1", repository), repository) as one,
        checked_out(resolve("HEAD", repository), repository) as two,
    ):
        assert (number_in(one), number_in(two)) == ("number = 1\n", "number = 2\n")
        assert not (one.path / "tests").exists()  # cases are those of the present tree
        assert one.environment["PYTENSOR_FLAGS"] != two.environment["PYTENSOR_FLAGS"]
        assert one.environment["PYTHONPATH"].startswith(str(one.path))
    assert git(repository, "worktree", "list").count("\n") == 0


def test_caches_go_by_content(repository):
    assert resolve("HEAD", repository).content == resolve(".", repository).content
    assert resolve("HEAD", repository).content != resolve("HEAD~1", repository).content


def test_present_files(repository):
    package = repository / "pymc_austerity"
    (package / "__init__.py").write_text("number = 3\n")
    (package / "new.py").write_text("")
    before = git(repository, "status", "--porcelain")
    with checked_out(resolve("WORKTREE", repository), repository) as checkout:
        (package / "__init__.py").write_text("number = 4\n")
        assert number_in(checkout) == "number = 3\n"
        assert (checkout.path / "pymc_austerity" / "new.py").exists()
    assert git(repository, "status", "--porcelain") == before


def test_worktrees_are_removed_after_an_error(repository):
    with pytest.raises(ZeroDivisionError), checked_out(resolve("HEAD", repository), repository) as checkout:
        raise ZeroDivisionError
    assert not checkout.path.exists()
    assert git(repository, "worktree", "list").count("\n") == 0


def test_worktrees_are_removed_if_the_package_is_not_there(repository):
    version = resolve("HEAD", repository)._replace(tree="HEAD~1:tests")
    with pytest.raises(GitError, match="pymc_austerity"), checked_out(version, repository):
        pass
    assert git(repository, "worktree", "list").count("\n") == 0


def test_unknown_commits(repository):
    with pytest.raises(GitError, match="rev-parse.*nowhere"):
        resolve("nowhere", repository)


def test_children_see_the_version(repository):
    """And not the package of the present tree, which is on their path, too, for the cases."""
    (repository / "pymc_austerity" / "__main__.py").write_text(
        "import pymc_austerity, tests.golden; print(pymc_austerity.number)"
    )
    with (
        checked_out(resolve(".", repository), repository) as checkout,
        checkout.start("pymc_austerity") as told,
    ):
        assert told.read() == "2\n"


def test_children_end_if_they_are_interrupted(repository):
    late = repository / "late"
    (repository / "pymc_austerity" / "__main__.py").write_text(
        f"import pathlib, time; print(1, flush=True); time.sleep(9); pathlib.Path({str(late)!r}).touch()"
    )
    with (
        pytest.raises(ZeroDivisionError),
        checked_out(resolve(".", repository), repository) as checkout,
        checkout.start("pymc_austerity") as told,
    ):
        int(told.readline()) / 0
    assert not checkout.path.exists()
    assert not late.exists()
