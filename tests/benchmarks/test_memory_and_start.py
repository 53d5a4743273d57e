"""Memory, and the way to the first draw in a fresh process, at a million rows. Figures are printed."""

import subprocess
import sys
import textwrap

COMMON = """
import logging, os, sys, time, warnings
import numpy as np, pymc as pm
import pymc_austerity
from tests.benchmarks import logistic
logging.disable(logging.CRITICAL)

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

model = logistic.model(1_000_000)
"""

MEMORY = """
point = model.initial_point()
model.compile_logp()(point)
before = resident()
with model:
    step = pymc_austerity.AusterityMH(epsilon=0.05)
for _ in range(20):
    point, _ = step.step(point)
allowed = 1_000_000 * (logistic.D + 1 + 4) * 8 / 1e6
print(f"memory: {resident() - before:.0f} MB over the model; data and four N-vectors are {allowed:.0f} MB")
"""

FACTORISE = """
start = time.perf_counter()
pymc_austerity.factorise(model)
print(f"factorise, 1e6 rows: {time.perf_counter() - start:.2f} s")
"""

FIRST_DRAW = """
class Drawn(Exception): pass
def stop(trace, draw):
    raise Drawn
start = time.perf_counter()
with model:
    step = pymc_austerity.AusterityMH(epsilon=0.05)
    try:
        pm.sample(1, tune=0, chains=1, cores=1, step=step, callback=stop, progressbar=False)
    except Drawn:
        print(f"first draw after {time.perf_counter() - start:.2f} s")
"""


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(COMMON + code)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_memory(capsys):
    run(MEMORY)  # fills the cache: compiling takes memory of its own
    with capsys.disabled():
        print("\n" + run(MEMORY))


def test_factorise(capsys):
    with capsys.disabled():
        print("\n" + run(FACTORISE))


def test_first_draw_in_a_second_process(capsys):
    first, second = run(FIRST_DRAW), run(FIRST_DRAW)
    with capsys.disabled():
        print(f"\nfirst process: {first}; second process: {second}")
