"""The functions and files that the page names exist, and its loop runs."""

import re
from pathlib import Path

import pytest

import pymc_austerity

PACKAGE = Path(pymc_austerity.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "developer" / "life_of_a_step.md").read_text()
ROWS = re.findall(r"^\|.*\| `(\w+)` \| `(\S+\.py)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("function", "file"), ROWS)
def test_the_file_defines_the_function(function, file):
    assert re.search(rf"^\s*def {function}\(", (PACKAGE / file).read_text(), re.MULTILINE)


def test_files_exist():
    named = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)
    assert len(ROWS) > 15
    assert [name for name in named if not (PACKAGE / name).exists()] == []


def test_the_loop_reads_a_part_of_the_data():
    (cell,) = re.findall(r"^```\{code-cell\} python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    namespace = {"print": lambda text: None}
    exec(cell, namespace)
    used = namespace["used"]
    assert 0.05 < sum(used) / len(used) / namespace["N"] < 0.9
    assert abs(namespace["q"] - namespace["y"].mean()) < 0.1
