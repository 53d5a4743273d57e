"""The figures of the README and of docs/explanation/benchmarks.md: one command, one machine, one run.

    python -m tests.benchmarks.front                 # measures all parts, two hours or three
    python -m tests.benchmarks.front --parts groups  # one part again; the other parts stay
    python -m tests.benchmarks.front --parts         # only writes figure and tables again

Measures `tests.benchmarks.everyone` on the problems of the tables, `tests.benchmarks.hierarchies`,
`tests.benchmarks.cold`, and the script of the README with an empty cache and with a full one. Writes
docs/_static/benchmarks.json and a figure, and the tables between the marks of README and page
(`tests.benchmarks.front_pages`). CPU seconds, one thread.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import front_pages
from tests.benchmarks.everyone import run
from tests.benchmarks.everyone.worker import machine, sources, versions

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs" / "_static" / "benchmarks.json"
METHODS = ["tuna", "austerity", "exact-laplace", "laplace", "nutpie"]
PARTS = ("sizes", "groups", "hierarchies", "problems", "readme", "cold")
SIZES = [10_000, 100_000, 1_000_000]
OTHERS = ["poisson", "correlated", "few-positives", "rare-feature", "heavy-tails"]
KEPT = (
    *("problem", "n", "dim", "method", "label", "exact", "terms_per_step", "ess_per_second", "set_up"),
    *("tuning", "sampling", "draws", "min_ess", "to_1000", "extrapolated", "bias", "bias_error"),
    *("sd_ratio", "sd_ratio_error", "budget"),
)
GROUPS = {"rows": 100_000, "groups": 1000, "likelihood": "logistic", "budget": 150}
SMALL = {"rows": 100_000, "groups": 500, "second": 50, "budget": 480}
LARGE = {"rows": 1_000_000, "groups": 5000, "second": 1000, "budget": 150, "tune": 100}
HIERARCHIES = [
    {"effects": "slopes", "rows": 100_000, "groups": 1000, "budget": 350},
    {"effects": "nested", "rows": 100_000, "groups": 4000, "second": 200, "budget": 1100},
    {"effects": "crossed", "likelihood": "normal", **SMALL},
    {"effects": "crossed", **LARGE},
]
# Runs the script of the README; the step is there when `recommend` has returned it.
TIMED = """
import time
import matplotlib, numpy, pymc, pymc_austerity
from pymc_austerity.sampling import sampler
began = time.process_time()
ready, steps = [], []
recommend = sampler.recommend
def timed(*args, **options):
    step = recommend(*args, **options)
    steps.append(step)
    ready.append(time.process_time() - began)
    return step
sampler.recommend = timed
scope = {"__name__": "__main__"}
exec(open("script.py").read(), scope)
import arviz, json
ess = min(float(v.min()) for v in arviz.ess(scope["idata"].posterior.to_dataset()).values())
rows = float(scope["idata"].sample_stats["n_used"].mean())
found = {"ready": ready[0], "all": time.process_time() - began, "ess": ess, "rows": rows}
found["printed"] = str(steps[0].recommendation)
print()
print(json.dumps(found))
"""


def measured(problems, sizes, dim, budget):
    """Records of `everyone`, and of each problem what its own documentation does not need."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        run.run(problems, sizes, [dim], METHODS, out, draws=20_000, budget=budget)
        return [{key: record[key] for key in KEPT} for record in run.load(out)]


def of_sizes():
    small = measured(["standard"], SIZES[:2], 10, 60.0)
    return small + measured(["standard"], SIZES[2:], 10, 120.0)


def of_problems():
    return measured(OTHERS, [100_000], 10, 15.0) + measured(["standard"], [100_000], 50, 30.0)


def environment(folder=None):
    """One thread, and caches of its own if there is a folder."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTENSOR_FLAGS"} | run.ONE_THREAD
    if folder:
        kept["NUMBA_CACHE_DIR"] = str(Path(folder) / "numba")
        kept["PYTENSOR_FLAGS"] = f"base_compiledir={folder}/pytensor"
        kept["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
    return kept | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}


def printed(benchmark, *given):
    command = [sys.executable, "-m", f"tests.benchmarks.{benchmark}", *given]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    return done.stdout


def of_groups(setting):
    given = [text for key, value in setting.items() for text in (f"--{key}", str(value))]
    found = printed("hierarchies", *given)
    return json.loads(found[found.index("{") :])


def of_one_factor():
    return of_groups(GROUPS)


def of_hierarchies():
    return [of_groups(setting) for setting in HIERARCHIES]


def of_kinds():
    return json.loads(printed("cold"))


def script():
    """The first block of Python of the README."""
    return re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)


def of_readme():
    """CPU seconds after imports: until the step is there, and all; first with empty caches."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "script.py").write_text(script())
        (Path(folder) / "timed.py").write_text(TIMED)
        for state in ("cold", "warm"):
            done = subprocess.run(
                [sys.executable, "timed.py"], cwd=folder, env=environment(folder), capture_output=True,
                text=True, check=True,
            )  # fmt: skip
            found[state] = json.loads(done.stdout.splitlines()[-1])
            found["printed"] = found[state].pop("printed")
    return found


MEASURE = {
    "sizes": of_sizes,
    "groups": of_one_factor,
    "hierarchies": of_hierarchies,
    "problems": of_problems,
    "readme": of_readme,
    "cold": of_kinds,
}


def main(given=None):
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.front", description=__doc__)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    options = parser.parse_args(given)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for part in options.parts:
        about = {"machine": machine(), "versions": versions(), "sources": sources()}
        record[part] = {**about, "found": MEASURE[part]()}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        print(f"{part}: written to {RECORD}", flush=True)
    front_pages.write(record)


if __name__ == "__main__":
    main()
