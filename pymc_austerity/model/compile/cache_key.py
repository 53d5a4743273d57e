"""A name for what is compiled into an engine, so that a change of it is noticed.

An engine is made of functions of this package, and of what these call. The name has the sources of the whole
package: any change of them makes it another one.
"""

import hashlib
import sys
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytensor

from pymc_austerity import _version

_PACKAGE = "pymc_austerity"
_ROOT = Path(__file__).parents[2]
# Rooms and modules whose functions engines are made of.
_COMPILED = ("acceptance", "bounds", "control_variates", "kernels", "packed", "proposals", "target")
# When modules of the package began to be imported, or soon after.
_BEGAN = time.time()


def key_of(parts: Iterable[Any], functions: Iterable[Any]) -> str | None:
    """The name of an engine; None if not all that is compiled in can be known: then it is not kept on disk.

    `parts` are texts and numbers that decide what is compiled, in order; None in place of one that is not
    known. `functions` has all functions and classes that are compiled in.
    """
    parts, functions, sources = list(parts), list(functions), sources_of(_ROOT)
    if None in parts or sources is None or not all(map(_is_described, functions)):
        return None
    names = [f"{f.__module__}.{f.__qualname__}" for f in functions]
    versions = [_version.__version__, numba.__version__, np.__version__, pytensor.__version__, sys.version]
    return hashlib.sha256(repr([parts, names, sources, _constants(), versions]).encode()).hexdigest()


def is_of_package(part: Any) -> bool:
    """Is it a function or class that a module of this package defines?"""
    return f"{getattr(part, '__module__', None)}.".startswith(f"{_PACKAGE}.")


def _is_described(function: Any) -> bool:
    """Is it defined by the source of a module of this package alone? What a closure holds is in no source."""
    plain = getattr(function, "py_func", function)
    return is_of_package(plain) and not getattr(plain, "__closure__", None)


@cache
def sources_of(folder: Path) -> str | None:
    """A number for all sources in a folder as they run.

    None if there are none, as in an installation of bytecode, or if one was edited after this process began.
    """
    files = sorted(folder.rglob("*.py"))
    if not files or any(file.stat().st_mtime > _BEGAN for file in files):
        return None
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _constants() -> list[tuple[str, Any]]:
    """Numbers in modules that are compiled as they are now, should somebody have changed them since."""
    return [
        (name, sorted((k, v) for k, v in vars(module).items() if isinstance(v, int | float)))
        for name, module in sorted(sys.modules.items())
        if name.startswith(f"{_PACKAGE}.") and name.split(".")[1] in _COMPILED
    ]
