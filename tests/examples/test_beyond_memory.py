"""The example with rows on disk, in its fast mode."""

import pytest

pytestmark = pytest.mark.slow("a chain for each size of the data")


@pytest.fixture(scope="module")
def table(example, tmp_path_factory):
    return example["main"](folder=tmp_path_factory.mktemp("rows"))


def test_memory_does_not_grow(table):
    few, many = table["peak MB"]
    # Searches hold up to 200,000 rows, and the smaller data have 100,000.
    assert many - few < 20, table


def test_fewer_rows_are_drawn_and_the_posterior_is_met(table):
    assert table["rows drawn"].iloc[1] < 0.8 * table["rows drawn"].iloc[0]
    assert (table["acceptance"] > 0.5).all()
    assert (table["shift"] < 4.0).all()
