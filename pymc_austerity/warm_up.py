"""Compile what most models need, before there is one: ``python -m pymc_austerity.warm_up``.

Code that this package compiles is kept on disk, and is the same for all models of a kind. Run this once after
an installation, in the build of an image, or before tests in parallel, so that no user waits for it. Each
kind is compiled in a process of its own, as many at once as there are cores. They share one cache: numba
writes a file under another name and renames it, so that a half-written one is never read.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_austerity import TunaMH, recommend

N_GROUPS, N_ROWS = 40, 1000


def _data() -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(N_ROWS, 2)), rng.integers(0, N_GROUPS, N_ROWS), rng.integers(0, 2, N_ROWS)


def _regression() -> None:
    """Model of coefficients."""
    X, _, y = _data()
    pm.Bernoulli("y", logit_p=X @ pm.Normal("beta", 0, 1, shape=2), observed=y)


def _hierarchy() -> None:
    """Model of effects of groups."""
    X, group, y = _data()
    effects = pm.Normal("effects", 0, pm.HalfNormal("tau", 1), shape=N_GROUPS)
    predictor = pm.Normal("intercept", 0, 1) + X @ pm.Normal("beta", 0, 1, shape=2) + effects[group]
    pm.Bernoulli("y", logit_p=predictor, observed=y)


_TUNA = partial(TunaMH, switch_above=np.inf, progressbar=False)
# A model and a step of each kind; `recommend` takes a step that reads all of few rows.
KINDS: dict[str, tuple[Callable[[], None], Callable[[], object]]] = {
    "hierarchy": (_hierarchy, _TUNA),
    "regression": (_regression, _TUNA),
    "few rows": (_regression, partial(recommend, progressbar=False)),
}


def warm_up(kinds: Sequence[str] = tuple(KINDS)) -> None:
    """Compile some kinds of steps, each in a process of its own; those that are compiled take seconds.

    Parameters
    ----------
    kinds : sequence of str, default ("hierarchy", "regression", "few rows")

    Raises
    ------
    ValueError
        For a kind that there is not.
    subprocess.CalledProcessError
        If a process fails; what it says is printed.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"kinds are {', '.join(map(repr, KINDS))}, got {unknown[0]!r}.")
    source = "import sys, pymc_austerity.warm_up as own; own.compiled(sys.argv[1])"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for each in [pool.submit(subprocess.run, [sys.executable, "-c", source, kind]) for kind in kinds]:
            each.result().check_returncode()


def compiled(kind: str) -> None:
    """Compile one kind in this process."""
    make_model, make_step = KINDS[kind]
    with pm.Model():
        make_model()
        step = make_step()
        pm.sample(1, tune=0, chains=1, step=step, progressbar=False, compute_convergence_checks=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m pymc_austerity.warm_up", description=__doc__)
    known = ", ".join(map(repr, KINDS))
    parser.add_argument("kinds", nargs="*", default=list(KINDS), help=f"of {known}; by default all")
    warm_up(parser.parse_args().kinds)
