"""Writing that fails leaves nothing that could be taken for a store, and can go on where that makes sense."""

import errno
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
import zarr

from pymc_austerity.data import RowStore, row_store
from pymc_austerity.data.sources import DictSource
from tests.data.full_disk import limited_file_size

N, CHUNK = 1000, 128
BYTES = 8 * N + 128


@pytest.fixture
def source():
    rng = np.random.default_rng(1)
    return {"x": rng.normal(size=N), "g": rng.integers(0, 5, N)}


# A disk that is full ----------------------------------------------------------------------------


def full_disk(path, match, number, source, **options):
    with pytest.raises(OSError, match=match) as found:
        RowStore.write(source, path, **options)
    assert found.value.errno == number
    assert [one.name for one in path.parent.iterdir()] == []


def test_too_little_space_is_found_before_anything_is_written(source, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=8192))
    told = f"rows.partial: {2 * BYTES:,} bytes are wanted, 8,192 are left"
    full_disk(tmp_path / "rows", told, errno.ENOSPC, source)
    # Twice as much while rows are sorted.
    told = f"rows.partial: {4 * BYTES:,} bytes are wanted"
    full_disk(tmp_path / "rows", told, errno.ENOSPC, source, sort_by="g")


@pytest.mark.parametrize("options", [{}, {"sort_by": "g"}, {"standardise": ["x"]}])
@pytest.mark.parametrize("space", ["is reserved", "cannot be reserved", "is unknown to Python"])
def test_a_limit_to_the_size_of_files(source, tmp_path, monkeypatch, space, options):
    """Where no space is reserved, the disk is full while rows are written."""

    def cannot(descriptor, start, length):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    if space == "cannot be reserved":
        monkeypatch.setattr(os, "posix_fallocate", cannot)
    elif space == "is unknown to Python":
        monkeypatch.delattr(os, "posix_fallocate")
    with limited_file_size(5000):
        told = rf"x.npy: {BYTES:,} bytes are wanted, [\d,]+ are left on its disk, .* \(ulimit -f\)"
        full_disk(tmp_path / "rows", told, errno.EFBIG, source, **options)
        full_disk(tmp_path / "rows", told, errno.EFBIG, pa.table(source), **options)  # found on the way


@pytest.mark.parametrize("reserve", [True, False])
def test_a_disk_that_is_really_full(source, tmp_path, monkeypatch, reserve):
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(tmp_path)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("may not mount a small disk")
    try:
        if not reserve:
            monkeypatch.setattr(os, "posix_fallocate", lambda *args: None)
        # The disk seems to be empty, and fills up meanwhile.
        monkeypatch.setattr("pymc_austerity.data.writing.require_space", lambda folder, wanted: None)
        full_disk(tmp_path / "rows", r"bytes are wanted, [\d,]+ are left", errno.ENOSPC, source)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# A source that cannot be read -------------------------------------------------------------------


@pytest.fixture
def first_rows(monkeypatch):
    """The first row of each reading of a dict."""
    asked = []
    blocks = DictSource.blocks

    def spied(self, names, first_row, length):
        asked.append(first_row)
        return blocks(self, names, first_row, length)

    monkeypatch.setattr(DictSource, "blocks", spied)
    return asked


def damaged_zarr(source, path, damage):
    group = zarr.open_group(str(path), mode="w")
    for name, values in source.items():
        group.create_array(name, data=values, chunks=(100,))
    file = path / "x" / "c" / "6"
    whole = file.read_bytes()
    damage(file)
    return lambda: file.write_bytes(whole)


DAMAGES = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[:50]),
    "overwritten": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("options", [{}, {"sort_by": "g", "standardise": ["x"], "categories": ["g"]}])
def test_writing_goes_on_after_a_chunk_was_restored(source, tmp_path, first_rows, damage, options):
    path = tmp_path / "table.zarr"
    restore = damaged_zarr(source, path, DAMAGES[damage])
    options = {**options, "chunk_rows": CHUNK}
    told = r"table.zarr/x, array 'x', chunk 6 \(rows 600 to 699\) cannot be read.*resume=True"
    with pytest.raises(OSError, match=told) as found:
        RowStore.write(path, tmp_path / "rows", **options)
    assert ("write_empty_chunks" in str(found.value)) == (damage == "missing")
    assert not (tmp_path / "rows").exists()
    restore()
    store = RowStore.write(path, tmp_path / "rows", resume=True, **options)
    assert first_rows == [0, 4 * CHUNK]
    expected = RowStore.write(source, tmp_path / "expected", **options)
    assert store.fingerprint == expected.fingerprint
    assert not (tmp_path / "rows.partial").exists()
    if options.get("standardise"):
        assert store["x"].sds == expected["x"].sds


def test_a_damaged_page_of_parquet(source, tmp_path):
    path = tmp_path / "table.parquet"
    parquet.write_table(
        pa.table(source), path, row_group_size=200, use_dictionary=False, write_page_checksum=True
    )
    whole = path.read_bytes()
    start = parquet.ParquetFile(path).metadata.row_group(3).column(0).data_page_offset
    path.write_bytes(whole[: start + 200] + bytes(50) + whole[start + 250 :])
    with pytest.raises(OSError, match=r"table.parquet, row group 3 \(rows 600 to 799\) cannot be read"):
        RowStore.write(path, tmp_path / "rows", chunk_rows=CHUNK)
    path.write_bytes(whole)
    store = RowStore.write(path, tmp_path / "rows", chunk_rows=CHUNK, resume=True)
    np.testing.assert_array_equal(store["x"], source["x"])
    path.write_bytes(whole[:-20])
    with pytest.raises(OSError, match="table.parquet.*cannot be read"):
        RowStore.write(path, tmp_path / "other")


def test_a_damaged_file_of_arrow(source, tmp_path):
    path = tmp_path / "table.feather"
    feather.write_feather(pa.table(source), path, compression="zstd", chunksize=200)
    whole = path.read_bytes()
    # Two columns of five batches, each compressed by itself.
    frames = [place for place in range(len(whole)) if whole[place : place + 4] == b"\x28\xb5\x2f\xfd"]
    assert len(frames) == 10
    for frame in (4, 5):
        path.write_bytes(whole[: frames[frame]] + bytes(8) + whole[frames[frame] + 8 :])
        with pytest.raises(OSError, match=r"table.feather \(rows \d+ to 999\) cannot be read: ZSTD") as found:
            RowStore.write(path, tmp_path / "rows")
        # What follows is read ahead.
        assert int(re.search(r"rows (\d+)", str(found.value))[1]) <= 400
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(OSError, match="table.feather.*cannot be read"):
        RowStore.write(path, tmp_path / "rows")


def test_a_file_that_is_cut_after_it_was_opened(source, tmp_path, monkeypatch):
    """It is mapped: to read beyond its end would kill Python."""
    path, plan = tmp_path / "table.feather", row_store.plan_outputs
    feather.write_feather(pa.table(source), path, compression="uncompressed")

    def cut(*options):
        os.truncate(path, 5000)
        return plan(*options)

    monkeypatch.setattr(row_store, "plan_outputs", cut)
    with pytest.raises(OSError, match=r"table.feather has 5,000 bytes, and [\d,]+ are wanted: it was cut"):
        RowStore.write(path, tmp_path / "rows")


def test_a_map_that_was_cut(source, tmp_path):
    np.save(tmp_path / "x.npy", source["x"])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    os.truncate(tmp_path / "x.npy", 4000)
    with pytest.raises(OSError, match=r"x.npy has 4,000 bytes, and 8,128 are wanted"):
        RowStore.write({"x": mapped}, tmp_path / "rows")


def interrupted(source, path, **options):
    """Leave the first four chunks of a store."""

    class Interrupted(DictSource):
        def blocks(self, names, first_row, length):
            for number, block in enumerate(super().blocks(names, first_row, length)):
                if number == 4:
                    raise KeyboardInterrupt
                yield block

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_austerity.data.sources.DictSource", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            RowStore.write(source, path, **options)


def test_it_goes_on_after_ctrl_c_with_labels_that_it_had_found(source, tmp_path, first_rows):
    options = {"chunk_rows": CHUNK, "categories": ["g"]}
    interrupted(source, tmp_path / "rows", **options)
    assert not (tmp_path / "rows").exists()
    store = RowStore.write(source, tmp_path / "rows", resume=True, **options)
    assert first_rows[-1] == 4 * CHUNK
    assert store.fingerprint == RowStore.write(source, tmp_path / "expected", **options).fingerprint


@pytest.mark.parametrize("lost", ["row", "journal", "zeros"])
def test_only_chunks_that_are_whole_are_kept(source, tmp_path, first_rows, lost):
    """After a power cut, files may lack what was written last."""
    interrupted(source, tmp_path / "rows", chunk_rows=CHUNK)
    if lost == "row":
        with (tmp_path / "rows.partial" / "x.npy").open("r+b") as file:
            file.seek(128 + 8 * 2 * CHUNK)
            file.write(bytes(8))
    else:
        journal = tmp_path / "rows.partial" / "journal.jsonl"
        lines = journal.read_text().splitlines(keepends=True)
        rest = lines[3][:20] if lost == "journal" else "\0" * 40 + "\n"
        journal.write_text("".join(lines[:3]) + rest)
    store = RowStore.write(source, tmp_path / "rows", resume=True, chunk_rows=CHUNK)
    assert first_rows[-1] == 2 * CHUNK
    np.testing.assert_array_equal(store["x"], source["x"])
    store.verify()


@pytest.mark.parametrize(
    ("change", "key"), [({"chunk_rows": 64}, "chunk_rows"), ({"dtype": {"g": "int8"}}, "arrays")]
)
def test_it_does_not_go_on_with_something_else(source, tmp_path, change, key):
    interrupted(source, tmp_path / "rows", chunk_rows=CHUNK)
    options = {"chunk_rows": CHUNK, **change}
    with pytest.raises(ValueError, match=f"was begun with another {key}.*Without resume=True"):
        RowStore.write(source, tmp_path / "rows", resume=True, **options)
    other = {name: values[:-1] for name, values in source.items()}
    with pytest.raises(ValueError, match="another source"):
        RowStore.write(other, tmp_path / "rows", resume=True, chunk_rows=CHUNK)
    # What is there was kept, and is dropped only now.
    store = RowStore.write(source, tmp_path / "rows", **options)
    np.testing.assert_array_equal(store["x"], source["x"])
    store.verify()
    assert [one.name for one in tmp_path.iterdir()] == ["rows"]


def test_nothing_is_left_after_an_error_in_the_data(source, tmp_path):
    source["g"][777] = 300
    with pytest.raises(ValueError, match=r"300 in row 777 of column 'g' does not fit into int8"):
        RowStore.write(source, tmp_path / "rows", dtype={"g": "int8"}, chunk_rows=CHUNK)
    assert list(tmp_path.iterdir()) == []


def test_resume_without_anything_to_go_on_with(source, tmp_path):
    store = RowStore.write(source, tmp_path / "rows", resume=True)
    np.testing.assert_array_equal(store["x"], source["x"])
    with pytest.raises(FileExistsError):
        RowStore.write(source, tmp_path / "rows", resume=True)


# Two processes ----------------------------------------------------------------------------------

SLOW = """
import sys, time
import numpy as np
from pymc_austerity.data import RowStore
from pymc_austerity.data.sources import Reader

pieces = Reader.pieces

def slow(self, first_row, length):
    for piece in pieces(self, first_row, length):
        yield piece
        time.sleep(0.05)

Reader.pieces = slow
print("begins", flush=True)
RowStore.write({"x": np.arange(1000.0)}, sys.argv[1], chunk_rows=5)
"""


@pytest.mark.slow("samples in several processes")
def test_two_processes_do_not_write_one_path(source, tmp_path):
    path = tmp_path / "rows"
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, str(path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "begins\n"
        while not (tmp_path / "rows.partial" / "journal.jsonl").exists():
            time.sleep(0.05)
        for resume in (False, True):
            with pytest.raises(BlockingIOError, match="Another process is writing .*rows"):
                RowStore.write(source, path, resume=resume)
        assert other.poll() is None
        other.kill()
    # The lock has died with it.
    with pytest.raises(ValueError, match="another source"):
        RowStore.write(source, path, resume=True)
    RowStore.write({"x": np.arange(1000.0)}, path, chunk_rows=5, resume=True).verify()
    np.testing.assert_array_equal(RowStore.open(path)["x"], np.arange(1000.0))
