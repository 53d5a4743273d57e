"""The example with a cluster, in its fast mode."""

import pytest

from tests.cluster.forks import workers_are_forks


@pytest.mark.slow("starts processes that import PyMC")
def test_draws_are_the_same_everywhere(example):
    with workers_are_forks():
        table = example["main"](draws=500)
    sets_up = ["set-up, this process", "this process", "set-up, cluster", "set-up, again"]
    assert list(table.index) == [*sets_up, "cluster", "again", "a worker dies"]
    assert table["equal"].all()
    assert (table["MB sent"].iloc[2:] > 0.5).all()
