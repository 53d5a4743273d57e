"""Write a list of all planted faults in the tests to a file: `python -m tests.planted_faults`.

A planted fault is a wrong copy of what is tested, and the test passes only if the fault is found. A test has
one if the words "planted fault" stand in its name, its docstring, a comment within it, the name of its class
or of its file, or the heading above it: a comment that is followed by dashes.

Each sentence about a fault has a line, and so has each case of a test that runs for several; a test without
either has a line of its own. So the list becomes shorter if a fault goes, and not if a test is written
in another way.
"""

import ast
import re
from pathlib import Path

FILE = Path(__file__).with_name("planted_faults.txt")
TESTS = Path(__file__).parent
SAID = re.compile(r"planted[ _]?faults?", re.IGNORECASE)
HEADING = re.compile(r"# (.+?) -{5,}")
LONGEST = 100


def listing(folder=TESTS):
    """The list, as text: below the path of each file, its faults."""
    lines = []
    for path in sorted(folder.rglob("test_*.py")):
        if found := faults(path.read_text(), is_planted=SAID.search(path.stem) is not None):
            lines += ["", f"# {path.relative_to(folder).as_posix()}", *found]
    return "\n".join(lines[1:]) + "\n"


def faults(source, *, is_planted=False):
    """Lines on the faults of one file; if `is_planted`, all of its tests have some."""
    lines, tree = source.splitlines(), ast.parse(source)
    found = []
    for test, within in tests_of(tree):
        end = test.end_lineno
        while lines[end : end + 1] and lines[end].startswith(" " * (test.col_offset + 1)):
            end += 1  # comments at the end are no part of a function's syntax
        body = lines[test.lineno - 1 : end]
        said = [about for line in [*documented(test), *body] if (about := sentence(line))]
        heading = next((h[1] for line in lines[test.lineno - 2 :: -1] if (h := HEADING.match(line))), "")
        if is_planted or said or SAID.search(f"{test.name} {within} {heading}"):
            name = f"{within}.{test.name}" if within else test.name
            about = [f"{name}: {one}" for one in said] + [f"{name}[{c}]" for c in cases(test, tree)]
            found += about or [name]
    return found


def tests_of(tree):
    """Test functions of a module and of its classes, each with the name of its class."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from ((one, node.name) for one, _ in tests_of(node))
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield node, ""


def documented(test):
    """The lines of a docstring, as comments."""
    return [f"# {line}" for line in (ast.get_docstring(test) or "").splitlines()]


def sentence(line):
    """What a line says of a planted fault in a comment; else nothing."""
    _, _, comment = line.partition("# ")
    return comment.strip() if "planted fault" in comment.lower() else ""


def cases(test, tree):
    """The cases for which a test is run, as they are written in its file."""
    found = [""]
    for mark in reversed(test.decorator_list):
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.parametrize":
            found = [f"{one}-{two}".strip("-") for one in found for two in elements(mark.args[1], tree)]
    return [one for one in found if one]


def elements(node, tree):
    """Keys or elements of a literal, which may have a name in its module or be returned by a function."""
    if isinstance(node, ast.Name):
        defined = [a.value for a in tree.body if isinstance(a, ast.Assign) and names(a) == [node.id]]
        return elements(defined[-1], tree) if defined else [node.id]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        called = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == node.func.id]
        if called and isinstance(called[-1].body[-1], ast.Return):
            return elements(called[-1].body[-1].value, tree)
    if isinstance(node, ast.Dict):
        return [shown(key) for key in node.keys]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [shown(one) for one in node.elts]
    return [shown(node)]


def names(assignment):
    """Names that an assignment gives a value."""
    return [target.id for target in assignment.targets if isinstance(target, ast.Name)]


def shown(node):
    """A case on one line: a text without its quotes, an identifier in place of a `pytest.param`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.param":
        ids = [k.value for k in node.keywords if k.arg == "id"]
        return shown(ids[0] if ids else ast.Tuple(node.args) if node.args[1:] else node.args[0])
    text = " ".join(ast.unparse(node).split()) if node else "**"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


if __name__ == "__main__":
    FILE.write_text(listing())
