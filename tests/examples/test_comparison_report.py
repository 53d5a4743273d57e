"""The comparison report on the RAND data, in its fast mode."""

import pytest

pytestmark = pytest.mark.slow("compares six steps, in the example's fast mode")


@pytest.fixture(scope="module")
def result(example, tmp_path_factory):
    page = tmp_path_factory.mktemp("report") / "figures" / "comparison.html"
    return example["main"](fast=True, page=page), page


def test_no_step_failed(result):
    comparison, _ = result
    assert not comparison.failures
    assert comparison.settings.n_local == 20190
    assert comparison.to_dataframe().index[0] == "exact (reference)"


def test_the_wrong_step_is_never_said_to_agree(result):
    comparison, _ = result
    assert comparison.verdicts["wrong: likelihood to the power 1.5"] == "differs"
    assert comparison.verdicts["t-test on remainders"] != "differs"


def test_the_page_is_written(result):
    _, page = result
    text = page.read_text(encoding="utf-8")
    assert "could not be drawn" not in text
    assert len(text) < 3e6
