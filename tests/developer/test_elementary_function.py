"""The skeleton of the page works as it stands there, its check notices bugs, and its table is complete."""

import re
from pathlib import Path

import pytest

import pymc_austerity
from pymc_austerity.bounds.expressions import evaluate, forms, rebuild
from pymc_austerity.bounds.jets import codes
from pymc_austerity.bounds.jets.ranges import CRITICAL_POINTS, DOMAINS
from pymc_austerity.model.structure import scalar_rules
from tests.bounds import expressions

from .test_family_skeleton import PAGES, blocks, imported  # noqa: F401 - a fixture

PAGE = "new_elementary_function.md"
PACKAGE = Path(pymc_austerity.__file__).parent
PLACES = re.findall(r"^\| `([\w/]+\.py)` \| `(\w+)` \| (.*) \|$", (PAGES / PAGE).read_text(), re.MULTILINE)


@pytest.fixture
def skeleton(imported, monkeypatch):  # noqa: F811
    """A function that imports the modules of the page; operations that they register are forgotten."""
    monkeypatch.setattr(scalar_rules, "_RULES", dict(scalar_rules._RULES))
    function, check = blocks(PAGE)

    def made(change=lambda source: source):
        changed = change(function)
        return imported(inverse_hyperbolic=changed, check_inverse_hyperbolic=check)

    return made


@pytest.mark.slow("builds and compiles several steps")
def test_arctanh(skeleton):
    skeleton().check()


@pytest.mark.parametrize(
    ("right", "wrong"), [("constant(0.5)", "constant(0.4)"), ("log1p(x), log1p(negative(x))", "log1p(x), x")]
)
def test_a_wrong_form_is_noticed(skeleton, right, wrong):
    """Planted fault: another constant; a sign that is lost."""

    def change(source):
        assert source.count(right) == 1
        return source.replace(right, wrong)

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        skeleton(change).check()


def test_the_places_of_the_table():
    assert len(PLACES) == 9
    for file, name, _ in PLACES:
        text = (PACKAGE / file).read_text()
        assert re.search(rf"^(def )?{name}\b", text, re.MULTILINE), (file, name)
        assert name == "_DOMAINS" or re.search("arctan", text, re.IGNORECASE), file


def test_every_function_of_the_machine_is_in_every_place():
    made_of_others = {"power", "rising_exp"}  # with constructors of other names, or none
    for name in codes.FUNCTIONS:
        assert getattr(codes, name.upper()) == codes.FUNCTIONS.index(name)
        assert name in evaluate._FUNCTIONS
        assert name in rebuild._MAKE or name in made_of_others
        assert name in forms.__all__ or name in made_of_others
        assert name in expressions.OPERATIONS
    assert len(CRITICAL_POINTS) == len(DOMAINS) == len(codes.FUNCTIONS)
    source = (PACKAGE / "bounds" / "jets" / "functions.py").read_text()
    branches = re.findall(
        r"^def (?:elementary_derivatives|_special)\(.*?\n\n\n", source, re.MULTILINE | re.DOTALL
    )
    found = re.findall(r"^    (?:if|elif|else)\b", "".join(branches), re.MULTILINE)
    assert len(found) == len(codes.FUNCTIONS)
