"""Tables draw every position with its probability; planted faults are noticed."""

import numba
import numpy as np
import pytest

from pymc_austerity.bounds.block_table import AliasTable, alias_table, draw_position
from tests.statistical.errors import p_of_counts

P_LIMIT = 1e-4


@numba.njit
def compiled(rng, table, n):
    return np.array([draw_position(rng, table) for _ in range(n)])


def recovered(table):
    """The probability of each position, from what it owns of all cells."""
    owned = table.share + np.bincount(table.other, weights=1.0 - table.share, minlength=len(table.share))
    return owned / len(table.share)


WEIGHTS = {
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
LENGTHS = ["2", "3", "1000", "100000"]


def weights_of(kind, table=WEIGHTS):
    rng = np.random.default_rng(list(kind.encode()))
    return table[kind](rng) if kind in table else rng.gamma(2.0, size=int(kind))


@pytest.mark.parametrize("kind", [*WEIGHTS, *LENGTHS])
def test_probabilities_are_exact(kind):
    weights = weights_of(kind)
    kept = weights.copy()
    table = alias_table(weights)
    np.testing.assert_array_equal(weights, kept)
    assert table.share.dtype == np.float64
    assert table.other.dtype == np.int32
    assert np.all((table.share >= 0.0) & (table.share <= 1.0))
    assert np.all((table.other >= 0) & (table.other < len(weights)))
    scaled = weights / weights.max()
    np.testing.assert_allclose(recovered(table), scaled / scaled.sum(), rtol=0, atol=1e-12)
    # Rows with a weight of zero own nothing at all.
    assert np.all(table.share[weights == 0.0] == 0.0)
    owners = table.other[table.share < 1.0]
    assert np.all(weights[owners] > 0.0)


def test_small_probabilities_are_exact_relative_to_themselves():
    weights = np.r_[np.logspace(-290, 0, 500), 3.0]
    np.testing.assert_allclose(
        recovered(alias_table(weights))[:300], (weights / weights.sum())[:300], rtol=1e-12
    )


def counts(table, n=500_000, seed=2):
    drawn = compiled(np.random.default_rng(seed), table, n)
    return np.bincount(drawn, minlength=len(table.share))


SMALL = np.array([0.0, 1.0, 7.0, 0.2, 0.0, 3.0, 0.5, 20.0, 1.0])


@pytest.mark.parametrize("weights", [SMALL, np.ones(7), SMALL[::-1], np.arange(200.0)], ids=len)
def test_counts(weights):
    assert p_of_counts(counts(alias_table(weights)), weights / weights.sum()) > P_LIMIT


def planted():
    table = alias_table(SMALL)
    return {
        "shares of the neighbour": AliasTable(np.roll(table.share, 1), table.other),
        "the rest to the neighbour": AliasTable(table.share, np.roll(table.other, 1)),
        "uniform": AliasTable(np.ones(len(SMALL)), table.other),
        "weights squared": alias_table(SMALL**2),
        "a tenth": AliasTable(0.9 * table.share, table.other),
    }


@pytest.mark.parametrize("bug", planted())
def test_planted_faults_are_noticed(bug):
    table = planted()[bug]
    assert p_of_counts(counts(table), SMALL / SMALL.sum()) < P_LIMIT
    assert np.abs(recovered(table) - SMALL / SMALL.sum()).max() > 1e-12
