"""A name for what is compiled into an engine, so that a change of it is noticed.

An engine is made of functions of this package, and of what these call. All that they can name is defined in
their modules, or imported there: so the sources of these modules, of the modules of this package that they
import, and so on, hold everything. A module that is not imported by any of them has no part in the engine.
"""

import ast
import hashlib
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytensor

from pymc_austerity import _version

_PACKAGE = "pymc_austerity"
_HOLD_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
# When modules of the package began to be imported, or soon after.
_BEGAN = time.time()


def key_of(parts: Iterable[Any], functions: Iterable[Any]) -> str | None:
    """The name of an engine; None if not all that is compiled in can be known: then it is not kept on disk.

    `parts` are texts and numbers that decide what is compiled, in order; None in place of one that is not
    known. `functions` has all functions and classes that are compiled in.
    """
    parts, functions = list(parts), list(functions)
    if None in parts or not all(map(_is_described, functions)):
        return None
    modules = modules_of(f.__module__ for f in functions)
    sources = {name: source_of(name) for name in modules}
    if None in sources.values():
        return None
    names = [f"{f.__module__}.{f.__qualname__}" for f in functions]
    constants = [constants_of(name) for name in modules]
    versions = [_version.__version__, numba.__version__, np.__version__, pytensor.__version__, sys.version]
    return hashlib.sha256(repr([parts, names, sources, constants, versions]).encode()).hexdigest()


def is_of_package(part: Any) -> bool:
    """Is it a function or class that a module of this package defines?"""
    return _in_package(getattr(part, "__module__", None))


def _is_described(function: Any) -> bool:
    """Is it defined by the source of a module of this package alone? What a closure holds is in no source."""
    plain = getattr(function, "py_func", function)
    return is_of_package(plain) and not getattr(plain, "__closure__", None)


def modules_of(names: Iterable[str]) -> list[str]:
    """Modules with all modules of the package that they import, directly or not, sorted."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports_of(name)
    return sorted(found)


@cache
def source_of(name: str) -> str | None:
    """Source of a module as it runs.

    None if there is none, as in an installation of bytecode, or if it was edited after this process began.
    """
    spec = find_spec(name)
    source = getattr(spec.loader, "get_source", None) if spec is not None else None
    if spec is None or source is None:
        return None
    path = Path(spec.origin or "")
    if path.is_file() and path.stat().st_mtime > _BEGAN:
        return None
    text: str | None = source(name)
    return text


@cache
def imports_of(name: str) -> frozenset[str]:
    """Modules of the package that a module imports by any statement."""
    found: set[str] = set()
    spec = find_spec(name)
    package = None if spec is None else spec.parent
    for node in _statements(ast.parse(source_of(name) or "")):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            found.update(_module(origin, alias.name) for alias in node.names)
    return frozenset(filter(_in_package, found))


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, however deep. Expressions hold none; to walk through them takes twice as long."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, _HOLD_STATEMENTS)]


def _in_package(name: str | None) -> bool:
    return name is not None and (name == _PACKAGE or name.startswith(f"{_PACKAGE}."))


def _module(origin: str, name: str) -> str:
    """The module that ``from origin import name`` reads: a module of that name, or `origin`."""
    inner = f"{origin}.{name}"
    if not _in_package(origin) or getattr(find_spec(origin), "submodule_search_locations", None) is None:
        return origin
    return inner if find_spec(inner) is not None else origin


def constants_of(name: str) -> str:
    """Numbers in a module as they are now, should somebody have changed them since.

    The time in this module differs in every process, and decides on nothing that is compiled.
    """
    values = vars(import_module(name)).items()
    return repr(sorted((k, v) for k, v in values if isinstance(v, int | float) and v is not _BEGAN))
