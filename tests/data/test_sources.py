"""The same rows from every format give the same store."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
import zarr

from pymc_austerity.data import RowStore

N, CHUNK = 1000, 128
NAMES = ["x1", "x2", "x3", "y", "airline"]
OPTIONS = {
    "columns": {"X": ["x1", "x2", "x3"], "y": "y", "g": "airline"},
    "categories": ["g"],
    "chunk_rows": CHUNK,
}


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    return {
        "x1": rng.normal(size=N),
        "x2": rng.normal(size=N),
        "x3": rng.normal(size=N),
        "y": rng.integers(0, 2, N).astype(np.int8),
        "airline": rng.choice(["DL", "AA", "UA"], N).astype(object),
    }


@pytest.fixture
def expected(table, tmp_path):
    return RowStore.write(table, tmp_path / "expected", **OPTIONS)


def is_same(store, expected):
    store.verify()
    assert store["g"].labels == expected["g"].labels
    return store.fingerprint == expected.fingerprint


def arrow(table, names=NAMES):
    return pa.table({name: table[name] for name in names})


def part(table, start, stop, names=NAMES):
    return arrow({name: values[start:stop] for name, values in table.items()}, names)


def test_maps(table, expected, tmp_path):
    source = {"airline": table["airline"]}
    for name in NAMES[:4]:
        np.save(tmp_path / f"{name}.npy", table[name])
        source[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    assert is_same(RowStore.write(source, tmp_path / "rows", **OPTIONS), expected)


def zarr_group(table, path, **options):
    group = zarr.open_group(str(path), mode="w")
    for name in NAMES:
        values = table[name].astype("U2") if name == "airline" else table[name]
        made = group.create_array(
            name, shape=values.shape, dtype=values.dtype, config={"write_empty_chunks": True}, **options
        )
        made[:] = values
    return group


@pytest.mark.parametrize(
    "options", [{"chunks": (37,)}, {"chunks": (300,)}, {"chunks": (20,), "shards": (100,)}]
)
def test_zarr_with_chunks_that_do_not_divide(table, expected, tmp_path, options):
    group = zarr_group(table, tmp_path / "table.zarr", **options)
    assert is_same(RowStore.write(tmp_path / "table.zarr", tmp_path / "group", **OPTIONS), expected)
    arrays = {name: group[name] for name in NAMES}
    assert is_same(RowStore.write(arrays, tmp_path / "arrays", **OPTIONS), expected)


def test_zarr_matrices(tmp_path):
    X = np.random.default_rng(1).normal(size=(N, 4)).astype(np.float32)
    array = zarr.create_array(str(tmp_path / "X"), data=X, chunks=(64, 3))
    store = RowStore.write({"X": array}, tmp_path / "rows", chunk_rows=100)
    np.testing.assert_array_equal(store["X"], X)
    with pytest.raises(OSError, match="Give a single array as"):
        RowStore.write(tmp_path / "X", tmp_path / "other")


@pytest.mark.parametrize("rows", [70, 400, N])
def test_a_file_of_parquet(table, expected, tmp_path, rows):
    parquet.write_table(arrow(table), tmp_path / "table.parquet", row_group_size=rows)
    assert is_same(RowStore.write(tmp_path / "table.parquet", tmp_path / "rows", **OPTIONS), expected)


def test_a_folder_of_parquet_with_columns_in_another_order(table, expected, tmp_path):
    folder = tmp_path / "table"
    folder.mkdir()
    parquet.write_table(part(table, 0, 300), folder / "part-0.parquet")
    parquet.write_table(part(table, 300, 411, NAMES[::-1]), folder / "part-1.parquet", row_group_size=50)
    parquet.write_table(part(table, 411, N, [*NAMES[2:], *NAMES[:2]]), folder / "part-2.parquet")
    (folder / "_SUCCESS").touch()
    assert is_same(RowStore.write(folder, tmp_path / "rows", **OPTIONS), expected)
    files = [str(folder / f"part-{i}.parquet") for i in range(3)]
    assert is_same(RowStore.write(files, tmp_path / "list", **OPTIONS), expected)
    turned = RowStore.write(files[::-1], tmp_path / "reversed", **OPTIONS)
    X = expected["X"]
    np.testing.assert_array_equal(turned["X"], np.concatenate([X[411:], X[300:411], X[:300]]))


def test_files_of_parquet_with_other_columns_or_dtypes(table, tmp_path):
    parquet.write_table(part(table, 0, 300, ["x1", "y"]), tmp_path / "a.parquet")
    parquet.write_table(part(table, 300, N, ["x1"]), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="b.parquet has other columns.*: 'y'"):
        RowStore.write([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "rows")
    wide = {"x1": table["x1"], "y": table["y"].astype(np.int64) * 1000}
    parquet.write_table(part(wide, 300, N, ["y", "x1"]), tmp_path / "b.parquet")
    store = RowStore.write([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "rows")
    assert store["y"].dtype == np.int64
    np.testing.assert_array_equal(store["y"], np.r_[table["y"][:300], wide["y"][300:]])
    text = {"x1": table["airline"], "y": table["y"]}
    parquet.write_table(part(text, 300, N, ["y", "x1"]), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="'x1' is string in .*b.parquet, and double before"):
        RowStore.write([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "more")


@pytest.mark.parametrize("compression", ["lz4", "uncompressed"])
def test_feather(table, expected, tmp_path, compression):
    feather.write_feather(arrow(table), tmp_path / "table.feather", compression=compression, chunksize=77)
    assert is_same(RowStore.write(tmp_path / "table.feather", tmp_path / "rows", **OPTIONS), expected)


@pytest.mark.parametrize("new", ["new_file", "new_stream"])
def test_arrow(table, expected, tmp_path, new):
    path = tmp_path / "table.arrow"
    with getattr(pa.ipc, new)(str(path), arrow(table).schema) as file:
        for start, stop in [(0, 500), (500, 501), (501, N)]:
            file.write_table(part(table, start, stop))
    assert is_same(RowStore.write(path, tmp_path / "rows", **OPTIONS), expected)


def test_tables_of_pandas(table, expected, tmp_path):
    frame = pd.DataFrame(table)
    frame["airline"] = frame["airline"].astype("category")
    frame.to_parquet(tmp_path / "table.parquet", engine="pyarrow")
    assert is_same(RowStore.write(tmp_path / "table.parquet", tmp_path / "rows", **OPTIONS), expected)


def test_lists_of_fixed_length_are_matrices(tmp_path):
    # More rows than become arrays at once.
    X = np.random.default_rng(1).normal(size=(40_000, 3)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 3)
    parquet.write_table(pa.table({"X": column}), tmp_path / "table.parquet", row_group_size=30_000)
    feather.write_feather(pa.table({"X": column}), tmp_path / "table.feather", chunksize=33_000)
    for name in ("table.parquet", "table.feather"):
        np.testing.assert_array_equal(RowStore.write(tmp_path / name, tmp_path / f"{name}.rows")["X"], X)


def test_missing_values(tmp_path):
    path = tmp_path / "table.parquet"
    table = pa.table(
        {
            "x": pa.array([1.0, 2.0, None, 4.0]),
            "k": pa.array([1, 2, 3, None], pa.int8()),
            "b": pa.array([None, True, False, True]),
            "g": pa.array(["a", None, "b", "a"]),
        }
    )
    parquet.write_table(table, path, row_group_size=2)
    store = RowStore.write(path, tmp_path / "rows", columns={"x": "x"})
    np.testing.assert_array_equal(store["x"], [1, 2, np.nan, 4])
    for name, row in (("k", 3), ("b", 0), ("g", 1)):
        with pytest.raises(ValueError, match=f"Row {row} of column '{name}' is missing"):
            RowStore.write(
                path, tmp_path / name, columns={name: name}, categories=[name] if name == "g" else None
            )


def test_columns_without_numbers_are_named_only_if_they_are_chosen(tmp_path):
    when = pa.array([0, 1], pa.timestamp("s"))
    parquet.write_table(pa.table({"when": when, "l": [[1], [2, 3]], "x": [1, 2]}), tmp_path / "t.parquet")
    assert RowStore.write(tmp_path / "t.parquet", tmp_path / "rows", columns={"x": "x"})["x"][:].tolist() == [
        1,
        2,
    ]
    for name, kind in (("when", "timestamp"), ("l", "list")):
        with pytest.raises(ValueError, match=rf"Column '{name}' \({kind}.* has no numbers. Leave it out"):
            RowStore.write(tmp_path / "t.parquet", tmp_path / name, columns={name: name})


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("none.parquet", "There is no"),
        ("t.csv", "is none of .zarr"),
        ("t.npy", "np.load"),
        ("empty", "no file"),
    ],
)
def test_paths_that_are_no_source(tmp_path, name, match):
    (tmp_path / "t.csv").touch()
    (tmp_path / "t.npy").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises((ValueError, FileNotFoundError), match=match):
        RowStore.write(tmp_path / name, tmp_path / "rows")
    (tmp_path / "empty" / "year=2024").mkdir()
    with pytest.raises(ValueError, match="year=2024. Give a list of files"):
        RowStore.write(tmp_path / "empty", tmp_path / "rows")


@pytest.mark.parametrize(
    ("library", "name"), [("pyarrow", "t.parquet"), ("pyarrow", "t.feather"), ("zarr", "t.zarr")]
)
def test_a_library_that_is_not_installed_is_named(tmp_path, monkeypatch, library, name):
    def missing(module):
        raise ImportError(f"No module named {module!r}")

    (tmp_path / name).touch()
    monkeypatch.setattr("pymc_austerity.extras.import_module", missing)
    with pytest.raises(ImportError, match=rf'need {library}: pip install "pymc_austerity\[store\]"'):
        RowStore.write(tmp_path / name, tmp_path / "rows")
