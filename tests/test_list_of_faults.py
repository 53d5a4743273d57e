"""A fault that is planted no more shows in a checked file, `planted_faults.txt`."""

import re

import pytest

from tests.planted_faults import FILE, TESTS, faults, listing


def test_faults_are_those_on_file():
    """`python -m tests.planted_faults` writes the file. A line may go only with what it was a fault of."""
    assert listing().splitlines() == FILE.read_text().splitlines()


def test_there_is_one_word_for_it():
    """Faults by another name would not be on the list."""
    other = re.compile(r"planted[ _](bug|error|mistake|defect)|\bplanted: ", re.IGNORECASE)
    found = [
        f"{path.relative_to(TESTS)}:{number}: {line.strip()}"
        for path in sorted(TESTS.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if other.search(line) and "warn(" not in line and "assert" not in line and "re." not in line
    ]
    assert found == []


OF_A_NAME = """
def test_planted_fault_is_noticed():
    pass
"""
OF_A_COMMENT = '''
def test_draws():
    """They are right."""
    x = 1  # a planted fault: one too many
    # The planted fault: one too few.
    # Not a fault.
'''
OF_A_DOCSTRING = '''
@pytest.mark.slow("a planted fault is no reason")
def test_draws():
    """They are right.

    Planted fault: the sign.
    """
'''
OF_A_CLASS = """
class TestPlantedFaults:
    def test_a(self):
        pass
"""
OF_A_HEADING = """
# Planted faults -----------

def test_a():
    pass

# Others -------------------

def test_b():
    pass
"""
OF_CASES = """
BUGS = {"one": 1, "two": 2}

def made():
    return {"three": 3}

@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("kind", [Exact, pytest.param(3, id="x")])
def test_planted_faults(bug, kind):
    pass

@pytest.mark.parametrize("bug", made())
@pytest.mark.parametrize("n", range(3))
def test_more_planted_faults(bug, n):
    pass
"""


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (OF_A_NAME, ["test_planted_fault_is_noticed"]),
        (
            OF_A_COMMENT,
            ["test_draws: a planted fault: one too many", "test_draws: The planted fault: one too few."],
        ),
        (OF_A_DOCSTRING, ["test_draws: Planted fault: the sign."]),
        (OF_A_CLASS, ["TestPlantedFaults.test_a"]),
        (OF_A_HEADING, ["test_a"]),
        (
            OF_CASES,
            [
                *(f"test_planted_faults[{case}]" for case in ("Exact-one", "Exact-two", "x-one", "x-two")),
                "test_more_planted_faults[range(3)-three]",
            ],
        ),
        ("def test_draws():\n    pass\n", []),
    ],
    ids=["name", "comment", "docstring", "class", "heading", "cases", "none"],
)
def test_what_is_listed(source, lines):
    assert faults(source) == lines


def test_a_file_of_faults():
    assert faults("def test_draws():\n    pass\n", is_planted=True) == ["test_draws"]
