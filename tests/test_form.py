"""One form for one thing: types of arrays, names of rules, docstrings that say something when read alone."""

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


# A docstring that begins with one of these says nothing without the code beside it: see `SAYING_NOTHING`.
# Write the noun first: what it is, in which units and of which shape.
PRONOUNS = "That|Those|These|This|It|Its|They|Their|Both|Here"
PREPOSITIONS = "Of|As|By|From|With|Without|For|At|To|On|In|Before|Beside"
CONJUNCTIONS = r"And|Or|Not|But|Also|See|\.\.\."
EMPTY = re.compile(
    rf"(?:{PRONOUNS}|{PREPOSITIONS}|{CONJUNCTIONS})(?!\w)"
    r"|The (?:same|inverse|others?)(?:[.,;:]| (?:with|without|from|for|to|after|in|as|when|where|function)\b)"
)
FEWEST_WORDS = 3


def says_nothing(docstring):
    first = " ".join(docstring.split("\n\n")[0].split())
    return bool(EMPTY.match(first)) or len(first.split()) < FEWEST_WORDS


def empty_docstrings(source):
    tree = ast.parse(source)
    documented = [
        node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    ]
    found = [(getattr(node, "name", "module"), ast.get_docstring(node)) for node in documented]
    return {name: text for name, text in found if text is not None and says_nothing(text)}


def test_docstrings_say_something_alone():
    found = {file: empty_docstrings(source) for file, source in sources().items()}
    assert {file: names for file, names in found.items() if names} == {}


SAYING_NOTHING = """\
Of y_j.
That of theta.
Those of some rows.
The same function.
The same, compiled.
... and has.
By Laplace's approximation.
As in `Source`.
The inverse.
The loop."""


@pytest.mark.parametrize("text", SAYING_NOTHING.splitlines())
def test_an_empty_docstring_would_be_noticed(text):
    assert empty_docstrings(f'def moments(y):\n    """{text}"""\n') == {"moments": text}
    assert empty_docstrings(f'class Rows:\n    """{text}\n\n    Notes\n    -----\n    More.\n    """\n')


@pytest.mark.parametrize("text", ["Mean of y_j, in units of tau.", "The same plan in another process."])
def test_a_docstring_with_a_noun_is_not_empty(text):
    assert not says_nothing(text)
