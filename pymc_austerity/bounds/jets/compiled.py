"""How functions of this package are compiled: division by zero gives infinity, as in NumPy."""

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from numba import njit

from pymc_austerity import compilation
from pymc_austerity.packed import packed

_NO_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def entry[F: Callable[..., Any]](function: F) -> F:
    """Compile a function that Python calls."""
    return compilation.entry(function, error_model="numpy")


def at_address[F: Callable[..., Any]](function: F) -> F:
    """Compile a function that compiled code calls at its address, and Python never."""
    return compilation.entry(function, error_model="numpy", **_NO_WRAPPERS)


def of_records[F: Callable[..., Any]](function: F) -> F:
    """Compile a function that Python calls with records, which are packed."""
    compiled = entry(function)
    if compiled is function:  # interpreted
        return function

    @wraps(function)
    def call(*arguments: Any) -> Any:
        return compiled(*packed(*arguments))

    return cast(F, call)


def inner[F: Callable[..., Any]](function: F) -> F:
    """Compile a function that compiled code alone calls; it is kept in the caller's cache.

    Wrappers for Python, and files of its own, would take a quarter of the time to compile it.
    """
    return cast(F, njit(error_model="numpy", **_NO_WRAPPERS)(function))
