"""The example of failing rules, in its fast mode: who fails, and who does not."""

import pytest

pytestmark = pytest.mark.slow("chains of every rule")
FAST = {"reading_all": 300, "subsampling": 500}

AUSTERITY, MHSUBLHD, BARKER = "AusterityMH(epsilon=0.01)", "MHSubLhd(delta=0.01)", "MinibatchBarker(100)"


@pytest.mark.parametrize("case", ["Heavy tails", "Rare rows", "Skewed terms"])
def test_mhsublhd_is_right(result, case):
    row = result["tables"][case].loc[MHSUBLHD]
    assert abs(row["shift"]) < 4 * max(row["error"], 0.1)
    assert abs(row["sd ratio"] - 1) < 4 * max(row["error "], 0.05)
    assert row["fraction_used"] > 0.5  # its price


def test_heavy_tails(result):
    table = result["tables"]["Heavy tails"]
    assert table.loc[AUSTERITY, "shift"] < -2
    assert abs(table.loc[BARKER, "shift"]) < 5 * table.loc[BARKER, "error"]
    assert table.loc[BARKER, "fraction_used"] > 0.8


@pytest.mark.parametrize("rule", [AUSTERITY, BARKER])
def test_rare_rows(result, rule):
    row = result["tables"]["Rare rows"].loc[rule]
    assert row["sd ratio"] > 1.2
    assert row["exhausted"] < 0.3


def test_skewed_terms(result):
    table = result["tables"]["Skewed terms"]
    assert table.loc[BARKER, "shift"] > 5 * table.loc[BARKER, "error"]
    assert abs(table.loc["MinibatchBarker(1000)", "shift"]) < 0.5 * table.loc[BARKER, "shift"]
    assert abs(table.loc[AUSTERITY, "shift"]) < 5 * table.loc[AUSTERITY, "error"]
    assert table.loc["MinibatchBarker(max_error=0.1)", "fraction_used"] == 1
