"""The example on the cost of a decision, in its fast mode."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow("a chain for each size of the data")


def test_terms_are_those_of_the_theory(result):
    table = result["table"]
    error = np.hypot(table["error"], table["error  "])
    assert np.all(abs(table["terms"] - table["theory"]) < 4 * error), table


def test_terms_flatten_for_a_fixed_step(result):
    table = result["table"]
    assert np.all(table["exact terms"] == table.index)
    assert table["terms"].loc[100_000] < 2 * table["terms"].loc[10_000] < 0.2 * 100_000
    # and so does the time, with a wide margin for a busy machine
    assert table["exact microseconds"].loc[100_000] > 2 * table["microseconds"].loc[100_000]


def test_terms_do_not_flatten_for_steps_that_shrink(result):
    shrinking = result["table"]["theory, steps ~ 1/sqrt(N)"]
    assert shrinking.loc[100_000] > 0.3 * 100_000
