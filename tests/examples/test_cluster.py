"""The example with a cluster, in its fast mode."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "cluster.py"


@pytest.mark.slow("starts processes that import PyMC")
def test_draws_are_the_same_everywhere():
    table = runpy.run_path(str(SCRIPT))["main"]()
    assert list(table.index) == ["this process", "cluster", "again", "a worker dies"]
    assert table["equal"].all()
    assert (table["MB sent"].iloc[1:] > 0.5).all()
