"""Records that compiled code is handed as one pointer."""

import gc
import pickle
from typing import NamedTuple

import numba
import numpy as np
import pytest

from pymc_austerity.bounds.jets.compiled import of_records
from pymc_austerity.compilation import OptimisedOnce, jitable
from pymc_austerity.packed import Packed, packed

compiled = numba.njit(pipeline_class=OptimisedOnce)


class Inner(NamedTuple):
    matrix: np.ndarray
    count: int
    is_on: bool


class Outer(NamedTuple):
    vector: np.ndarray
    inner: Inner
    mask: np.ndarray
    number: float
    empty: np.ndarray
    small: np.ndarray


def record(**changes):
    inner = Inner(np.arange(6.0).reshape(2, 3), -3, True)
    one = Outer(
        np.arange(4.0), inner, np.array([True, False]), 2.5, np.zeros((0, 2)), np.arange(3, dtype=np.int32)
    )
    return one._replace(**changes)


@jitable
def product(inner):
    return inner.matrix[1, 2] * inner.count


@compiled
def read(one):
    return (
        one.vector.sum(), product(one.inner), one.inner.is_on, one.mask[0], one.mask[1], one.number,
        one.empty.shape, one.small[-1], one.inner.matrix.shape,
    )  # fmt: skip


def test_compiled_code_reads_what_the_record_has():
    assert read(*packed(record())) == (6.0, -15.0, True, True, False, 2.5, (0, 2), 2, (2, 3))
    other = record(number=-0.0, inner=Inner(np.ones((2, 3)), 2**62, False))
    found = read(*packed(other))
    assert found[1:3] == (2.0**62, False)
    assert np.signbit(found[5])


def test_arrays_are_shared():
    @compiled
    def write(one):
        one.vector[1] = 7.0
        one.inner.matrix[0, :] = 3.0

    one = record()
    write(*packed(one))
    assert one.vector.tolist() == [0.0, 7.0, 2.0, 3.0]
    assert one.inner.matrix.tolist() == [[3.0, 3.0, 3.0], [3.0, 4.0, 5.0]]


def test_arrays_live_as_long_as_the_packed_record():
    own = Packed(record(vector=np.full(1000, 3.0)))
    gc.collect()
    np.ones(1000)  # would take the place of what was freed
    assert read(own)[0] == 3000.0


def test_records_of_one_layout_have_one_type():
    assert Packed(record()).kind == Packed(record(vector=np.ones(9), number=1.0)).kind
    assert Packed(record()).kind != Packed(record(vector=np.ones(9, np.float32))).kind
    read(*packed(record()))
    n_compiled = len(read.signatures)
    read(*packed(record(vector=np.ones(9))))
    assert len(read.signatures) == n_compiled
    read(*packed(record(vector=np.ones(9, np.float32))))
    assert len(read.signatures) == n_compiled + 1
    assert pickle.loads(pickle.dumps(Packed(record()).kind)) == Packed(record()).kind


def test_read_only_arrays_have_the_type_of_others():
    """Rows that are mapped from a file take no code of their own."""
    vector = np.arange(4.0)
    vector.flags.writeable = False
    assert Packed(record(vector=vector)).kind == Packed(record()).kind


def test_what_is_not_contiguous_is_named():
    with pytest.raises(ValueError, match="vector of Outer is not C-contiguous"):
        Packed(record(vector=np.arange(8.0)[::2]))
    with pytest.raises(ValueError, match="matrix of Inner is not C-contiguous"):
        Packed(record(inner=Inner(np.asfortranarray(np.ones((2, 3))), 1, True)))


def test_other_arguments_are_handed_on():
    @of_records
    def scaled(one, factor, vector):
        """Docstring."""
        return one.number * factor + vector[0] + one.inner.count

    assert scaled(record(), 2.0, np.ones(1)) == 3.0
    assert scaled.__doc__ == "Docstring."
    assert scaled.__name__ == "scaled"


def test_tuples_of_records():
    class Several(NamedTuple):
        parts: tuple[Inner, ...]
        nothing: None
        last: float

    @compiled
    def sums(one):
        total = 0.0
        for k in range(3):
            total += 10.0**k * one.parts[k].matrix[0, 0] + one.parts[k].count
        return total + one.last, one.nothing is None, one.parts[1].count

    parts = tuple(Inner(np.full((2, 2), float(k)), k, True) for k in (1, 2, 3))
    assert sums(*packed(Several(parts, None, 0.5))) == (321.0 + 6.0 + 0.5, True, 2)


def test_what_is_no_number_is_named():
    with pytest.raises(TypeError, match="with a str cannot be packed"):
        Packed(record(number="one"))


def test_interpreted_code_reads_the_record():
    one = record()
    own = Packed(one)
    assert own.inner is one.inner
    assert own.number == 2.5
    assert read.py_func(own) == read(own)
    with pytest.raises(AttributeError, match="nothing"):
        own.nothing  # noqa: B018 - it is the point
