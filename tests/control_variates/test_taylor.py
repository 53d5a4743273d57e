"""Parameters of `Taylor`."""

import numpy as np
import pytest

from pymc_austerity import Taylor


@pytest.mark.parametrize("order", [0, 3, -1, True, 2.0, "2", None])
def test_order(order):
    with pytest.raises(ValueError, match="order must be 1 or 2"):
        Taylor(order=order)


@pytest.mark.parametrize("center", ["mean", None, 0.0, [0.0, 1.0]])
def test_center(center):
    with pytest.raises(ValueError, match="center must be"):
        Taylor(center=center)


@pytest.mark.parametrize("exact_rows", [-1, 1.5, 100.0, True, "all"])
def test_exact_rows(exact_rows):
    with pytest.raises(ValueError, match="exact_rows must be an integer >= 0"):
        Taylor(exact_rows=exact_rows)


def test_what_is_allowed():
    assert Taylor().order == 2
    assert Taylor().center == "mode"
    assert Taylor(order=np.int64(1)).order == 1
    assert Taylor(center={"b": 0.0}).center == {"b": 0.0}
    assert Taylor(exact_rows=np.int64(0)).exact_rows == 0


@pytest.mark.parametrize(("n_local", "expected"), [(1_000_000, 100), (1000, 100), (999, 99), (15, 1), (9, 0)])
def test_default_number_of_exact_rows(n_local, expected):
    assert Taylor().check_size(3, n_local) == expected


def test_number_of_exact_rows():
    assert Taylor(exact_rows=100).check_size(3, 102) == 100
    assert Taylor(exact_rows=0).check_size(3, 1000) == 0
    for n_local in (101, 100, 10):
        with pytest.raises(ValueError, match=f"exact_rows=100 leaves too few of the {n_local} local terms"):
            Taylor(exact_rows=100).check_size(3, n_local)


def test_number_of_dimensions():
    assert Taylor().check_size(500, 10_000) == 100
    with pytest.raises(ValueError, match="takes up to 500 dimensions, and the block has 501"):
        Taylor().check_size(501, 10_000)
    assert Taylor(order=1).check_size(501, 10_000) == 100


def test_frozen():
    with pytest.raises(AttributeError):
        Taylor().order = 1
