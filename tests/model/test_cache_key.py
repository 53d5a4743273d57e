"""What is compiled into an engine has a part in its name, and nothing else has."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pymc_austerity
from pymc_austerity import target
from pymc_austerity.acceptance import barker
from pymc_austerity.acceptance.ttest import TTest
from pymc_austerity.kernels.metropolis import no_range, transitions
from pymc_austerity.model.compile import cache_key, numba_backend
from pymc_austerity.step_methods import messages
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


def test_sources_matter(tmp_path):
    """Of all files, in a process that began after they were written."""
    assert cache_key.sources_of(tmp_path) is None
    (tmp_path / "inner").mkdir()
    files = [tmp_path / "one.py", tmp_path / "inner" / "two.py"]
    for file in files:
        file.write_text("A = 1")
        os.utime(file, (0, 0))
    before = cache_key.sources_of.__wrapped__(tmp_path)
    files[1].write_text("A = 2")
    assert cache_key.sources_of.__wrapped__(tmp_path) is None  # edited since
    os.utime(files[1], (0, 0))
    after = cache_key.sources_of.__wrapped__(tmp_path)
    assert None not in (before, after)
    assert before != after


def test_the_sources_are_those_of_the_package(monkeypatch):
    before, folders = key(), []
    monkeypatch.setattr(cache_key, "sources_of", lambda folder: folders.append(folder) or "other")
    assert key() not in (None, before)
    assert folders == [Path(pymc_austerity.__file__).parent]


def test_constants_of_what_is_compiled_matter(monkeypatch):
    before = key()
    monkeypatch.setattr(messages, "_ANY", 1, raising=False)
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


def test_without_sources_there_is_no_name(monkeypatch):
    monkeypatch.setattr(cache_key, "sources_of", lambda folder: None)
    assert key() is None


# In a process of its own: numba compiles a function once in each, and the cache is not to be read.
BUILD = """
import json
import numpy as np
import pymc as pm
from numba.core import event
import pymc_austerity
from pymc_austerity.model.compile import cache_key
from pymc_austerity.model.compile import numba_backend as compile

names, key_of = [], cache_key.key_of

def unnamed(parts, functions):
    names.append(key_of(parts, list(functions)))

compile.key_of = unnamed
rng = np.random.default_rng(1)
x = rng.normal(size=1000)
with pm.Model():
    b = pm.Normal("b")
    pm.Bernoulli("y", logit_p=b * x, observed=rng.random(1000) < 1.0 / (1.0 + np.exp(-x)))
    with event.install_recorder("numba:compile") as recorder:
        pymc_austerity.{step}()
compiled = {{e.data["dispatcher"].py_func.__module__ for _, e in recorder.buffer}}
print(json.dumps([sorted(compiled), names]))
"""


@pytest.mark.slow("compiles an engine outside the cache")
@pytest.mark.parametrize(("step", "kernel"), [("MinibatchBarker", "metropolis"), ("TunaMH", "tuna")])
def test_constants_of_all_that_is_compiled_are_in_the_name(step, kernel):
    """Of overloads too, which no function names."""
    code = BUILD.format(step=step)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    compiled, names = json.loads(done.stdout.splitlines()[-1])
    ours = {name.removeprefix(PACKAGE) for name in compiled if name.startswith(PACKAGE)}
    assert {f"kernels.{kernel}", "proposals.base"} <= ours
    rooms = {name.split(".")[0] for name in ours} - {
        "mode",
        "model",
        "step_methods",
    }  # these have no constants
    assert rooms <= set(cache_key._COMPILED)
    assert None not in names
