"""Rows and cells of random chains of operations equal those of the full result."""

from itertools import permutations

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_austerity.model import factorise  # noqa: F401 - registers the rules
from pymc_austerity.model.graph.rewrite import INTERPRETED, ShapeMeasure, rebuild
from pymc_austerity.model.lift import arithmetic
from pymc_austerity.model.lift.lifter import Lifter
from pymc_austerity.model.refusal import Coupled

CHAINS = 30  # for each seed


class Chain:
    """A random chain of operations on a small array; each method appends one."""

    def __init__(self, rng):
        self.rng = rng
        self.axis = 0

    def on(self, start):
        x = start
        measure = ShapeMeasure({start: np.zeros(start.type.shape)}, [])
        for _ in range(self.rng.integers(1, 6)):
            self.axis = int(self.rng.integers(x.type.ndim))
            new = getattr(self, str(self.rng.choice(OPERATIONS)))(x)
            (new,) = rebuild([new], {start: start}, measure)  # as in the graph of a model, shapes are known
            if 0 < new.type.ndim < 5 and 0 not in new.type.shape and np.prod(new.type.shape) < 2000:
                x = new
        return x

    def along(self, entry):
        return (slice(None),) * self.axis + (entry,)

    def positions(self, length, shape):
        return self.rng.integers(-length, length, size=shape)

    def curved(self, x):
        return pt.tanh(x) + x[self.along(slice(0, 1))]

    def transposed(self, x):
        return x.transpose(*map(int, self.rng.permutation(x.type.ndim)))

    def merged(self, x):
        return x.reshape((-1, *x.type.shape[self.axis + 1 :]))

    def split(self, x):
        k = x.type.shape[self.axis]
        part = next((p for p in (2, 3, 5) if k % p == 0), 1)
        before, after = x.type.shape[: self.axis], x.type.shape[self.axis + 1 :]
        return x.reshape((*before, k // part, part, *after))

    def expanded(self, x):
        return pt.expand_dims(x, self.axis)

    def spread(self, x):
        return pt.alloc(x, 3, *x.type.shape)

    def summed(self, x):
        return x.sum(axis=self.axis)

    def joined(self, x):
        return pt.concatenate([x, pt.cos(x)], axis=self.axis)

    def sliced(self, x):
        k, step = x.type.shape[self.axis], int(self.rng.choice([-2, -1, 1, 2]))
        start = int(self.rng.integers(-k, k)) if self.rng.random() < 0.5 else None
        return x[self.along(slice(start, None, step))]

    def selected(self, x):
        rows = self.positions(x.type.shape[self.axis], 6).astype(self.rng.choice(["int8", "int32", "int64"]))
        return x[self.along(rows)]

    def masked(self, x):
        return x[self.along(np.arange(x.type.shape[self.axis]) % 3 != 1)]

    def cells(self, x):
        if x.type.ndim < 2:
            return x
        first, second = sorted(self.rng.choice(x.type.ndim, 2, replace=False))
        shapes = [(6,), (6,)] if self.rng.random() < 0.5 else [(6, 1), (1, 2)]
        entries = [slice(None)] * x.type.ndim
        for axis, shape in zip((first, second), shapes, strict=True):
            entries[axis] = self.positions(x.type.shape[axis], shape)
        return x[tuple(entries)]

    def repeated(self, x):
        return pt.repeat(x, np.arange(x.type.shape[self.axis]) % 3 + 1, axis=self.axis)

    def assigned(self, x):
        part = x[self.along(slice(x.type.shape[self.axis] // 2, None))]
        return part.set(pt.sin(part))

    def assigned_cells(self, x):
        part = x[self.rng.random(x.type.shape) < 0.5]
        return part.set(pt.sin(part)) if self.rng.random() < 0.5 else part.inc(1.5)

    def accumulated(self, x):
        part = x[self.along(self.positions(x.type.shape[self.axis], 5))]
        return part.inc(pt.sin(part))

    def multiplied(self, x):
        return x.mT @ x if x.type.ndim > 1 else x


HELPERS = ("on", "along", "positions")
OPERATIONS = [name for name in vars(Chain) if not name.startswith("_") and name not in HELPERS]


def compare(x, full, choices, rng):
    """Rows or cells of `full` along each choice of axes equal its own; returns how many are refused."""
    lifted, inputs, given = [], [x], [rng.normal(size=x.type.shape)]
    for axes in choices:
        variables = [pt.vector("index", dtype="int64") for _ in axes]
        indices = [rng.integers(full.type.shape[a], size=5) for a in axes]
        lifter = Lifter([full], [x], [x], 3)
        try:
            if len(axes) == 1:
                found = lifter.take(full, axes[0], variables[0])
            else:
                found = lifter.take_points(full, axes, variables)
        except Coupled:
            continue
        lifted.append((axes, indices, found))
        inputs += variables
        given += indices
    outputs = [full, *(found for _, _, found in lifted)]
    function = pytensor.function(inputs, outputs, mode=INTERPRETED, on_unused_input="ignore")
    everything, *results = function(*given)
    for (axes, indices, _), found in zip(lifted, results, strict=True):
        if len(axes) == 1:
            expected = np.take(everything, indices[0], axes[0])
        else:
            expected = np.moveaxis(everything, axes, range(len(axes)))[tuple(indices)]
        assert found.ndim == expected.ndim
        np.testing.assert_allclose(np.broadcast_to(found, expected.shape), expected)
    return len(choices) - len(lifted)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.covering(1)
def test_compositions(seed):
    rng = np.random.default_rng(seed)
    compared = refused = 0
    for _ in range(CHAINS):
        x = pt.tensor("x", shape=tuple(map(int, rng.choice([1, 2, 3, 5, 7], size=rng.integers(1, 4)))))
        full = Chain(rng).on(x)
        if full is x:
            continue
        every = [axes for n in (1, 2) for axes in permutations(range(full.type.ndim), n)]
        now_refused = compare(x, full, every, rng)
        compared += len(every) - now_refused
        refused += now_refused
    assert compared > 100
    assert refused < compared / 4


def test_planted_fault_is_found(monkeypatch):
    """Positions of a merged axis are read in the order of columns instead of rows."""
    right = arithmetic.coordinates
    monkeypatch.setattr(arithmetic, "coordinates", lambda i, shape: right(i, shape[::-1])[::-1])
    x = pt.tensor("x", shape=(3, 5))
    with pytest.raises((AssertionError, IndexError)):
        compare(x, pt.tanh(x).reshape((15,)), [(0,)], np.random.default_rng(0))
