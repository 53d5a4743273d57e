"""One form for one thing: types of arrays have one name in one place, rules have names."""

import ast
import re

import pytest

from tests.test_house import sources

ARRAYS = re.compile(r"(?:npt\.)?NDArray\[.*\]|np\.ndarray")


def aliases(source):
    """Names that a module gives to types of arrays."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ARRAYS.fullmatch(ast.unparse(node.value)):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def defined_twice(files):
    found = [name for source in files.values() for name in aliases(source)]
    return {name for name in found if found.count(name) > 1}


def test_a_type_of_arrays_is_defined_once():
    assert defined_twice(sources()) == set()


@pytest.mark.parametrize("again", ["npt.NDArray[np.float64]", "np.ndarray", "NDArray[np.int32]"])
def test_a_second_definition_would_be_noticed(again):
    files = {"target.py": "Matrix = npt.NDArray[np.float64]\n", "mode/fit.py": f"Matrix = {again}\n"}
    assert defined_twice(files) == {"Matrix"}


def nameless(source):
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and not node.name.strip("_")
    ]


def test_rules_have_names():
    """A rule that is registered for an operation is found by its name, in a traceback too."""
    assert {file: found for file, source in sources().items() if (found := nameless(source))} == {}


def test_a_nameless_rule_would_be_noticed():
    assert nameless("@rule.register(Dot)\ndef _(op, node):\n    return node\n") == [2]
