"""Tables of blocks draw every position with its probability; planted faults are noticed."""

import inspect
import math

import numba
import numpy as np
import pytest

from pymc_austerity.bounds import block_table as module
from pymc_austerity.bounds.block_table import (
    BLOCK,
    BlockTable,
    alias_table,
    block_table,
    draw_weighted,
    rounded_up,
)
from tests.kernels.engines import ScriptedRng
from tests.statistical.errors import p_of_counts

from . import test_alias as alias

P_LIMIT = 1e-4


@numba.njit
def compiled(rng, table, weights, n):
    return np.array([draw_weighted(rng, table, weights) for _ in range(n)])


def recovered(table, weights):
    """The probability of each position: that of its block, times its share of it."""
    block = np.arange(len(weights)) // BLOCK
    of_block = alias.recovered(table.blocks)[block]
    return np.where(weights > 0.0, of_block * weights / np.where(weights > 0.0, table.sums[block], 1.0), 0.0)


WEIGHTS = {
    "blocks of zeros": lambda rng: np.where(
        np.arange(1000) // BLOCK % 3 == 1, 0.0, rng.gamma(0.5, size=1000)
    ),
    "with zeros": alias.WEIGHTS["with zeros"],
    "one of many": alias.WEIGHTS["one of many"],
    "huge ratios": lambda rng: 10.0 ** rng.uniform(-44, 38, 1000),
    "denormal": lambda rng: 1e-44 * rng.integers(1, 5, 1000),
    "heavy tails": lambda rng: rng.pareto(1.0, 50_000),
}
LENGTHS = ["1", "2", str(BLOCK - 1), str(BLOCK), str(BLOCK + 1), "1000"]


def weights_of(kind):
    return alias.weights_of(kind, WEIGHTS)


@pytest.mark.parametrize("kind", [*WEIGHTS, *LENGTHS])
def test_probabilities_are_exact(kind):
    weights = rounded_up(weights_of(kind))
    table = block_table(weights)
    whole = weights.astype(float)
    np.testing.assert_allclose(table.total, math.fsum(whole), rtol=1e-13)
    np.testing.assert_allclose(recovered(table, weights), whole / math.fsum(whole), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", ["blocks of zeros", "huge ratios", "1", str(BLOCK + 1)])
def test_every_random_number_draws_a_row_with_weight(kind):
    """Also the largest: a scan ends at the last row with weight, to the last bit."""
    weights = rounded_up(weights_of(kind))
    table = block_table(weights)
    for block in np.flatnonzero(table.sums):
        inside = (block + 0.5 * table.blocks.share[block]) / len(table.sums)
        rows = block * BLOCK + np.flatnonzero(weights[block * BLOCK : (block + 1) * BLOCK])
        if table.blocks.share[block] > 0.0:
            first, last = (
                draw_weighted(ScriptedRng([inside, u]), table, weights) for u in (0.0, np.nextafter(1, 0))
            )
            assert first == rows[0]
            assert last in rows
            ends = np.cumsum(weights[rows], dtype=float)
            assert ends[-1] == table.sums[block]
            for row, end in zip(rows[:-1], ends[:-1], strict=True):
                at = end / ends[-1]
                assert draw_weighted(ScriptedRng([inside, at * (1 - 1e-12)]), table, weights) <= row
                assert draw_weighted(ScriptedRng([inside, at * (1 + 1e-12)]), table, weights) > row


@pytest.mark.parametrize("kind", ["blocks of zeros", "one of many", "1", "heavy tails"])
def test_interpreted_and_compiled_draws_are_identical(kind):
    weights = rounded_up(weights_of(kind))
    table = block_table(weights)
    ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
    drawn = [draw_weighted(ours, table, weights) for _ in range(500)]
    np.testing.assert_array_equal(drawn, compiled(theirs, table, weights, 500))
    assert ours.random() == theirs.random()


SMALL = rounded_up(np.tile([0.0, 1.0, 7.0, 0.2, 0.0, 3.0, 0.5, 20.0, 1.0, 0.0, 2.0], 7))


def counts(table, weights=SMALL):
    drawn = compiled(np.random.default_rng(2), table, weights, 500_000)
    return np.bincount(drawn, minlength=len(weights))


def test_counts():
    assert p_of_counts(counts(block_table(SMALL)), SMALL / SMALL.sum(dtype=float)) > P_LIMIT


def planted():
    table = block_table(SMALL)
    return {
        "blocks alike": table._replace(blocks=alias_table(np.ones(len(table.sums)))),
        "sums of the neighbour": table._replace(sums=np.roll(table.sums, 1)),
        "other weights": table,
    }


@pytest.mark.parametrize("bug", planted())
def test_planted_faults_are_noticed(bug):
    weights = SMALL[::-1].copy() if bug == "other weights" else SMALL
    assert p_of_counts(counts(planted()[bug], weights), SMALL / SMALL.sum(dtype=float)) < P_LIMIT


def test_sums_of_single_precision_are_noticed():
    """A scan that adds in single precision does not end where its block ends."""
    # Planted fault: sums of single precision.
    source = inspect.getsource(draw_weighted).replace("np.float64(weights[i])", "weights[i]")
    names = dict(vars(module))
    exec(source.replace("reached = 0.0", "reached = np.float32(0.0)"), names)
    weights = rounded_up(np.random.default_rng(3).gamma(0.1, size=BLOCK))
    table = block_table(weights)
    ends = np.cumsum(weights.astype(float))
    k = int(np.argmax(np.abs(np.cumsum(weights) - ends)))
    between = (float(np.cumsum(weights)[k]) + ends[k]) / 2 / ends[-1]
    right, wrong = (
        f(ScriptedRng([0.5, between]), table, weights) for f in (draw_weighted, names["draw_weighted"])
    )
    assert right != wrong


@pytest.mark.parametrize("weights", [np.zeros(70), np.r_[np.ones(40), np.inf]])
def test_what_is_never_drawn_has_no_alias_table(weights):
    table = block_table(rounded_up(weights))
    assert isinstance(table, BlockTable)
    assert len(table.blocks.share) == len(table.blocks.other) == 0
    assert table.total == weights.sum()


def test_bounds_are_rounded_up():
    rng = np.random.default_rng(4)
    values = np.r_[10.0 ** rng.uniform(-60, 60, 1000), 0.0, 1.0, 5e-324, 3.5e38, 1e300, np.inf]
    rounded = rounded_up(values)
    assert rounded.dtype == np.float32
    assert np.all(rounded >= values)
    assert np.all(np.nextafter(rounded, np.float32(0))[values > 0] < values[values > 0])
    assert rounded[values == 0.0] == 0.0
    assert rounded[values == 1.0] == 1.0
    table = values.reshape(2, -1).T[::2]
    np.testing.assert_array_equal(rounded_up(table), rounded.reshape(2, -1).T[::2])
