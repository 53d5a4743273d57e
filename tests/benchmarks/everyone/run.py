"""Start a worker for each method and problem, and keep what comes back."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.benchmarks.everyone import score
from tests.benchmarks.everyone.methods import METHODS

ROOT = Path(__file__).parents[3]
ONE_THREAD = dict.fromkeys(
    ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS"],
    "1",
)
KEY = ("problem", "n", "dim", "method")
HUNG = 3600  # seconds


class FailedError(Exception):
    """A worker ended without a result."""


def work(python, folder, module="everyone.worker", more=None, **spec):
    """Run a worker, with `more` in its environment, and read its record and arrays."""
    path = Path(folder) / "worker.npz"
    path.unlink(missing_ok=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTENSOR_FLAGS"}
    environment |= ONE_THREAD | (more or {})
    environment |= {
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "JAX_ENABLE_X64": "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    asked = json.dumps({**spec, "out": str(path)})
    command = [python, "-m", f"tests.benchmarks.{module}", asked]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HUNG, check=False
        )
    except subprocess.TimeoutExpired:
        raise FailedError(f"no result after {HUNG} s") from None
    if done.returncode or not path.exists():
        raise FailedError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    with np.load(path) as found:
        arrays = dict(found)
    return json.loads(str(arrays.pop("record"))), arrays


def interpreter_for(method, peer_python):
    """The interpreter that has what the method needs, or None."""
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({method.needs!r}) is None)"
    for python in (sys.executable, peer_python) if method.is_peer else (sys.executable,):
        if python and subprocess.run([python, "-c", look], cwd=ROOT, check=False).returncode == 0:
            return python
    return None


def reference_for(folder, out, problem):
    """Computed once for each problem and output directory."""
    path = out / "references" / "{problem}-{n}-{dim}.json".format(**problem)
    if not path.exists():
        found, _ = work(sys.executable, folder, method="reference", **problem)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found))
    return json.loads(path.read_text())


def measure(python, folder, name, problem, draws, budget, reference):
    """A first run warms the caches and shows what a draw takes, a second one counts. None if too slow."""
    spec = {**problem, "method": name, "draws": draws, "budget": budget}
    first, _ = work(python, folder, **spec, unit_seconds=None)
    if first["checksum"] != reference["checksum"]:
        raise FailedError("its data are not those of the reference: another NumPy, or an old --out")
    before = first["versions"]
    for _ in range(3):
        record, arrays = work(python, folder, **spec, unit_seconds=first["unit_seconds"])
        if "too_slow" in record:
            return None
        if record["versions"] == before:
            break
        before = record["versions"]  # somebody edits the package: once more, with warm caches
    else:
        raise FailedError("the package was changed three times meanwhile")
    method = METHODS[name]
    about = {**problem, "method": name, "label": method.label, "exact": method.exact}
    return {**about, **score.score(record, arrays, reference), "budget": budget}


def load(out):
    path = out / "results.json"
    return json.loads(path.read_text()) if path.exists() else []


def save(out, record):
    """Records of earlier runs stay, but for one of the same method on the same problem."""

    def key(r):
        return tuple(r[k] for k in KEY)

    order = {name: position for position, name in enumerate(METHODS)}
    kept = [r for r in load(out) if key(r) != key(record)]
    records = sorted([*kept, record], key=lambda r: (r["problem"], r["dim"], r["n"], order[r["method"]]))
    (out / "results.json").write_text(json.dumps(records, indent=1))


def run(problems, sizes, dims, names, out, *, draws, budget, peer_python=None):
    """Run all, print the table as it grows, and return the number of failures."""
    out.mkdir(parents=True, exist_ok=True)
    pythons, failures = {}, 0
    for name in names:
        pythons[name] = interpreter_for(METHODS[name], peer_python)
        if pythons[name] is None:
            print(f"{METHODS[name].label} left out: {METHODS[name].needs} is not installed.")
    for problem, dim, n in ((p, d, n) for p in problems for d in dims for n in sizes):
        about = {"problem": problem, "n": n, "dim": dim}
        print(f"\n{problem}, N = {n:,}, D = {dim}\n{score.HEADER}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            reference = reference_for(folder, out, about)
            for name in (name for name in names if pythons[name]):
                try:
                    record = measure(pythons[name], folder, name, about, draws, budget, reference)
                except FailedError as error:
                    failures += 1
                    print(f"  {METHODS[name].label}: FAILED, {error}", flush=True)
                    continue
                if record is None:
                    print(f"  {METHODS[name].label}: left out, it would take more than five budgets")
                    continue
                save(out, record)
                print(score.line(record), *(f"\n    {note}" for note in record["notes"]), flush=True)
    print("\n" + score.EXPLANATION)
    return failures
