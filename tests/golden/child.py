"""Run cases with the package that is first on the path: `python -m tests.golden.child FOLDER JOBS CASE ...`.

Each case has a process of its own, forked from one that has imported everything: what a case leaves behind,
or breaks, is no matter to the next. Into FOLDER go CASE.npz, CASE.json with texts of warnings, and CASE.log.
"""

import json
import multiprocessing
import multiprocessing.connection
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import pymc_austerity
from tests.golden.cases import CASES


def check_origin() -> None:
    """The package has to be the one in the current directory, which is the worktree."""
    found = Path(pymc_austerity.__file__).parents[1]
    if found != Path.cwd():
        raise ImportError(f"pymc_austerity was imported from {found}, not from {Path.cwd()}.")


def run(name: str, folder: Path) -> None:
    """Run a case and write what it gives."""
    with (folder / f"{name}.log").open("w") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        arrays = CASES[name]()
    chains = [array for key, array in arrays.items() if key.startswith("posterior/")]
    if chains and all((array == array[:, :1]).all() for array in chains):
        raise ValueError("The chains never moved: there is nothing to compare.")
    texts = {str(w.message) for w in caught if issubclass(w.category, pymc_austerity.SubsamplingWarning)}
    (folder / f"{name}.json").write_text(json.dumps(sorted(texts)))
    np.savez(folder / f"{name}.npz", **arrays)


def main(folder: Path, jobs: int, names: list[str]) -> None:
    """Run cases, `jobs` at a time, and tell of each: its name, exit code and seconds."""
    check_origin()
    context = multiprocessing.get_context("fork")
    waiting, running = list(reversed(names)), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop()
            process = context.Process(target=run, args=(name, folder))
            process.start()
            running[process.sentinel] = name, process, time.perf_counter()
        for ended in multiprocessing.connection.wait(running):
            name, process, start = running.pop(ended)
            process.join()
            print(f"{name} {process.exitcode} {time.perf_counter() - start:.1f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
