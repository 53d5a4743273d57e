"""The comparison report on some rows of the RAND data, in its fast mode."""

from types import SimpleNamespace

import pytest
from statsmodels.datasets import randhie

pytestmark = pytest.mark.slow("compares six steps, in the example's fast mode")

ROWS = 5000  # in place of 20,190, of which no figure is asserted here


@pytest.fixture(scope="module")
def result(example, tmp_path_factory):
    page = tmp_path_factory.mktemp("report") / "figures" / "comparison.html"
    some = randhie.load_pandas().data.sample(ROWS, random_state=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randhie, "load_pandas", lambda: SimpleNamespace(data=some))
        return example["main"](fast=True, page=page), page


def test_no_step_failed(result):
    comparison, _ = result
    assert not comparison.failures
    assert comparison.settings.n_local == ROWS
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
