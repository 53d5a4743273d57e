"""Files that were cut, written to or replaced are refused by name, in workers too."""

import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

from pymc_austerity.data import RowStore

N, CHUNK = 1000, 100


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(1)
    source = {"X": rng.normal(size=(N, 2)), "y": rng.integers(0, 2, N).astype(np.int8)}
    return RowStore.write(source, tmp_path / "rows", chunk_rows=CHUNK)


def test_a_file_that_was_cut(store):
    path = store.path / "X.npy"
    os.truncate(path, 5000)
    told = rf"X.npy has 5,000 bytes, and {16 * N + 128:,} are wanted"
    for refused in (
        lambda: RowStore.open(store.path),
        lambda: pickle.loads(pickle.dumps(store)),
        store.verify,
        lambda: next(store.chunks()),
        lambda: store.spot_check(np.random.default_rng(1)),
    ):
        with pytest.raises(ValueError, match=told):
            refused()


def touched(path):
    os.utime(path, ns=(0, 0))


def written_to(path):
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"\0")
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))


def replaced(path):
    before = path.stat()
    shutil.copyfile(path, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [touched, written_to, replaced])
@pytest.mark.covering(1)
def test_a_file_that_has_changed_since_it_was_opened(store, change):
    sent = pickle.dumps(store)
    change(store.path / "y.npy")
    told = r"y.npy has changed since it was opened. Open the store and build the step again"
    for refused in (lambda: pickle.loads(sent), store.verify, lambda: list(store.chunks(["y"]))):
        with pytest.raises(ValueError, match=told):
            refused()
    assert len(list(store.chunks(["X"]))) == 10
    code = "import sys, pickle; pickle.load(sys.stdin.buffer)"
    worker = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True)
    assert b"y.npy has changed since it was opened" in worker.stderr


def change_quietly(path, place):
    """Change a byte so that only checksums tell."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("row", [0, 99, 100, 550, 999])
def test_a_byte_that_has_changed_is_found_by_checksums(store, row):
    change_quietly(store.path / "X.npy", 128 + 16 * row + 9)
    number = row // CHUNK
    rows = rf"\(rows {100 * number} to {100 * number + 99}\)"
    told = rf"X.npy has changed since it was written: chunk {number} {rows}"
    opened = RowStore.open(store.path)
    for _ in range(2):
        with pytest.raises(ValueError, match=told):
            opened.verify()
    chunks = store.chunks()
    for _ in range(number):
        next(chunks)
    with pytest.raises(ValueError, match=told):
        next(chunks)


def test_some_chunks_are_compared_at_random(store):
    store.spot_check(np.random.default_rng(1))
    change_quietly(store.path / "y.npy", 128 + 350)
    with pytest.raises(ValueError, match="y.npy has changed since it was written: chunk 3"):
        store.spot_check(np.random.default_rng(1), n_chunks=10)
    found = []
    for seed in range(200):
        try:
            store.spot_check(np.random.default_rng(seed), n_chunks=3)
            found.append(False)
        except ValueError:
            found.append(True)
    # Three chunks of ten, drawn without replacement: found with probability .3.
    assert abs(np.mean(found) - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 200)


def test_a_store_that_was_moved_is_the_same(store, tmp_path):
    store.path.rename(tmp_path / "elsewhere")
    moved = RowStore.open(tmp_path / "elsewhere")
    moved.verify()
    assert moved.fingerprint == store.fingerprint
    (moved.path / "y.npy").unlink()
    with pytest.raises(FileNotFoundError, match="y.npy is not there"):
        RowStore.open(moved.path)


def test_rows_are_described(store):
    assert repr(store["y"]).startswith("Rows('y', shape=(1000,), dtype=int8, '/")
    assert repr(store) == "RowStore(1,000 rows: X (2,) float64, y () int8)"
