"""The example of TunaMH, with few rows and draws."""

import exact_subsampling
import pytest

pytestmark = pytest.mark.slow("a chain for each size of the data")


@pytest.fixture(scope="module")
def tables():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(exact_subsampling.FAST, "draws", 2000)
        return exact_subsampling.main()


def test_rows_decrease_with_the_data(tables):
    rows = tables[0]["rows drawn"]
    assert rows[100_000] < 0.5 * rows[10_000]
    assert (tables[0]["predicted"] / rows).between(0.7, 1.4).all()


def test_the_posterior_is_met(tables):
    assert (tables[0]["z"] < 4.0).all()
    assert (tables[0]["ESS per draw"] > 0.5).all()


def test_other_models_need_few_rows(tables):
    _, others = tables
    assert set(others.index) == {"1 % positives", "Poisson", "hierarchical"}
    assert (others["rows drawn"] < 1000).all()  # of 10,000
