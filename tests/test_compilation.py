"""Functions that are optimised once: the numbers, the errors and the files are numba's own."""

import ast
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.codegen import CodeLibrary, JITCodeLibrary
from numba.core.compiler import Flags

from pymc_austerity import compilation
from pymc_austerity.compilation import entry, jitable
from pymc_austerity.exceptions import SubsamplingWarning

# For processes of their own: the package without what it imports, which would take them seconds.
ALONE = f"""
import sys, types
package = sys.modules["pymc_austerity"] = types.ModuleType("pymc_austerity")
package.__path__ = [{str(Path(compilation.__file__).parent)!r}]
"""


def mean_root():
    """New functions: numba keeps what it has compiled of a function."""

    @jitable
    def root(x, n):
        if x < 0.0:
            raise ValueError("negative", x)  # an object of Python
        result = x
        for _ in range(n):
            result = 0.5 * (result + x / result)
        return result

    @jitable
    def sum_of_roots(x, n):
        total = 0.0
        for k in range(x.shape[0]):
            total += root(x[k], n)
        return total

    def mean_root(x, n):
        return sum_of_roots(x, n) / x.shape[0]

    return mean_root


@pytest.fixture
def emitted(monkeypatch):
    """Names of functions of which machine code was made."""
    names, own = [], JITCodeLibrary._finalize_final_module

    def noted(self):
        names.append(self.name)
        own(self)

    monkeypatch.setattr(JITCodeLibrary, "_finalize_final_module", noted)
    return names


def test_one_machine_code(emitted):
    """numba itself makes that of all three."""
    x = np.linspace(1.0, 2.0, 7)
    ours = entry(mean_root(), cache=False)(x, 6)
    assert len([name for name in emitted if "root" in name]) == 1
    emitted.clear()
    theirs = numba.njit(mean_root())(x, 6)
    assert len([name for name in emitted if "root" in name]) == 3
    assert ours == theirs == pytest.approx(np.sqrt(x).mean(), rel=1e-12)


def test_errors_of_inner_functions():
    for compiled in (entry(mean_root(), cache=False), numba.njit(mean_root())):
        with pytest.raises(ValueError, match="negative") as raised:
            compiled(np.array([1.0, -2.0]), 6)
        assert raised.value.args == ("negative", -2.0)


def test_what_waits_has_its_objects_when_numba_itself_links_it(capfd):
    @partial(entry, cache=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    def say(x):
        print("the number", x)
        return x

    say.compile((numba.types.float64,))
    assert numba.njit(lambda x: say(x) + 1.0)(2.0) == 3.0
    assert capfd.readouterr().out.split() == ["the", "number", "2.0"]


def test_functions_that_call_one_another():
    @numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
    def even(n):
        return True if n == 0 else odd(n - 1)

    @numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
    def odd(n):
        return False if n == 0 else even(n - 1)

    assert entry(lambda n: even(n), cache=False)(6)
    assert not entry(lambda n: even(n), cache=False)(7)


def test_what_prints_needs_objects_of_python(capfd):
    @jitable
    def say(x):
        print("the number", x)
        return x

    assert entry(lambda x: say(x) + 1.0, cache=False)(2.0) == 3.0
    assert capfd.readouterr().out.split() == ["the", "number", "2.0"]


def test_an_inner_function_that_is_asked_for_has_machine_code(emitted):
    """As targets of kernels are: by address, from other machine code."""
    double = numba.types.float64
    inner = entry(lambda x: x + 1.0, cache=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    inner.compile((double,))
    assert not emitted
    library = inner.overloads[(double,)].library
    assert library.get_pointer_to_function("no such function") == 0
    assert not emitted
    assert library.get_pointer_to_function(inner.overloads[(double,)].fndesc.llvm_func_name) != 0
    assert len(emitted) == 1


def test_nothing_else_is_changed():
    """Afterwards numba compiles as ever, also if a function cannot be compiled."""
    codegen = numba.core.registry.cpu_target.target_context.codegen()
    before = codegen._library_class
    with pytest.raises(numba.TypingError):
        entry(lambda x: x.no_such_attribute, cache=False)(1.0)
    assert codegen._library_class is before is JITCodeLibrary


def test_kept_on_disk(tmp_path):
    """A second process loads the machine code, with what inner functions raise."""
    (tmp_path / "functions.py").write_text(
        ALONE
        + textwrap.dedent("""
            from pymc_austerity.compilation import entry, jitable

            @jitable
            def inverse(x):
                if x == 0.0:
                    raise ZeroDivisionError("no inverse")
                return 1.0 / x

            @entry
            def twice(x):
                return 2.0 * inverse(x)

            assert twice(4.0) == 0.5
            try:
                twice(0.0)
            except ZeroDivisionError as error:
                assert error.args == ("no inverse",)
            else:
                raise AssertionError
            print(sum(twice.stats.cache_hits.values()), sum(twice.stats.cache_misses.values()))
        """)
    )
    command = [sys.executable, "functions.py"]
    said = [
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.split()
        for _ in range(2)
    ]
    assert said == [["0", "1"], ["1", "0"]]


def test_numba_has_what_is_replaced():
    assert compilation._missing() == ""
    ours = {"_emit", "_defined", "_set_environments", "_link_and_emit", "_below", "_waits"}
    replaced = {name for name in vars(compilation._Library) if not name.startswith("__")} - ours
    assert replaced - {"_abc_impl"} <= compilation._OF_LIBRARY
    assert all(hasattr(JITCodeLibrary, name) for name in replaced)


def test_all_that_is_used_is_looked_for():
    """A private name that is not looked for would break all where it is gone."""
    tree = ast.parse(Path(compilation.__file__).read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    private = {name for name in used if name.startswith("_") and not name.startswith("__")}
    looked_for = compilation._OF_LIBRARY | compilation._OF_CODEGEN | compilation._OF_OPTIONS
    assert private - looked_for == {
        "_emit", "_defined", "_set_environments", "_link_and_emit", "_below", "_waits",
    }  # fmt: skip


def test_sets_of_options_are_equal_as_numba_has_them():
    flags = [Flags(), Flags(), Flags(), Flags()]
    flags[1].error_model, flags[2].fastmath, flags[3].nrt = "numpy", True, False
    for one in flags:
        assert compilation._hash_of(one) == hash(one)
        for other in [*flags, one.copy()]:
            assert compilation._are_equal(one, other) == (one == other)
    assert compilation._are_equal(flags[0], 1) is NotImplemented


class TestWhereANameIsGone:
    """numba compiles all three functions by itself, and one warning says why."""

    @pytest.fixture(autouse=True)
    def asked_anew(self):
        compilation._can_link.cache_clear()
        yield
        compilation._can_link.cache_clear()

    def warned(self, name):
        with pytest.warns(
            SubsamplingWarning, match=rf"lacks .* \({name}\): numba compiles as it does"
        ) as told:
            found = [entry(mean_root(), cache=False)(np.array([4.0]), 9) for _ in range(2)]
        assert found == [2.0, 2.0]
        assert len(told) == 1

    def test_of_a_method(self, monkeypatch, emitted):
        """numba needs it to keep functions on disk only."""
        monkeypatch.delattr(CodeLibrary, "_get_compiled_object")
        monkeypatch.delattr(compilation._Library, "_get_compiled_object")
        self.warned("_get_compiled_object")
        assert len([name for name in emitted if "root" in name]) == 6

    @pytest.mark.parametrize("names", ["_OF_LIBRARY", "_OF_CODEGEN", "_OF_CONTEXT", "_OF_OPTIONS"])
    def test_of_an_attribute(self, names, monkeypatch):
        monkeypatch.setattr(compilation, names, getattr(compilation, names) | {"_renamed"})
        self.warned("_renamed")

    def test_of_a_module(self):
        """numba has imported it by then, and goes on."""
        script = """
            import importlib
            import warnings
            import numba.core.codegen
            from pymc_austerity import compilation
            del numba.core.codegen.JITCodeLibrary
            importlib.reload(compilation)
            from pymc_austerity.compilation import entry, jitable
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                inner = jitable(lambda x: x + 1.0)
                print(entry(lambda x: 2.0 * inner(x), cache=False)(1.0), len(told), told[0].message)
        """
        command = [sys.executable, "-c", ALONE + textwrap.dedent(script)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert said.startswith("4.0 1 numba ")
        assert "JITCodeLibrary" in said
