"""`TunaMH` on a logistic regression whose rows are on disk: memory, space and time. Figures are printed."""

import json
import subprocess
import sys

import numpy as np
import pymc as pm

import pymc_austerity as pma
from pymc_austerity.model.factorisation import point_of
from pymc_austerity.model.structure.local_terms import LocalTerms

CODE = """
import json, logging, mmap, os, re, resource, sys, threading, time
import numpy as np, pymc as pm
import pymc_austerity as pma
logging.disable(logging.CRITICAL)
folder, n, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def status(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])

def left():
    return os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize

def maps(n):
    if not os.path.exists(f"{folder}/y{n}.npy"):
        rng = np.random.default_rng(n)
        x = np.lib.format.open_memmap(f"{folder}/x{n}.npy", "w+", np.float64, (n, 10))
        y = np.lib.format.open_memmap(f"{folder}/y{n}.npy", "w+", np.int8, (n,))
        for a in range(0, n, 50_000):
            some = rng.normal(size=(min(50_000, n - a), 10))
            x[a : a + 50_000] = some
            y[a : a + 50_000] = rng.random(len(some)) < 1 / (1 + np.exp(-some @ np.linspace(-0.5, 0.5, 10)))
    return {k: np.load(f"{folder}/{k}{n}.npy", mmap_mode="r") for k in "xy"}

def built(n):
    global store
    store = pma.RowStore.open(maps(n), scratch=folder)
    with pm.Model() as model:
        x, y = pma.stored_data("x", store["x"]), pma.stored_data("y", store["y"])
        pm.Bernoulli("o", logit_p=x @ pm.Normal("beta", 0, 1, shape=10), observed=y)
    return model

def drawn(model):
    with model:
        started = time.thread_time()  # without that of the watcher
        step = pma.TunaMH()
        set_up = time.thread_time() - started
        options = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
        idata = pm.sample(1000, tune=0, chains=1, cores=1, step=step, **options)
    return step, set_up, idata

drawn(built(200_000))  # everything is compiled
model = built(n)
if limit:
    own = status("VmData") + limit
    resource.setrlimit(resource.RLIMIT_DATA, (own, own))
before, space, most, least, over = status("RssAnon"), left(), 0, left(), threading.Event()

def watch():
    global most, least
    while not over.wait(0.003):
        most, least = max(most, status("RssAnon") - before), min(least, left())

watcher = threading.Thread(target=watch)
watcher.start()
step, set_up, idata = drawn(model)
over.set()
watcher.join()
started = time.process_time()
point = {"beta": step.engine.rows.state.center}
for _ in range(3000):
    point, _ = step.step(point)
each = (time.process_time() - started) / 3000

def forget_pages():
    # Rows that were read are read from disk again.
    for k in "xy":
        values = store[k][:]
        while not isinstance(values, mmap.mmap):
            values = values.base
        values.madvise(mmap.MADV_DONTNEED)
        with open(store[k].path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

forget_pages()
began, started = time.perf_counter(), time.process_time()
for _ in range(3000):
    point, _ = step.step(point)
cold, waited = (time.process_time() - started) / 3000, (time.perf_counter() - began) / 3000
print(json.dumps({
    "cold CPU us": 1e6 * cold, "cold wall us": 1e6 * waited,
    "rows": n, "peak MB": most / 1e6, "disk bytes a row": (space - least) / n, "set-up CPU s": set_up,
    "step CPU us": 1e6 * each, "rows a draw": float(idata.sample_stats["n_used"].mean()),
}))
"""


def figures(folder, n, limit=0):
    run = [sys.executable, "-W", "ignore", "-c", CODE, str(folder), str(n), str(limit)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return json.loads(done.stdout.splitlines()[-1])


def test_a_transition_from_cold_pages_is_short(tmp_path):
    found = figures(tmp_path, 8_000_000)
    assert found["cold CPU us"] < 500


def test_no_remainder_at_the_border_is_above_its_bound(tmp_path):
    """Between the center and the border of each tier, and from border to border: all of a million rows."""
    n, d, rng = 1_000_000, 10, np.random.default_rng(8)
    x = rng.standard_t(4, size=(n, d)).astype(np.float32)
    y = (rng.random(n) < 1 / (1 + np.exp(-x @ np.linspace(-0.5, 0.5, d)))).astype(np.int8)
    store = pma.RowStore.write({"x": x, "y": y}, tmp_path / "rows.rows")
    with pm.Model():
        stored = pma.stored_data("x", store["x"]), pma.stored_data("y", store["y"])
        pm.Bernoulli("o", logit_p=stored[0] @ pm.Normal("beta", 0, 1, shape=d), observed=stored[1])
        step = pma.TunaMH()
    drawn, fact = step.engine.rows, step.factorisation
    terms, state, worst = LocalTerms(step.engine.target.factorisation), drawn.state, []
    for tier, radius in enumerate(state.radii):
        for _ in range(6):
            ends = rng.normal(size=(2, d))
            ends *= 0.9999 * radius / np.linalg.norm(ends, axis=1, keepdims=True)
            new, old = state.center + np.linalg.solve(state.whitening, ends.T).T
            for one, other in ((new, old), (new, state.center)):
                move = drawn.move(state, one, other)
                assert move.tier == tier
                for rows in np.array_split(np.arange(n), 20):
                    at = [terms(point_of(fact, q, {"beta": np.zeros(d)}), rows) for q in (one, other)]
                    over = np.abs(at[0] - at[1]) - state.rounding
                    worst.append((over / drawn.bounds(state, move, rows)).max())
    print("largest share of a bound:", max(worst))
    assert 0.5 < max(worst) <= 1.0


def test_memory_does_not_grow_with_the_data(tmp_path):
    few, many = (figures(tmp_path, n) for n in (1_000_000, 8_000_000))
    assert many["peak MB"] - few["peak MB"] < 2 * 7
    assert many["disk bytes a row"] < 13  # others may write to the disk, too


def test_twenty_million_rows_in_little_memory(tmp_path):
    """With 400 MB of private memory above the built model."""
    figures(tmp_path, 20_000_000, 400_000_000)


def test_ten_million_rows_are_set_up_in_seconds(tmp_path):
    assert figures(tmp_path, 10_000_000)["set-up CPU s"] < 12
