"""What is compiled into an engine has a part in its name, and nothing else has."""

import json
import subprocess
import sys

import numpy as np
import pytest

from pymc_austerity import target
from pymc_austerity.acceptance import barker
from pymc_austerity.acceptance.ttest import TTest
from pymc_austerity.kernels import stochastic_gradient
from pymc_austerity.kernels.metropolis import no_range, transitions
from pymc_austerity.model.compile import cache_key, numba_backend
from pymc_austerity.target import Target

PACKAGE = "pymc_austerity."
FUNCTIONS = [transitions, *TTest(epsilon=0.05).functions, no_range, Target]


def key(parts=("graph",), functions=FUNCTIONS):
    return cache_key.key_of(parts, functions)


def test_one_thing_has_one_name():
    assert key() == key()
    assert len({key(), key(("other",)), key(functions=FUNCTIONS[:-1])}) == 3


def test_it_has_the_same_name_in_another_process():
    """Where a table is made: by the module that notes when it was imported."""
    imports = "from pymc_austerity.model.compile import cache_key, numba_backend as backend"
    code = f"{imports}; print(cache_key.key_of('x', [backend.TableMaker]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [key("x", [numba_backend.TableMaker])]


def test_modules_are_those_that_are_imported():
    found = cache_key.modules_of(f.__module__ for f in FUNCTIONS)
    wanted = {"kernels.metropolis", "kernels.subsample", "proposals.base", "acceptance.ttest", "target"}
    assert {PACKAGE + name for name in wanted} <= set(found)
    others = {
        "kernels.stochastic_gradient",
        "kernels.tuna",
        "acceptance.barker",
        "step_methods.base",
        "model.compile.target",
    }
    assert {PACKAGE + name for name in others}.isdisjoint(found)


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        ("kernels.subsample", True),
        ("acceptance.ttest", True),
        ("kernels.stochastic_gradient", False),
        ("acceptance.barker", False),
    ],
)
def test_sources_of_what_is_used_matter(name, matters, monkeypatch):
    before, source_of = key(), cache_key.source_of

    def edited(module):
        return source_of(module) + "\n" if module == PACKAGE + name else source_of(module)

    monkeypatch.setattr(cache_key, "source_of", edited)
    assert (key() != before) == matters


def test_constants_of_what_is_used_matter(monkeypatch):
    before = key()
    monkeypatch.setattr(stochastic_gradient, "_ANY", 1, raising=False)
    assert key() == before
    monkeypatch.setattr(target, "CHUNK", 4096)
    assert key() != before


def test_what_is_in_no_source_has_no_name():
    scale = 2.0

    def closure(q):
        return scale * q

    assert key(functions=[*FUNCTIONS, closure]) is None  # of a user
    closure.__module__ = barker.__name__
    assert key(functions=[*FUNCTIONS, closure]) is None
    assert key(functions=[*FUNCTIONS, np.exp]) is None
    assert key(parts=("graph", None)) is None


def test_a_module_without_source_has_no_name(monkeypatch):
    monkeypatch.setattr(cache_key, "source_of", lambda name: None)
    assert key() is None


def test_a_module_that_was_edited_since_it_was_imported_has_no_name(monkeypatch):
    source_of = cache_key.source_of.__wrapped__
    assert "def counted_transitions" in source_of(PACKAGE + "kernels.jumps")
    monkeypatch.setattr(cache_key, "_BEGAN", 0.0)
    assert source_of(PACKAGE + "kernels.jumps") is None


def test_relative_imports_are_followed(monkeypatch):
    source = "from .. import target\nfrom . import tuna\nfrom .subsample import CHUNK\nimport numpy.random\n"
    monkeypatch.setattr(cache_key, "source_of", lambda name: source)
    found = cache_key.imports_of.__wrapped__(PACKAGE + "kernels.jumps")
    assert found == {PACKAGE + name for name in ("target", "kernels.tuna", "kernels.subsample")}


def test_imports_are_found_wherever_they_stand(monkeypatch):
    source = """
try:
    from . import tuna
except ImportError:
    def f():
        from .. import target
class A:
    match 1:
        case 1:
            with open("") as file:
                from . import metropolis
"""
    monkeypatch.setattr(cache_key, "source_of", lambda name: source)
    found = cache_key.imports_of.__wrapped__(PACKAGE + "kernels.jumps")
    assert found == {PACKAGE + name for name in ("target", "kernels.tuna", "kernels.metropolis")}


# In a process of its own: numba compiles a function once in each, and the cache is not to be read.
BUILD = """
import json
import numpy as np
import pymc as pm
from numba.core import event
import pymc_austerity
from pymc_austerity.model.compile import cache_key
from pymc_austerity.model.compile import numba_backend as compile

covered, names, key_of = set(), [], cache_key.key_of

def unnamed(parts, functions):
    functions = list(functions)
    covered.update(cache_key.modules_of(f.__module__ for f in functions))
    names.append(key_of(parts, functions))

compile.key_of = unnamed
rng = np.random.default_rng(1)
x = rng.normal(size=1000)
with pm.Model():
    b = pm.Normal("b")
    pm.Bernoulli("y", logit_p=b * x, observed=rng.random(1000) < 1.0 / (1.0 + np.exp(-x)))
    with event.install_recorder("numba:compile") as recorder:
        pymc_austerity.{step}()
compiled = {{e.data["dispatcher"].py_func.__module__ for _, e in recorder.buffer}}
print(json.dumps([sorted(compiled), sorted(covered), names]))
"""


@pytest.mark.slow("compiles an engine outside the cache")
@pytest.mark.parametrize(("step", "kernel"), [("MinibatchBarker", "metropolis"), ("TunaMH", "tuna")])
def test_all_that_is_compiled_is_in_the_name(step, kernel):
    """Overloads too, which no function names."""
    code = BUILD.format(step=step)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    compiled, covered, names = json.loads(done.stdout.splitlines()[-1])
    ours = {name for name in compiled if name.startswith(PACKAGE)}
    assert {PACKAGE + "kernels." + kernel, PACKAGE + "proposals.base"} <= ours
    assert any(name.startswith(PACKAGE + "proposals.") for name in ours)
    assert ours <= set(covered)
    assert None not in names
    assert PACKAGE + "kernels.stochastic_gradient" not in covered
