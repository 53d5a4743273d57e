"""How numba compiles the functions of this package: each is optimised once.

numba compiles a function after those that it calls, and links them. It optimises each of them, emits machine
code for it, and does so again for every function further up that links it: a function at the bottom of eight
calls is optimised and emitted eight times. Machine code is needed only of what Python calls. So a function
that compiled code alone calls is linked as it is here, and all is optimised together where Python enters.
The machine code is as fast, and takes half the time or less to make.

numba documents no way to do that: a class of its own is replaced, whose names may change with any version.
`pyproject.toml` bounds numba's version. Where a name is gone all the same, numba compiles as it does by
itself.
"""

# mypy: disable-error-code=no-untyped-call

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, cast

import numba
from numba.core.compiler import Compiler
from numba.extending import register_jitable

from pymc_austerity.exceptions import warn

# Why numba's private names cannot be imported; empty where they can.
_MOVED = ""
try:
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target
    from numba.core.targetconfig import TargetConfig

    from pymc_austerity import lowering
except ImportError as error:
    _MOVED = str(error)
    JITCodeLibrary = object  # type: ignore[misc, assignment]
else:
    _BY_NUMBA = TargetConfig.__eq__, TargetConfig.__hash__

# What `_Library` replaces or uses of numba's own: names of a library of functions, and of what makes it.
_OF_LIBRARY = {
    "_codegen", "_ensure_finalized", "_final_module", "_finalize_final_module", "_finalized",
    "_get_compiled_object", "_get_module_for_linking", "_linking_libraries", "_optimize_final_module",
    "_optimize_functions", "_reload_init", "_shared_module", "codegen", "finalize",
    "get_pointer_to_function", "has_dynamic_globals",
}  # fmt: skip
_OF_CODEGEN = {"_data_layout", "_library_class", "set_env"}
# And of what `lowering` replaces, and sets of options.
_OF_CONTEXT, _OF_OPTIONS = {"_defns", "_getattrs", "enable_boundscheck"}, {"_values", "options"}
# Names that numba gives to functions by which Python and C enter.
_ENTRANCES = ("_ZN7cpython", "cfunc.")
# A call whose address numba writes into the machine code: of functions that call one another in a circle.
_CIRCLE = ".numba.unresolved$"


def jitable[F: Callable[..., Any]](function: F) -> F:
    """Let compiled code call a function, which stays a function of Python.

    What `numba.extending.register_jitable` makes can be called from C as well, which nobody does.
    """
    return register_jitable(no_cfunc_wrapper=True)(function)


def entry[F: Callable[..., Any]](function: F, **options: Any) -> F:
    """Compile a function that Python calls when it is first called, and keep it on disk."""
    return cast(F, numba.njit(**{"cache": True, **options}, pipeline_class=OptimisedOnce)(function))


class OptimisedOnce(Compiler):
    """Compiles a function, and those that it calls, and optimises them together."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a function with the libraries that it calls linked as they are."""
        if not _can_link():
            return super().compile_extra(func)
        with _linked_as_they_are():
            return super().compile_extra(func)


@cache
def _can_link() -> bool:
    """Whether numba has all that `_Library` needs; if not, a warning says so, once in each process."""
    missing = _missing()
    if missing:
        warn(
            f"numba {numba.__version__} lacks what this package needs to optimise each function once "
            f"({missing}): numba compiles as it does by itself. Results are the same; the first call of a "
            "step takes two or three times as long. Install a version of numba that this package was "
            "tested with: pip install --upgrade pymc_austerity."
        )
    return not missing


def _missing() -> str:
    """The names of numba that are gone; empty if there are all."""
    if _MOVED:
        return _MOVED
    codegen = cpu_target.target_context.codegen()
    # `dir` looks up no property, for which numba would make machine code.
    gone = _OF_LIBRARY - set(dir(JITCodeLibrary(codegen, "names"))) | _OF_CODEGEN - set(dir(codegen))
    gone |= _OF_CONTEXT - set(dir(cpu_target.target_context)) | _OF_OPTIONS - set(dir(TargetConfig))
    return ", ".join(sorted(gone))


@contextmanager
def _linked_as_they_are() -> Iterator[None]:
    """Libraries that numba makes within are `_Library`."""
    codegen = cpu_target.target_context.codegen()
    before, was_on = codegen._library_class, gc.isenabled()
    codegen._library_class = _Library
    TargetConfig.__eq__, TargetConfig.__hash__ = _are_equal, _hash_of  # type: ignore[method-assign]
    gc.disable()  # numba leaves little garbage in circles, and to look for it takes a seventh of the time
    try:
        with nullcontext() if before is _Library else lowering.short():
            yield
    finally:
        codegen._library_class = before
        if before is not _Library:
            TargetConfig.__eq__, TargetConfig.__hash__ = _BY_NUMBA  # type: ignore[method-assign]
        if was_on:
            gc.enable()


def _are_equal(self: Any, other: Any) -> Any:
    """Are two sets of options equal? numba asks for each call in a program, and reads all of them."""
    if not isinstance(other, TargetConfig):
        return NotImplemented
    own, others = self._values, other._values  # those that are set
    return own == others or all(getattr(self, one) == getattr(other, one) for one in {*own, *others})


def _hash_of(self: Any) -> int:
    """Numba's own number, which all sets of the same options have in common."""
    return _hash_of_names(tuple(self.options))


@cache
def _hash_of_names(names: tuple[str, ...]) -> int:
    return hash(tuple(sorted(names)))


class _Library(JITCodeLibrary):
    """The code of a function. If Python does not enter there, nothing is made of it before it is asked for.

    What links it later links those that it calls, too, each once. Functions find objects of Python, such as a
    message to raise, in an environment, whose address numba writes into the machine code. So it has to wait
    as well.
    """

    _waits = False

    @property
    def codegen(self) -> Any:
        own: Any = self._codegen
        return _Environments(own) if self._waits else own

    def _optimize_functions(self, ll_module: Any) -> None:
        """Leave functions as they are: the module is optimised when all of it is linked."""
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        modules = [each._final_module for each in (self, *self._linking_libraries)]
        circular = any(each.name.startswith(_CIRCLE) for own in modules for each in own.global_variables)
        self._waits = not circular and not any(name.startswith(_ENTRANCES) for name in self._defined())
        if self._waits:
            self._finalized = True
        else:
            self._link_and_emit()

    def _link_and_emit(self) -> None:
        """Link all functions that this one calls, and that these call, and so on; then make machine code."""
        for each in self._below():
            self._final_module.link_in(each, preserve=True)
        self._optimize_final_module()
        self._final_module.verify()
        self._finalize_final_module()
        self._waits, self._shared_module = False, None
        self._set_environments()

    def _below(self) -> list[Any]:
        """Modules to link: the own code of functions that wait, and all that is linked to others."""
        found: dict[Any, None] = {}
        left: list[Any] = [self]
        while left:
            for each in left.pop()._linking_libraries:
                if each not in found:
                    found[each] = None
                    self._reload_init.update(each._reload_init)
                    if isinstance(each, _Library) and each._waits:
                        left.append(each)
        return [JITCodeLibrary._get_module_for_linking(each) for each in found]

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        if self._waits:
            if name not in self._defined():
                return 0
            self._emit()
        return cast(int, super().get_pointer_to_function(name))

    def _get_module_for_linking(self) -> Any:
        own: Any = self._codegen
        if own._library_class is not _Library:
            self._emit()  # numba itself links it, and reads no environment that waits
        return super()._get_module_for_linking()

    @property
    def has_dynamic_globals(self) -> bool:
        """Are there addresses left, when all is optimised? Then it is not kept on disk."""
        self._emit()
        return bool(super().has_dynamic_globals)

    def _get_compiled_object(self) -> Any:
        self._emit()
        return super()._get_compiled_object()

    def _set_environments(self) -> None:
        """Set the environments of all functions whose machine code is here now."""
        codegen: Any = self._codegen
        for each in self._final_module.global_variables:
            if each.name in _WAITING and not each.is_declaration:
                codegen.set_env(each.name, _WAITING.pop(each.name))

    def _defined(self) -> list[str]:
        return [each.name for each in self._final_module.functions if not each.is_declaration]

    def _emit(self) -> None:
        """Link what has waited and make machine code; after an interrupt it waits still."""
        with global_compiler_lock:
            if self._waits:
                self._link_and_emit()


# Environments of functions without machine code, by their names in it.
_WAITING: dict[str, Any] = {}


class _Environments:
    """Code generator that notes an environment where numba asks it to write the address."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        """Keep the environment of a function until its machine code is here."""
        _WAITING[name] = environment
