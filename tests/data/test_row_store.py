"""A store is what was written, in memory, on disk and in another process."""

import json

import numpy as np
import pytest

from pymc_austerity.data import RowStore
from pymc_austerity.data.files import ScratchTable

N, CHUNK = 1000, 64


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    return {
        "x1": rng.normal(size=N),
        "x2": rng.normal(2, 3, size=N),
        "clicked": rng.integers(0, 2, N),
        "airline": rng.choice(["DL", "AA", "UA"], N),
    }


@pytest.fixture
def store(table, tmp_path):
    columns = {"X": ["x1", "x2"], "y": "clicked"}
    return RowStore.write(table, tmp_path / "rows", columns=columns, dtype={"y": "int8"}, chunk_rows=CHUNK)


def matrix(table):
    return np.stack([table["x1"], table["x2"]], axis=1)


def test_rows_are_those_of_the_source(store, table):
    X, y = store["X"], store["y"]
    assert (X.shape, X.dtype, len(X), X.ndim, X.columns) == ((N, 2), np.float64, N, 2, ("x1", "x2"))
    assert (y.shape, y.dtype, len(y)) == ((N,), np.int8, N)
    np.testing.assert_array_equal(X, matrix(table))
    np.testing.assert_array_equal(y[10:200], table["clicked"][10:200])
    np.testing.assert_array_equal(X[[3, 1, 999]], matrix(table)[[3, 1, 999]])
    assert (list(store), store.n_rows, len(store)) == (["X", "y"], N, 2)
    with pytest.raises(KeyError, match="There are X, y"):
        store["Z"]


def test_rows_are_read_only_and_not_copied(store):
    whole = np.asarray(store["X"])
    assert np.shares_memory(whole, store["X"][:])
    assert not whole.flags.writeable
    assert whole.flags.c_contiguous
    with pytest.raises(ValueError, match="read-only"):
        store["X"][:][0] = 1


def test_files_can_be_read_by_anybody(store, table):
    np.testing.assert_array_equal(np.load(store.path / "X.npy"), matrix(table))
    found = json.loads((store.path / "store.json").read_text())
    assert (found["n_rows"], found["arrays"]["y"]["dtype"], len(found["arrays"]["y"]["crc32"])) == (
        N,
        "|i1",
        16,
    )
    assert sorted(path.name for path in store.path.iterdir()) == ["X.npy", "store.json", "y.npy"]
    assert [path.name for path in store.path.parent.iterdir()] == ["rows"]


@pytest.mark.parametrize("parts", [["int8", "bool"], ["int8", "float32"], ["int16", "int64"]])
def test_stacked_columns_have_the_dtype_that_holds_all(tmp_path, parts):
    source = {kind: np.ones(3, kind) for kind in parts}
    for dtype, wanted in ((None, np.result_type(*parts)), ("float32", np.float32)):
        store = RowStore.write(source, tmp_path / "rows", columns={"X": parts}, dtype=dtype, overwrite=True)
        assert store["X"].dtype == wanted
        assert (store["X"][:] == 1).all()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([-128, 127]), "int8"),
        (np.array([0, 255]), "uint8"),
        (np.array([0, 1]), "bool"),
        (np.array([0.0, 1.0]), "bool"),
        (np.array([-3.0, 2.0**62]), "int64"),
        (np.array([True, False]), "float32"),
        (np.array([-(2**24), 2**24]), "float32"),
        (np.array([-(2**53), 2**53]), "float64"),
        (np.array([1e-40, 3e38, np.nan, np.inf, 0.0, 0.1]), "float32"),
        (np.array([2**64 - 1], np.uint64), "uint64"),
        *((np.zeros(3, kind), None) for kind in ("int8", "bool", "float32", "uint16", "int64")),
    ],
)
def test_another_dtype_for_the_same_numbers(tmp_path, values, dtype):
    rows = RowStore.write({"x": values}, tmp_path / "rows", dtype=dtype)["x"]
    assert rows.dtype == (dtype or values.dtype)
    rounded = 1e-4 if values.dtype.kind == "f" else 0
    np.testing.assert_allclose(rows[:].astype(values.dtype), values, rtol=rounded)


@pytest.mark.parametrize(
    ("value", "kind", "dtype"),
    [
        (300, "int64", "int8"),
        (-1, "int64", "uint16"),
        (2, "int8", "bool"),
        (0.5, "float64", "bool"),
        (1.5, "float64", "int32"),
        (np.nan, "float64", "int32"),
        (np.inf, "float32", "int8"),
        (2.0**63, "float64", "int64"),
        (2.0**64, "float32", "uint64"),
        (2**63, "uint64", "int64"),
        (2**24 + 1, "int64", "float32"),
        (2**53 + 1, "int64", "float64"),
        (-(2**53) - 1, "int64", "float64"),
        (2**64 - 1, "uint64", "float64"),
        (1e39, "float64", "float32"),
        (1e-60, "float64", "float32"),
    ],
)
def test_a_number_that_does_not_fit_is_named(tmp_path, value, kind, dtype):
    values = np.zeros((N, 2), kind)
    values[702, 1] = value
    for array, told in ((values[:, 1], ""), (values, ", column 1")):
        with pytest.raises(
            ValueError, match=rf"in row 702 of column 'x'{told} does not fit into {dtype}"
        ) as e:
            RowStore.write({"x": array}, tmp_path / "rows", dtype=dtype, chunk_rows=CHUNK)
        assert str(e.value).startswith(str(values[702, 1]))


def test_the_fingerprint_is_of_the_content(table, tmp_path):
    columns = {"X": ["x1", "x2"]}
    one, two = (RowStore.write(table, tmp_path / name, columns=columns) for name in ("one", "two"))
    assert one.fingerprint == two.fingerprint == RowStore.open(tmp_path / "one").fingerprint
    labels = [
        RowStore.write(table, tmp_path / f"g{i}", columns={"g": "airline"}, categories={"g": given})
        for i, given in enumerate((["AA", "DL", "UA"], ["AA", "DL", "UA", "B6"]))
    ]
    assert labels[0].fingerprint != labels[1].fingerprint
    table["x2"][-1] += 1e-9
    assert RowStore.write(table, tmp_path / "three", columns=columns).fingerprint != one.fingerprint


def test_chunks_have_all_rows_once(store, table):
    chunks = list(store.chunks())
    assert [chunk.number for chunk in chunks] == list(range(16))
    assert [(chunk.start, chunk.stop) for chunk in chunks][-2:] == [(896, 960), (960, 1000)]
    np.testing.assert_array_equal(np.concatenate([chunk.arrays["X"] for chunk in chunks]), matrix(table))
    assert [set(chunk.arrays) for chunk in store.chunks(["y"])] == [{"y"}] * 16


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_named(table, tmp_path, value):
    table["x2"][700] = value
    store = RowStore.write(table, tmp_path / "rows", columns={"X": ["x1", "x2"]}, chunk_rows=CHUNK)
    with pytest.raises(ValueError, match=rf"Column 'x2' of 'X' is {value} in row 700 \(chunk 10\)"):
        list(store.chunks())
    plain = RowStore.write({"x": table["x2"]}, tmp_path / "plain", chunk_rows=CHUNK)
    with pytest.raises(ValueError, match=rf"'x' is {value} in row 700 \(chunk 10\)"):
        list(plain.chunks())


def test_standardised_columns_and_their_scales(table, tmp_path):
    store = RowStore.write(
        table, tmp_path / "rows", columns={"X": ["x1", "x2"]}, standardise=["X"], chunk_rows=CHUNK
    )
    X = matrix(table)
    np.testing.assert_allclose(store["X"].means, X.mean(0), rtol=1e-13)
    np.testing.assert_allclose(store["X"].sds, X.std(0), rtol=1e-13)
    np.testing.assert_allclose(store["X"], (X - X.mean(0)) / X.std(0), rtol=0, atol=1e-13)
    assert RowStore.open(tmp_path / "rows")["X"].sds.tolist() == store["X"].sds.tolist()


def test_standardising_is_exact_for_a_large_mean_narrow_numbers_and_integers(table, tmp_path):
    source = {"x": 1e9 + table["x1"], "y": table["clicked"]}
    store = RowStore.write(
        source, tmp_path / "rows", standardise=["x", "y"], dtype={"x": "float32"}, chunk_rows=100
    )
    np.testing.assert_allclose(store["x"].sds, table["x1"].std(), rtol=1e-7)
    assert (store["y"].dtype, store["x"].dtype) == (np.float64, np.float32)
    assert abs(store["y"][:].std() - 1) < 1e-12


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (np.full(100, 0.1), "'x1' of 'X' is 0.1 in all rows"),
        (np.r_[np.nan, np.ones(99)], "'x1' of 'X' has NaN or infinity"),
    ],
)
def test_what_cannot_be_standardised_is_named(tmp_path, values, match):
    source = {"x1": values, "x2": np.arange(100.0)}
    with pytest.raises(ValueError, match=match):
        RowStore.write(
            source, tmp_path / "rows", columns={"X": ["x2", "x1"]}, standardise=["X"], chunk_rows=7
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["airline", "year"])
def test_categories_in_the_order_of_appearance(table, tmp_path, name):
    table["year"] = 2000 + table["clicked"]
    store = RowStore.write(table, tmp_path / "rows", columns={"g": name}, categories=["g"], chunk_rows=CHUNK)
    labels = store["g"].labels
    assert labels == tuple(dict.fromkeys(table[name].tolist()))
    assert [labels[code] for code in store["g"][:]] == table[name].tolist()
    assert store["g"].dtype == np.int32


@pytest.mark.parametrize("kind", ["U2", object, "T"])
def test_categories_in_a_given_order(table, tmp_path, kind):
    given = ["AA", "DL", "UA", "never"]
    source = {"g": table["airline"].astype(np.dtypes.StringDType() if kind == "T" else kind)}
    store = RowStore.write(source, tmp_path / "rows", categories={"g": given}, dtype={"g": "int8"})
    assert store["g"].labels == tuple(given)
    assert [given[code] for code in store["g"][:]] == table["airline"].tolist()


@pytest.mark.parametrize("by", ["g", "x1"])
def test_sorted_rows(table, tmp_path, by):
    source = {**table, "g": np.random.default_rng(2).integers(0, 37, N)}
    columns = {"X": ["x1", "x2"], "g": "g", "x1": "x1", "y": "clicked"}
    store = RowStore.write(
        source, tmp_path / "rows", columns=columns, sort_by=by, standardise=["X"], chunk_rows=CHUNK
    )
    order = np.argsort(source[by], kind="stable")
    X = matrix(table)
    np.testing.assert_array_equal(store["g"], source["g"][order])
    np.testing.assert_array_equal(store["y"], source["clicked"][order])
    np.testing.assert_allclose(store["X"], ((X - X.mean(0)) / X.std(0))[order], atol=1e-13)
    store.verify()


def test_a_store_is_replaced_only_if_that_was_asked_for(store, table):
    with pytest.raises(FileExistsError, match="overwrite=True"):
        RowStore.write(table, store.path, columns={"X": ["x1"]})
    old = store["X"][:].copy()
    new = RowStore.write(table, store.path, columns={"X": ["x1"]}, overwrite=True)
    assert new["X"].shape == (N, 1)
    np.testing.assert_array_equal(store["X"][:], old)  # a map outlives its name
    assert [path.name for path in store.path.parent.iterdir()] == ["rows"]
    assert sorted(path.name for path in store.path.iterdir()) == ["X.npy", "store.json"]


def test_nothing_but_a_store_is_replaced(table, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text").write_text("years of work")
    with pytest.raises(FileExistsError, match="is no row store, and is not overwritten"):
        RowStore.write({"y": table["clicked"]}, tmp_path / "thesis", overwrite=True)
    with pytest.raises(FileNotFoundError, match="no folder"):
        RowStore.write({"y": table["clicked"]}, tmp_path / "none" / "rows")
    (tmp_path / "rows.partial").mkdir()
    (tmp_path / "rows.partial" / "text").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"rows.partial is in the way"):
        RowStore.write({"y": table["clicked"]}, tmp_path / "rows")
    assert (tmp_path / "rows.partial" / "text").read_text() == "years of work"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"columns": {"y": "click"}}, r"there is no 'click'. Did you mean 'clicked'\?"),
        ({"columns": ["x1"]}, "columns must be a dict"),
        ({"columns": {"X": []}}, "names no column"),
        ({"columns": {"a/b": "x1"}}, "cannot be the name of a file"),
        ({}, r"Column 'airline' .* has no numbers. categories=\['airline'\]"),
        ({"columns": {"X": ["x1", "airline"]}}, "has no numbers"),
        ({"columns": {"y": "x1"}, "dtype": {"z": "int8"}}, "dtype: there is no 'z'"),
        ({"columns": {"y": "x1"}, "dtype": "float16"}, "would be stored as float16"),
        ({"columns": {"y": "x1"}, "dtype": "int8", "standardise": ["y"]}, "must be float32 or float64"),
        ({"columns": {"y": "x1"}, "standardise": "y"}, "standardise must be a list of names"),
        ({"columns": {"y": "x1"}, "sort_by": "x1"}, "sort_by: there is no 'x1'"),
        ({"columns": {"X": ["x1", "x2"]}, "sort_by": "X"}, "name a single column"),
        ({"columns": {"g": "airline"}, "categories": {"g": "AB"}}, "list of texts"),
        ({"columns": {"g": "airline"}, "categories": {"g": ["AA", "AA"]}}, "each once"),
        (
            {"columns": {"g": "airline"}, "categories": {"g": ["AA", "DL"]}},
            "'UA' in row .* none of the categories",
        ),
        ({"columns": {"y": "x1"}, "categories": ["y"]}, "neither text nor a whole number"),
        ({"columns": {"y": "x1"}, "chunk_rows": 0}, "chunk_rows must be"),
        ({"columns": {"y": "x1"}, "resume": 1}, "resume must be True or False"),
    ],
)
def test_options_that_cannot_be_met(table, tmp_path, options, match):
    with pytest.raises(ValueError, match=match):
        RowStore.write(table, tmp_path / "rows", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sd", "match"),
    [
        ({"x": np.zeros(0)}, "no rows"),
        ({"x": np.zeros(3), "y": np.zeros(4)}, r"equally many rows, got 'x' 3, 'y' 4"),
        ({"x": np.float64(3)}, "must be an array"),
        ({"x": np.array(3.0)}, "single number"),
        ({"x": [1, 2]}, "np.asarray"),
        ({"x": np.zeros(3, complex)}, "complex128"),
        ({"x": np.zeros(3, "M8[s]")}, "datetime64"),
        ({"x": np.zeros(3, np.float16)}, "stored as float16"),
        ({}, "no arrays"),
        ({1: np.zeros(3)}, "must be text"),
        (3, "got int"),
    ],
)
def test_sources_that_cannot_be_written(tmp_path, sd, match):
    with pytest.raises(ValueError, match=match):
        RowStore.write(sd, tmp_path / "rows")
    assert list(tmp_path.iterdir()) == []


def test_an_odd_order_of_bytes_or_axes_is_copied(tmp_path):
    X = np.random.default_rng(1).normal(size=(N, 3))
    source = {"fortran": np.asfortranarray(X), "big": X.astype(">f8"), "part": np.c_[X, X][:, 1:4]}
    store = RowStore.write(source, tmp_path / "rows", chunk_rows=CHUNK)
    np.testing.assert_array_equal(store["fortran"], X)
    np.testing.assert_array_equal(store["big"], X)
    np.testing.assert_array_equal(store["part"], source["part"])
    assert all(rows.dtype == np.float64 and rows[:].flags.c_contiguous for rows in store.values())


def test_a_folder_for_what_is_computed(store, tmp_path, monkeypatch):
    assert store.scratch_folder() == store.path
    elsewhere = tmp_path / "is not there" / "scratch"
    assert RowStore.open(store.path, scratch=elsewhere).scratch_folder() == elsewhere
    ScratchTable(elsewhere, (2, 3), float).close()
    with pytest.raises(PermissionError, match="Not a directory.*scratch='another folder'"):
        RowStore.open(store.path, scratch=store["y"].path / "below").scratch_folder()
    # The superuser, who may run this, can write everywhere.
    monkeypatch.setattr("os.access", lambda path, mode: path != store.path)
    with pytest.raises(PermissionError, match="scratch='another folder'"):
        store.scratch_folder()
    np.testing.assert_array_equal(RowStore.open(store.path)["y"], store["y"])
