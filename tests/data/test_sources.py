"""The same rows from every format give the same store."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather as feather
import pyarrow.fs
import pyarrow.parquet as parquet
import pytest
import zarr

from pymc_austerity.data import RowStore

N, CHUNK = 1000, 128
NAMES = ["x1", "x2", "x3", "y", "airline"]
OPTIONS = {
    "columns": {"X": ["x1", "x2", "x3"], "y": "y", "g": "airline"},
    "categories": ["g"],
    "dtype": {"y": "int8"},
    "chunk_rows": CHUNK,
}
RNG = np.random.default_rng(1)
TABLE = {
    "x1": RNG.normal(size=N),
    "x2": RNG.normal(size=N),
    "x3": RNG.normal(size=N),
    "y": RNG.integers(0, 2, N).astype(np.int8),
    "airline": RNG.choice(["DL", "AA", "UA"], N).astype(object),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return RowStore.write(TABLE, tmp_path_factory.mktemp("expected") / "rows", **OPTIONS)


def is_same(store, expected):
    store.verify()
    assert store["g"].labels == expected["g"].labels
    return store.fingerprint == expected.fingerprint


def part(start=0, stop=N, names=NAMES, table=TABLE):
    return pa.table({name: table[name][start:stop] for name in names})


def maps(path):
    for name in NAMES[:4]:
        np.save(path.with_name(f"{name}.npy"), TABLE[name])
    loaded = {name: np.load(path.with_name(f"{name}.npy"), mmap_mode="r") for name in NAMES[:4]}
    return {"airline": TABLE["airline"], **loaded}


def zarr_group(path, **options):
    group = zarr.open_group(str(path), mode="w")
    for name in NAMES:
        values = TABLE[name].astype("U2") if name == "airline" else TABLE[name]
        made = group.create_array(
            name, shape=values.shape, dtype=values.dtype, config={"write_empty_chunks": True}, **options
        )
        made[:] = values
    return path


def parquet_file(path, rows):
    parquet.write_table(part(), path, row_group_size=rows)
    return path


def parquet_folder(path):
    path.mkdir()
    parquet.write_table(part(0, 300), path / "part-0.parquet")
    parquet.write_table(part(300, 411, NAMES[::-1]), path / "part-1.parquet", row_group_size=50)
    parquet.write_table(part(411, N, [*NAMES[2:], *NAMES[:2]]), path / "part-2.parquet")
    (path / "_SUCCESS").touch()
    (path / "_ignored.parquet").touch()
    return path


def feather_file(path, compression):
    feather.write_feather(part(), path, compression=compression, chunksize=77)
    return path


def arrow_file(path, new):
    with getattr(pa.ipc, new)(str(path), part().schema) as file:
        for start, stop in [(0, 500), (500, 501), (501, N)]:
            file.write_table(part(start, stop))
    return path


def csv_files(path):
    pa.csv.write_csv(part(0, 400), path.with_name("a.csv"))
    pa.csv.write_csv(part(400, N, NAMES[::-1]), path.with_name("b.csv"))
    return [str(path.with_name("a.csv")), path.with_name("b.csv")]


def pandas_file(path):
    frame = pd.DataFrame(TABLE)
    frame["airline"] = frame["airline"].astype("category")
    frame.to_parquet(path, engine="pyarrow")
    return path


def texts_and_categories(path):
    """Two files: text in one, a dictionary in the other."""
    coded = part(400).set_column(4, "airline", part(400)["airline"].combine_chunks().dictionary_encode())
    feather.write_feather(part(0, 400), path.with_name("a.feather"))
    feather.write_feather(coded, path.with_name("b.feather"))
    return [path.with_name("a.feather"), path.with_name("b.feather")]


def filtered(path):
    """A dataset that knows which rows it has when it has read them."""
    twice = pa.concat_tables([part().append_column("keep", pa.array([keep] * N)) for keep in (False, True)])
    parquet.write_table(twice, path, row_group_size=300)
    return pa.dataset.dataset(path).filter(pa.dataset.field("keep"))


def in_memory(path):
    pytest.importorskip("fsspec")
    uri = f"fsspec+memory://{path}"
    try:
        system, there = pa.fs.FileSystem.from_uri(uri)
    except ValueError as error:
        pytest.skip(f"an earlier pyarrow: {error}")
    pa.fs.copy_files(str(parquet_folder(path)), there, destination_filesystem=system)
    return uri


class Capsule:
    """A stream of Arrow and nothing else, with text of another kind than that of pyarrow's tables."""

    def __arrow_c_stream__(self, requested_schema=None):
        text = pa.array(TABLE["airline"], pa.string_view())
        codes = pa.DictionaryArray.from_arrays(pa.array(np.arange(N) % N, pa.uint32()), text)
        batches = part().set_column(4, "airline", codes).to_batches(90)
        return pa.RecordBatchReader.from_batches(batches[0].schema, batches).__arrow_c_stream__()


def of_library(name):
    return pytest.importorskip(name)


def delta_table(path):
    of_library("deltalake").write_deltalake(path, part())
    return of_library("deltalake").DeltaTable(path).to_pyarrow_dataset()


FORMATS = {
    "maps": maps,
    "zarr": lambda path: zarr_group(path.with_suffix(".zarr"), chunks=(37,)),
    "zarr, long chunks": lambda path: zarr_group(path.with_suffix(".zarr"), chunks=(300,)),
    "zarr, shards": lambda path: zarr_group(path.with_suffix(".zarr"), chunks=(20,), shards=(100,)),
    "zarr at a URI": lambda path: zarr_group(f"memory://{path.parent.name}.zarr", chunks=(37,)),
    "arrays of zarr": lambda path: dict(zarr.open_group(zarr_group(path, chunks=(37,))).arrays()),
    "parquet, 70": lambda path: parquet_file(path.with_suffix(".parquet"), 70),
    "parquet, 400": lambda path: parquet_file(path.with_suffix(".parquet"), 400),
    "parquet": lambda path: str(parquet_file(path.with_suffix(".parquet"), N)),
    "folder": parquet_folder,
    "list": lambda path: sorted(parquet_folder(path).glob("part*")),
    "feather, lz4": lambda path: feather_file(path.with_suffix(".feather"), "lz4"),
    "feather": lambda path: feather_file(path.with_suffix(".feather"), "uncompressed"),
    "arrow": lambda path: arrow_file(path.with_suffix(".arrow"), "new_file"),
    "stream": lambda path: arrow_file(path.with_suffix(".arrow"), "new_stream"),
    "csv": csv_files,
    "pandas": lambda path: pandas_file(path.with_suffix(".parquet")),
    "text and dictionary": texts_and_categories,
    "dataset": lambda path: pa.dataset.dataset(parquet_folder(path)),
    "filtered": filtered,
    "part of a filesystem": lambda path: pa.dataset.dataset(
        parquet_folder(path).name,
        filesystem=pa.fs.SubTreeFileSystem(str(path.parent), pa.fs.LocalFileSystem()),
    ),
    "URI": lambda path: parquet_folder(path).as_uri(),
    "URIs": lambda path: [f"file://{file}" for file in csv_files(path)],
    "URI of fsspec": in_memory,
    "table": lambda path: part(),
    "batch": lambda path: part().combine_chunks().to_batches()[0],
    "reader": lambda path: part().to_reader(70),
    "scanner": lambda path: pa.dataset.dataset(parquet_folder(path)).scanner(NAMES[::-1]),
    "frame": lambda path: pd.DataFrame(TABLE),
    "capsule": lambda path: Capsule(),
    "polars": lambda path: (
        of_library("polars").DataFrame(part()).cast({"airline": of_library("polars").Categorical})
    ),
    "duckdb": lambda path: of_library("duckdb").from_arrow(part()).filter("x1 is not null"),
    "delta": delta_table,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format(name, expected, tmp_path):
    source = FORMATS[name](tmp_path / "table")
    assert is_same(RowStore.write(source, tmp_path / "rows", **OPTIONS), expected)


def test_files_in_the_order_of_a_list(expected, tmp_path):
    files = sorted(parquet_folder(tmp_path / "table").glob("part*"))
    turned = RowStore.write(files[::-1], tmp_path / "reversed", **OPTIONS)
    X = expected["X"]
    np.testing.assert_array_equal(turned["X"], np.concatenate([X[411:], X[300:411], X[:300]]))


def test_folders_of_partitions_make_columns(tmp_path):
    pa.dataset.write_dataset(
        pa.table({"x": [1.0, 2.0, 3.0], "year": [2024, 2023, 2024], "airline": ["b", "a", "a"]}),
        tmp_path / "table",
        format="parquet",
        partitioning=pa.dataset.partitioning(
            pa.schema([("year", pa.int16()), ("airline", pa.string())]), flavor="hive"
        ),
    )
    store = RowStore.write(tmp_path / "table", tmp_path / "rows", categories=["airline"], chunk_rows=2)
    assert {name: rows[:].tolist() for name, rows in store.items()} == {
        "x": [2, 3, 1],
        "year": [2023, 2024, 2024],
        "airline": [0, 0, 1],
    }
    assert store["airline"].labels == ("a", "b")
    (alone,) = tmp_path.glob("table/year=2023/*/*.parquet")
    assert list(RowStore.write(alone, tmp_path / "alone")) == ["x"]


def test_a_dataset_tells_the_types_of_csv(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("x;z\n1;007\n" + "2;008\n" * 200_000 + "3.5;009\n")
    with pytest.raises(ValueError, match="'x;z'.* has no numbers"):
        RowStore.write(path, tmp_path / "rows")
    semicolons = pa.dataset.CsvFileFormat(pa.csv.ParseOptions(delimiter=";"))
    first_rows = pa.dataset.dataset(path, format=semicolons)
    with pytest.raises(OSError, match=r"table.csv \(rows [\d,]+ to 200,001\) .*'3.5'.*schema=") as found:
        RowStore.write(first_rows, tmp_path / "rows")
    assert "Row #200003" in str(found.value)
    told = pa.dataset.dataset(
        path, format=semicolons, schema=pa.schema([("x", pa.float32()), ("z", pa.string())])
    )
    store = RowStore.write(told, tmp_path / "rows", categories=["z"])
    assert (store["x"].dtype, store["x"][-1], store["z"].labels) == (np.float32, 3.5, ("007", "008", "009"))
    last = RowStore.write(told.filter(pa.dataset.field("x") > 2), tmp_path / "last", columns={"x": "x"})
    assert last["x"][:].tolist() == [3.5]


def test_zarr_matrices(tmp_path):
    X = np.random.default_rng(1).normal(size=(N, 4)).astype(np.float32)
    array = zarr.create_array(str(tmp_path / "X"), data=X, chunks=(64, 3))
    store = RowStore.write({"X": array}, tmp_path / "rows", chunk_rows=100)
    np.testing.assert_array_equal(store["X"], X)
    with pytest.raises(OSError, match="Give a single array as"):
        RowStore.write(tmp_path / "X", tmp_path / "other")


def test_files_with_other_columns_or_dtypes(tmp_path):
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    parquet.write_table(part(0, 300, ["x1", "y"]), files[0])
    parquet.write_table(part(300, N, ["x1"]), files[1])
    with pytest.raises(ValueError, match="b.parquet has other columns.*: 'y'"):
        RowStore.write(files, tmp_path / "rows")
    wide = {"x1": TABLE["x1"], "y": TABLE["y"].astype(np.int64) * 1000}
    parquet.write_table(part(300, N, ["y", "x1"], wide), files[1])
    store = RowStore.write(files, tmp_path / "rows")
    assert store["y"].dtype == np.int64
    np.testing.assert_array_equal(store["y"], np.r_[TABLE["y"][:300], wide["y"][300:]])
    parquet.write_table(part(300, N, ["y", "x1"], {"x1": TABLE["airline"], "y": TABLE["y"]}), files[1])
    with pytest.raises(ValueError, match="b.parquet does not suit .* x1 .*double vs string"):
        RowStore.write(files, tmp_path / "more")
    feather.write_feather(part(), tmp_path / "c.feather")
    with pytest.raises(ValueError, match="c.feather and .*a.parquet differ in format"):
        RowStore.write([files[0], tmp_path / "c.feather"], tmp_path / "more")
    parquet.write_table(pa.table([[1], [2]], names=["x", "x"]), files[0])
    with pytest.raises((ValueError, OSError), match="duplicate field names"):
        RowStore.write(files[0], tmp_path / "more")


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (np.array([1, 2**63 + 5], np.uint64), np.array([-1]), "'k' is uint64 there, and int64 in all"),
        (np.array([1, 2**53 + 1]), np.array([0.5]), "'k' is int64 there, and double in all"),
    ],
)
def test_numbers_that_the_type_of_all_files_cannot_hold(tmp_path, one, other, said):
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for file, values in zip(files, (one, other), strict=True):
        parquet.write_table(pa.table({"k": values}), file)
    with pytest.raises(OSError, match=f"a.parquet.*rows 0 to 1.*{one[1]}.*Column {said} files") as found:
        RowStore.write(files, tmp_path / "rows")
    assert "Restore it" not in str(found.value)  # it is not damaged


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
            "l": pa.array([[1.0, 2.0], [3.0, 4.0], None, [5.0, 6.0]], pa.list_(pa.float64(), 2)),
            "m": pa.array([[1, 2], [3, 4], [5, None], [6, 7]], pa.list_(pa.int8(), 2)),
            "d": pa.array([1, 2, None, 4]).cast(pa.decimal128(21, 2)),
        }
    )
    parquet.write_table(table, path, row_group_size=2)
    for name in "xd":
        store = RowStore.write(path, tmp_path / f"rows of {name}", columns={name: name})
        np.testing.assert_array_equal(store[name], [1, 2, np.nan, 4])
    for name, row in (("k", 3), ("b", 0), ("g", 1), ("l", 2), ("m", 2)):
        with pytest.raises(ValueError, match=f"Row {row} of column '{name}' is missing"):
            RowStore.write(
                path, tmp_path / name, columns={name: name}, categories=[name] if name == "g" else None
            )


def test_columns_without_numbers_are_named_only_if_they_are_chosen(tmp_path):
    path = tmp_path / "t.parquet"
    when = pa.array([0, 1], pa.timestamp("s"))
    parquet.write_table(pa.table({"when": when, "l": [[1], [2, 3]], "x": [1, 2]}), path)
    assert RowStore.write(path, tmp_path / "rows", columns={"x": "x"})["x"][:].tolist() == [1, 2]
    for name, kind in (("when", "timestamp"), ("l", "list")):
        with pytest.raises(ValueError, match=rf"Column '{name}' \({kind}.* has no numbers. Leave it out"):
            RowStore.write(path, tmp_path / name, columns={name: name})


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("none.parquet", "There is no"),
        ("t.json", "is none of .zarr"),
        ("t.npy", "np.load"),
        ("empty", "no file"),
        ("t.csv", "t.csv cannot be read"),
        ("t.arrow", "t.arrow cannot be read"),
        ("file:///none.parquet", "There is no file:///none.parquet"),
        ("what://me:secret@t.csv?key=1", "what://t.csv cannot be read: Unrecognized .* fsspec.*filesystem="),
    ],
)
def test_paths_that_are_no_source(tmp_path, name, match):
    for ending in ("json", "npy", "csv", "arrow"):
        (tmp_path / f"t.{ending}").touch()
    (tmp_path / "empty" / "year=2024").mkdir(parents=True)
    with pytest.raises((ValueError, OSError), match=match):
        RowStore.write(name if ":" in str(name) else tmp_path / name, tmp_path / "rows")


@pytest.mark.parametrize(
    ("library", "suffix"), [("pyarrow", "parquet"), ("pyarrow", "csv"), ("zarr", "zarr")]
)
def test_a_library_that_is_not_installed_is_named(tmp_path, monkeypatch, library, suffix):
    def missing(module):
        raise ImportError(f"No module named {module!r}")

    (tmp_path / f"t.{suffix}").touch()
    monkeypatch.setattr("pymc_austerity.extras.import_module", missing)
    with pytest.raises(ImportError, match=rf'need {library}: pip install "pymc_austerity\[store\]"'):
        RowStore.write(tmp_path / f"t.{suffix}", tmp_path / "rows")


@pytest.fixture(scope="module")
def s3():
    """Options of URIs of a server of this machine that has one bucket, and its filesystem."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    options = f"scheme=http&region=us-east-1&endpoint_override={host}:{port}"
    system, _ = pa.fs.FileSystem.from_uri(f"s3://me:secret@bucket?allow_bucket_creation=true&{options}")
    system.create_dir("bucket")
    yield options, system
    server.stop()


def test_an_object_store(s3, expected, tmp_path):
    options, system = s3
    pa.fs.copy_files(str(parquet_folder(tmp_path / "table")), "bucket/table", destination_filesystem=system)
    uri = f"s3://me:secret@bucket/table?{options}"
    assert is_same(RowStore.write(uri, tmp_path / "rows", **OPTIONS), expected)
    with pytest.raises(ValueError, match="in different filesystems"):
        RowStore.write([uri, str(tmp_path)], tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="There is no s3://bucket/none."):
        RowStore.write(uri.replace("/table", "/none"), tmp_path / "none")
    with pytest.raises(OSError, match="^s3://bucket/table cannot be read: .*filesystem="):
        RowStore.write(f"s3://bucket/table?{options.replace('scheme=http', 'scheme=ftp')}", tmp_path / "none")


def test_a_stream_is_sorted_and_standardised(tmp_path):
    options = {**OPTIONS, "sort_by": "g", "standardise": ["X"], "resume": True}
    expected = RowStore.write(TABLE, tmp_path / "expected", **options)
    store = RowStore.write(part().to_reader(90), tmp_path / "rows", **options)
    assert is_same(store, expected)
    assert [file.read_bytes() for file in sorted(store.path.iterdir())] == [
        file.read_bytes() for file in sorted(expected.path.iterdir())
    ]


def test_a_stream_that_ends_early(tmp_path):
    def batches():
        yield part(0, 300).to_batches()[0]
        raise OSError("planted")

    broken = pa.RecordBatchReader.from_batches(part().schema, batches())
    with pytest.raises(OSError, match="source from row 300 on cannot be read: .*planted.*from a new one"):
        RowStore.write(broken, tmp_path / "rows", **OPTIONS)
    whole = part().to_reader()
    with pytest.raises(ValueError, match="there is no 'x4'"):
        RowStore.write(whole, tmp_path / "rows", columns={"x": "x4"})
    store = RowStore.write(whole, tmp_path / "rows", resume=True, **OPTIONS)
    assert store.n_rows == N
    with pytest.raises(ValueError, match="no rows. A stream that was read before has none left"):
        RowStore.write(whole, tmp_path / "rows", overwrite=True, **OPTIONS)
    with pytest.raises(OSError, match="ChunkedArray cannot be read.*non-struct.*names of columns"):
        RowStore.write(part()["x1"], tmp_path / "none")
    missing = pa.table({"k": [1] * 20_000 + [None]}).to_reader()
    with pytest.raises(ValueError, match="Row 20,000 of column 'k' is missing"):
        RowStore.write(missing, tmp_path / "none")
