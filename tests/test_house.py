"""How the package is built: budgets of lines, no circle of modules, no use of others' private attributes.

Floors and rooms are contracts in `pyproject.toml`. These do not forbid a circle within a room.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest

import pymc_austerity

ROOT = Path(pymc_austerity.__file__).parent

# Lines that each room may have, as `wc -l` counts them, without those of a room within it that is named, too.
# A room that needs more says so here.
BUDGETS = {
    ".": 1_650,
    "acceptance": 990,
    "bounds": 1_530,
    "bounds/expressions": 2_780,
    "bounds/jets": 3_610,
    "cluster": 230,
    "control_variates": 140,
    "data": 2_310,
    "design": 1_030,
    "diagnostics": 1_620,
    "distributions": 250,
    "kernels": 1_660,
    "kernels/fields": 2_840,
    "mode": 2_170,
    "mode/fields": 5_090,
    "model": 3_180,
    "model/chains": 870,
    "model/compile": 1_270,
    "model/conjugacy": 1_110,
    "model/field": 2_070,
    "model/graph": 1_590,
    "model/lift": 1_390,
    "model/selection": 320,
    "model/structure": 4_890,
    "plots": 1_350,
    "proposals": 1_710,
    "recommendation": 1_110,
    "report": 2_350,
    "sampling": 2_580,
    "step_methods": 1_520,
    "step_methods/gamma": 900,
    "step_methods/langevin": 530,
    "step_methods/metropolis": 5_340,
    "testing": 1_540,
}
# Lines and files of all rooms together. They are to fall.
WHOLE = 63_337
MOST_FILES = 315
# A file is as long as its story. Above this it tells two.
LONGEST = 700

# The interface of a NamedTuple, those of numba's structures and of its code generator, where traces of PyMC
# have statistics, and how Bambi gives results its form.
OF_LIBRARIES = {"_replace", "_fields", "_field_defaults", "_asdict", "_make", "_getvalue"} | {
    "_library_class",
    "_data_layout",
    "_defns",
    "_getattrs",
    "_cache",
    "_stats",
    "_clean_results",
    "_re_center_intercept",
}


def sources():
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(ROOT.rglob("*.py"))}


def module_of(file):
    """Dotted name of a file of the package."""
    return ".".join(["pymc_austerity", *Path(file).with_suffix("").parts]).removesuffix(".__init__")


def imports_of(source, known):
    """Modules among `known` that a source imports: at its head, in functions, and for types only."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    return found & known


def circle(imports):
    """Modules that import each other in a circle, in order; empty if there is none."""
    done = set()

    def search(module, path):
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        for other in sorted(imports[module]):
            if found := search(other, [*path, module]):
                return found
        done.add(module)
        return []

    for module in sorted(imports):
        if found := search(module, []):
            return found
    return []


def private_uses(source):
    """Private attributes of other objects that a source uses and does not define."""
    tree = ast.parse(source)
    own, used = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                own.add(name)
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) if name.startswith("_") and not name.startswith("__"):
                used.add(name)
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("pymc_austerity."):
                used |= {a.name for a in names if a.name.startswith("_") and not a.name.startswith("__")}
    return used - own - OF_LIBRARIES


def test_no_circle_of_modules():
    files = sources()
    known = {module_of(file) for file in files}
    assert circle({module_of(file): imports_of(source, known) for file, source in files.items()}) == []


def room_of(file):
    """The innermost room of the table that a file is in."""
    return next(room.as_posix() for room in Path(file).parents if room.as_posix() in BUDGETS)


def lines_by_room():
    found = Counter()
    for file, source in sources().items():
        found[room_of(file)] += len(source.splitlines())
    return found


def over_budget(lines, budgets):
    """What is wrong with the numbers of lines of rooms."""
    return [
        f"{room}: {lines[room]} lines of {budget}" if room in lines else f"{room}: no such room"
        for room, budget in budgets.items()
        if not 0 < lines[room] <= budget
    ]


def test_no_room_is_over_its_budget():
    assert over_budget(lines_by_room(), BUDGETS) == []


def test_the_whole_is_within_its_budget():
    assert lines_by_room().total() <= WHOLE
    assert len(sources()) <= MOST_FILES


def test_no_budget_is_larger_than_needed():
    """What a room has given back stays given back."""
    lines = lines_by_room()
    assert {room: n for room, n in BUDGETS.items() if lines[room] < 0.9 * n - 50} == {}


def test_rooms_over_budget_are_found():
    assert over_budget(Counter({"a": 10, "b": 5}), {"a": 10, "b": 5}) == []
    found = over_budget(Counter({"a": 11, "b": 5}), {"a": 10, "b": 5, "c": 5})
    assert found == ["a: 11 lines of 10", "c: no such room"]


def test_no_file_is_long():
    assert {file for file, source in sources().items() if len(source.splitlines()) > LONGEST} == set()


def test_no_module_uses_what_another_keeps_to_itself():
    found = {file: private_uses(source) for file, source in sources().items()}
    assert {file: names for file, names in found.items() if names} == {}


def test_circles_are_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circle({"a": {"b"}, "b": {"c", "d"}, "c": set(), "d": {"b"}}) == ["b", "d"]
    source = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from p.a import A
def f():
    from p import b
    import p.c
    from p.d import b
"""
    assert imports_of(source, {"p", "p.a", "p.b", "p.c", "p.d"}) == {"p.a", "p.b", "p.c", "p.d"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step._engine", {"_engine"}),
        ("self._step._engine.run()", {"_engine"}),
        ("self._engine", set()),
        ("super()._engine()", set()),
        ("self._engine = other._engine", set()),  # two objects of one class
        ("found._replace(a=1)", set()),
        ("found.__class__", set()),
        ("from pymc_austerity.target import _hidden", {"_hidden"}),
    ],
)
def test_uses_of_privates_are_found(line, expected):
    assert private_uses(line) == expected
