"""Data beyond memory: exact draws of a logistic regression whose rows stay on disk.

Rows are made in chunks and written to files, ten covariates in double precision and a response in one
byte. The model has `stored_data` in place of arrays, and is otherwise as always. What to expect from one size
to the next: the files grow, and so does the time of the set-up, which reads them some seven times; the memory
that building the step and drawing take does not, and fewer rows are drawn for a transition. `shift` is the
largest difference of a posterior mean from the coefficient that made the data, in posterior standard
deviations.

`peak MB` is the largest anonymous memory above that of the built model (Linux only): pages of mapped files
are the system's, and taken back when they are needed. `scratch` is what the step writes beside the rows, in
MB, with what others write to the disk at the time.

Run `python examples/beyond_memory.py` (up to 4e5 rows, 33 MB), or with `--full` (up to 2e7 rows, 1.7 GB, a
few minutes; `--folder` says where).
"""

import argparse
import os
import re
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
from numpy.lib.format import open_memmap
from scipy.special import expit

from pymc_austerity import RowStore, TunaMH, stored_data

SEED = 2028
D, CHUNK = 10, 65_536
BETA = np.linspace(-0.5, 0.5, D)
FAST = {"sizes": [100_000, 400_000], "draws": 1000}
FULL = {"sizes": [1_000_000, 5_000_000, 20_000_000], "draws": 5000}


def written(folder, n):
    """A store of n rows, which are made chunk by chunk."""
    rng = np.random.default_rng(SEED)
    X = open_memmap(folder / f"X{n}.npy", "w+", np.float64, (n, D))
    y = open_memmap(folder / f"y{n}.npy", "w+", np.int8, (n,))
    for start in range(0, n, CHUNK):
        x = rng.normal(size=(min(CHUNK, n - start), D))
        X[start : start + CHUNK] = x
        y[start : start + CHUNK] = rng.random(len(x)) < expit(x @ BETA)
    X.flush()
    y.flush()
    maps = {name: np.load(folder / f"{name}{n}.npy", mmap_mode="r") for name in "Xy"}
    return RowStore.open(maps, scratch=folder)


def model_of(store):
    with pm.Model() as model:
        X, y = stored_data("X", store["X"]), stored_data("y", store["y"])
        beta = pm.Normal("beta", 0, 1, shape=D)
        pm.Bernoulli("clicked", logit_p=X @ beta, observed=y)
    return model


class Peak:
    """The largest anonymous memory of the process, and space that is taken on a disk, while it is entered."""

    def __init__(self, folder):
        self.folder, self.over = folder, threading.Event()

    def anonymous(self):
        status = Path("/proc/self/status")
        if not status.exists():
            return np.nan
        return int(re.search(r"RssAnon:\s+(\d+)", status.read_text())[1]) / 1e3

    def left(self):
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def watch(self):
        while not self.over.wait(0.003):
            self.memory = np.fmax(self.memory, self.anonymous() - self.before)
            self.space = max(self.space, self.free - self.left())

    def __enter__(self):
        self.before, self.memory = self.anonymous(), 0.0
        self.free, self.space = self.left(), 0
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.watcher.join()


def sampled(folder, n, draws):
    """A row of the table."""
    store = written(folder, n)
    model = model_of(store)
    started = time.process_time()
    with Peak(folder) as peak, model:
        step = TunaMH()
        set_up = time.process_time() - started
        idata = pm.sample(
            draws, tune=200, chains=1, step=step, random_seed=SEED, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    beta, stats = idata.posterior["beta"].values[0], idata.sample_stats
    return {
        "rows": n,
        "MB on disk": sum(store[name].path.stat().st_size for name in store) / 1e6,
        "scratch": peak.space / 1e6,
        "peak MB": peak.memory,
        "set-up CPU s": set_up,
        "rows drawn": float(stats["n_used"].mean()),
        "acceptance": float(stats["accepted"].mean()),
        "shift": np.abs((beta.mean(axis=0) - BETA) / beta.std(axis=0)).max(),
    }


def main(full=False, folder=None):
    settings = FULL if full else FAST
    with tempfile.TemporaryDirectory(dir=folder) as place:
        sampled(Path(place), 50_000, 10)  # what is compiled takes memory once
        rows = [sampled(Path(place), n, settings["draws"]) for n in settings["sizes"]]
    table = pd.DataFrame(rows).set_index("rows")
    print(table.T.to_string(float_format="{:,.3g}".format))
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="up to twenty million rows")
    parser.add_argument("--folder", help="where the rows are written, for as long as this runs")
    given = parser.parse_args()
    main(given.full, given.folder)
