"""A store is written in little memory, whatever the format, and read in almost none."""

import json
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

# Each store is written in a process of its own. These are forks of one that has imported all.
CODE = """
import json, os, re, sys, threading
import numpy as np
import pyarrow.parquet, zarr, pandas
from pymc_austerity.data import RowStore

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1e3

def measured(source, target, options):
    before, peak, over = anonymous(), [0.0], threading.Event()

    def watch():
        while not over.wait(0.002):
            peak.append(max(peak.pop(), anonymous()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    if source.endswith(".npy"):
        names = [*options["columns"]["X"], "y", "g"]
        source = {name: np.load(source.replace("*", name), mmap_mode="r") for name in names}
    store = RowStore.write(source, target, **options)
    over.set()
    watcher.join()
    written = anonymous()
    for chunk in store.chunks():
        pass
    return peak[0] - before, anonymous() - written, store.fingerprint

for given in json.loads(sys.argv[1]):
    if os.fork() == 0:
        print(json.dumps(measured(*given)), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
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


def measured(sources, folder, *given):
    """For each source, with options: MB at the peak, MB that stay after reading, and the fingerprint."""
    columns = {"columns": {"X": [f"x{i}" for i in range(D)], "y": "y", "g": "g"}}
    each = [
        (str(sources / name), str(folder / f"{number}.rows"), {**columns, **options})
        for number, (name, options) in enumerate(given)
    ]
    command = [sys.executable, "-c", CODE, json.dumps(each)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    print(run.stdout)
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.slow("writes 250,000 rows in eight ways")
def test_rows_are_written_in_little_memory(sources, tmp_path):
    names = ("*.npy", "t.zarr", "t.parquet", "t", "t.arrow", "t.feather")
    sort = {"sort_by": "g"}
    more = [sort, {**sort, "standardise": ["X"], "dtype": {"X": "float32"}}]
    given = [*((name, {}) for name in names), *(("t.parquet", options) for options in more)]
    found = list(zip(given, measured(sources, tmp_path, *given), strict=True))
    assert len(found) == 8
    assert len({fingerprint for _, (_, _, fingerprint) in found[: len(names)]}) == 1
    assert [(one, peak) for one, (peak, _, _) in found if peak > MOST] == []
    assert [(one, kept) for one, (_, kept, _) in found if kept > 5] == []
