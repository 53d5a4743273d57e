"""Rows that are appended are those of one `write` of all, and whatever fails leaves the old rows."""

import errno
import json
import pickle
import shutil
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as parquet
import pytest
import zarr

from pymc_austerity.data import Rows, RowStore, files, writing
from tests.data.full_disk import limited_file_size

N, CHUNK = 1000, 64
# Ten parts: they begin within chunks and where one begins, and are shorter than a chunk or longer.
CUTS = [0, 100, 101, 128, 192, 200, 456, 700, 701, 960, N]
OPTIONS = {
    "columns": {"X": ["x1", "x2"], "y": "clicked", "g": "airline", "year": "year", "Z": "Z"},
    "dtype": {"y": "int8", "X": "float32", "g": "uint8"},
    "categories": ["g", "year"],
    "chunk_rows": CHUNK,
}


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    airlines = np.where(np.arange(N) < 650, rng.choice(["DL", "AA"], N), rng.choice(["UA", "AA", "B6"], N))
    return {
        "x1": rng.normal(size=N),
        "x2": rng.normal(2, 3, size=N),
        "clicked": rng.integers(0, 2, N),
        "airline": airlines,
        "year": 2000 + np.arange(N) // 150,
        "Z": rng.normal(size=(N, 2, 3)),
        "group": rng.integers(0, 37, N),
    }


def part(table, start, stop):
    return {name: values[start:stop] for name, values in table.items()}


def content(path):
    """The bytes of all files in the folder of a store."""
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def appended(table, path, cuts=CUTS, **options):
    store = RowStore.write(part(table, 0, cuts[1]), path, **options)
    for start, stop in pairwise(cuts[1:]):
        store = store.append(part(table, start, stop))
    return store


def require_equal(store, expected):
    """Equal to the byte, and as it is opened."""
    assert content(store.path) == content(expected.path)
    assert store.fingerprint == expected.fingerprint
    assert store.n_rows == expected.n_rows
    store.verify()
    for name, rows in expected.items():
        np.testing.assert_array_equal(np.load(store.path / f"{name}.npy"), rows)
    assert not list(store.path.parent.glob("*.partial"))


# Equal to one write -------------------------------------------------------------------------------


@pytest.mark.parametrize("sort_by", [None, "group", "x1", "g"])
@pytest.mark.parametrize("chunk_rows", [7, CHUNK, 5000])
def test_ten_appends_are_one_write(table, tmp_path, chunk_rows, sort_by):
    """It finds checksums that do not go on within a chunk, rows in a wrong place, labels with other codes."""
    columns = {**OPTIONS["columns"], "x1": "x1", "group": "group"}
    options = {**OPTIONS, "columns": columns, "chunk_rows": chunk_rows, "sort_by": sort_by}
    expected = RowStore.write(table, tmp_path / "expected", **options)
    require_equal(appended(table, tmp_path / "rows", **options), expected)


def test_any_source_is_appended(table, tmp_path):
    """A stream, and a filtered dataset, do not tell their numbers of rows."""
    del table["Z"]
    options = {**OPTIONS, "columns": {name: OPTIONS["columns"][name] for name in ("X", "y", "g", "year")}}
    options["columns"]["group"] = "group"
    group = zarr.open_group(str(tmp_path / "numbers.zarr"), mode="w")
    for name, values in table.items():
        if name != "airline":
            group.create_array(name, data=values[800:], chunks=(33,))
    for sort_by in (None, "group"):
        parts = [part(table, start, start + 200) for start in range(0, N, 200)]
        parquet.write_table(pa.table(parts[1]), tmp_path / "one.parquet", row_group_size=30)
        for i, names in enumerate((list(table), list(table)[::-1])):
            parquet.write_table(
                pa.table(part(parts[2], 90 * i, 90 + 110 * i)).select(names), tmp_path / f"{i}.parquet"
            )
        kept = dataset.dataset(pa.table(parts[3])).filter(dataset.field("x1") < 100)
        numbers = zarr.open_group(str(tmp_path / "numbers.zarr"), mode="r")
        last = {**dict(numbers.arrays()), "airline": parts[4]["airline"]}
        sources = [
            tmp_path / "one.parquet",
            [tmp_path / "0.parquet", tmp_path / "1.parquet"],
            kept,
            last,
        ]
        store = RowStore.write(parts[0], tmp_path / "rows", **options, sort_by=sort_by, overwrite=True)
        for source in sources:
            store = store.append(source)
        expected = RowStore.write(table, tmp_path / "expected", **options, sort_by=sort_by, overwrite=True)
        require_equal(store, expected)
        stream = pa.table(parts[1]).to_reader()
        store = store.append(stream)
        assert store.n_rows == N + 200
        with pytest.raises(ValueError, match="no rows. A stream that was read before has none left"):
            store.append(stream)
        store.append(parts[2])


@pytest.mark.parametrize("sort_by", [None, "y"])
def test_scales_of_the_first_rows_hold(table, tmp_path, sort_by):
    """It finds scales that are computed anew, and scaled rows that are scaled again."""
    columns = {"X": ["x1", "x2"], "x2": "x2", "y": "clicked"}
    options = {
        "columns": columns,
        "standardise": ["X", "x2"],
        "chunk_rows": CHUNK,
        "dtype": {"x2": "float32"},
    }
    store = appended(table, tmp_path / "rows", **options, sort_by=sort_by)
    first = RowStore.write(part(table, 0, CUTS[1]), tmp_path / "first", **options)
    X = np.stack([table["x1"], table["x2"]], axis=1)
    order = np.argsort(table["clicked"], kind="stable") if sort_by else np.arange(N)
    assert store["X"].sds.tolist() == first["X"].sds.tolist()
    np.testing.assert_allclose(store["X"].sds, X[: CUTS[1]].std(0), rtol=1e-13)
    np.testing.assert_array_equal(store["X"], ((X - first["X"].means) / first["X"].sds)[order])
    scaled = (X[:, 1] - first["x2"].means) / first["x2"].sds
    np.testing.assert_array_equal(store["x2"], scaled.astype(np.float32)[order])
    require_equal(appended(table, tmp_path / "two", [0, 100, N], **options, sort_by=sort_by), store)


def test_new_labels_get_the_next_codes(table, tmp_path):
    store = appended(table, tmp_path / "rows", [0, 100, 900, N], **OPTIONS)
    assert store["g"].labels == tuple(dict.fromkeys(table["airline"].tolist()))
    assert store["year"].labels == tuple(range(2000, 2007))
    assert [store["g"].labels[code] for code in store["g"][:]] == table["airline"].tolist()


def test_only_new_rows_are_read_and_written(table, tmp_path, monkeypatch):
    """A chunk that has changed before is still found, also the last one, which rows were added to."""
    store = RowStore.write(part(table, 0, 100), tmp_path / "rows", **OPTIONS)
    monkeypatch.setattr(Rows, "chunk", None)
    written, write_all = [], files.write_all

    def counted(file, data, *rest):
        written.append(data)
        write_all(file, data, *rest)

    monkeypatch.setattr(files, "write_all", counted)
    inode = (store.path / "X.npy").stat().st_ino
    with (store.path / "X.npy").open("r+b") as file:
        file.seek(128 + 8 * 99)
        file.write(b"\1\2\3")
    store = RowStore.open(store.path).append(part(table, 100, 130))
    assert (store.path / "X.npy").stat().st_ino == inode
    assert sum(len(data) for data in written if isinstance(data, np.ndarray)) == 30 * len(OPTIONS["columns"])
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"X.npy has changed .* chunk 1 \(rows 64 to 127\)"):
        store.verify()


def test_a_store_of_an_earlier_version(table, tmp_path):
    """It does not tell the names of columns that were not stacked."""
    store = RowStore.write(
        part(table, 0, 100), tmp_path / "rows", columns={"X": ["x1", "x2"], "y": "clicked"}
    )
    found = json.loads((store.path / "store.json").read_text())
    for array in found["arrays"].values():
        del array["column"], array["closed"]
    (store.path / "store.json").write_text(json.dumps(found))
    store = RowStore.open(store.path)
    with pytest.raises(ValueError, match=r"columns\['y'\]: there is no 'y'"):
        store.append(table)
    store = store.append({**table, "y": table["clicked"]})
    np.testing.assert_array_equal(store["y"], np.r_[table["clicked"][:100], table["clicked"]])


# What does not suit -------------------------------------------------------------------------------

WRONG = {
    "no column": (lambda t: t.pop("x2"), r"columns\['X'\]: there is no 'x2'. There are 'x1', 'clicked'"),
    "no column of its own": (lambda t: t.pop("clicked"), r"columns\['y'\]: there is no 'clicked'"),
    "dtype": (
        lambda t: t["clicked"].__setitem__(70, 300),
        "300 in row 70 of column 'clicked' does not fit into int8",
    ),
    "fraction": (lambda t: t.update(clicked=t["x1"]), "in row 0 of column 'clicked' does not fit into int8"),
    "text": (lambda t: t.update(x2=t["airline"]), "Column 'x2' .* has no numbers"),
    "shape": (lambda t: t.update(Z=t["Z"][:, 0]), r"'Z' has rows of shape \(2, 3\) in the store, \(3,\) in"),
    "shape of numbers": (lambda t: t.update(clicked=t["Z"]), r"'y' has rows of shape \(\) in the store"),
    "kind of labels": (
        lambda t: t.update(airline=t["year"]),
        r"'g' has categories such as '(DL|AA)', which.*'airline'",
    ),
    "text for years": (lambda t: t.update(year=t["airline"]), "'year' has categories such as 2000, which"),
    "no label": (lambda t: t.update(year=t["x1"]), "neither text nor a whole number"),
    "a missing label": (lambda t: t.update(airline=np.array([None] * 200, object)), "Row 0 .* is missing"),
    "lengths": (lambda t: t.update(x1=t["x1"][1:]), "equally many rows"),
    "no rows": (lambda t: t.update(part(t, 0, 0)), "The source has no rows"),
    "key": (lambda t: t["x1"].__setitem__(150, np.nan), "sort_by='x1' is NaN in row 150"),
}


@pytest.mark.parametrize(
    ("name", "sort_by"), [(name, by) for name in WRONG for by in (None, "x1") if by or name != "key"]
)
def test_what_does_not_suit_leaves_the_store_as_it_was(table, tmp_path, name, sort_by):
    """The open store, too: it can be read, and appended to."""
    spoil, told = WRONG[name]
    options = {**OPTIONS, "columns": {**OPTIONS["columns"], "x1": "x1"}, "sort_by": sort_by}
    store = RowStore.write(part(table, 0, 700), tmp_path / "rows", **options)
    before = content(store.path)
    source = {key: values[700:900].copy() for key, values in table.items()}
    spoil(source)
    with pytest.raises(ValueError, match=told):
        store.append(source)
    assert [one.name for one in tmp_path.iterdir()] == ["rows"]
    assert content(store.path) == before
    store.verify()
    expected = RowStore.write(table, tmp_path / "expected", **options)
    require_equal(store.append(part(table, 700, N)), expected)


def test_labels_that_were_given_stay_all(table, tmp_path):
    options = {
        "columns": {"g": "airline"},
        "categories": {"g": ["AA", "B6", "DL", "UA"]},
        "chunk_rows": CHUNK,
    }
    store = appended(table, tmp_path / "rows", **options)
    require_equal(store, RowStore.write(table, tmp_path / "expected", **options))
    with pytest.raises(ValueError, match="'AAA' in row 1 of column 'airline' is none of the categories"):
        store.append({"airline": np.array(["AA", "AAA"])})
    store.verify()


def test_new_labels_have_to_fit_into_the_dtype(tmp_path):
    store = RowStore.write({"g": np.arange(100)}, tmp_path / "rows", categories=["g"], dtype={"g": "int8"})
    with pytest.raises(ValueError, match=r"128 in row 28 of column 'g' does not fit into int8"):
        store.append({"g": np.arange(100, 200)})
    assert store.append({"g": np.arange(100, 128)})["g"].labels == tuple(range(128))


def test_maps_are_not_appended_to(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(5.0))
    store = RowStore.open({"x": np.load(tmp_path / "x.npy", mmap_mode="r")})
    with pytest.raises(ValueError, match="Maps are not appended to"):
        store.append({"x": np.arange(3.0)})


# What was opened before ---------------------------------------------------------------------------


@pytest.mark.parametrize("sort_by", [None, "group"])
def test_what_was_opened_before_shows_the_old_rows_and_is_refused(table, tmp_path, sort_by):
    columns = {**OPTIONS["columns"], "group": "group"}
    options = {**OPTIONS, "columns": columns, "sort_by": sort_by}
    store = RowStore.write(part(table, 0, 701), tmp_path / "rows", **options)
    sent, old = pickle.dumps(store), {name: rows[:].copy() for name, rows in store.items()}
    new = RowStore.open(store.path, scratch=tmp_path / "scratch").append(part(table, 701, N))
    assert (store.n_rows, new.n_rows, new.scratch_folder()) == (701, N, tmp_path / "scratch")
    for name, rows in store.items():
        np.testing.assert_array_equal(rows[:], old[name])
        with pytest.raises(
            ValueError, match=f"{name}.npy has changed since it was opened. Open the store and"
        ):
            rows.require_unchanged()
    told = "npy has changed since it was opened"
    for refused in (store.verify, lambda: pickle.loads(sent), lambda: store.append(part(table, 0, 10))):
        with pytest.raises(ValueError, match=told):
            refused()
    (tmp_path / "scratch").rmdir()
    require_equal(new, RowStore.write(table, tmp_path / "expected", **options))


@pytest.mark.parametrize("sort_by", [None, "y"])
def test_one_process_writes_at_a_time(table, tmp_path, sort_by):
    options = {"columns": {"y": "clicked"}, "sort_by": sort_by}
    store = RowStore.write(table, tmp_path / "rows", **options)
    with (
        writing.partial_folder(store.path),
        pytest.raises(BlockingIOError, match="Another process is writing"),
    ):
        store.append(table)
    assert store.append(table).n_rows == 2 * N


def test_a_store_is_appended_to_itself(table, tmp_path):
    store = RowStore.write({"x": table["x1"]}, tmp_path / "rows", chunk_rows=CHUNK)
    store = store.append({"x": np.asarray(store["x"])})
    np.testing.assert_array_equal(store["x"], np.r_[table["x1"], table["x1"]])


# Interruptions ------------------------------------------------------------------------------------

# All that is done to files.
STAGES = [
    (files.NpyFile, "__init__"),
    (files.NpyFile, "append"),
    (files.NpyFile, "finish"),
    (writing, "write_layout"),
    (Path, "replace"),
]


@pytest.fixture
def first(table, tmp_path):
    """A function that writes the first rows."""
    columns = {"X": ["x1", "x2"], "g": "airline", "group": "group"}
    options = {"columns": columns, "categories": ["g"], "chunk_rows": 300}
    return lambda name, stop, sort_by: RowStore.write(
        part(table, 0, stop), tmp_path / name, **options, sort_by=sort_by
    )


def watch_stages(patch, told):
    """Tell of all that is done to files by its number, before it is done, and once it is done."""
    calls = []

    def watched(function):
        def call(*args, **options):
            calls.append(function.__name__)
            told(len(calls))
            result = function(*args, **options)
            if function.__name__ != "__init__":  # a file would stay open
                calls.append(function.__name__)
                told(len(calls))
            return result

        return call

    for owner, name in STAGES:
        patch.setattr(owner, name, watched(getattr(owner, name)))
    return calls


@pytest.mark.parametrize("sort_by", [None, "group"])
def test_an_append_that_is_interrupted_leaves_the_old_rows(table, tmp_path, first, sort_by):
    """The open store stays valid. Once `store.json` is replaced, the new rows are there instead."""
    expected = first("expected", N, sort_by)
    store = first("counted", 701, sort_by)
    with pytest.MonkeyPatch.context() as patch:
        calls = watch_stages(patch, lambda number: None)
        store.append(part(table, 701, N))
    assert set(calls) == {name for _, name in STAGES[: 4 if sort_by else 5]}
    store = first("rows", 701, sort_by)
    before = content(store.path)
    for last in range(1, len(calls) + 1):

        def interrupt(number, last=last):
            if number == last:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            watch_stages(patch, interrupt)
            with pytest.raises(KeyboardInterrupt):
                store.append(part(table, 701, N))
        if last == len(calls) and calls[-1] == "replace":
            require_equal(RowStore.open(store.path), expected)
        else:
            assert content(store.path) == before
            store.verify()
    if sort_by is not None:
        require_equal(store.append(part(table, 701, N)), expected)


@pytest.mark.parametrize("sort_by", [None, "group"])
def test_a_program_that_is_killed_leaves_the_old_rows(table, tmp_path, first, sort_by):
    """Copies of the folders at each stage. Fewer rows are appended after more that were lost, too."""
    old, more = first("old", 701, sort_by), first("more", 730, sort_by)
    expected = first("expected", N, sort_by)
    store = first("rows", 701, sort_by)
    copies = []

    def copied(number):
        copies.append(tmp_path / f"at {number}")
        for folder in (store.path, tmp_path / "rows.partial"):
            shutil.copytree(folder, copies[-1] / folder.name)

    with pytest.MonkeyPatch.context() as patch:
        calls = watch_stages(patch, copied)
        store.append(part(table, 701, N))
    for copy in copies:
        found = RowStore.open(copy / "rows")
        found.verify()
        if copy == copies[-1] and calls[-1] == "replace":
            assert found.fingerprint == expected.fingerprint
            continue
        assert found.fingerprint == old.fingerprint
        if copy in copies[::4]:
            again = found.append(part(table, 701, 730))
            require_equal(again, more)
            require_equal(again.append(part(table, 730, N)), expected)


def test_a_sorted_store_that_has_no_name_is_found(table, tmp_path, first, monkeypatch):
    """The new store is complete, and takes the place of the old one by a second renaming."""
    store = first("rows", 701, "group")
    rename = Path.rename

    def killed(self, target):
        if self.name == "rows.partial":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        store.append(part(table, 701, N))
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError, match=r"All but its name was done: rename .*rows.partial"):
        RowStore.open(store.path)
    (tmp_path / "rows.partial").rename(store.path)
    assert RowStore.open(store.path).fingerprint == first("expected", N, "group").fingerprint


@pytest.mark.parametrize("sort_by", [None, "group"])
def test_a_part_that_cannot_be_read(table, tmp_path, first, sort_by):
    """Nothing is kept to go on with: there is no `resume` of an append."""
    store = first("rows", 701, sort_by)
    group = zarr.open_group(str(tmp_path / "table.zarr"), mode="w")
    for name, values in table.items():
        if name != "airline":
            group.create_array(name, data=values[701:], chunks=(50, *values.shape[1:]))
    damaged = tmp_path / "table.zarr" / "x1" / "c" / "4"
    damaged.write_bytes(damaged.read_bytes()[:30])
    source = {**dict(group.arrays()), "airline": table["airline"][701:]}
    before = content(store.path)
    with pytest.raises(OSError, match=r"array 'x1', chunks? .* cannot be read"):
        store.append(source)
    assert content(store.path) == before
    assert not (tmp_path / "rows.partial").exists()
    require_equal(store.append(part(table, 701, N)), first("expected", N, sort_by))


@pytest.mark.parametrize("sort_by", [None, "group"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_disk_that_is_full(table, tmp_path, first, is_stream, sort_by, monkeypatch):
    """Where a stream comes, that is found while rows are written."""
    store = first("rows", 701, sort_by)
    before = content(store.path)
    del table["Z"]

    def source():
        rows = part(table, 701, N)
        return pa.table(rows).to_reader() if is_stream else rows

    told = "X.npy: [0-9,]+ bytes are wanted"
    with limited_file_size(701 * 16 + 1000), pytest.raises(OSError, match=told) as found:
        store.append(source())
    assert found.value.errno == errno.EFBIG
    assert content(store.path) == before
    if not is_stream:
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
        with pytest.raises(OSError, match="rows.partial: [0-9,]+ bytes are wanted, 1,000 are left"):
            store.append(source())
        monkeypatch.undo()
    assert content(store.path) == before
    require_equal(store.append(source()), first("expected", N, sort_by))
