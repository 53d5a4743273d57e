"""Maps are opened as they are, or refused with the remedy."""

import pickle

import numpy as np
import pytest

from pymc_austerity.data import RowStore

N = 200_000


@pytest.fixture
def maps(tmp_path):
    rng = np.random.default_rng(1)
    np.save(tmp_path / "X.npy", rng.normal(size=(N, 3)))
    (tmp_path / "y.raw").write_bytes(rng.integers(0, 2, N).astype(np.int8).tobytes())
    return {
        "X": np.load(tmp_path / "X.npy", mmap_mode="r"),
        "y": np.memmap(tmp_path / "y.raw", np.int8, "r+", shape=(N,)),
    }


def test_maps_are_not_copied(maps, tmp_path):
    store = RowStore.open(maps)
    for name, array in maps.items():
        np.testing.assert_array_equal(store[name], array)
        assert not store[name][:].flags.writeable
    assert sorted(path.name for path in tmp_path.iterdir()) == ["X.npy", "y.raw"]
    assert (store.path, store["X"].n_chunks) == (None, 4)
    maps["y"][5] = 77  # a map that can be written to is the same file
    assert store["y"][5] == 77


@pytest.mark.parametrize("part", [slice(1000, None), slice(70_001, 70_500), slice(0, 10)])
def test_rows_of_a_map_are_the_right_ones(maps, part):
    store = RowStore.open({name: array[part] for name, array in maps.items()})
    for name, array in maps.items():
        np.testing.assert_array_equal(store[name], array[part])
    rebased = RowStore.open({"X": np.asarray(maps["X"])[part][1:]})
    np.testing.assert_array_equal(rebased["X"], maps["X"][part][1:])


def test_they_go_to_another_process_by_their_paths(maps, tmp_path):
    for store in (RowStore.open(maps), RowStore.write(maps, tmp_path / "rows")):
        sent = pickle.dumps(store)
        assert len(sent) < 3000
        arrived = pickle.loads(sent)
        np.testing.assert_array_equal(arrived["X"], maps["X"])
        assert arrived.fingerprint == store.fingerprint


def test_chunks_are_compared_with_what_was_read_first(maps):
    store = RowStore.open(maps)
    store.verify()
    list(store.chunks())
    maps["y"][N - 1] ^= 1
    maps["y"].flush()
    # As if the time of the change were lost.
    store["y"].require_unchanged = lambda: None
    with pytest.raises(ValueError, match=r"y.raw has changed .* chunk 3 \(rows 196,608 to 199,999\)"):
        list(store.chunks())


def suited(tmp_path, array, **options):
    np.save(tmp_path / "array.npy", array, **options)
    return np.load(tmp_path / "array.npy", mmap_mode="r")


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.asfortranarray(np.ones((10, 3))), "Fortran order, .*RowStore.write"),
        (np.ones(10, ">f8"), "byte order of other machines.*RowStore.write"),
        (np.ones(10, np.float16), "dtype float16.*RowStore.write"),
        (np.ones(10, complex), "dtype complex128"),
    ],
)
def test_maps_that_do_not_suit_are_refused_with_the_remedy(tmp_path, array, match):
    mapped = suited(tmp_path, array)
    with pytest.raises(ValueError, match=match):
        RowStore.open({"x": mapped})
    if array.dtype.kind == "f" and array.dtype.itemsize == 8:
        np.testing.assert_array_equal(RowStore.write({"x": mapped}, tmp_path / "rows")["x"], array)


def test_other_things_are_refused(maps, tmp_path):
    with pytest.raises(ValueError, match=r"'X' is not mapped from a file. RowStore.write"):
        RowStore.open({"X": np.zeros((10, 3))})
    with pytest.raises(ValueError, match="not mapped"):
        RowStore.open({"X": [1, 2]})
    with pytest.raises(ValueError, match="one after the other"):
        RowStore.open({"X": maps["X"][:, 1:]})
    with pytest.raises(ValueError, match=r"equally many rows, got 'X' 200,000, 'y' 199,999"):
        RowStore.open({"X": maps["X"], "y": maps["y"][1:]})
    with pytest.raises(ValueError, match="no rows"):
        RowStore.open({"X": maps["X"][:0]})
    with pytest.raises(ValueError, match="no arrays"):
        RowStore.open({})
    with pytest.raises(ValueError, match="scratch='a folder'"):
        RowStore.open(maps).scratch_folder()
    with pytest.raises(FileNotFoundError, match="is no row store"):
        RowStore.open(tmp_path)


def test_a_store_of_another_machine_is_refused_with_the_remedy(tmp_path):
    store = RowStore.write({"x": np.arange(5.0)}, tmp_path / "rows")
    text = (store.path / "store.json").read_text()
    (store.path / "store.json").write_text(text.replace("<f8", ">f8"))
    with pytest.raises(ValueError, match="another byte order"):
        RowStore.open(store.path)
    (store.path / "store.json").write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(ValueError, match=r"store.json cannot be read: its format is 2"):
        RowStore.open(store.path)
    (store.path / "store.json").write_text(text[:100])
    with pytest.raises(ValueError, match=r"store.json cannot be read"):
        RowStore.open(store.path)
