"""An internal error is not taken for something else: handlers that catch everything are few, with reasons.

A handler that ends in a bare `raise` hides nothing, and needs none.
"""

import ast

from tests.test_house import sources

BROAD = {"Exception", "BaseException"}

# File and function of each, and why.
REASONS = {
    ("model/starting_point.py", "dispersed_points"): "random functions of users; a warning has type and text",
    ("report/figures.py", "drawn"): "a page with all tables of a long comparison; it shows type and text",
    ("report/probe.py", "probed"): "the step may be the user's; the report shows type and text",
    ("report/run.py", "run_step"): "the step may be the user's; the report shows type and text",
    ("sampling/processes.py", "_run"): "of a process of its own; it is raised where the chain was started",
    ("sampling/processes.py", "_sendable"): "methods of errors of users; type and text are sent instead",
    (
        "step_methods/metropolis/engine/base.py",
        "_compile",
    ): "functions of users that numba cannot compile; raised if all are ours",
    (
        "testing/proposals.py",
        "_interpreted_and_compiled",
    ): "functions of users that numba cannot compile; raised if all are ours",
}


def names_of(handler):
    """Classes that are caught; of a bare `except` all."""
    if handler.type is None:
        return BROAD
    return {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}


def hides(handler):
    last = handler.body[-1]
    return not (isinstance(last, ast.Raise) and last.exc is None)


def broad_handlers(source):
    """Names of the functions that have one."""
    found = []

    def visit(node, function):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ExceptHandler) and names_of(child) & BROAD and hides(child):
                found.append(function)
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            visit(child, child.name if is_function else function)

    visit(ast.parse(source), "")
    return found


def test_broad_handlers_have_reasons():
    found = {(file, function) for file, source in sources().items() for function in broad_handlers(source)}
    assert sorted(found) == sorted(REASONS)


def test_handlers_are_found():
    """What the test above looks for."""
    source = """
def one():
    try:
        pass
    except{}:
        {}
"""
    for kind in ("", " Exception", " Exception as error", " (ValueError, BaseException)"):
        assert broad_handlers(source.format(kind, "pass")) == ["one"]
        assert broad_handlers(source.format(kind, "raise")) == []
    assert broad_handlers(source.format(" Exception as error", "raise ValueError from error")) == ["one"]
    assert broad_handlers(source.format(" (TypeError, ValueError)", "pass")) == []
