"""One sampler on one problem, in a process of its own: `python -m tests.benchmarks.everyone.worker SPEC`.

SPEC is JSON. The result goes to an .npz file: draws are compared by the process that started this one.
"""

import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import sys
import warnings
from pathlib import Path

import numpy as np

from tests.benchmarks.everyone.methods import METHODS
from tests.benchmarks.everyone.plans import pilot, plan
from tests.benchmarks.everyone.problems import Problem

PACKAGES = [
    *("pymc_austerity", "pymc", "pytensor", "numba", "numpy", "nutpie"),
    *("numpyro", "blackjax", "jax", "gpboost"),
]
ARRAYS = ("samples", "mean", "sd")


def versions():
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine():
    """What figures depend on, besides the versions."""
    names = [line for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")]
    memory = [line for line in _lines(Path("/proc/meminfo")) if line.startswith("MemTotal")]
    return {
        "processor": names[0].partition(":")[2].strip() if names else platform.processor(),
        "cpus": os.cpu_count(),
        "memory": memory[0].partition(":")[2].strip() if memory else "unknown",
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _lines(path):
    return path.read_text().splitlines() if path.exists() else []


def sources():
    """Changes with the package, as the names of its compiled code do."""
    package = Path(__file__).parents[3] / "pymc_austerity"
    files = [path.read_bytes() for path in sorted(package.rglob("*.py"))]
    return hashlib.sha256(b"".join(files)).hexdigest()[:12]


def work(spec):
    """A record to be written, and arrays. None instead of numbers if the plan says that it takes too long."""
    problem = Problem(spec["problem"], spec["n"], spec["dim"])
    problem.data  # noqa: B018  # data are there before the clock starts
    if spec["method"] == "reference":
        from tests.benchmarks.everyone.reference import reference

        return reference(problem), {}
    method = METHODS[spec["method"]]
    if spec["unit_seconds"] is None:
        chosen = pilot(method, spec["draws"])
    else:
        chosen = plan(method, problem.dim, spec["draws"], spec["budget"], spec["unit_seconds"])
    if chosen is None:
        return {"too_slow": True}, {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = method.run(problem, chosen)
    arrays = {name: result.pop(name) for name in ARRAYS if name in result}
    notes = {str(w.message) for w in caught if w.category.__name__ == "SubsamplingWarning"}
    record = {
        "tune": result.pop("tune", chosen.tune),
        **{key: float(value) for key, value in result.items()},
        "draws": len(arrays["samples"]),
        "cut_short": len(arrays["samples"]) < 0.9 * chosen.draws,
        "checksum": problem.checksum,
        "notes": sorted(notes),
        "machine": machine(),
        "versions": {**versions(), "sources": sources()},
    }
    return record, arrays


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asked = json.loads(sys.argv[1])
    record, arrays = work(asked)
    np.savez(asked["out"], record=json.dumps(record), **arrays)
