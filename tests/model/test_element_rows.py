"""Rows that contain an element of a variable."""

import numpy as np
import pytest

from pymc_austerity.model.structure.element_rows import Group, element_rows

RNG = np.random.default_rng(1)
# The fourth element, and the last two, are in no row.
ELEMENTS = RNG.choice([0, 1, 2, 4, 5, 7], size=200)
GROUP = Group("u", 10, ELEMENTS)


@pytest.mark.parametrize("element", range(10))
def test_rows_of_an_element(element):
    (expected,) = np.nonzero(np.equal(ELEMENTS, element))
    np.testing.assert_array_equal(element_rows(GROUP).of(element), expected)


def test_every_row_contains_one_element():
    found = element_rows(GROUP).of(np.arange(10))
    np.testing.assert_array_equal(np.sort(found), np.arange(200))


def test_rows_of_several_elements():
    found = element_rows(GROUP).of([7, 3, 1])
    np.testing.assert_array_equal(found, np.r_[np.flatnonzero(ELEMENTS == 7), np.flatnonzero(ELEMENTS == 1)])


def test_no_elements_and_no_rows():
    assert element_rows(GROUP).of([]).shape == (0,)
    empty = element_rows(Group("u", 3, np.empty(0, dtype=np.int64)))
    assert empty.of([0, 1, 2]).shape == (0,)


@pytest.mark.parametrize("wrong", [-1, 10])
def test_elements_that_the_variable_does_not_have(wrong):
    with pytest.raises(ValueError, match=r"of 'u', which has 10"):
        element_rows(Group("u", 10, np.array([0, wrong])))
