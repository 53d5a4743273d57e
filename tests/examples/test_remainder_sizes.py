"""The example on remainders, in its fast mode: rows read, and a rare covariate."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow("a chain for each number of exact rows")


FAST = {"draws": (400, 1500)}


@pytest.fixture(scope="module")
def tables(example):
    return example["main"]()


def test_rows_read(tables):
    table = tables["rows"]
    assert np.isfinite(table).all(axis=None)
    for _, rows in table.groupby("N"):
        read = rows["rows read"].droplevel("N")
        assert read["2"] < 0.5 * read["1"] < 0.25 * read["none"]
        assert (rows["error"] < 0.15 * rows["rows read"]).all()
    few, many = (table["rows read"][n] for n in table.index.levels[0])
    assert many["none"] > 5 * few["none"]
    assert many["2"] < 1.3 * few["2"]
    assert (table["median"].xs("2", level="order") == 50).all()


def test_remainders_shrink_with_the_number_of_rows(tables):
    small, large = (tables["rows"].loc[n] for n in tables["rows"].index.levels[0])
    factor = np.sqrt(10)  # of 1,000 and 10,000 rows
    for column in ("sd of the sum", "noise of 50 rows"):
        np.testing.assert_allclose(small.loc["2", column] / large.loc["2", column], factor, rtol=0.3)
        np.testing.assert_allclose(small.loc["1", column] / large.loc["1", column], 1, rtol=0.3)


def test_rare_rows_have_to_be_read(tables):
    table = tables["rare"]
    assert np.isfinite(table[["mean", "sd", "shift", "error"]]).all(axis=None)
    assert table.loc["0", "shift"] < -5 * table.loc["0", "error"]
    assert abs(table.loc["100", "shift"]) < 4 * table.loc["100", "error"]
    reference = table.loc["all (quadrature)", "sd"]
    assert table.loc["0", "sd"] < reference - 3 * table.loc["0", "sd error"]
    assert abs(table.loc["100", "sd"] - reference) < 4 * table.loc["100", "sd error"]


@pytest.mark.full_size("long chains that read all rows; the comparison report judges this step on less")
def test_overdispersion(example):
    table = example["overdispersion"](batch_sizes=(50,), draws=5000)
    assert (table["ESS"] > 2000).all()
    assert abs(table.loc["50", "shift"]) < 0.05 + 4 * table.loc["50", "error"]
    assert table.loc["50", "rows read"] < 500 < table.loc["exact", "rows read"]
