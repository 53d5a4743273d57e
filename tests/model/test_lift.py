"""Rows and cells that `Lifter` takes are those of the full result, at a cost that does not grow with it."""

import math

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_austerity.model import factorise  # noqa: F401 - registers the rules
from pymc_austerity.model.graph.rewrite import INTERPRETED, ShapeMeasure, depends_on, rebuild
from pymc_austerity.model.lift.lifter import Lifter
from pymc_austerity.model.refusal import Coupled

RNG = np.random.default_rng(3)
# An axis of this length is long: no graph of rows may have one, but for what is selected from.
LONG = 40


def lifted(make, shape, axes, indices):
    """Full result, and the rows or cells of it, of a function of one array."""
    x = pt.tensor("x", shape=shape)
    value = RNG.normal(size=shape)
    # Shapes become static, as they are in the graph of a model.
    (full,) = rebuild([make(x)], {x: x}, ShapeMeasure({x: value}, []))
    lifter = Lifter([full], [x], [x], LONG)
    variables = [pt.vector(f"i{k}", dtype="int64") for k in range(len(axes))]
    if len(axes) == 1:
        rows = lifter.take(full, axes[0], variables[0])
    else:
        rows = lifter.take_points(full, axes, variables)
    function = pytensor.function([x, *variables], [full, rows], mode=INTERPRETED, on_unused_input="ignore")
    assert is_cheap(rows, x), "computes long vectors"
    return function(value, *indices)


def is_cheap(rows, x):
    """Nothing that is computed from x has a long axis."""
    return not any(
        k is not None and k >= LONG
        for var, depends in depends_on([rows], [x]).items()
        if depends and var.owner is not None
        for k in var.type.shape
    )


def some(length, size=6):
    return RNG.integers(length, size=size)


def check_rows(make, shape, axis):
    x = pt.tensor("x", shape=shape)
    length = pytensor.function([x], make(x), mode=INTERPRETED)(np.zeros(shape)).shape[axis]
    index = some(length)
    full, rows = lifted(make, shape, [axis], [index])
    np.testing.assert_allclose(rows, np.take(full, index, axis))


def check_cells(make, shape, axes):
    x = pt.tensor("x", shape=shape)
    result = pytensor.function([x], make(x), mode=INTERPRETED)(np.zeros(shape)).shape
    indices = [some(result[a]) for a in axes]
    full, cells = lifted(make, shape, axes, indices)
    front = np.moveaxis(full, axes, range(len(axes)))
    np.testing.assert_allclose(cells, front[tuple(indices)])


# Reshape: every way to write a number of elements as two shapes.

FACTORS = st.lists(st.sampled_from([1, 2, 3, 50]), min_size=1, max_size=4).filter(
    lambda shape: math.prod(shape) <= 5000
)


@st.composite
def two_shapes(draw):
    """A shape, and another of the same number of elements, made by merging and splitting."""
    before = draw(FACTORS)
    primes = [p for k in before for p in ([2, 25] if k == 50 else [k])]
    after = []
    for p in primes:
        if after and draw(st.booleans()):
            after[-1] *= p
        else:
            after.append(p)
    return tuple(before), tuple(after)


@given(two_shapes(), st.data())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_reshape(shapes, data):
    before, after = shapes
    axis = data.draw(st.integers(0, len(after) - 1))
    index = some(after[axis])
    x = pt.tensor("x", shape=before)
    value = RNG.normal(size=before)
    full = pt.exp(x).reshape(after)
    i = pt.vector("i", dtype="int64")
    rows = Lifter([full], [x], [x], LONG).take(full, axis, i)
    found, expected = pytensor.function([x, i], [rows, full], mode=INTERPRETED, on_unused_input="ignore")(
        value, index
    )
    assert rows.type.ndim == full.type.ndim
    np.testing.assert_allclose(found, expected if after[axis] == 1 else np.take(expected, index, axis))


ROWS = {
    "merged": (lambda x: pt.exp(x).reshape((-1,)), (60, 3), 0),
    "merged around": (lambda x: pt.exp(x).reshape((2, -1, 2)), (2, 60, 3, 2), 1),
    "split": (lambda x: pt.exp(x).reshape((60, 3)), (180,), 0),
    "split, inner": (lambda x: pt.exp(x).reshape((3, 60)), (180,), 1),
    "merged and split": (lambda x: pt.exp(x).reshape((120, 3)), (60, 2, 3), 0),
    "regrouped": (lambda x: pt.exp(x).reshape((90, 2)), (60, 3), 0),
    "repeated": (lambda x: pt.repeat(pt.exp(x), 3), (60,), 0),
    "repeated rows": (lambda x: pt.repeat(pt.exp(x), 3, axis=0), (60, 2), 0),
    "repeated unequally": (lambda x: pt.repeat(pt.exp(x), np.arange(60) % 3), (60,), 0),
    "tiled": (lambda x: pt.tile(pt.exp(x), 3), (60,), 0),
    "stacked": (lambda x: pt.stack([x, pt.exp(x)], axis=1).flatten(), (60,), 0),
    "transposed": (lambda x: pt.exp(x).T.flatten(), (60, 3), 0),
    "cells by two vectors": (lambda x: pt.exp(x)[np.arange(60) % 50, np.arange(60) % 3], (50, 3), 0),
    "cell of each row": (lambda x: pt.exp(x)[np.arange(60), np.arange(60) % 3], (60, 3), 0),
    "cells with a slice between": (lambda x: pt.exp(x)[np.arange(60), :, np.arange(60) % 3], (60, 2, 3), 0),
    "rows and a column": (lambda x: pt.exp(x)[np.arange(60)[::-1], 1], (60, 3), 0),
    "rows against columns": (lambda x: pt.exp(x)[np.arange(60)[::-1, None], np.array([[2, 0]])], (60, 3), 0),
    "rows by negative numbers": (lambda x: pt.exp(x)[-1 - np.arange(60)], (60,), 0),
    "cells of a product": (lambda x: (x @ x.T)[np.arange(60), np.arange(60)[::-1]], (60, 3), 0),
    "masked": (lambda x: pt.exp(x)[np.arange(60) % 7 > 0], (60,), 0),
    "masked cells": (lambda x: pt.exp(x)[np.arange(180).reshape(60, 3) % 7 > 0], (60, 3), 0),
    "assigned cells": (lambda x: x[np.arange(180).reshape(60, 3) % 7 > 3].set(np.arange(76.0)), (60, 3), 0),
    "assigned from the rows": (
        lambda x: pt.zeros((90, 2))[np.arange(180).reshape(90, 2) % 3 > 0].set(pt.exp(x)),
        (120,),
        0,
    ),
    "assigned to rows and a column": (lambda x: x[5:30:2, 1].set(pt.exp(x[:13, 0])), (60, 2), 0),
    "assigned to rows by number": (lambda x: x[np.array([3, 41, 7])].set(np.ones((3, 2))), (60, 2), 0),
    "the same to some rows": (lambda x: x[10:50].set(np.arange(2.0)), (60, 2), 0),
    "assigned backwards": (lambda x: x[::-1].set(pt.exp(x)), (60,), 0),
    "assigned to columns by number": (lambda x: x[:, [2, 0]].set(pt.exp(x[:, :2])), (60, 3), 0),
    "incremented cells": (lambda x: x[np.arange(30), np.arange(30) % 3].inc(2.0), (60, 3), 0),
    "incremented twice": (lambda x: x[np.arange(60) // 2].inc(pt.exp(x)), (60, 2), 0),
    "accumulated by group": (lambda x: pt.zeros((50, 2))[np.arange(120) % 45].inc(pt.exp(x)), (120, 2), 0),
    "accumulated cells": (
        lambda x: pt.zeros((50, 3))[np.arange(120) % 45, np.arange(120) % 2].inc(pt.exp(x)),
        (120,),
        0,
    ),
    "assigned twice": (lambda x: x[np.arange(60) // 2].set(pt.exp(x)), (60, 2), 0),
    "sorted within rows": (lambda x: pt.sort(x, axis=1), (60, 3), 0),
    "looked up": (lambda x: pt.searchsorted(np.linspace(-1, 1, 5), pt.exp(x)), (60,), 0),
    "diagonals": (lambda x: pt.diagonal(pt.exp(x), axis1=1, axis2=2), (60, 3, 3), 0),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name):
    check_rows(*ROWS[name])


CELLS = {
    "sum": (lambda x: x[:, :1] + x[:, 1][None, :], (60, 2), [0, 1]),
    "product": (lambda x: x @ x.T, (60, 3), [0, 1]),
    "product of batches": (lambda x: x @ x.mT, (2, 60, 3), [1, 2]),
    "row and batch of a product": (lambda x: x @ x[:, :4].mT, (50, 5, 3), [0, 1]),
    "column and batch of a product": (lambda x: x[:, :4] @ x.mT, (50, 5, 3), [0, 2]),
    "one product in batches": (lambda x: (x @ x.mT)[0], (1, 60, 3), [0, 1]),
    "sum of products": (lambda x: (x[:, None, :] * x[None, :, :]).sum(axis=2), (60, 3), [1, 0]),
    "axes apart": (lambda x: pt.exp(x), (60, 2, 70), [0, 2]),
    "axes exchanged": (lambda x: pt.exp(x).T, (60, 70), [1, 0]),
    "broadcast": (lambda x: pt.alloc(pt.exp(x), 70, 60), (60,), [0, 1]),
    "selected": (lambda x: pt.exp(x)[np.arange(90) % 60][:, ::-1], (60, 70), [0, 1]),
    "split": (lambda x: pt.exp(x).reshape((60, 50)), (3000,), [0, 1]),
    "three": (lambda x: x[:, None, None] * x[None, :, None] + x[None, None, :], (45,), [0, 1, 2]),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells(name):
    check_cells(*CELLS[name])


REFUSED = {
    "sorted rows": (lambda x: pt.sort(x), (60,), "sort"),
    "cumulated": (lambda x: pt.cumsum(x), (60,), "accumulates"),
    "added to one row": (lambda x: x[np.zeros(60, int)].inc(pt.exp(x)), (60,), "60 numbers are added"),
    "softmax": (lambda x: pt.special.softmax(x), (60,), "softmax"),
    "inverse": (lambda x: pt.linalg.inv(x), (60, 60), "mixes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, shape, reason = REFUSED[name]
    with pytest.raises(Coupled, match=reason):
        lifted(make, shape, [0], [some(60)])


def test_rows_that_are_computed_in_full_are_found():
    """The check of the cost fails where a rule computes everything and then selects."""
    x = pt.tensor("x", shape=(60,))
    assert not is_cheap(pt.exp(x)[np.arange(3)], x)
