"""The example of variable selection, in its fast mode, on synthetic data."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow("four rules on the same model")


def test_large_effects_are_in_and_others_are_not(result):
    probability = result["reference"].coefficients["probability"].to_numpy()
    assert np.all(probability[:4] > 0.95)
    assert np.all(probability[6:] < 0.15)


def test_tests_read_less(result):
    table = result["table"]
    shares = table[[column for column in table if column.startswith("share")]]
    assert np.all(shares.loc[0.0] == 1)
    assert np.all(shares.loc[0.05] < 0.9)
    assert np.all(table["risk, end"] < table["risk, 1/10"])


def test_the_file_of_the_data_is_named(example, monkeypatch):
    monkeypatch.delenv("PYMC_AUSTERITY_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="PYMC_AUSTERITY_DATA"):
        example["covtype"]()
