"""A change of the public interface shows in a checked file, `public_names.txt`."""

from dataclasses import dataclass

import pytest

from tests.public_names import FILE, described, listing


def test_public_names_and_signatures_are_those_on_file():
    """If the change is wanted: `python -m tests.public_names`."""
    assert listing().splitlines() == FILE.read_text().splitlines()


def function(a, *, b: int = 2, **rest) -> int:
    return a + b


@dataclass(frozen=True)
class Pair:
    first: int
    second: int = 3

    @property
    def total(self):
        return self.first + self.second

    def scaled(self, by=2.0):
        return by * self.total

    def _hidden(self):
        pass


# As the classes of the package, whose members are listed.
Pair.__module__ = "pymc_austerity.example"


@pytest.mark.parametrize(
    ("thing", "lines"),
    [
        (function, ["name(a, *, b=2, **rest)"]),
        (Pair, ["class name(first, second=3)", "    scaled(self, by=2.0)", "    second", "    total"]),
        (3, ["name"]),
        (pytest, ["module name"]),
    ],
)
def test_what_is_listed(thing, lines):
    assert described("name", thing) == lines
