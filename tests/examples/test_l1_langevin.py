"""The example of Langevin dynamics at a kink, in its fast mode."""

import pytest

pytestmark = pytest.mark.slow("five chains of 40,000 transitions")


def test_without_a_test_the_mean_is_half_as_large_again(result):
    table = result["table"]
    exact = table.loc["exact, by quadrature", "mean"]
    for name, expected in (("SGLD, 500 rows", 0.0164), ("SGLD, all rows", 0.0153)):
        assert table.loc[name, "mean"] == pytest.approx(expected, rel=0.06)
        assert table.loc[name, "mean"] > 1.3 * exact


@pytest.mark.parametrize("name", ["Langevin, epsilon 0.5", "Langevin, epsilon 0.05", "Langevin, exact"])
def test_with_a_test_it_is_right(result, name):
    table = result["table"]
    exact = table.loc["exact, by quadrature"]
    assert table.loc[name, "mean"] == pytest.approx(exact["mean"], abs=0.001)
    assert table.loc[name, "sd"] == pytest.approx(exact["sd"], abs=0.0006)
    assert table.loc[name, "P(< 0)"] == pytest.approx(exact["P(< 0)"], abs=0.006)
    assert table.loc[name, "P(< 0)"] > 0


def test_only_a_random_walk_leaves_the_left(result):
    assert result["left"][0.0] is None
    assert result["left"][0.1] < 500
