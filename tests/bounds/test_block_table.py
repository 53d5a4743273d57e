"""Tables draw every position with its probability, one by one and in blocks; planted faults are noticed."""

import inspect
import math

import numba
import numpy as np
import pytest

from pymc_austerity.bounds import block_table as module
from pymc_austerity.bounds.block_table import (
    BLOCK,
    AliasTable,
    BlockTable,
    alias_table,
    block_table,
    draw_position,
    draw_weighted,
    rounded_up,
)
from tests.kernels.engines import ScriptedRng
from tests.statistical.errors import p_of_counts

P_LIMIT = 1e-4


@numba.njit
def compiled(rng, table, n):
    return np.array([draw_position(rng, table) for _ in range(n)])


@numba.njit
def compiled_weighted(rng, table, weights, n):
    return np.array([draw_weighted(rng, table, weights) for _ in range(n)])


def p_of(weights, draw, *tables):
    """p-value of how often each position is drawn, which should be in proportion to these weights."""
    counts = np.bincount(draw(np.random.default_rng(2), *tables, 500_000), minlength=len(weights))
    return p_of_counts(counts, weights / weights.sum(dtype=float))


# One by one -----------------------------------------------------------------------------------------


def owned(table):
    """The probability of each position, from what it owns of all cells."""
    owned = table.share + np.bincount(table.other, weights=1.0 - table.share, minlength=len(table.share))
    return owned / len(table.share)


OF_POSITIONS = {
    "one": lambda rng: np.array([0.3]),
    "equal": lambda rng: np.full(1000, 0.1),
    "with zeros": lambda rng: rng.gamma(0.5, size=1000) * (rng.random(1000) < 0.6),
    "one of many": lambda rng: np.where(np.arange(1000) == 617, 2.0, 0.0),
    "huge ratios": lambda rng: 10.0 ** rng.uniform(-300, 300, 1000),
    "tiny": lambda rng: 1e-300 * rng.gamma(2.0, size=1000),
    "denormal": lambda rng: 5e-324 * rng.integers(1, 5, 1000),
    "sum overflows": lambda rng: 1e308 * rng.random(1000),
    "few large": lambda rng: np.r_[1e5 * rng.random(3), rng.random(50_000)],
    "heavy tails": lambda rng: rng.pareto(1.0, 100_000),
}


def weights_of(kind, table=OF_POSITIONS):
    rng = np.random.default_rng(list(kind.encode()))
    return table[kind](rng) if kind in table else rng.gamma(2.0, size=int(kind))


@pytest.mark.parametrize("kind", [*OF_POSITIONS, "2", "3", "1000", "100000"])
def test_probabilities_of_positions_are_exact(kind):
    weights = weights_of(kind)
    kept = weights.copy()
    table = alias_table(weights)
    np.testing.assert_array_equal(weights, kept)
    assert table.share.dtype == np.float64
    assert table.other.dtype == np.int32
    assert np.all((table.share >= 0.0) & (table.share <= 1.0))
    assert np.all((table.other >= 0) & (table.other < len(weights)))
    scaled = weights / weights.max()
    np.testing.assert_allclose(owned(table), scaled / scaled.sum(), rtol=0, atol=1e-12)
    # Rows with a weight of zero own nothing at all.
    assert np.all(table.share[weights == 0.0] == 0.0)
    owners = table.other[table.share < 1.0]
    assert np.all(weights[owners] > 0.0)


def test_small_probabilities_are_exact_relative_to_themselves():
    weights = np.r_[np.logspace(-290, 0, 500), 3.0]
    np.testing.assert_allclose(owned(alias_table(weights))[:300], (weights / weights.sum())[:300], rtol=1e-12)


FEW = np.array([0.0, 1.0, 7.0, 0.2, 0.0, 3.0, 0.5, 20.0, 1.0])


@pytest.mark.parametrize("weights", [FEW, np.ones(7), FEW[::-1], np.arange(200.0)], ids=len)
def test_counts_of_positions(weights):
    assert p_of(weights, compiled, alias_table(weights)) > P_LIMIT


def planted_positions():
    table = alias_table(FEW)
    return {
        "shares of the neighbour": AliasTable(np.roll(table.share, 1), table.other),
        "the rest to the neighbour": AliasTable(table.share, np.roll(table.other, 1)),
        "uniform": AliasTable(np.ones(len(FEW)), table.other),
        "weights squared": alias_table(FEW**2),
        "a tenth": AliasTable(0.9 * table.share, table.other),
    }


@pytest.mark.parametrize("bug", planted_positions())
def test_planted_faults_of_positions_are_noticed(bug):
    table = planted_positions()[bug]
    assert p_of(FEW, compiled, table) < P_LIMIT
    assert np.abs(owned(table) - FEW / FEW.sum()).max() > 1e-12


# In blocks ------------------------------------------------------------------------------------------


def recovered(table, weights):
    """The probability of each position: that of its block, times its share of it."""
    block = np.arange(len(weights)) // BLOCK
    of_block = owned(table.blocks)[block]
    return np.where(weights > 0.0, of_block * weights / np.where(weights > 0.0, table.sums[block], 1.0), 0.0)


WEIGHTS = {
    "blocks of zeros": lambda rng: np.where(
        np.arange(1000) // BLOCK % 3 == 1, 0.0, rng.gamma(0.5, size=1000)
    ),
    "with zeros": OF_POSITIONS["with zeros"],
    "one of many": OF_POSITIONS["one of many"],
    "huge ratios": lambda rng: 10.0 ** rng.uniform(-44, 38, 1000),
    "denormal": lambda rng: 1e-44 * rng.integers(1, 5, 1000),
    "heavy tails": lambda rng: rng.pareto(1.0, 50_000),
}
LENGTHS = ["1", "2", str(BLOCK - 1), str(BLOCK), str(BLOCK + 1), "1000"]


@pytest.mark.parametrize("kind", [*WEIGHTS, *LENGTHS])
def test_probabilities_are_exact(kind):
    weights = rounded_up(weights_of(kind, WEIGHTS))
    table = block_table(weights)
    whole = weights.astype(float)
    np.testing.assert_allclose(table.total, math.fsum(whole), rtol=1e-13)
    np.testing.assert_allclose(recovered(table, weights), whole / math.fsum(whole), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", ["blocks of zeros", "huge ratios", "1", str(BLOCK + 1)])
def test_every_random_number_draws_a_row_with_weight(kind):
    """Also the largest: a scan ends at the last row with weight, to the last bit."""
    weights = rounded_up(weights_of(kind, WEIGHTS))
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
    weights = rounded_up(weights_of(kind, WEIGHTS))
    table = block_table(weights)
    ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
    drawn = [draw_weighted(ours, table, weights) for _ in range(500)]
    np.testing.assert_array_equal(drawn, compiled_weighted(theirs, table, weights, 500))
    assert ours.random() == theirs.random()


SMALL = rounded_up(np.tile([0.0, 1.0, 7.0, 0.2, 0.0, 3.0, 0.5, 20.0, 1.0, 0.0, 2.0], 7))


def test_counts():
    assert p_of(SMALL, compiled_weighted, block_table(SMALL), SMALL) > P_LIMIT


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
    assert p_of(SMALL, compiled_weighted, planted()[bug], weights) < P_LIMIT


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
