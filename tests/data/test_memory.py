"""A store is written in little memory, whatever the format, and read in almost none."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
import zarr

N, D = 250_000, 10
MOST = 150.0  # MB above the interpreter and libraries

CODE = """
import re, sys, threading
import numpy as np
import pyarrow.parquet, zarr, pandas
from pymc_austerity.data import RowStore

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1e3

before, peak, over = anonymous(), 0.0, threading.Event()

def watch():
    global peak
    while not over.wait(0.002):
        peak = max(peak, anonymous())

watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
source, target, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])
if source.endswith(".npy"):
    names = [*options["columns"]["X"], "y", "g"]
    source = {name: np.load(source.replace("*", name), mmap_mode="r") for name in names}
store = RowStore.write(source, target, **options)
over.set()
watcher.join()
written = anonymous()
for chunk in store.chunks():
    pass
print(peak - before, anonymous() - written, store.fingerprint)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    rng = np.random.default_rng(1)
    table = {f"x{i}": rng.normal(size=N) for i in range(D)}
    table |= {"y": rng.integers(0, 2, N).astype(np.int8), "g": rng.integers(0, 1000, N)}
    group = zarr.open_group(str(folder / "t.zarr"), mode="w")
    for name, values in table.items():
        np.save(folder / f"{name}.npy", values)
        group.create_array(name, data=values, chunks=(300_000,))
    arrow = pa.table(table)
    # One row group and one batch of all rows, which is the worst.
    parquet.write_table(arrow, folder / "t.parquet")
    feather.write_feather(arrow, folder / "t.feather")
    (folder / "t").mkdir()
    for number in range(3):
        names = arrow.column_names if number % 2 else arrow.column_names[::-1]
        part = arrow.select(names).slice(number * 333_334, 333_334)
        parquet.write_table(part, folder / "t" / f"{number}.parquet")
    with pa.ipc.new_file(str(folder / "t.arrow"), arrow.schema) as file:
        file.write_table(arrow)
    return folder


def measured(source, target, **options):
    options = {"columns": {"X": [f"x{i}" for i in range(D)], "y": "y", "g": "g"}, **options}
    command = [sys.executable, "-c", CODE, str(source), str(target), repr(options)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    peak, kept, fingerprint = run.stdout.split()
    print(source, options, peak, kept)
    return float(peak), float(kept), fingerprint


@pytest.mark.slow("writes 250,000 rows in eight ways")
def test_rows_are_written_in_little_memory(sources, tmp_path):
    found = {}
    for name in ("*.npy", "t.zarr", "t.parquet", "t", "t.arrow", "t.feather"):
        found[name] = measured(sources / name, tmp_path / f"{name[-6:]}.rows")
    assert len({fingerprint for _, _, fingerprint in found.values()}) == 1
    for options in ({"sort_by": "g"}, {"sort_by": "g", "standardise": ["X"], "dtype": {"X": "float32"}}):
        found[str(options)] = measured(sources / "t.parquet", tmp_path / f"{len(found)}.rows", **options)
    assert {name: peak for name, (peak, _, _) in found.items() if peak > MOST} == {}
    assert {name: kept for name, (_, kept, _) in found.items() if kept > 5} == {}
