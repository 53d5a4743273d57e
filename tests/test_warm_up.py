"""What is compiled before there is a model is what a model needs."""

import subprocess
import sys

import pytest

from pymc_austerity import warm_up


def files(folder):
    return {file for file in folder.rglob("*") if file.suffix in (".nbi", ".nbc")}


@pytest.mark.slow("compiles in processes of its own")
def test_nothing_is_left_to_compile(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    monkeypatch.setenv("PYTENSOR_FLAGS", f"base_compiledir={tmp_path / 'pytensor'}")
    warm_up.warm_up(["regression"])
    found = files(tmp_path)
    assert len(found) > 20
    command = [sys.executable, "-m", "pymc_austerity.warm_up", "regression"]
    subprocess.run(command, check=True)
    assert files(tmp_path) == found


def test_unknown_kinds_are_named():
    with pytest.raises(ValueError, match="'few rows', got 'forest'"):
        warm_up.warm_up(["regression", "forest"])


def test_a_process_that_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(subprocess.CalledProcessError):
        warm_up.warm_up(["regression"])


@pytest.mark.parametrize("kind", warm_up.KINDS)
def test_each_kind_draws(kind):
    warm_up.compiled(kind)
