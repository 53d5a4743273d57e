"""The example on three posteriors, on synthetic rows."""

import pytest

pytestmark = pytest.mark.slow("samples three posteriors by several steps")


@pytest.fixture(scope="module")
def result(example):
    return example["run"](full=False)


def test_posteriors_agree_with_nuts(result):
    summary, tables = result
    assert summary["agree"].all()
    assert (summary["min ESS"] > 500).all()
    assert set(tables) == {"counts"}


def test_few_rows_are_read(result):
    summary, _ = result
    assert (summary["rows read"] < 1000).all()  # of 5,000
    assert (summary["acceptance"] > 0.7).all()


def test_a_shifted_posterior_would_be_noticed(result):
    _, tables = result
    shifted = tables["counts"]["shift"] + 0.5
    assert (shifted.abs() > 0.05 + 3.5 * tables["counts"]["shift_error"]).any()
