"""The pages name every room of the package, and only files that exist; their code runs."""

import re
import sys
from functools import singledispatch
from pathlib import Path

import pymc_austerity
from pymc_austerity.model.lift import lifter
from tests.test_house import BUDGETS

PACKAGE = Path(pymc_austerity.__file__).parent
FOLDER = Path(__file__).parents[2] / "docs" / "developer"
sys.path.insert(0, str(FOLDER.parent))
from files_of_the_package import files_by_room, first_sentence, page  # noqa: E402

NAMES = ("architecture", "architecture_draw", "architecture_terms")
PAGE = "\n".join((FOLDER / f"{name}.md").read_text() for name in NAMES)
HOUSE = PAGE[PAGE.index("## The house") : PAGE.index("## Plan, then step")]
# Of each room: its folder, and its budget.
ROOMS = re.findall(r"^- `([\w./]+/)`, at most ([\d,]+) lines\.", HOUSE, re.MULTILINE)
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_each_room_has_a_paragraph_with_its_budget():
    assert {room.rstrip("/"): int(budget.replace(",", "")) for room, budget in ROOMS} == BUDGETS


def test_the_list_of_files_says_something_of_each():
    sentences = {file: first_sentence(file) for files in files_by_room().values() for file in files}
    assert {file.name for file, sentence in sentences.items() if len(sentence.split()) < 3} == set()
    text = page()
    assert all(f"`{file.name}`: " in text for file in sentences)


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
