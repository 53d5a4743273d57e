"""`compile_heavy.txt` names tests that exist."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LINES = (TESTS / "compile_heavy.txt").read_text().splitlines()


@pytest.mark.parametrize("path", sorted({line.split("::")[0] for line in LINES}))
def test_named_tests_exist(path):
    source = (TESTS.parent / path).read_text()
    for line in LINES:
        own, _, name = line.partition("[")[0].rpartition("::")
        if own.split("::")[0] == path:
            assert f"def {name}(" in source, line


def test_lines_are_sorted_and_unique():
    assert sorted(set(LINES)) == LINES
