"""The order of a merge is that of a stable sort in memory, and few rows are held at a time."""

import numpy as np
import pytest

from pymc_austerity.data.writing import merged

RNG = np.random.default_rng(1)
KEYS = {
    "groups": RNG.integers(0, 7, 5000),
    "many groups": RNG.integers(0, 3000, 5000),
    "one key": np.zeros(5000, np.int64),
    "one large group": np.where(RNG.random(5000) < 0.9, 5, RNG.integers(0, 10, 5000)),
    "numbers": RNG.normal(size=5000),
    "sorted": np.arange(5000),
    "reversed": np.arange(5000)[::-1],
    "extremes": RNG.choice([np.iinfo(np.int64).min, 0, np.iinfo(np.int64).max], 5000),
    "infinite": RNG.choice([-np.inf, 0.0, 1.0, np.inf], 5000),
    "bool": RNG.random(5000) < 0.01,
    "few": RNG.integers(0, 3, 3),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize(("run_rows", "at_once"), [(64, 100), (64, 1), (5000, 300), (1, 10), (333, 10_000)])
@pytest.mark.covering(46)
def test_merged_as_a_stable_sort(name, run_rows, at_once):
    keys = KEYS[name]
    order = np.concatenate(
        [
            start + np.argsort(keys[start : start + run_rows], kind="stable")
            for start in range(0, len(keys), run_rows)
        ]
    )
    pieces = list(merged(keys[order], run_rows, at_once))
    assert max(len(piece) for piece in pieces) <= at_once
    np.testing.assert_array_equal(order[np.concatenate(pieces)], np.argsort(keys, kind="stable"))


def test_pieces_are_not_much_smaller_than_they_may_be():
    keys = np.sort(RNG.normal(size=(100, 1000)), axis=1).ravel()
    pieces = list(merged(keys, 1000, 5000))
    assert len(pieces) <= 4 * len(keys) / 5000
