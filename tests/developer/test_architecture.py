"""The pages name every file of the package, and no other; their code runs."""

import re
from functools import singledispatch
from pathlib import Path

import pymc_austerity
from pymc_austerity.model.lift import lifter

PACKAGE = Path(pymc_austerity.__file__).parent
FOLDER = Path(__file__).parents[2] / "docs" / "developer"
NAMES = ("architecture", "architecture_draw", "architecture_terms")
PAGE = "\n".join((FOLDER / f"{name}.md").read_text() for name in NAMES)
HOUSE = PAGE[PAGE.index("## The house") : PAGE.index("## Plan, then step")]
ROOMS = re.findall(r"^\| `([\w./]+/)` \| (.*) \|$", HOUSE, re.MULTILINE)
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_tables_name_all_files():
    named = [
        Path(room, file).as_posix() for room, files in ROOMS for file in re.findall(r"`(\w+\.py)`", files)
    ]
    there = {
        path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if path.stem != "__init__"
    }
    assert sorted(named) == sorted(there)


def test_files_that_the_text_names_exist():
    text = "\n".join(line for line in PAGE.splitlines() if not line.startswith("| `"))
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text))
    folders = (PACKAGE, PACKAGE.parent)
    assert "mode/" in named
    assert {name for name in named if not any((folder / name).exists() for folder in folders)} == set()


def test_the_floors_are_those_of_the_contract():
    contract = re.search(
        r"^layers = \[\n(.*?)^\]", (PACKAGE.parent / "pyproject.toml").read_text(), re.M | re.S
    )
    floors = re.findall(r'"(.*)"', contract.group(1))
    drawn = [
        re.split(r"  +", line)[0]
        for line in re.search(r"```text\n(.*?)```", HOUSE, re.S).group(1).splitlines()
    ]
    assert drawn == floors


def test_the_code_runs(capsys, monkeypatch):
    # The rule that the page registers is forgotten.
    rules = singledispatch(lifter.rule.dispatch(object))
    for kind, function in lifter.rule.registry.items():
        rules.register(kind, function)
    monkeypatch.setattr(lifter, "rule", rules)
    namespace = {}
    for block in BLOCKS:
        exec(block, namespace)
    assert "of 10 accepted" in capsys.readouterr().out
