"""What is not in every Python, as on Windows, is asked for where it is used, and missed with a sentence."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow("imports PyMC in processes of their own")

ELSEWHERE = """
import importlib, os, pkgutil, signal, sys
sys.modules.update(dict.fromkeys(["fcntl", "grp", "pwd", "resource"]))
for name in ("posix_fallocate", "pwrite"):
    vars(os).pop(name, None)
for name in ("pthread_sigmask", "SIG_BLOCK", "SIG_UNBLOCK", "SIG_SETMASK"):
    vars(signal).pop(name, None)
import numpy as np
import pymc as pm
import pymc_austerity as pma
from pymc_austerity.sampling import run
run._SHORT = 0.0  # chains have processes
"""
IMPORTED = """
for module in pkgutil.walk_packages(pma.__path__, "pymc_austerity."):
    if module.name != "pymc_austerity.applications":  # which only says where it went
        importlib.import_module(module.name)
from pymc_austerity.data.files import ScratchTable
table = ScratchTable(__import__("pathlib").Path(), (2, 3), float)
table.write(1, 1, np.array([3.0, 4.0]))
assert table.values.tolist() == [[0, 0, 0], [0, 3, 4]], table.values
try:
    pma.RowStore.write({"x": np.zeros(3)}, "rows")
except ImportError as error:
    print(error)
"""
SAMPLED = """
def draws(cores):
    with pm.Model():
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1, observed=np.random.default_rng(1).normal(size=2000))
        given = {"chains": 2, "random_seed": 1, "progressbar": False, "compute_convergence_checks": False}
        return pma.sample(
            20, tune=10, cores=cores, step=pma.TunaMH(switch_above=np.inf), mp_ctx="spawn", **given
        ).posterior
"""
GUARDED = """
if __name__ == "__main__":
    assert draws(1).equals(draws(2))
    print("the same draws")
"""


def ran(folder, script):
    path = folder / "script.py"
    path.write_text(ELSEWHERE + script)
    done = subprocess.run([sys.executable, path], cwd=folder, capture_output=True, text=True, check=False)
    path.unlink()
    return done


def test_all_is_imported_and_a_store_which_has_to_be_locked_is_refused(tmp_path):
    done = ran(tmp_path, IMPORTED)
    assert done.returncode == 0, done.stderr
    assert "Python has no locks of files on this system" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_chains_run_here_and_in_processes(tmp_path):
    done = ran(tmp_path, SAMPLED + GUARDED)
    assert done.stdout == "the same draws\n", done.stderr


def test_a_script_that_processes_would_start_again(tmp_path):
    done = ran(tmp_path, SAMPLED + "draws(2)")
    assert done.returncode == 1
    assert 'has to stand below if __name__ == "__main__"' in done.stderr.splitlines()[-1]
