"""How much of the package a step brings with it: files that its module imports, that these import, and so on.

Imports within functions, and those for types only, do not count. They are allowed where few steps need what
is imported: effects of groups, moves of single elements, families of likelihoods, a cluster.
"""

import ast
from functools import cache

import pytest

import pymc_austerity
from tests.test_house import module_of, sources

METROPOLIS = ["AusterityGibbs", "AusterityMH", "MHSubLhd", "MetropolisHastings", "MinibatchBarker", "TunaMH"]
# Files that a step may reach.
MOST = {"TunaMH": 160, "AusterityMH": 150}


def imported(source, known):
    """Modules among `known` that are imported where a source is loaded."""
    found = set()

    def look(nodes):
        for node in nodes:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found.add(inner if inner in known else node.module)
            elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                look(node.orelse)
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                look(ast.iter_child_nodes(node))

    look(ast.parse(source).body)
    return found & known


@cache
def graph():
    files = {module_of(file): source for file, source in sources().items()}
    known = set(files) - {"pymc_austerity"}
    return {module: imported(source, known) for module, source in files.items()}


def reached(module, imports):
    """The module, and all that it imports, and these import."""
    found, ahead = set(), [module]
    while ahead:
        if (here := ahead.pop()) not in found:
            found.add(here)
            ahead += imports[here]
    return found


@pytest.mark.parametrize(("step", "most"), MOST.items())
def test_a_step_reaches_few_files(step, most):
    assert len(reached(getattr(pymc_austerity, step).__module__, graph())) <= most


@pytest.mark.parametrize("step", METROPOLIS)
def test_fields_are_imported_once_one_is_found(step):
    modules = reached(getattr(pymc_austerity, step).__module__, graph())
    assert [name for name in modules if "field" in name] == []


def test_which_imports_count():
    source = """
import p.a
from p.b import c, d
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from p.e import E
else:
    import p.f
def g():
    from p.g import G
class H:
    import p.h
    def i(self):
        import p.i
try:
    import p.j
except ImportError:
    pass
"""
    known = {f"p.{letter}" for letter in "abefghij"} | {"p.b.c"}
    assert imported(source, known) == {"p.a", "p.b", "p.b.c", "p.f", "p.h", "p.j"}


def test_what_is_reached():
    assert reached("a", {"a": {"b"}, "b": {"a", "c"}, "c": set(), "d": {"a"}}) == {"a", "b", "c"}
