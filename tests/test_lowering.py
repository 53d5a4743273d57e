"""Arrays in compiled code, whose numbers are read and written by the package's own instructions."""

import gc
import operator

import numba
import numpy as np
import pytest
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python, rtsys

from pymc_austerity import lowering
from pymc_austerity.compilation import OptimisedOnce

compiled = numba.njit(pipeline_class=OptimisedOnce)


def arrays():
    """Vectors and matrices of several kinds, with strides of all sorts."""
    rng = np.random.default_rng(1)
    whole = rng.normal(size=(6, 7))
    return [
        whole[0].copy(), whole[:, 2], whole[0, ::-1], np.arange(5), np.arange(5, dtype=np.int32),
        np.array([True, False, True]), rng.normal(size=4).astype(np.float32), whole.copy(), whole.T,
        whole[1:4, ::2], np.asfortranarray(whole),
    ]  # fmt: skip


@compiled
def one(a, i):
    return a[i]


@compiled
def rest(a, i, j):
    return a[i:j]


@compiled
def put(a, i, value):
    a[i] = value


@compiled
def put_between(a, i, j, value):
    a[i:j] = value


@pytest.mark.parametrize("a", arrays(), ids=str)
def test_numbers_and_rows_are_those_of_numpy(a):
    for i in (0, 1, -1, -len(a), np.int32(1), np.uint64(2)):
        np.testing.assert_array_equal(one(a, i), a[i])
    if a.ndim == 2:
        for i in ((0, 0), (-1, 2), (1, -1), (np.int32(2), np.uint8(1))):
            assert one(a, i) == a[i]


@pytest.mark.parametrize("a", arrays(), ids=str)
def test_slices_are_those_of_numpy(a):
    for i, j in ((0, 2), (1, 1), (2, 1), (-2, 100), (-100, -1), (100, 200), (-1, 0)):
        np.testing.assert_array_equal(rest(a, i, j), a[i:j])


@pytest.mark.parametrize("a", arrays(), ids=str)
def test_numbers_are_written_as_numpy_does(a):
    for i in (1, -1):
        own, expected = a.copy(order="K"), a.copy(order="K")
        value = 1 if a.ndim == 1 else np.ones(a.shape[1], a.dtype)
        put(own, i, value)
        expected[i] = value
        np.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize("a", arrays(), ids=str)
@pytest.mark.parametrize("limits", [(1, 3), (-2, 100), (2, 1), (-100, 1)])
def test_slices_are_written_as_numpy_does(a, limits):
    length = len(range(*slice(*limits).indices(len(a))))
    values = [1.0] if a.ndim == 2 else [1.0, np.arange(length).astype(a.dtype), np.ones(1, a.dtype)]
    for value in values:
        own, expected = a.copy(order="K"), a.copy(order="K")
        put_between(own, *limits, value)
        expected[slice(*limits)] = value
        np.testing.assert_array_equal(own, expected)


def test_arrays_that_overlap_are_copied_whole():
    @compiled
    def shift(a, i, j):
        a[i:j] = a[i - 1 : j - 1]

    own, expected = np.arange(10.0), np.arange(10.0)
    shift(own, 2, 8)
    expected[2:8] = expected[1:7].copy()
    np.testing.assert_array_equal(own, expected)


def test_a_vector_of_another_length_is_not_written():
    a = np.arange(5.0)
    with pytest.raises(ValueError, match="another length"):
        put_between(a, 0, 3, np.ones(2))
    np.testing.assert_array_equal(a, np.arange(5.0))


def test_views_keep_their_array_alive_and_no_reference_is_left():
    @compiled
    def view(n):
        whole = np.zeros((3, n))
        whole[1] = 2.0
        whole[1][1:3] = 3.0
        return whole[1][1:]

    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    found = [view(5) for _ in range(100)]
    assert all(one.tolist() == [3.0, 3.0, 2.0, 2.0] for one in found)
    del found
    gc.collect()
    after = rtsys.get_allocation_stats()
    assert after.alloc - before.alloc == after.free - before.free


def test_numba_is_as_it_was_elsewhere():
    one(np.zeros(3), 1)
    selectors = cpu_target.target_context._defns
    own = [version for selector in selectors.values() for _, version in selector.versions]
    assert not [one for one in own if getattr(one, "__module__", "") == "pymc_austerity.lowering"]


def test_what_numba_loads_within_stays():
    """Definitions for other types may be loaded when they are first asked for."""
    selector = cpu_target.target_context._defns[operator.getitem]
    before, new = list(selector.versions), ((numba.types.Poison, numba.types.Poison), object())
    try:
        with lowering.short():
            selector.append(new[1], new[0])
        assert sorted(map(id, (one[1] for one in selector.versions))) == sorted(
            map(id, (one[1] for one in [*before, new]))
        )
    finally:
        selector.versions[:] = before
        selector._cache.clear()
